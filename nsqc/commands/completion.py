"""`nsqc completion`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from nsqc.commands.pages import completion
from nsqc.commands.start import tell


class Shell(StrEnum):
    """Shells there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def command(shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish", metavar="SHELL")]) -> None:
    """Print a completion script for a shell.

    bash: source <(nsqc completion bash) in ~/.bashrc; zsh: the same in ~/.zshrc, behind compinit; fish: nsqc completion
    fish > ~/.config/fish/completions/nsqc.fish
    """
    tell(completion.SCRIPTS[shell.value]().rstrip("\n"))
