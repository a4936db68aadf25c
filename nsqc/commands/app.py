"""The typer application: all commands but the servers, which cli.py starts.

Help and errors are plain text, an error on one line. It does not depend on rich, whose import takes longer than the
rest of a command.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.core import TyperGroup

from nsqc.commands import COMMANDS, SERVERS, TAKES_FLAGS, TOOLS, declaration_of
from nsqc.commands.output import NotWritten, Stdout, refused

NAMES = tuple(command.name for command in COMMANDS)
# Variables of the shells' scripts, which typer writes; those of LINES have the line so far.
COMPLETE = "_NSQC_COMPLETE"
LINES = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")


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
    app = typer.Typer(name="nsqc", cls=Grouped, pretty_exceptions_enable=False, rich_markup_mode=None,
                      context_settings={"help_option_names": ["-h", "--help"]},
                      help="NSQ in one executable: drop-in nsqd and nsqlookupd, the tools, and jobs on Spark.")
    for command in COMMANDS:
        if command.name not in loaded:
            app.command(command.name, help=command.help)(not_loaded)
        elif command.tool:
            from nsqc.commands.typed import add_tool  # here, as below: the others start without it

            add_tool(app, import_module(command.tool).TOOL)
        elif command.name in SERVERS:
            from nsqc.commands.typed import takes_flags

            app.command(command.name, help=command.help, cls=takes_flags(declaration_of(command.name).flags),
                        context_settings=TAKES_FLAGS)(not_loaded)
        else:
            module = import_module(f"nsqc.commands.{command.name}")
            if isinstance(module.command, typer.Typer):
                app.add_typer(module.command, name=command.name)
            else:
                app.command(command.name, context_settings=getattr(module, "settings", None))(module.command)
    return app


def not_loaded() -> None:
    """Placeholder for a command that is not the requested one."""
    raise AssertionError("the requested command is always loaded")


def describe() -> Any:      # Any: typer's Command has no public name
    """All commands. Those that print pages get this function as their context's obj."""
    return typer.main.get_command(build(NAMES))


def called_of(words: list[str]) -> str:
    """The command that is called, or completed; empty: none."""
    if COMPLETE in os.environ:
        words = next((os.environ[name].split()[1:] for name in LINES if name in os.environ), [])
    return next((word for word in words if word in NAMES), "")


def run(words: list[str]) -> int:
    """Runs a command. Returns the exit code: 2 if the arguments are invalid."""
    called = called_of(words)
    app = build({called})
    if words == [called] and called in TOOLS and any(group.name == called for group in app.registered_groups):
        words = [called, "--help"]
    stdout = sys.stdout
    if stdout is not None:
        sys.stdout = Stdout(stdout)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL and called not in TOOLS:
        signal.signal(signal.SIGINT, signal.default_int_handler)        # typer's Abort
    try:
        code = app(words or ["--help"], prog_name="nsqc", standalone_mode=False, obj=describe)
        if stdout is not None:
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except typer.TyperException as error:
        from nsqc.log.formats import visible  # needed for errors only

        context = getattr(error, "ctx", None)
        place = context.command_path if context is not None else "nsqc"
        reason = " ".join(error.format_message().split()).rstrip(".")
        print(visible(f"{place}: {reason} (see {place} --help)"), file=sys.stderr)
        return error.exit_code
    except typer.Abort:
        return 130
    except NotWritten as error:
        return refused(error)
    finally:
        sys.stdout = stdout
