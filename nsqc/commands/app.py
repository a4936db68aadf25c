"""The typer application: all commands but for the fast path to `serve` in cli.py.

Help and errors are plain text: one line for an error, and no dependency on rich, which takes longer to import than all
the rest of a command.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from nsqc.commands import COMMANDS

NAMES = tuple(command.name for command in COMMANDS)


class Grouped(TyperGroup):
    """Lists its commands under the titles of their groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for group in dict.fromkeys(command.group for command in COMMANDS):
            with formatter.section(group):
                formatter.write_dl([(one.name, one.help) for one in COMMANDS if one.group == group])


def build(loaded: Collection[str]) -> typer.Typer:
    """The application. Commands that are not loaded have their names only."""
    app = typer.Typer(name="nsqc", cls=Grouped, add_completion=False, pretty_exceptions_enable=False,
                      rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]},
                      help="A drop-in nsqd: NSQ's daemon, and what belongs to it.")
    for one in COMMANDS:
        if one.name not in loaded:
            app.command(one.name)(not_loaded)
            continue
        module = import_module(f"nsqc.commands.{one.name}")
        if isinstance(module.command, typer.Typer):
            app.add_typer(module.command, name=one.name)
        else:
            app.command(one.name, context_settings=getattr(module, "settings", None))(module.command)
    return app


def not_loaded() -> None:
    """Stands for a command that is not the one called."""
    raise AssertionError("the command called is always loaded")


def run(words: list[str]) -> int:
    """Runs a command. Returns the exit code: 2 where the words cannot be understood."""
    called = next((word for word in words if not word.startswith("-")), "")
    app = build({called} & set(NAMES))
    try:
        return app(words or ["--help"], prog_name="nsqc", standalone_mode=False) or 0
    except typer.TyperException as error:
        place = error.ctx.command_path if getattr(error, "ctx", None) else "nsqc"
        reason = " ".join(error.format_message().split()).rstrip(".")
        print(f"{place}: {reason} ({place} --help tells more)", file=sys.stderr)
        return error.exit_code
    except typer.Abort:
        return 130
