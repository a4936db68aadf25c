"""`nsqc completion`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from nsqc.commands.output import print_text
from nsqc.commands.pages import completion
from nsqc.commands.pages.tree import tree_of


class Shell(StrEnum):
    """Shells with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def command(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish", metavar="SHELL")],
) -> None:
    """Print a completion script for a shell.

    bash: source <(nsqc completion bash) in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit; fish: nsqc completion
    fish > ~/.config/fish/completions/nsqc.fish
    """
    print_text(completion.WRITERS[shell.value](tree_of(context)).rstrip("\n"))
