"""The last hour of each topic, channel and node, in arrays of a fixed size. Beyond a number of series, only the busiest
topics have one."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import TypedDict

from nsqc.admin.model import Moment, TopicRow

STEP_S = 10
SLOTS = 360                             # an hour
FIELDS = ("came", "went", "depth", "in_flight")
MOST_SERIES = 5000                      # of topics and channels: 6 KB each
MOST_NODES = 500                        # series of nodes, and of the fleet
RANK_S = 60.0                           # how often the busiest are looked for
POINTS = 30                             # of a sparkline
_EMPTY = array("f", [math.nan] * (SLOTS * len(FIELDS)))
Key = tuple[str, ...]                   # (), (topic,), (topic, channel), or (NODE, address)
NODE = "/"                              # no topic has this name


class Series(TypedDict):
    """One series for clients: unix seconds of the first point, seconds between two, and values by field."""

    start: int
    step: int
    values: dict[str, list[float | None]]


class History:
    """All series."""

    def __init__(self) -> None:
        self._arrays: dict[Key, array[float]] = {}
        self._slot = 0
        self._ranked = -RANK_S
        self._chosen: set[str] | None = None    # topics that have a series; None: all
        self._sparks: dict[tuple[Key, str], list[float | None]] = {}    # that were asked for since the last point

    def __len__(self) -> int:
        return len(self._arrays)

    def add(self, moment: Moment) -> Iterator[None]:
        """One more point in each series. Yields now and then, when others may run."""
        slot = int(moment.at // STEP_S)
        self._sparks = {}
        self._advance(slot)
        self._choose(moment)
        total = moment.totals
        self._put((), slot, total.came, total.went, total.depth, total.in_flight)
        for node in moment.nodes.values():
            if not node.error:
                self._put((NODE, node.address), slot, node.came, node.went, node.depth, node.in_flight)
        chosen = self._chosen
        for number, row in enumerate(moment.topics.values()):
            if chosen is None or row.name in chosen:
                self._put_topic(row, slot)
            if number % 64 == 63:
                yield
        self._sparks = {}

    def _put_topic(self, row: TopicRow, slot: int) -> None:
        self._put((row.name,), slot, row.came, row.went, row.total_depth, row.in_flight)
        for channel in row.channels.values():
            self._put((row.name, channel.name), slot, channel.came, channel.went, channel.depth, channel.in_flight)

    def _put(self, key: Key, slot: int, came: float, went: float, depth: float, in_flight: float) -> None:
        values = self._arrays.get(key)
        if values is None:
            if len(self._arrays) >= MOST_SERIES + MOST_NODES:
                return      # many names are new since the busiest were chosen
            values = self._arrays[key] = array("f", _EMPTY)
        at = slot % SLOTS * len(FIELDS)
        values[at] = came if came >= 0 else math.nan
        values[at + 1] = went if went >= 0 else math.nan
        values[at + 2] = depth
        values[at + 3] = in_flight

    def _advance(self, slot: int) -> None:
        """Empties the slots since the last point: they hold values of an hour ago."""
        gap = min(slot - self._slot, SLOTS)
        self._slot = slot
        width = len(FIELDS)
        for number in range(max(gap, 0)):
            at = (slot - number) % SLOTS * width
            for values in self._arrays.values():
                values[at:at + width] = _EMPTY[:width]

    def _choose(self, moment: Moment) -> None:
        """Which topics have series."""
        if moment.at - self._ranked < RANK_S:
            return
        self._ranked = moment.at
        wanted = sum(1 + len(row.channels) for row in moment.topics.values())
        self._chosen = None if wanted <= MOST_SERIES else self._busiest(moment)
        for key in [key for key in self._arrays if not self._is_wanted(key, moment)]:
            del self._arrays[key]

    def _busiest(self, moment: Moment) -> set[str]:
        ranked = sorted(moment.topics.values(), key=lambda row: (row.came + row.went, row.total_depth), reverse=True)
        chosen: set[str] = set()
        left = MOST_SERIES
        for row in ranked:
            left -= 1 + len(row.channels)
            if left < 0:
                break
            chosen.add(row.name)
        return chosen

    def _is_wanted(self, key: Key, moment: Moment) -> bool:
        if not key or key[0] == NODE:
            return not key or key[1] in moment.nodes
        row = moment.topics.get(key[0])
        if row is None or (self._chosen is not None and key[0] not in self._chosen):
            return False
        return len(key) == 1 or key[1] in row.channels

    # ------------------------------------------------------------------ reading

    def series(self, key: Key) -> Series | None:
        """The last hour of one; None: it has none."""
        values = self._arrays.get(key)
        if values is None:
            return None
        width = len(FIELDS)
        order = [(self._slot + 1 + number) % SLOTS * width for number in range(SLOTS)]
        # The depth is known whenever anything is.
        empty = next((number for number, at in enumerate(order) if values[at + 2] == values[at + 2]), SLOTS)
        del order[:empty]
        return {"start": (self._slot - SLOTS + 1 + empty) * STEP_S, "step": STEP_S,
                "values": {name: [rounded(values[at + field]) for at in order] for field, name in enumerate(FIELDS)}}

    def spark(self, key: Key, field: str = "came") -> list[float | None]:
        """The same in few points: averages, oldest first. Empty: it has none."""
        values = self._arrays.get(key)
        if values is None:
            return []
        known = self._sparks.get((key, field))
        if known is None:
            known = self._sparks[key, field] = points_of(values[FIELDS.index(field)::len(FIELDS)],
                                                         (self._slot + 1) % SLOTS)
        return known

    def grows(self, key: Key, points: int) -> bool:
        """Whether the depth has risen in each of the last few parts of the hour."""
        depths = self.spark(key, "depth")[-points - 1:]
        known = [depth for depth in depths if depth is not None]
        return len(known) == points + 1 and all(one < other for one, other in pairwise(known))


def points_of(column: array[float], first: int) -> list[float | None]:
    """A column in few points: averages of the known values. first: the index of the oldest value."""
    values = column[first:] + column[:first]
    size = SLOTS // POINTS
    points: list[float | None] = []
    for at in range(0, SLOTS, size):
        part = values[at:at + size]
        total = sum(part)
        if total == total:
            points.append(rounded(total / size))
            continue
        known = [value for value in part if value == value]
        points.append(rounded(sum(known) / len(known)) if known else None)
    return points


def rounded(value: float) -> float | None:
    """For JSON: four digits are enough, and NaN is null."""
    if value != value:
        return None
    return float(f"{value:.4g}") if value < 1000 else round(value)
