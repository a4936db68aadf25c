"""GET /topic/peek and /channel/peek: shows messages in place, page by page. Delivery is unaffected.

A page goes through the parts of a queue in the order of delivery: `f`, at the front of an ordered channel; `a`,
requeued in a channel with message_ttl; `m`, in memory; `d`, on disk or being written; `r`, of a log, requeued; `o`, of
a log, not delivered yet. Messages in flight or deferred are listed by time, `t`. A cursor is the letter of a part and a
position in it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from nsqc.broker import peek as places
from nsqc.httpd import peeked
from nsqc.httpd.app import App
from nsqc.httpd.naming import existing_channel, invalid, named, topic_and_channel
from nsqc.httpd.peeked import Bodies, Shown
from nsqc.httpd.positions import number_of
from nsqc.httpd.reply import ApiError, Reply
from nsqc.httpd.request import Request, read_arguments
from nsqc.store.disk import peek as disk
from nsqc.store.peek import Held, Page

if TYPE_CHECKING:
    from nsqc.broker.channel import Channel
    from nsqc.broker.topic import Topic
    from nsqc.store.disk.queue import DiskQueue
    from nsqc.store.log.topiclog import TopicLog

_DEFAULT_MESSAGES, _MAX_MESSAGES = 10, 1000
_DEFAULT_BYTES, _MAX_BYTES = 64 * 1024, 1024 * 1024
_PAGE_BYTES = 256 * 1024        # of bodies in one answer, unless the first is larger
_READ_BYTES = 64 * 1024         # of a file in one read; at least one record
_MOST_READS = 64                # for one page; the next page has the rest
_MOST_HELD = 64 * 1024 * 1024   # bytes of pages being sent
_READ_RECORDS = 1000            # of a log in one read
_READ_AGAIN = 64                # requeued messages of a log in one step; each needs its own read

_QUEUED, _IN_FLIGHT, _DEFERRED = "queued", "in_flight", "deferred"
_FORMS = {
    "f": re.compile(r"f([0-9]{1,9})"),
    "a": re.compile(r"a([0-9]{1,18})"),
    "m": re.compile(r"m([0-9]{1,18})"),
    "d": re.compile(r"d([0-9]{1,17})\.([0-9]{1,17})\.([0-9]{1,17})\.([0-9]{1,18})"),
    "r": re.compile(r"r([0-9]{1,18})"),
    "o": re.compile(r"o([0-9]{1,18})"),
    "t": re.compile(r"t([0-9]{1,18})\.([!-~]{16})"),
}


class _Query:
    """The client's query."""

    def __init__(self, arguments: dict[bytes, bytes], with_states: bool) -> None:
        states = (_QUEUED, _IN_FLIGHT, _DEFERRED) if with_states else (_QUEUED,)
        self.state = arguments.get(b"state", b"queued").decode("latin-1")
        if self.state not in states:
            raise invalid(b"state")
        form = arguments.get(b"body", b"text").decode("latin-1")
        if form not in peeked.FORMS:
            raise invalid(b"body")
        most = number_of(arguments, b"max_messages", _DEFAULT_MESSAGES, 1, _MAX_MESSAGES)
        most_bytes = number_of(arguments, b"max_bytes", _DEFAULT_BYTES, 0, _MAX_BYTES)
        self.page = Page(most, 0 if form == "none" else most_bytes, _PAGE_BYTES)
        self.most = most
        self.bodies = Bodies(form, most_bytes)
        self.part, self.place = self._cursor(arguments.get(b"from", b"").decode("latin-1"))

    def _cursor(self, text: str) -> tuple[str, tuple[str, ...]]:
        """The letter and the fields of the page's start; empty: at the beginning."""
        if not text:
            return "", ()
        parts = "famdro" if self.state == _QUEUED else "t"
        form = _FORMS[text[0]].fullmatch(text) if text[0] in parts else None
        if form is None:
            raise invalid(b"from")
        return text[0], form.groups()


def topic(app: App, request: Request) -> Awaitable[Reply]:
    """Waiting messages in a topic's own backlog: not in its channels."""
    arguments = read_arguments(app.log, request)
    found = named(app, arguments)
    return _peek(app, _Looking(app, found, None, _Query(arguments, False)))


def channel(app: App, request: Request) -> Awaitable[Reply]:
    """Messages of a channel: waiting, in flight, or deferred."""
    arguments = read_arguments(app.log, request)
    found, name = topic_and_channel(app, arguments)
    return _peek(app, _Looking(app, found, existing_channel(found, name), _Query(arguments, True)))


async def _peek(app: App, looking: _Looking) -> Reply:
    async with app.peeks:
        looking.still_there()
        if sum(page.length or 0 for page in app.pages) > _MOST_HELD:
            raise ApiError(503, "FAILED - too many unread pages")
        following = await (looking.queued() if looking.query.state == _QUEUED else looking.held())
        await looking.add_origins()
        looking.still_there()
        return await peeked.reply(app, looking.topic, looking.channel, looking.query.state, looking.query.bodies,
                                  looking.shown, following)


