"""A tool in this process: its output and its exit code."""

from __future__ import annotations

import os
import signal
import tempfile
from typing import NamedTuple

from nsqc.commands.tools import run_tool

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
