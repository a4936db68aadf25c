"""The tools of nsqc.tools as commands: each is imported when it is called."""

from __future__ import annotations

import signal
from importlib import import_module

from nsqc.commands import NAMES_COMMAND, ORIGINALS, TOOLS
from nsqc.tools.declare import Group, Tool


def declared(name: str) -> Tool | Group:
    """The declaration of a tool."""
    tool: Tool | Group = import_module(TOOLS[name]).TOOL
    return tool


def run_tool(name: str, words: list[str]) -> int:
    """Runs a tool; the exit code."""
    die_quietly()
    if name == NAMES_COMMAND:
        from nsqc.tools.completing import print_names

        return print_names(words)
    from nsqc.tools.running import run

    return run(declared(name), words)


def die_quietly() -> None:
    """Until the tool handles signals, SIGINT ends it without a traceback: there is nothing to clean up."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_original(name: str, words: list[str]) -> int:
    """Runs one of NSQ's tools by its own name, with its own flags; the exit code."""
    die_quietly()
    from nsqc.tools.original.program import run

    return run(import_module(ORIGINALS[name]).PROGRAM, words)
