"""`nsqc lookupd` as shown in typer's help and completions. cli.py runs start_lookupd.py without typer."""

from __future__ import annotations

import typer

from nsqc.commands.start_lookupd import lookupd

settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def command(context: typer.Context) -> int:
    """Run the lookup server; it takes nsqlookupd's flags (nsqc lookupd --help lists them)."""
    return lookupd(context.args)
