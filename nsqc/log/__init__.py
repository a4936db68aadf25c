"""The log: lines on stderr, in nsqd's format by default, written by a thread: an unread pipe never stops
the daemon."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Hashable

from nsqc.log.formats import (
    AUDIT,
    AUTO,
    DEBUG,
    ERROR,
    FATAL,
    INFO,
    LEVELS,
    WARN,
    WORDS,
    Kind,
    Repeats,
    fields_of,
    kind_of,
    make,
    mask,
    one_line,
)

__all__ = ["DEBUG", "ERROR", "FATAL", "INFO", "LEVELS", "WARN", "WORDS", "Log", "one_line"]

MAX_WAITING = 2 * 1024 * 1024  # characters; beyond that lines are dropped and counted
CLOSE_SECONDS = 1.0


class Log:
    """Writes lines of level and above. Thread-safe.

    text is a literal with the places of the arguments, as for the operator %. kind: the key that repeated lines share
    (see nsqc.log.formats), if it is not the text with the topic, channel or peer among the arguments.
    """

    def __init__(self, prefix: str = "[nsqd] ", level: int = INFO, descriptor: int = 2, form: str = AUTO):
        """form: as --log-format."""
        self.level = level
        self._descriptor = descriptor
        self._form = make(form, prefix, descriptor)
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        # Under the condition's lock:
        self._repeats = Repeats()
        self._waiting: list[str] = []
        self._size = 0
        self._dropped = 0
        self._writing = False
        self._ends = False          # the thread, if any, ends when everything is written

    def debug(self, text: str, *arguments: object) -> None:
        """Details, for finding a fault."""
        if self.level <= DEBUG:
            self._add(DEBUG, text, arguments)

    def info(self, text: str, *arguments: object) -> None:
        """Normal operation."""
        if self.level <= INFO:
            self._add(INFO, text, arguments)

    def warn(self, text: str, *arguments: object, kind: Hashable = None, each: bool = False) -> None:
        """Something is wrong, and the daemon copes. Repeated lines are counted; each: the line answers an action of the
        operator, and is written every time."""
        if self.level <= WARN:
            self._add_any(WARN, text, arguments, kind, each)

    def error(self, text: str, *arguments: object, kind: Hashable = None, each: bool = False) -> None:
        """Something failed. Repeated lines are counted; each: as for warn()."""
        if self.level <= ERROR:
            self._add_any(ERROR, text, arguments, kind, each)

    def fatal(self, text: str, *arguments: object) -> None:
        """The process ends because of this."""
        self._add(FATAL, text, arguments)

    def audit(self, text: str, fields: dict[str, str]) -> None:
        """A line of the audit log, at any level. text: a JSON object, for forms without fields."""
        if self._form.has_fields:
            shown = {name: one_line(mask(value)) for name, value in fields.items()}
            self._put_in(self._form.line(time.time_ns(), AUDIT, shown.get("call", ""), shown))
        else:
            self._add(AUDIT, "%s", (text,))

    def tally(self, kind: Hashable) -> Kind | None:
        """The counter for lines of this kind, which need not be formatted; None: they are still written."""
        with self._changed:
            return self._repeats.full(kind)

    def close(self) -> None:
        """Waits until everything is written, counts included, but only for a moment: perhaps stderr is not read."""
        with self._changed:
            self._waiting += self._counts(stopping=True)
            if self._waiting and self._thread is None:
                self._start()
                if self._thread is None:
                    self._put_what_fits("".join(self._waiting).encode("utf-8", "backslashreplace"))
                    return
            self._ends, thread = True, self._thread
            self._changed.notify_all()
            written = self._changed.wait_for(lambda: not (self._waiting or self._dropped or self._writing),
                                             CLOSE_SECONDS)
        if written and thread is not None:
            # A thread that runs while the interpreter ends needs memory for its exit, or aborts the process.
            thread.join(CLOSE_SECONDS)

    def _add_any(self, level: int, text: str, arguments: tuple[object, ...], kind: Hashable, each: bool) -> None:
        if each:
            self._add(level, text, arguments)
        else:
            self._add_once(level, text, arguments, kind)

    def _add_once(self, level: int, text: str, arguments: tuple[object, ...], kind: Hashable) -> None:
        key = kind_of(text, arguments) if kind is None else kind
        with self._changed:
            if (full := self._repeats.full(key, text)) is not None:
                full.count += 1
                return
        written = one_line(mask(text % arguments if arguments else text))
        fields = self._fields(level, text, arguments)
        with self._changed:
            if not self._repeats.admit(key, text, level, written, fields, time.monotonic()):
                return
        self._put_in(self._form.line(time.time_ns(), level, written, fields))

    def _add(self, level: int, text: str, arguments: tuple[object, ...]) -> None:
        # This early check saves formatting while stderr is not read; the one under the lock decides.
        if self._size >= MAX_WAITING:
            self._put_in("")
            return
        written = one_line(mask(text % arguments if arguments else text))
        self._put_in(self._form.line(time.time_ns(), level, written, self._fields(level, text, arguments)))

    def _fields(self, level: int, text: str, arguments: tuple[object, ...]) -> dict[str, str]:
        if not self._form.has_fields:
            return {}
        return {name: one_line(mask(value)) for name, value in fields_of(level, text, arguments).items()}

    def _put_in(self, line: str) -> None:
        with self._changed:
            if not line or self._size + len(line) > MAX_WAITING:
                self._dropped += 1
            else:
                self._waiting.append(line)
                self._size += len(line)
                if self._thread is None:
                    self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        thread = threading.Thread(target=self._write, name="nsqc-log", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return  # the system refuses a thread; the next line tries again
        self._thread = thread

    # ------------------------------------------------------------------ the thread

    def _write(self) -> None:
        while lines := self._take():
            self._put("".join(lines).encode("utf-8", "backslashreplace"))

    def _take(self) -> list[str]:
        """The waiting lines, one about lines dropped after them, and the counts that are due; none: the thread ends."""
        with self._changed:
            self._writing = False
            self._changed.notify_all()
            while not (self._waiting or self._dropped):
                if self._ends:
                    self._thread = None
                    return []
                due = self._repeats.due()
                self._changed.wait(None if due is None else max(0.0, due - time.monotonic()))
                self._waiting += self._counts()
            lines, self._waiting, self._size, self._writing = self._waiting, [], 0, True
            dropped, self._dropped = self._dropped, 0
        if dropped:
            text = f"LOG: {dropped} lines dropped, stderr was not read"
            lines.append(self._form.line(time.time_ns(), WARN, text, {}))
        return lines

    def _counts(self, stopping: bool = False) -> list[str]:
        return [self._form.line(time.time_ns(), report.level, report.line(),
                                {**report.fields, "repeats": report.number})
                for report in self._repeats.reports(time.monotonic(), stopping) if report.level >= self.level]

    def _put_what_fits(self, data: bytes) -> None:
        """Writes at the end of a process that could not start a thread. Never waits for the reader."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        while data and poll.poll(0):
            try:
                data = data[os.write(self._descriptor, data[:select.PIPE_BUF]):]
            except OSError:
                return

    def _put(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left):]
            except BlockingIOError:
                # Another process that shares the terminal or pipe has made it non-blocking.
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()
            except OSError:
                return
