"""NSQ's own tools by their names: their flags in Go's grammar, their output and errors, on the engines of nsqc.tools.

docs/tools.md lists where they differ on purpose.
"""
