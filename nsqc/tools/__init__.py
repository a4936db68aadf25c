"""Tools that publish, consume, inspect and repair: `nsqc pub`, `nsqc tail` and their family. See docs/tools.md.

A tool is a module with `TOOL`, its declaration (declare.py: a Tool, or a Group of them), and a line in
nsqc/commands/__init__.py. Help, man page, completions and the command line then include it. family.py has the options
that tools share, cluster.py finds nodes by them, output.py prints, errors.py has the exit codes, running.py turns
signals and errors into them.

Running one imports neither the daemon nor typer: import heavy modules where they are used, so that a tool starts in a
few tens of milliseconds.
"""
