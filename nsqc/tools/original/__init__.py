"""NSQ's own tools under their names: their flags in Go's grammar, their output and errors, on the engines of
nsqc.tools.

docs/tools.md lists deliberate differences.
"""
