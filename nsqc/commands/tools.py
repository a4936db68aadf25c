"""The tools of nsqc.tools as commands: each is imported when it is called."""

from __future__ import annotations

import os
import signal
from importlib import import_module

from nsqc.commands import NAMES_COMMAND, ORIGINALS, TOOLS
from nsqc.tools.declare import Group, Tool

STDERR = 2


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
    """Until the tool handles signals, SIGINT ends it without a traceback: there is nothing to clean up. And a standard
    file that the process was started without is opened, so that no socket gets its number; writing to it fails."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) <= STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def run_original(name: str, words: list[str]) -> int:
    """Runs one of NSQ's tools by its own name, with its own flags; the exit code."""
    die_quietly()
    from nsqc.tools.original.program import run

    return run(import_module(ORIGINALS[name]).PROGRAM, words)
