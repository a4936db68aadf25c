"""The typer application: all commands, apart from the fast path to `serve` in cli.py.

Help and errors are plain text, an error on one line. It does not depend on rich, whose import takes longer than the
rest of a command.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Collection
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer
import typer.main
from typer.core import TyperGroup

from nsqc.commands import COMMANDS, TAKES_FLAGS
from nsqc.commands.output import NotWritten, Stdout, refused

if TYPE_CHECKING:
    from nsqc.commands.pages.tree import Node

NAMES = tuple(command.name for command in COMMANDS)


class Grouped(TyperGroup):
    """Lists its commands in order, under the titles of their groups."""

    # Any: typer's Context and HelpFormatter have no public names
    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in NAMES if name in self.commands]

    # Any: as above
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for group in dict.fromkeys(command.group for command in COMMANDS):
            with formatter.section(group):
                formatter.write_dl([(command.name, command.help) for command in COMMANDS if command.group == group])


def build(loaded: Collection[str]) -> typer.Typer:
    """The application. Only the requested command is loaded; the others are placeholders."""
    app = typer.Typer(name="nsqc", cls=Grouped, add_completion=False, pretty_exceptions_enable=False,
                      rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]},
                      help="NSQ in one executable: drop-in nsqd and nsqlookupd, the tools, and jobs on Spark.")
    for command in COMMANDS:
        if command.tool:
            app.command(command.name, context_settings=TAKES_FLAGS | {"help_option_names": []})(run_called)
            continue
        if command.name not in loaded:
            app.command(command.name)(not_loaded)
            continue
        module = import_module(f"nsqc.commands.{command.name}")
        if isinstance(module.command, typer.Typer):
            app.add_typer(module.command, name=command.name)
        else:
            app.command(command.name, context_settings=getattr(module, "settings", None))(module.command)
    return app


def not_loaded() -> None:
    """Placeholder for a command that is not the requested one."""
    raise AssertionError("the requested command is always loaded")


def run_called(context: typer.Context) -> int:
    """Runs a tool that was not the first word, as in `nsqc -- tail`."""
    from nsqc.commands.tools import run_tool

    return run_tool(str(context.info_name), context.args)


def describe() -> Node:
    """All commands with their flags. Commands that print pages get this function as their context's obj."""
    from nsqc.commands.pages.tree import read_tree

    return read_tree(typer.main.get_command(build(NAMES)))


def run(words: list[str]) -> int:
    """Runs a command. Returns the exit code: 2 if the arguments are invalid."""
    called = next((word for word in words if not word.startswith("-")), "")
    app = build({called} & set(NAMES))
    stdout = sys.stdout
    if stdout is not None:
        sys.stdout = Stdout(stdout)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)        # typer's Abort
    try:
        code = app(words or ["--help"], prog_name="nsqc", standalone_mode=False, obj=describe)
        if stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        place = context.command_path if context is not None else "nsqc"
        reason = " ".join(error.format_message().split()).rstrip(".")
        print(f"{place}: {reason} (see {place} --help)", file=sys.stderr)
        return error.exit_code
    except typer.Abort:
        return 130
    except NotWritten as error:
        return refused(error)
    finally:
        sys.stdout = stdout
