"""A tool in this process: its output and its exit code."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple

import typer
import typer.main

from nsqc.commands.tools import run_tool
from nsqc.commands.typed import add_tool, given
from nsqc.tools.declare import Tool, UsageError, Values, parse

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Called(NamedTuple):
    """The result of a run."""

    code: int
    out: str
    err: str


def call(*words: str) -> Called:
    """`nsqc WORDS`, without a terminal."""
    kept = [os.dup(descriptor) for descriptor in range(3)]
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull, "rb") as nothing:
        try:
            for descriptor, file in enumerate((nothing, out, err)):
                os.dup2(file.fileno(), descriptor)
            with open(1, "w", closefd=False) as stdout, open(2, "w", closefd=False) as stderr, \
                    redirect_stdout(stdout), redirect_stderr(stderr):
                code = run_tool(words[0], list(words[1:]))
        finally:
            for descriptor, copy in enumerate(kept):
                os.dup2(copy, descriptor)
                os.close(copy)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return Called(code, *texts)


def parsed(tool: Tool, words: Sequence[str]) -> Values:
    """The values of a command line."""
    context = command_of(tool).make_context(tool.words, list(words))
    return parse(tool, *given(tool, context.params))


def refusal(tool: Tool, words: Sequence[str]) -> str:
    """Why a command line is refused."""
    try:
        parsed(tool, words)
    except UsageError as error:
        return str(error)
    except typer.TyperException as error:
        return error.format_message()
    raise AssertionError(f"{words} are taken")


def help_of(tool: Tool) -> str:
    """Its help."""
    command = command_of(tool)
    return command.get_help(typer.Context(command, info_name=tool.words))


def command_of(tool: Tool):
    app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
    add_tool(app, tool)
    return typer.main.get_command(app)
