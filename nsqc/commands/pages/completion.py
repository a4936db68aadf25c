"""Completion scripts for bash, zsh and fish, with every command, every flag and the kinds of their values.

They hold all they know: no process is started for a completion.
"""

from __future__ import annotations

from collections.abc import Callable

from nsqc.commands.pages import bash, fish, zsh
from nsqc.commands.pages.tree import Node, read_tree


def script(write: Callable[[Node], str]) -> Callable[[], str]:
    return lambda: write(read_tree())


SCRIPTS: dict[str, Callable[[], str]] = {"bash": script(bash.write), "zsh": script(zsh.write),
                                         "fish": script(fish.write)}
