"""Sends everything that Python, Cython, asyncio and uvloop would print to stderr to the log, which never blocks.

An unread pipe buffers 64 KiB. Writing more blocks the writing thread, which may be the loop's; the log writes on its
own thread and drops lines instead. If a client causes a flood of uncaught errors, the log counts repeats.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
import threading
import warnings
from collections.abc import Hashable
from types import TracebackType
from typing import Any, TextIO

from nsqc.log import Log

KIND_LENGTH = 100  # characters of a text that distinguish kinds of lines
FRAMES = 6  # of a traceback, the innermost ones


class Uncaught:
    """Takes over all hooks of the process with install(), permanently."""

    def __init__(self, log: Log):
        self._log = log
        self._unreported = 0  # errors not logged for lack of memory
        self._printed = 0  # id of excepthook's last exception

    def install(self) -> None:
        """Installs the hooks; nothing is printed from now on."""
        sys.excepthook = self._exception
        sys.unraisablehook = self._unraisable
        threading.excepthook = self._in_thread
        warnings.showwarning = self._warning
        logging.getLogger().handlers[:] = [_Handler(self)]
        sys.stderr = _Stderr(self)

    def in_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # Any: asyncio's signature
        """For loop.set_exception_handler()."""
        self.report(str(context.get("message", "unhandled exception in the loop")), context.get("exception"))

    def report(self, what: str, error: BaseException | None, kind: Hashable = None) -> None:
        """Logs an uncaught error. kind: see Log.error()."""
        try:
            self._report(what, error, kind)
        except MemoryError:
            # Raised out of the loop's exception handler, it would end the loop.
            self._unreported += 1

    def _report(self, what: str, error: BaseException | None, kind: Hashable) -> None:
        if error is not None:
            kind = (what, type(error), *_places(error.__traceback__)[-1:]) if kind is None else kind
            what = f"{what} - {_text(error)}"
        # Not as the format: the text may come from a client.
        self._log.error("%s", what, kind=what[:KIND_LENGTH] if kind is None else kind)
        if self._unreported:
            count, self._unreported = self._unreported, 0
            self._log.error("%d errors were not reported - out of memory", count)

    # ------------------------------------------------------------------ hooks

    def _exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._printed = id(error)
        self.report("uncaught exception", error)

    def _unraisable(self, event: sys.UnraisableHookArgs) -> None:
        # Cython reports one error twice: its traceback as an uncaught exception, then the place where it was lost.
        printed, self._printed = self._printed, 0
        if event.exc_value is not None and id(event.exc_value) == printed:
            return
        source = event.object if isinstance(event.object, str) else getattr(event.object, "__qualname__", "")
        self.report(event.err_msg or f"exception ignored in {source or type(event.object).__qualname__}",
                    event.exc_value if event.exc_value is not None else event.exc_type())

    def _in_thread(self, event: threading.ExceptHookArgs) -> None:
        name = "" if event.thread is None else event.thread.name
        self.report(f"uncaught exception in thread {name}", event.exc_value)

    def _warning(self, message: Warning | str, category: type[Warning], filename: str, lineno: int,
                 file: TextIO | None = None, line: str | None = None) -> None:
        text = f"{category.__name__}: {message} ({os.path.basename(filename)}:{lineno})"
        self._log.warn("%s", text, kind=(category, filename, lineno))


class _Handler(logging.Handler):
    """Handles records of the logging module, which asyncio uses. Without a handler it prints warnings and errors."""

    def __init__(self, uncaught: Uncaught):
        super().__init__(logging.WARNING)
        self._uncaught = uncaught

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._uncaught.report(f"{record.name}: {record.getMessage()}", error,
                              (record.name, record.msg, record.lineno))


class _Stderr(io.TextIOBase):
    """Replaces sys.stderr for code that prints anyway: whole lines go to the log."""

    encoding, errors = "utf-8", "backslashreplace"

    def __init__(self, uncaught: Uncaught):
        self._uncaught = uncaught
        self._rest = ""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """The real descriptor: faulthandler writes there when the process crashes."""
        return 2

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self._uncaught.report(f"stderr: {line}", None, "stderr")
        return len(text)


def _text(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = "(has no text)"
    places = _places(error.__traceback__)
    return f"{type(error).__name__}: {text}{f' ({chr(44).join(places[-FRAMES:])})' if places else ''}"


def _places(trace: TracebackType | None) -> list[str]:
    """FILE:LINE in FUNCTION of each frame, the innermost last."""
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} in {code.co_name}")
        trace = trace.tb_next
    return places
