"""Filters of a query that exclude nodes, ranges of offsets, and rows by time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

EVER = 2**63 - 1
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Times(NamedTuple):
    """Microseconds since 1970, from start to before end."""

    start_us: int = -EVER
    end_us: int = EVER

    @property
    def all(self) -> bool:
        """Whether every message is within."""
        return self == Times()


@dataclass(frozen=True)
class Narrow:
    """The remaining messages. None: all nodes, all topics."""

    start: int = 0              # offset
    end: int = EVER             # exclusive
    times: Times = field(default_factory=Times)
    nodes: frozenset[str] | None = None
    topics: frozenset[str] | None = None


def push(filters: Iterable[Filter], columns: Iterable[str]) -> tuple[Narrow, list[Filter]]:
    """The range after these filters, and the filters left to Spark."""
    narrow, left = Narrow(), []
    known = set(columns)
    for one in filters:
        tighter = _apply(narrow, one, known)
        if tighter is None:
            left.append(one)
        else:
            narrow = tighter
    return narrow, left


def _apply(narrow: Narrow, one: Filter, known: set[str]) -> Narrow | None:
    """None: this filter cannot be applied here."""
    path: tuple[str, ...] = getattr(one, "attribute", ())
    column = path[0] if len(path) == 1 else None
    if column not in known:
        return None
    if isinstance(one, IsNotNull):
        return narrow       # no column has nulls
    if column in ("nsqd", "topic"):
        return _names(narrow, column, one)
    if column == "offset":
        bounds = _bounds(one, lambda value: value if type(value) is int else None)
        if bounds is not None:
            return replace(narrow, start=max(narrow.start, bounds[0]), end=min(narrow.end, bounds[1]))
    if column == "timestamp":
        bounds = _bounds(one, _microseconds)
        if bounds is not None:
            times = narrow.times
            return replace(narrow, times=Times(max(times.start_us, bounds[0]), min(times.end_us, bounds[1])))
    return None


def _names(narrow: Narrow, column: str, one: Filter) -> Narrow | None:
    if isinstance(one, EqualTo):
        names = frozenset([one.value])
    elif isinstance(one, In):
        names = frozenset(one.value)
    else:
        return None
    if column == "nsqd":
        return replace(narrow, nodes=names if narrow.nodes is None else narrow.nodes & names)
    return replace(narrow, topics=names if narrow.topics is None else narrow.topics & names)


def _bounds(one: Filter, number: Callable[[object], int | None]) -> tuple[int, int] | None:
    """Bounds (from, before) of a comparison; number() converts the compared value to an integer."""
    if not isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    value = number(one.value)
    if value is None:
        return None
    start, end = -EVER, EVER
    if isinstance(one, EqualTo | GreaterThanOrEqual):
        start = value
    if isinstance(one, GreaterThan):
        start = value + 1
    if isinstance(one, EqualTo | LessThanOrEqual):
        end = value + 1
    if isinstance(one, LessThan):
        end = value
    return start, end


def _microseconds(value: object) -> int | None:
    """Converts a time with or without a zone: without one, it is local, as in PySpark."""
    if not isinstance(value, datetime):
        return None
    since = value.astimezone(UTC) - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