class _Looking:
    """Builds one page."""

    def __init__(self, app: App, topic: Topic, channel: Channel | None, query: _Query) -> None:
        self.app = app
        self.topic = topic
        self.channel = channel
        self.queue: Topic | Channel = topic if channel is None else channel
        self.query = query
        self.page = query.page
        self.shown: list[Shown] = []
        self.reads = _MOST_READS

    def still_there(self) -> None:
        """Refuses to continue with a deleted topic or channel."""
        if self.topic.exiting:
            raise ApiError(404, "TOPIC_NOT_FOUND")
        if self.channel is not None and self.channel.exiting:
            raise ApiError(404, "CHANNEL_NOT_FOUND")

    def _take(self, at: int, *, on_disk: bool = False) -> None:
        """Shows the messages added to the page after the first `at`."""
        delays = places.delays(self.queue) if on_disk else {}
        for seen in self.page.messages[at:]:
            shown = Shown(seen)
            if seen.defer_ms:
                shown.delay_ms = seen.defer_ms
            elif (delay := delays.get(seen.id)) is not None:
                # An earlier run deferred it; the queue notices when it reads it.
                if self.channel is None:
                    shown.delay_ms = delay
                else:
                    shown.due = delay
            self.shown.append(shown)

    # ------------------------------------------------------------------ waiting messages

    async def queued(self) -> str | None:
        """Fills the page; returns the cursor of the next one, None at the end."""
        parts = "faromd" if self.channel is not None and places.log_first(self.channel) else "famdro"
        steps: dict[str, Callable[..., Awaitable[str | None]]] = {
            "f": partial(self._back, places.add_front), "a": partial(self._back, places.add_again),
            "m": self._memory, "d": self._disk, "r": self._requeued, "o": self._unread}
        place: tuple[int, ...] = tuple(map(int, self.query.place))
        for part in parts[parts.index(self.query.part or parts[0]):]:
            following = await steps[part](*place)
            if following is not None:
                return f"{part}{following}"
            place = ()
        return None

    async def _back(self, add: Callable[[Channel, Page, int], tuple[list[int], int]], at: int = 0) -> str | None:
        """Adds requeued messages that are in no queue of the channel."""
        if self.channel is None:
            return None
        before = len(self.page.messages)
        offsets, following = add(self.channel, self.page, at)
        self._take(before)
        for shown, offset in zip(self.shown[before:], offsets, strict=True):
            shown.offset = offset
        return None if following < 0 else str(following)

    async def _memory(self, at: int = 0) -> str | None:
        before = len(self.page.messages)
        if self.channel is None and not self.query.part:
            places.add_leftover(self.topic, self.page)
        peek = places.in_memory(self.queue, at)
        while not peek.run(self.page):
            await asyncio.sleep(0)
            self.still_there()
        self._take(before)
        return None if peek.ended else str(peek.at)

    async def _disk(self, number: int = 0, at: int = 0, skip: int = 0, count: int = 0) -> str | None:
        """count: of the record to continue with, where some after a position are left out. Those had no position of
        their own when they were shown, and delivery may have passed the position since."""
        queue = self.queue.disk
        while queue is not None and not queue.closed:
            extent = disk.extent(queue)
            if (number, at) < extent.read:
                (number, at), skip = extent.read, max(0, count - extent.read_count) if skip else 0
            if (number, at) >= extent.write:
                before = len(self.page.messages)
                passed, ended = disk.add_buffered(queue, self.page, skip)
                self._take(before, on_disk=True)
                return None if ended else f"{number}.{at}.{passed}.{extent.write_count + passed}"
            if self.page.full or not self.reads:
                break
            self.reads -= 1
            place = await self._disk_records(queue, extent, (number, at), skip)
            self.still_there()
            if place is None:
                continue        # the queue has read it, and removed the file
            full = place[:2] == (number, at) and place[2] == skip
            number, at, skip = place
            if full:
                break
        return None if queue is None or queue.closed else f"{number}.{at}.{skip}.{count}"

    async def _disk_records(self, queue: DiskQueue, extent: disk.Extent, place: tuple[int, int],
                            skip: int) -> tuple[int, int, int] | None:
        """Shows records of one file; returns where to continue. None: the file is gone."""
        number, at = place
        limit = extent.write[1] if number == extent.write[0] else -1
        try:
            found = await self.app.readers.run(partial(disk.read, queue.path_of(number), at, limit, extent.max_record,
                                                       _READ_BYTES))
        except FileNotFoundError:
            # Past the read position, the file is lost, with its records.
            return None if place < disk.extent(queue).read else (number + 1, 0, skip)
        if not found.data:
            return (number + 1, 0, skip) if limit < 0 else (number, max(limit, found.end), skip)
        before = len(self.page.messages)
        end, skip = self.page.add_records(found.data, 0, skip)
        self._take(before, on_disk=True)
        return number, (found.begin + end if end else at), skip

    # ------------------------------------------------------------------ waiting messages of a log

    async def _requeued(self, at: int = 0) -> str | None:
        if self.channel is None:
            return None
        while not self.page.full and self.reads:
            self.reads -= 1
            batch, end = places.requeued(self.channel, at, min(self.page.left, _READ_AGAIN))
            if not batch:
                return None
            at = end - len(batch)
            taken = await self._records([offset for offset, _ in batch])
            for offset, attempts in batch:
                if not self._add_record(taken, offset, attempts):
                    return str(at)
                at += 1
        return str(at)

    async def _unread(self, offset: int = 0) -> str | None:
        while True:
            log = self.topic.log
            waits = places.unread(self.queue)
            offset = max(offset, waits.first)
            if log is None or offset >= waits.end:
                return None
            if self.page.full or not self.reads:
                return str(offset)
            self.reads -= 1
            run = await self._run(log, offset)
            self.still_there()
            if run is None:
                continue
            if run.next == offset:
                return None
            offset = run.first
            at = 0
            while offset < min(run.next, waits.end):
                due = 0 if self.channel is None else places.due_of(self.channel, offset)
                if due:
                    at = self._skip(run.data, at)
                else:
                    before = len(self.page.messages)
                    at = self._add_one(run.data, at)
                    if len(self.page.messages) == before:
                        return str(offset)
                    self._take(before)
                    self.shown[-1].offset = offset
                offset += 1

    def _add_one(self, data: bytes, at: int) -> int:
        end = self._skip(data, at)
        return at + self.page.add_records(data[at:end])[0]

    @staticmethod
    def _skip(data: bytes, at: int) -> int:
        return at + 4 + int.from_bytes(data[at:at + 4], "big")

    def _add_record(self, taken: dict[int, bytes], offset: int, attempts: int) -> bool:
        """Shows a record of the log; False: it was not read, or does not fit. Omits damaged and removed ones."""
        data = taken.get(offset)
        if not data:
            return data is not None
        before = len(self.page.messages)
        self.page.add_records(data)
        if len(self.page.messages) == before:
            return False
        self._take(before)
        self.shown[-1].offset = offset
        self.shown[-1].attempts = attempts
        return True

    async def _records(self, offsets: list[int]) -> dict[int, bytes]:
        """Records of the log by offset, as many leading ones as fit on a page; empty: damaged or removed."""
        if not offsets or self.topic.log is None:
            return {}
        log = self.topic.log
        taken = await self.app.readers.run(partial(
            peeked.read_some, log.folder,
            {offset: (log.segment_at(offset), log.position_for(offset)) for offset in offsets},
            self.page.room))
        self.still_there()
        return taken

    async def _run(self, log: TopicLog, offset: int) -> peeked.Run | None:
        """Records of the log from an offset on; None: just removed."""
        segment = log.segment_at(offset)
        try:
            return await self.app.readers.run(partial(
                peeked.read_run, log.folder, segment, log.position_for(offset), offset, _READ_RECORDS, _READ_BYTES))
        except FileNotFoundError:
            return None

    async def add_origins(self) -> None:
        """Adds their origins to dead letters of a log."""
        log = self.topic.log
        offsets = sorted({shown.offset for shown in self.shown if shown.offset >= 0})
        if log is None or not offsets:
            return
        places = {offset: (log.segment_at(offset), log.position_for(offset)) for offset in offsets}
        origins = await self.app.readers.run(partial(peeked.read_origins, log.folder, places))
        for shown in self.shown:
            shown.origin = origins.get(shown.offset)

    # ------------------------------------------------------------------ in flight, deferred

    async def held(self) -> str | None:
        """Fills the page by time; returns the cursor of the next one."""
        if self.channel is None:
            return None
        after, tie = self.query.place or ("0", "!" * 16)
        peek = places.held(self.channel, self.query.state == _IN_FLIGHT, int(after), tie.encode("latin-1"),
                           self.query.most)
        while not peek.run():
            await asyncio.sleep(0)
            self.still_there()
        await asyncio.sleep(0)      # copying gets its own slice
        self.still_there()
        found = peek.held(self.page)
        shift = places.clock_shift(self.channel)
        taken = await self._records([item.offset for item in found if item.seen is None])
        last = self._show_held(found, taken, shift)
        if last is None or (last is found[-1] and not peek.beyond):
            return None
        return f"t{last.due_ns}.{last.tie.decode('latin-1')}"

    def _show_held(self, found: list[Held], taken: dict[int, bytes], shift: int) -> Held | None:
        """Shows as many as fit on the page; returns the last shown or skipped one."""
        last = None
        clients = peeked.Clients(self.channel)
        for item in found:
            count = len(self.shown)
            if item.seen is not None:
                self.shown.append(Shown(item.seen))
            elif not self._add_record(taken, item.offset, item.attempts):
                break
            last = item
            if len(self.shown) == count:
                continue
            shown = self.shown[-1]
            shown.due = item.due_ns + shift
            shown.offset = item.offset
            if item.owner > 0:      # without its client, the time of delivery is lost
                shown.delivered = item.delivered_ns + shift
                shown.client = clients.of(item.owner)
        return last
