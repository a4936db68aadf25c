"""The last hour of each topic, channel and node, in arrays of a fixed size. Beyond a number of series, only the busiest
topics have one.
"""

from __future__ import annotations

import asyncio
import math
import re
import ssl
import time
from array import array
from base64 import b64encode
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypedDict
from urllib.parse import urlencode

import msgspec

from nsqc.admin.fleet import P99, Buckets, Moment, NodeRow, TopicRow
from nsqc.log import Log
from nsqc.log.formats import mask_address
from nsqc.net.url import parse_server
from nsqc.peers.http import AnswerError, Dialer, ask, reason_of, request
from nsqc.wire.outside import Decoder, JSONError

# ====================================================================== gauges
# A node's process, disk and latencies by its /metrics. They come first on that page; the rest of it is not read.

METRICS_BYTES = 96 * 1024
NS = 1e9
GAUGES = {b"nsqc_disk_free_bytes": "disk_free", b"nsqc_disk_size_bytes": "disk_size",
          b"nsqc_disk_free_limit_bytes": "disk_limit", b"nsqc_process_resident_memory_bytes": "memory",
          b"nsqc_process_cpu_seconds_total": "cpu_s", b"nsqc_rules_digest": "rules_digest"}
_LE = re.compile(rb'(?:^|,)le="([^"]{1,32})"')
_LINE = re.compile(rb"^(nsqc_[a-z_]+)(?:\{([^}\n]*)\})? ([0-9.eE+-]+)", re.MULTILINE)
_VERSION = re.compile(rb'(?:^|,)version="([^"]{1,64})"')


def take_gauges(row: NodeRow, body: bytes, past: NodeRow | None, at: float) -> None:
    """Fills in the fields of a row. past: of the time before, from which the use of the processor is counted."""
    end = body.find(b"nsqc_topic_")
    for name, labels, text in _LINE.findall(body if end < 0 else body[:end]):
        try:
            _take(row, name, labels, float(text))
        except ValueError:
            continue
    row.gauges_at = at
    is_same = past is not None and past.start_time == row.start_time
    row.recent_times = difference(row.times, past.times if is_same and past is not None else {})
    if past is not None and is_same and row.cpu_s >= past.cpu_s >= 0:
        seconds = at - past.gauges_at
        row.cpu = (row.cpu_s - past.cpu_s) / seconds if seconds > 0 else -1.0


def _take(row: NodeRow, name: bytes, labels: bytes, value: float) -> None:
    if name == b"nsqc_build_info":
        version = _VERSION.search(labels)
        row.nsqc = version[1].decode("utf-8", "replace") if version is not None else ""
    elif field := GAUGES.get(name):
        setattr(row, field, value)
    elif name.startswith(b"nsqc_bucket_"):
        row.bucket[name[12:].decode()] = value
    elif name == b"nsqc_draining":
        row.draining = value > 0
    elif name == b"nsqc_processing_latency_seconds_bucket":
        bound = _LE.search(labels)
        if bound is not None:
            row.times[float(bound[1])] = value
    elif name == b"nsqc_connections":
        row.connections = max(row.connections, 0.0) + value


def difference(now: Buckets, before: Buckets) -> Buckets:
    """The counts since an earlier reading."""
    return {bound: max(count - before.get(bound, 0.0), 0.0) for bound, count in now.items()}


def p99_of_buckets(parts: Iterable[Buckets]) -> float:
    """The upper bound of the bucket with the 99th percentile of several nodes together, nanoseconds; 0: nothing was
    counted; below 0: no node counts."""
    sums: Buckets = {}
    for part in parts:
        for bound, count in part.items():
            sums[bound] = sums.get(bound, 0.0) + count
    if not sums:
        return -1.0
    total = sums.get(math.inf, 0.0)
    if not total:
        return 0.0
    finite = sorted(bound for bound in sums if math.isfinite(bound))
    return next((bound for bound in finite if sums[bound] >= P99 * total), finite[-1] if finite else 0.0) * NS


# ====================================================================== history

