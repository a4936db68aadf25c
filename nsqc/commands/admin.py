"""`nsqc admin` as shown in typer's help and completions. cli.py runs start_admin.py without typer."""

from __future__ import annotations

import typer

from nsqc.commands.start_admin import admin

settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def command(context: typer.Context) -> int:
    """Run the admin page; it takes nsqadmin's flags (nsqc admin --help lists them)."""
    return admin(context.args)
