"""What Python, Cython, asyncio and uvloop would print on stderr goes to the log, which never blocks.

An unread pipe holds 64 KiB. A write to it beyond that stops the thread that writes, be it the loop's; the log has a
thread of its own and drops lines instead. Errors that nobody has caught come in floods where a client can cause them,
so of one kind there is a line a second, with the count of the rest.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
import threading
import warnings
from time import monotonic
from types import TracebackType
from typing import Any

EVERY_S = 1.0  # between two lines of a kind
MOST_KINDS = 256
FRAMES = 6  # of a traceback, the innermost


class Uncaught:
    """Takes over all hooks of the process with install(). There is one for a process, and it stays."""

    def __init__(self, log: Any):
        self._log = log
        self._kinds: dict[Any, tuple[float, int]] = {}  # when one may be written again; how many were not
        self._unreported = 0  # errors for whose lines there was no memory
        self._printed = 0  # id of the exception that excepthook had last

    def install(self) -> None:
        """From now on nothing is printed."""
        sys.excepthook = self._exception
        sys.unraisablehook = self._unraisable
        threading.excepthook = self._in_thread
        warnings.showwarning = self._warning
        logging.getLogger().handlers[:] = [_Handler(self)]
        sys.stderr = _Stderr(self)

    def in_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """For loop.set_exception_handler()."""
        self.report(str(context.get("message", "unhandled exception in the loop")), context.get("exception"))

    def report(self, what: str, error: BaseException | None, kind: Any = None) -> None:
        """A line about an error that nobody has caught, unless there has just been one of its kind."""
        try:
            self._report(what, error, kind)
        except MemoryError:
            # Raised out of the loop's exception handler, it would end the loop.
            self._unreported += 1

    def _report(self, what: str, error: BaseException | None, kind: Any) -> None:
        if error is not None:
            kind = (what, type(error), *_places(error.__traceback__)[-1:]) if kind is None else kind
            what = f"{what} - {_text(error)}"
        self.line(self._log.error, what, what if kind is None else kind)
        if self._unreported:
            count, self._unreported = self._unreported, 0
            self._log.error("%d errors were not reported - out of memory", count)

    def line(self, write: Any, text: str, kind: Any) -> None:
        """Writes the text, unless there has just been one of its kind."""
        due, count = self._kinds.get(kind, (0.0, 0))
        now = monotonic()
        if now < due:
            self._kinds[kind] = (due, count + 1)
            return
        if len(self._kinds) >= MOST_KINDS:
            self._kinds.clear()
        self._kinds[kind] = (now + EVERY_S, 0)
        # Not as a format: the text may be a client's.
        write("%s%s", text, f" ({count} more since the last such line)" if count else "")

    # ------------------------------------------------------------------ hooks

    def _exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._printed = id(error)
        self.report("uncaught exception", error)

    def _unraisable(self, found: Any) -> None:
        # Cython tells of one error twice: its traceback as an uncaught exception, then where it was lost.
        printed, self._printed = self._printed, 0
        if found.exc_value is not None and id(found.exc_value) == printed:
            return
        where = found.object if isinstance(found.object, str) else getattr(found.object, "__qualname__", "")
        self.report(found.err_msg or f"exception ignored in {where or type(found.object).__qualname__}",
                    found.exc_value if found.exc_value is not None else found.exc_type())

    def _in_thread(self, found: Any) -> None:
        name = "" if found.thread is None else found.thread.name
        self.report(f"uncaught exception in thread {name}", found.exc_value)

    def _warning(self, message: Any, category: type[Warning], filename: str, lineno: int, *_: Any) -> None:
        text = f"{category.__name__}: {message} ({os.path.basename(filename)}:{lineno})"
        self.line(self._log.warn, text, (category, filename, lineno))


class _Handler(logging.Handler):
    """For the logging module, which asyncio uses; without a handler it prints warnings and errors itself."""

    def __init__(self, uncaught: Uncaught):
        super().__init__(logging.WARNING)
        self._uncaught = uncaught

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._uncaught.report(f"{record.name}: {record.getMessage()}", error,
                              (record.name, record.msg, record.lineno))


class _Stderr(io.TextIOBase):
    """sys.stderr for whoever prints there after all: whole lines become lines of the log."""

    encoding, errors = "utf-8", "backslashreplace"  # type: ignore[assignment]

    def __init__(self, uncaught: Uncaught):
        self._uncaught = uncaught
        self._rest = ""

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        """The real one: faulthandler writes there when the process is lost anyhow."""
        return 2

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            if line.strip():
                self._uncaught.report(f"stderr: {line}", None)
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
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        found.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno} in {code.co_name}")
        trace = trace.tb_next
    return found
