"""Positions in a log as users write them: `beginning`, `end`, an offset, a time, or an age such as 1h."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import NamedTuple

from nsqc.options.option import parse_duration

BEGINNING, END = "beginning", "end"
MOST = 2**63 - 1        # of offsets, and of times in ns
NUMBER = re.compile(r"[0-9]{1,19}")
# RFC 3339. A plus sign that was not escaped in a URL has become a space.
TIME = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
                  r"(?:[Zz]|([-+ ])([0-9]{2}):([0-9]{2}))")
SECOND_NS = 1_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Place(NamedTuple):
    """One of three is set. word: BEGINNING or END; offset: -1 without one; time: ns since 1970."""

    word: str = ""
    offset: int = -1
    time: int | None = None


def parse_place(text: str) -> Place:
    """Parses a position; ages count back from now. Raises ValueError."""
    if text in (BEGINNING, END):
        return Place(text)
    number = number_of(text)
    if number is not None:
        return Place(offset=number)
    moment = moment_of(text)
    if moment is None:
        raise ValueError(f"{text[:100]!r} is not beginning, end, an offset, a time such as 2026-11-22T08:00:00Z, or "
                         "how long ago, such as 1h")
    return Place(time=moment)


def number_of(text: str) -> int | None:
    """A whole number of 63 bits; None: the text is something else."""
    return int(text) if NUMBER.fullmatch(text) and int(text) <= MOST else None


def moment_of(text: str) -> int | None:
    """ns since 1970: of an RFC 3339 time, or of now minus a duration, which may have a minus sign; None: neither."""
    moment = rfc3339(text)
    if moment is not None:
        return moment
    before = text.removeprefix("-")
    try:
        return max(time.time_ns() - parse_duration(before), 0) if before[:1].isdigit() else None
    except ValueError:
        return None


def rfc3339(text: str) -> int | None:
    """A time as ns since 1970, 0 for those before; None: it is not a time."""
    match = TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, hours, minutes = match.groups()[6:]
    if second > 60 or (sign and (int(hours) > 23 or int(minutes) > 59)):
        return None
    try:
        whole = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    seconds = int((whole - EPOCH).total_seconds()) + second // 60       # a leap second is the next minute's first
    if sign:
        ahead = int(hours) * 3600 + int(minutes) * 60
        seconds += ahead if sign == "-" else -ahead
    return min(max(seconds * SECOND_NS + int((fraction or "0").ljust(9, "0")), 0), MOST)
