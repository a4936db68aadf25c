"""Runs the tools, under their names in nsqc or in NSQ: each is imported when it is called."""

from __future__ import annotations

import os
import signal
from importlib import import_module

from nsqc.commands import ORIGINALS

STDIN, STDOUT, STDERR = 0, 1, 2
CLOSES_ON_HANGUP = ("to-file", "nsq_to_file")


def run_tool(name: str, words: list[str]) -> int:
    """Runs a tool; the exit code."""
    die_quietly(name)
    from nsqc.commands.app import run

    return run([name, *words])


def die_quietly(name: str) -> None:
    """Until the tool handles signals, SIGINT ends it without a traceback: no cleanup is needed; and SIGHUP is ignored
    for tools that reopen files on it: none are open. Missing standard files are opened, so that no socket gets their
    numbers; reading or writing them fails."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if name in CLOSES_ON_HANGUP:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_WRONLY if descriptor == STDIN else os.O_RDONLY)
            os.set_inheritable(opened, True)


def run_original(name: str, words: list[str]) -> int:
    """Runs one of NSQ's tools under its own name, with its own flags; returns the exit code."""
    die_quietly(name)
    from nsqc.tools.original.program import run

    return run(import_module(ORIGINALS[name]).PROGRAM, words)
