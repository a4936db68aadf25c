"""Completion scripts for bash, zsh and fish, with every command, every flag and the types of their values.

They are self-contained: a completion starts no process.
"""

from __future__ import annotations

from collections.abc import Callable

from nsqc.commands.pages import bash, fish, zsh
from nsqc.commands.pages.tree import Node

WRITERS: dict[str, Callable[[Node], str]] = {"bash": bash.write, "zsh": zsh.write, "fish": fish.write}
