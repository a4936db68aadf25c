"""Polls all nodes, and keeps one moment, the last hour, and the findings that need attention.

A poll costs a node as much as its /stats. The pause between two polls is at least a hundred times that, so a node
spends at most 1 % of its time on them, with any number of topics.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct

from nsqc.admin import upstream
from nsqc.admin.attention import Concerns, Finding, look
from nsqc.admin.fleet import ChannelRow, Fleet, Moment, NodeRow, channels_of, earliest, together, topics_in
from nsqc.admin.history import METRICS_BYTES, History, p99_of_buckets, take_gauges
from nsqc.admin.steward import Steward
from nsqc.admin.upstream import LONGEST, LOOKUP_NODES, Ask, Pace, UpstreamError, target
from nsqc.log import Log
from nsqc.wire import stats
from nsqc.wire.outside import Decoder, JSONError
from nsqc.wire.stats import RawStats

SHARE = 100.0           # of an answer's time, a pause
OWN_SHARE = 10.0        # of the time that a look takes this process
LONGEST_S = 300.0
REMEMBERED_S = 3600.0   # a node that is gone is shown as missing for this time
GAUGES_S = 60.0
OLDEST = 24             # channels whose oldest message is looked for
BYTES_A_SECOND = 25e6   # of /stats that any nsqd makes in a second of one processor; nsqc makes twice that
TIMES = 8               # latest answers of a node that its cost is estimated from
AT_ONCE = 4             # answers of nodes that are in memory
# Anyone may pose as a node.
MOST_NAMES = 250_000    # topics and channels of a node
MOST_ROWS = 1_000_000   # of all nodes, each name once
MOST_SEEN = 10_000      # nodes that are remembered
MOST_KEPT = 64 * 1024 * 1024    # bytes of answers that are kept
# Numbers of /metrics that hold between two readings; of a node that does not answer, only the first ones do.
STAYING = ("nsqc", "disk_free", "disk_size", "disk_limit", "memory")
PASSING = ("cpu_s", "cpu", "draining", "connections", "times", "recent_times", "rules_digest", "bucket")

ALL_STATS = Ask("GET", target("/stats", format="json", include_clients="false", include_mem="false"), limit=LONGEST)
METRICS = Ask("GET", "/metrics", accept="text/plain", most=METRICS_BYTES)


class _Stamp(Struct):
    """A message of a page of /channel/peek."""

    timestamp: int


class _Page(Struct):
    """/channel/peek."""

    messages: list[_Stamp] = []


_page = Decoder(_Page).decode


class Listed(NamedTuple):
    """The lookup servers' side: errors by server, tombstones as (topic, node), and topics that no node has."""

    errors: dict[str, str]
    tombstones: list[tuple[str, str]]


class Kept(NamedTuple):
    """The latest answer of a node, its bytes, and its time."""

    answer: RawStats
    size: int
    at: float


