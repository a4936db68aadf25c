"""Ranges of logs, and their division. Knows no Spark and no network.

Offsets of a log may have gaps: numbering jumps ahead after a power loss. So messages are counted by segments, which
list the existing offsets.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nsqc.bucket.commit import Frames


class LogSegment(NamedTuple):
    """Of a log: its first offset, the offset after its last record, bytes of its frames, and the salt of their
    checksums."""

    first: int
    end: int
    bytes: int
    salt: int = 0


Segments = Sequence[LogSegment]

# Numbering jumps by 2^39 at least. Shorter gaps are missing segments.
LEAST_JUMP = 1 << 39

# Bytes of records per partition unless options set it: a second of work, of which a task's overhead is a tenth. Half as
# many are worth two tasks.
PARTITION_BYTES = 256 << 20
# Short ranges share a partition: a task costs Spark more than their messages. Overhead per range, as bytes.
BUNDLE_BYTES = 4 << 20
RANGE_BYTES = 64 << 10


class Place(NamedTuple):
    """The log of a topic at a node (HOST:PORT of TCP)."""

    topic: str
    node: str


class Range(NamedTuple):
    """Offsets of a log, from start to before end; http: address to read it from; id: of the log, empty for any;
    boot_id: of the machine with its files, empty if unknown; extents: where a bucket has them."""

    place: Place
    http: str
    start: int
    end: int
    id: str = ""
    boot_id: str = ""
    extents: tuple[Frames, ...] = ()


def count(segments: Segments, start: int, end: int) -> int:
    """Messages from one offset to before another."""
    return sum(max(0, min(end, stop) - max(start, first)) for first, stop, _, _ in segments)


def lost(segments: Segments, start: int, first: int) -> int:
    """Number of missing messages from start on if reading continues at first: none, if numbering jumped there."""
    before = max((stop for _, stop, _, _ in segments if stop <= start), default=None)
    return first - start if before is not None and first - before < LEAST_JUMP else 0


def size(segments: Segments, start: int, end: int) -> int:
    """Approximate bytes of their records."""
    total = 0
    for first, stop, length, _ in segments:
        part = min(end, stop) - max(start, first)
        if part > 0:
            total += length * part // (stop - first)
    return total


def advance(segments: Segments, start: int, messages: int) -> int:
    """The offset after this many messages from start on; the end, if there are fewer."""
    for first, stop, _, _ in segments:
        at = max(start, first)
        if stop <= at:
            continue
        if messages <= stop - at:
            return at + messages
        messages -= stop - at
        start = stop
    return start


def pieces(segments: Segments, start: int, end: int, number: int) -> list[tuple[int, int]]:
    """A range in up to N parts with about as many messages; none if it is empty. One pass: a large log has as many
    parts as segments."""
    messages = count(segments, start, end)
    number = min(number, messages)
    bounds, passed, part = [start], 0, 1
    for first, stop, _, _ in segments:
        at, to = max(start, first), min(end, stop)
        if at >= to:
            continue
        while part < number and messages * part // number <= passed + to - at:
            bounds.append(at + messages * part // number - passed)
            part += 1
        passed += to - at
    return list(pairwise([*bounds, end])) if messages else []


def divide(ranges: Iterable[Range], segments: Mapping[Place, Segments], least: int | None,
           most_messages: int | None) -> list[Range]:
    """Ranges in parts: at least this many in total, given enough messages, and none with more than most_messages.

    Larger ranges have more parts.
    """
    known = [(one, count(segments[one.place], one.start, one.end)) for one in ranges]
    total = sum(messages for _, messages in known)
    parts: list[Range] = []
    for one, messages in known:
        if not messages:
            continue
        if least is not None:
            number = max(1, -(-messages * least // total))
        elif most_messages is not None:
            number = 1
        else:
            length = size(segments[one.place], one.start, one.end)
            number = max(-(-length // PARTITION_BYTES), 1 + (length > PARTITION_BYTES // 2))
        if most_messages is not None:
            number = max(number, -(-messages // most_messages))
        parts += [one._replace(start=start, end=end)
                  for start, end in pieces(segments[one.place], one.start, one.end, max(number, 1))]
    return parts


def bundle(parts: Sequence[Range], segments: Mapping[Place, Segments], least: int | None,
           most_messages: int | None) -> list[tuple[Range, ...]]:
    """Partitions: short ranges together, a node's adjacent. At least this many partitions, given enough ranges; none of
    several ranges has more than most_messages. With that limit they depend on offsets alone: a repeated batch has the
    same partitions, even if segments have grown."""
    most_ranges = max(1, len(parts) // least) if least else len(parts)
    bundles: list[tuple[Range, ...]] = []
    held: list[Range] = []
    held_bytes = held_messages = 0
    for one in sorted(parts, key=lambda part: (part.http, part.place, part.start)):
        known = segments.get(one.place, ())
        length = RANGE_BYTES + size(known, one.start, one.end)
        messages = count(known, one.start, one.end)
        if held and (len(held) == most_ranges or (held_bytes + length > BUNDLE_BYTES if most_messages is None
                                                  else held_messages + messages > most_messages)):
            bundles.append(tuple(held))
            held, held_bytes, held_messages = [], 0, 0
        held.append(one)
        held_bytes += length
        held_messages += messages
    return [*bundles, tuple(held)] if held else bundles


def shares(waiting: Mapping[Place, int], most: int) -> dict[Place, int]:
    """Messages per log for a batch of at most N: in proportion to the backlog, and at least one of each. If that does
    not fit, one each of a random subset: in a fixed order some would starve."""
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    there = [place for place, messages in waiting.items() if messages]
    if len(there) > most:
        return dict.fromkeys(waiting, 0) | dict.fromkeys(random.sample(there, most), 1)
    given: dict[Place, int] = {}
    left = most
    # The largest backlog is rounded last, so small logs are not starved.
    for place in sorted(waiting, key=lambda place: (waiting[place], place)):
        part = min(waiting[place], max(1, most * waiting[place] // total) if waiting[place] else 0, left)
        given[place] = part
        left -= part
    for place in sorted(waiting, key=lambda place: (-waiting[place], place)):
        more = min(left, waiting[place] - given[place])
        given[place] += more
        left -= more
    return given
