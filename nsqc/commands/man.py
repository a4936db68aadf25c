"""`nsqc man`"""

from __future__ import annotations

from nsqc.pages.manpage import man_page
from nsqc.serve import tell


def command() -> None:
    """Print the man page, as man's source: nsqc man | man -l -"""
    tell(man_page().rstrip("\n"))
