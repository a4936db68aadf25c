"""`nsqc completion`"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]

from nsqc.commands.output import print_text


class Shell(StrEnum):
    """Shells with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def command(
    shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish", metavar="SHELL")],
) -> None:
    """Print a completion script for a shell.

    bash: source <(nsqc completion bash) in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit; fish: nsqc completion
    fish > ~/.config/fish/completions/nsqc.fish
    """
    script = get_completion_script(prog_name="nsqc", complete_var="_NSQC_COMPLETE", shell=shell.value)
    # zsh runs the file as a function, _nsqc, for the first completion, if it is in a folder of fpath.
    print_text(f'{script}\n\n[[ $funcstack[1] != _nsqc ]] || _nsqc_completion "$@"' if shell is Shell.ZSH else script)
