"""Tools that publish, consume, inspect and repair: `nsqc pub`, `nsqc tail` and their family. See docs/tools.md.

A tool is a module with `TOOL`, its declaration (declare.py: a Tool, or a Group of them), and a line in
nsqc/commands/__init__.py. Help, man page, completions and the command line then include it. declare.py also has
the options that tools share and the exit codes, cluster.py finds nodes by the options, running.py prints, and turns
signals and errors into exit codes.

Running one imports neither the daemon nor typer: import heavy modules where they are used, so that a tool starts in a
few tens of milliseconds.
"""
