"""`nsqc serve` as shown in typer's help and completions. cli.py runs start.py without typer."""

from __future__ import annotations

import typer

from nsqc.commands.start import serve

settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def command(context: typer.Context) -> int:
    """Run the daemon; it takes nsqd's flags (nsqc serve --help lists them)."""
    return serve(context.args)