STEP_S = 10
SLOTS = 360                             # an hour
MOST_APART = 60                         # slots between two polls that belong together: large fleets are polled rarely
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
        self._polls = 0     # in this slot
        self._since = range(0)      # the slots since the poll before, which the rates of this one are about
        self._ranked = -RANK_S
        self._chosen: set[str] | None = None    # topics that have a series; None: all
        self._sparks: dict[tuple[Key, str], list[float | None]] = {}    # requested since the last point

    def __len__(self) -> int:
        return len(self._arrays)

    def add(self, moment: Moment) -> Iterator[None]:
        """Adds a poll to the current point of each series: the mean of the rates, and the latest numbers. Yields now
        and then, when others may run."""
        slot = int(moment.at // STEP_S)
        self._sparks = {}
        self._polls = self._polls + 1 if slot == self._slot else 1
        gap = slot - self._slot
        self._since = range(slot - gap + 1 if 0 < gap <= MOST_APART else slot, slot + 1)
        self._advance(slot)
        self._choose(moment)
        total = moment.totals
        self._put((), total.came, total.went, total.depth, total.in_flight)
        for node in moment.nodes.values():
            if not node.error:
                self._put((NODE, node.address), node.came, node.went, node.depth, node.in_flight)
        chosen = self._chosen
        for number, row in enumerate(moment.topics.values()):
            if chosen is None or row.name in chosen:
                self._put_topic(row)
            if number % 64 == 63:
                yield
        self._sparks = {}

    def _put_topic(self, row: TopicRow) -> None:
        self._put((row.name,), row.came, row.went, row.total_depth, row.in_flight)
        for channel in row.channels.values():
            self._put((row.name, channel.name), channel.came, channel.went, channel.depth, channel.in_flight)

    def _put(self, key: Key, came: float, went: float, depth: float, in_flight: float) -> None:
        values = self._arrays.get(key)
        if values is None:
            if len(self._arrays) >= MOST_SERIES + MOST_NODES:
                return      # many names are new since the busiest were chosen
            values = self._arrays[key] = array("f", _EMPTY)
        for number in self._since:
            at = number % SLOTS * len(FIELDS)
            for field, rate in ((at, came), (at + 1, went)):
                if rate >= 0:       # the mean of the slot's polls: a burst between two of them shows
                    before = values[field]
                    values[field] = rate if math.isnan(before) else before + (rate - before) / self._polls
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


# ====================================================================== prometheus
# The last hour from Prometheus, which also has the time before the admin server started; and longer ranges.

LIMIT_S = 5.0
KEPT_S = 10.0           # an answer that is used again
MOST_KEPT = 64
LEAST_S = 60            # that rates are averaged over
HOUR = "1h"
RANGES = {HOUR: STEP_S, "6h": 60, "1d": 240, "1w": 1680}     # seconds between two of the SLOTS points


class _Line(msgspec.Struct):
    """One series of an answer: unix seconds and numbers as text."""

    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    """The data of an answer."""

    result: list[_Line] = []


class _Answer(msgspec.Struct):
    """/api/v1/query_range."""

    status: str = ""
    data: _Data = msgspec.field(default_factory=_Data)


_answer = Decoder(_Answer).decode
_quoted = msgspec.json.Encoder().encode


def queries(key: Key, step: int) -> dict[str, str]:
    """The expression of each field. Strings of PromQL have the escapes of JSON. step: seconds between two points."""
    over = f"{max(step, LEAST_S)}s"
    topic = f"topic={_quoted(key[0]).decode()}" if key and key[0] != NODE else ""
    channel = f"{topic},channel={_quoted(key[1]).decode()}" if topic and len(key) > 1 else ""
    if channel:
        return {"came": f"sum(rate(nsqc_channel_messages_total{{{channel}}}[{over}]))",
                "went": f"sum(rate(nsqc_channel_processing_latency_seconds_count{{{channel}}}[{over}]))",
                "depth": f"sum(nsqc_channel_depth{{{channel}}})",
                "in_flight": f"sum(nsqc_channel_in_flight{{{channel}}})"}
    return {"came": f"sum(rate(nsqc_topic_messages_total{{{topic}}}[{over}]))",
            "went": f"sum(rate(nsqc_channel_processing_latency_seconds_count{{{topic}}}[{over}])) or vector(0)",
            "depth": f"sum(nsqc_topic_depth{{{topic}}}) + (sum(nsqc_channel_depth{{{topic}}}) or vector(0))",
            "in_flight": f"sum(nsqc_channel_in_flight{{{topic}}}) or vector(0)"}


class Prometheus:
    """One server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str, log: Log) -> None:
        """Raises ValueError for a URL that is none."""
        self._server = parse_server(url)
        self._shown = mask_address(url)
        self._tls = ssl.create_default_context() if self._server.tls else None
        self._loop, self._dialer, self._log = loop, Dialer(loop), log
        self._kept: dict[tuple[Key, int], tuple[float, Series]] = {}

    async def series(self, key: Key, step: int) -> Series | None:
        """The latest points, that many seconds apart; None: Prometheus does not have them, or does not answer."""
        now = self._loop.time()
        known = self._kept.get((key, step))
        if known is not None and now - known[0] < KEPT_S:
            return known[1]
        start = (int(time.time()) // step - SLOTS + 1) * step
        asked = queries(key, step)
        try:
            columns = await asyncio.gather(*(self._ask(asked[name], start, step) for name in FIELDS))
        except (OSError, ValueError, AnswerError) as error:
            self._log.warn("failed to query %s - %s", self._shown, reason_of(error))
            return None
        if all(value is None for column in columns for value in column):
            return None
        if len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        made: Series = {"start": start, "step": step, "values": dict(zip(FIELDS, columns, strict=True))}
        self._kept[key, step] = (now, made)
        return made

    async def _ask(self, expression: str, start: int, step: int) -> list[float | None]:
        """A value for each slot. Raises OSError, ValueError, AnswerError."""
        server = self._server
        query = urlencode({"query": expression, "start": start, "end": start + (SLOTS - 1) * step, "step": step})
        login = [f"Authorization: Basic {b64encode(server.login.encode()).decode()}"] if server.login else []
        target = f"{server.target.rstrip('/')}/api/v1/query_range?{query}"
        data = request("GET", server.host, target, *login)
        async with asyncio.timeout(LIMIT_S):
            answer = await ask(self._loop, self._dialer, server.address, data, LIMIT_S, self._tls)
        if answer.status != 200:
            raise AnswerError(f"status {answer.status}")
        try:
            lines = _answer(answer.body).data.result
        except JSONError as error:
            raise AnswerError(f"the answer cannot be read: {error}") from None
        column: list[float | None] = [None] * SLOTS
        for at, text in lines[0].values if lines else ():
            slot = round((at - start) / step)
            value = float(text)
            if 0 <= slot < SLOTS and math.isfinite(value):
                column[slot] = rounded(value)
        return column
