"""`nsqc man`"""

from __future__ import annotations

from nsqc.commands.pages.manpage import man_page
from nsqc.commands.start import tell


def command() -> None:
    """Print the man page, as man's source: nsqc man | man -l -"""
    tell(man_page().rstrip("\n"))