class Poller:
    """One for each fleet."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fleet: Fleet, log: Log, interval_s: float,
                 steward: Steward | None = None) -> None:
        """steward: of the nodes' rules; None: a single node."""
        self._steward = steward
        self.moment: Moment | None = None
        self.history = History()
        self.concerns = Concerns([], {})
        self.listed = Listed({}, [])
        self.interval_s = interval_s        # as it is now
        self.error = ""                     # why the last look saw nothing
        self.oldest_wanted: dict[tuple[str, str], float] = {}   # channels on a page that is open, until loop time
        self._least_s = interval_s
        self._loop, self._fleet, self._log = loop, fleet, log
        self._seen: dict[str, tuple[NodeRow, float]] = {}       # by address, and when it was listed last
        self._gauges: dict[str, NodeRow] = {}
        self._gauges_due = 0.0
        self._times: dict[str, deque[float]] = {}
        self.kept: dict[str, Kept] = {}
        self._deaf: dict[str, float] = {}   # nodes that show no messages, until loop time
        self._task: asyncio.Task[None] | None = None
        self._looked: asyncio.Event = asyncio.Event()
        self._hurry = asyncio.Event()

    # ------------------------------------------------------------------ life

    @property
    def runs(self) -> bool:
        """Whether it looks."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begins, unless it runs."""
        if not self.runs:
            # In its own context: it asks for no user.
            self._task = self._loop.create_task(self._run(), context=contextvars.Context())

    def stop(self) -> None:
        """Ends."""
        if self._task is not None:
            self._task.cancel()

    async def first(self, limit_s: float) -> None:
        """Waits for the first look."""
        if self.moment is None and not self.error:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._looked.wait()

    def hurry(self, gauges: bool = False) -> None:
        """Polls again soon, after a change. gauges: /metrics, too, which has drains."""
        if gauges:
            self._gauges_due = 0.0
        self._hurry.set()

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                await self._look()
                self.error = ""
            except Exception as error:      # any answer of a node must not end this: the next poll may succeed
                self.error = str(error) or type(error).__name__
                self._log.warn("failed to look at the nodes - %s", self.error)
            self._looked.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(self.interval_s - (time.monotonic() - began), 0.2)):
                    await self._hurry.wait()
                    self._hurry.clear()
                    await asyncio.sleep(max(0.3, self.interval_s / 10))

    # ------------------------------------------------------------------ a look

    async def _look(self) -> None:
        pace = Pace()
        moment = Moment()
        rows = await self._find()
        limit = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(self._take(moment, row, pace, limit) for row in rows))
        for row in rows:
            moment.nodes[row.address] = row
            if row.error:
                await self._recall(moment, row, pace)
        for address in self.kept.keys() - moment.nodes.keys():
            del self.kept[address]
        for _ in moment.compare(self.moment):
            if pace.over():
                await pace.rest()
        await self._look_at_gauges(moment)
        if self._steward is not None and await self._steward.tend(moment):
            self._gauges_due = 0.0      # their digests have changed
        await self._look_for_oldest(moment)
        for topic in moment.topics.values():
            for channel in topic.channels.values():
                topic.oldest = earliest(topic.oldest, channel.oldest)
            moment.totals.oldest = earliest(moment.totals.oldest, topic.oldest)
            if pace.over():
                await pace.rest()
        for _ in self.history.add(moment):
            if pace.over():
                await pace.rest()
        finding = Finding()
        for concern in look(moment, self.history, self.listed.errors):
            finding.add(concern)
            if concern is None and pace.over():
                await pace.rest()
        self.concerns = finding.result()
        self.moment = moment
        self.interval_s = min(max(self._least_s, self._cost_of(rows) * SHARE, pace.spent * OWN_SHARE), LONGEST_S)

    def _cost_of(self, rows: list[NodeRow]) -> float:
        """Upper bound on the seconds that a poll costs a node: its fastest recent answer, but no more than the same
        number of bytes costs any nsqd."""
        for row in rows:
            if not row.error:
                cost = min(row.answer_ms / 1000, row.answer_bytes / BYTES_A_SECOND)
                self._times.setdefault(row.address, deque(maxlen=TIMES)).append(cost)
        for address in self._times.keys() - {row.address for row in rows}:
            del self._times[address]
        return max((min(times) for times in self._times.values()), default=0.0)

    async def _find(self) -> list[NodeRow]:
        """Rows for the nodes that are listed, and for those that were a while ago."""
        now = time.time()
        listed = await self._ask_lookups() if self._fleet.has_lookupds else await self._ask_names()
        for row in listed:
            if row.address in self._seen or len(self._seen) < MOST_SEEN:
                self._seen[row.address] = (row, now)
        rows = {row.address: row for row in listed}
        for address, (row, at) in [*self._seen.items()]:
            if address in rows:
                continue
            if now - at > REMEMBERED_S:
                del self._seen[address]
                continue
            past = None if self.moment is None else self.moment.nodes.get(address)
            since = past.missing_since if past is not None and past.missing_since else now
            rows[address] = NodeRow(address, row.tcp, row.hostname, row.version, listed=False, missing_since=since)
        return [*rows.values()]

    async def _ask_lookups(self) -> list[NodeRow]:
        # A lookup server that does not answer hides no node: all nodes of the hour are asked anyway.
        found = await self._fleet.listed(LOOKUP_NODES)
        rows: dict[str, NodeRow] = {}
        tombstones: dict[tuple[str, str], None] = {}
        for answer in found.answers.values():
            for each in answer.producers or ():
                rows[each.http] = NodeRow(each.http, each.tcp, each.hostname, each.version)
                marks = each.tombstones or []
                tombstones |= {(topic, each.http): None for topic, mark in
                               zip(each.topics or (), marks, strict=False) if mark}
        if not found.answers:
            rows = {address: row for address, (row, _) in self._seen.items()}
        self.listed = Listed({address: error.told for address, error in found.errors.items()}, [*tombstones])
        return [*rows.values()]

    async def _ask_names(self) -> list[NodeRow]:
        found = await self._fleet.ask_all(self._fleet.nsqds, Ask("GET", "/info"), upstream.info)
        rows = {}
        for address in self._fleet.nsqds:
            info = found.answers.get(address)
            known = self._seen.get(address)
            if info is not None:
                tcp = f"{info.broadcast_address}:{info.tcp_port}"
                rows[address] = NodeRow(address, tcp, info.hostname, info.version)
            else:
                row = known[0] if known else NodeRow(address)
                rows[address] = NodeRow(address, row.tcp, row.hostname, row.version)
        return [*rows.values()]

    async def _take(self, moment: Moment, row: NodeRow, pace: Pace, limit: asyncio.Semaphore) -> None:
        """The answer of one node."""
        async with limit:
            began = time.monotonic()
            try:
                body = await self._fleet.call(row.address, ALL_STATS)
                row.answer_ms, row.answer_bytes = (time.monotonic() - began) * 1000, len(body)
                answer = stats.raw_stats(body)
            except UpstreamError as error:
                self._missing(row, error.told)
                return
            except JSONError as error:
                self._missing(row, f"its answer cannot be read: {error}")
                return
            row.health, row.start_time = answer.health, answer.start_time
            row.version = answer.version or row.version
            if await self._added(moment, row, answer, pace):
                self._keep(row.address, answer, len(body), moment.at)

    async def _added(self, moment: Moment, row: NodeRow, answer: RawStats, pace: Pace) -> bool:
        """Adds the topics of a node; False: there are too many."""
        names = 0
        async for topic in topics_in(answer, pace):
            names += 1 + len(topic.channels or ())
            if names > MOST_NAMES or moment.size > MOST_ROWS:
                most = f"{MOST_NAMES:,} topics and channels, or all nodes together more than {MOST_ROWS:,}"
                self._missing(row, f"it has more than {most}")
                return False
            moment.add(topic, row)
        return True

    def _keep(self, address: str, answer: RawStats, size: int, at: float) -> None:
        """Keeps the latest answer of a node, within bounds, for the time when it does not answer."""
        self.kept.pop(address, None)
        if size + sum(each.size for each in self.kept.values()) <= MOST_KEPT:
            self.kept[address] = Kept(answer, size, at)

    async def _recall(self, moment: Moment, row: NodeRow, pace: Pace) -> None:
        """Adds the last known topics of a node that does not answer."""
        kept = self.kept.get(row.address)
        if kept is not None:
            row.seen_at = kept.at
            await self._added(moment, row, kept.answer, pace)

    def _missing(self, row: NodeRow, error: str) -> None:
        past = None if self.moment is None else self.moment.nodes.get(row.address)
        row.error = error
        row.missing_since = past.missing_since if past is not None and past.error else time.time()

    # ------------------------------------------------------------------ numbers beside /stats

    async def _look_at_gauges(self, moment: Moment) -> None:
        """Reads the system's numbers of each node's process, once a minute."""
        due = self._loop.time() >= self._gauges_due
        if due:
            self._gauges_due = self._loop.time() + GAUGES_S
        asked = [address for address in moment.answering() if due or address not in self._gauges]

        async def ask(address: str) -> bytes:
            return (await self._fleet.answer(address, METRICS)).body

        found = await together(asked, ask)
        for address, body in found.answers.items():
            take_gauges(moment.nodes[address], body, self._gauges.get(address), moment.at)
            self._gauges[address] = moment.nodes[address]
        for address, row in moment.nodes.items():
            known = self._gauges.get(address)
            if known is not None and known is not row:
                for name in STAYING if row.error else (*STAYING, *PASSING):
                    setattr(row, name, getattr(known, name))
        for address in self._gauges.keys() - moment.nodes.keys():
            del self._gauges[address]
        moment.totals.bucket_ns = p99_of_buckets(row.recent_times for row in moment.nodes.values())

    async def _look_for_oldest(self, moment: Moment) -> None:
        """When the oldest waiting message was published, of the longest queues and of those that are looked at."""
        now = self._loop.time()
        self.oldest_wanted = {key: until for key, until in self.oldest_wanted.items() if until > now}
        waiting = [row for row in channels_of(moment.topics.values()) if row.depth]
        waiting.sort(key=lambda row: ((row.topic, row.name) in self.oldest_wanted, row.depth), reverse=True)
        chosen = waiting[:OLDEST]
        for row in waiting[OLDEST:]:
            row.oldest = 0.0        # the known value is out of date
        nodes = [address for address in moment.answering(nsqc=True) if self._deaf.get(address, 0.0) <= now]
        found: dict[int, float] = {}
        calls: list[Awaitable[None]] = [self._oldest(address, row, found) for row in chosen for address in nodes]
        await asyncio.gather(*calls)
        for row in chosen:
            row.oldest = found.get(id(row), 0.0)

    async def _oldest(self, address: str, row: ChannelRow, found: dict[int, float]) -> None:
        if self._deaf.get(address, 0.0) > self._loop.time():
            return
        ask = Ask("GET", target("/channel/peek", topic=row.topic, channel=row.name, max_messages=1, body="none"))
        try:
            page = await self._fleet.get(address, ask, _page)
        except UpstreamError as error:
            if error.status not in (400, 404) or error.word == "NOT_FOUND":
                self._deaf[address] = self._loop.time() + GAUGES_S
            return
        if page.messages:
            found[id(row)] = earliest(found.get(id(row), 0.0), page.messages[0].timestamp / 1e9)
