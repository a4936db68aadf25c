"""`nsqc man`"""

from __future__ import annotations

import typer

from nsqc.commands.output import print_text
from nsqc.commands.pages.manpage import man_page


def command(context: typer.Context) -> None:
    """Print the man page, as roff source: nsqc man | man -l -"""
    print_text(man_page(context.obj()).rstrip("\n"))
