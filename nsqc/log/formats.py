"""The forms of a log line: nsqd's, nsqd's with journald's priority, JSON and logfmt.

All texts are one_line()'s: without terminal controls, and of bounded length.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from nsqc.log.levels import AUDIT, DEBUG, ERROR, FATAL, INFO, LEVELS, WARN, WORDS
from nsqc.log.visible import visible

AUTO = "auto"
MAX_LINE = 16 * 1024  # characters of one line; clients determine parts of some, and may send megabytes
PRIORITIES = {DEBUG: 7, INFO: 6, WARN: 4, ERROR: 3, FATAL: 2, AUDIT: 5}  # syslog's
NAMES = {level: name for name, level in LEVELS.items()} | {AUDIT: "audit"}
BARE = r'[^\s"=\\]+'  # a logfmt value that needs no quotes

Fields = Mapping[str, str | int]


class Form(Protocol):
    """Makes lines."""

    has_fields: bool  # it shows them

    def line(self, now_ns: int, level: int, text: str, fields: Fields) -> str:
        """A line with its end. now_ns: since 1970."""


class Text:
    """nsqd's lines: `PREFIXdate time LEVEL: text`, in local time."""

    has_fields = False

    def __init__(self, prefix: str):
        self._prefix = prefix
        self._stamp: tuple[int, str] = (-1, "")

    def line(self, now_ns: int, level: int, text: str, fields: Fields) -> str:
        """As of Form."""
        seconds, micros = divmod(now_ns // 1000, 1_000_000)
        if self._stamp[0] != seconds:
            self._stamp = (seconds, time.strftime("%Y/%m/%d %H:%M:%S", time.localtime(seconds)))
        return f"{self._prefix}{self._stamp[1]}.{micros:06d} {WORDS[level]}: {text}\n"


class Journal(Text):
    """nsqd's lines with the priority in front that journald takes off."""

    def line(self, now_ns: int, level: int, text: str, fields: Fields) -> str:
        """As of Form."""
        return f"<{PRIORITIES[level]}>{super().line(now_ns, level, text, fields)}"


class _Records:
    """Lines of named values. Times are RFC 3339, in UTC."""

    has_fields = True

    def __init__(self, prefix: str):
        shown = one_line(prefix.strip())
        self._prefix = {"prefix": shown} if shown else {}
        self._stamp: tuple[int, str] = (-1, "")

    def line(self, now_ns: int, level: int, text: str, fields: Fields) -> str:
        """As of Form."""
        seconds, micros = divmod(now_ns // 1000, 1_000_000)
        if self._stamp[0] != seconds:
            self._stamp = (seconds, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)))
        return self._written({"time": f"{self._stamp[1]}.{micros:06d}Z", "level": NAMES[level], **self._prefix,
                              "message": text, **fields})

    def _written(self, values: dict[str, str | int]) -> str:
        raise NotImplementedError


class Json(_Records):
    """A JSON object for each line."""

    def __init__(self, prefix: str):
        import msgspec  # here: other forms do without

        super().__init__(prefix)
        self._encode = msgspec.json.Encoder().encode

    def _written(self, values: dict[str, str | int]) -> str:
        return self._encode(values).decode() + "\n"


class Logfmt(_Records):
    """key=value pairs; values are quoted where they need it."""

    def _written(self, values: dict[str, str | int]) -> str:
        return " ".join([f"{key}={quoted(str(value))}" for key, value in values.items()]) + "\n"


FORMS: dict[str, Callable[[str], Form]] = {"text": Text, "json": Json, "journal": Journal, "logfmt": Logfmt}


def quoted(value: str) -> str:
    """In double quotes where it needs them, with backslashes before quotes and backslashes."""
    if re.fullmatch(BARE, value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def make(name: str, prefix: str, descriptor: int) -> Form:
    """The form of that name; AUTO: text, or journal if the descriptor is systemd's journal."""
    if name == AUTO:
        name = "journal" if is_journal(descriptor) else "text"
    return FORMS[name](prefix)


def is_journal(descriptor: int, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether it is the one that systemd has connected to the journal: a child may have inherited only the variable."""
    wanted = environ.get("JOURNAL_STREAM", "")
    if not wanted:
        return False
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return wanted == f"{status.st_dev}:{status.st_ino}"


def one_line(text: str) -> str:
    """Makes text fit for one line of the log: no line ends, no terminal controls, no megabytes."""
    if len(text) > MAX_LINE:
        text = f"{text[:MAX_LINE]}... ({len(text)} characters)"
    return visible(text)
