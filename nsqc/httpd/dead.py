"""GET /dead, /dead/list and /dead/show, POST /dead/redrive and /dead/drop: lists, redrives and drops dead letters."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from functools import cache, partial
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from nsqc.broker.broker import Search, Taken, is_on_disk, put_again, synced, take_logged
from nsqc.broker.channel import Channel
from nsqc.broker.storage import settle, waiting
from nsqc.broker.topic import PENDING, Topic
from nsqc.httpd.app import App, existing, existing_channel, invalid, log_of, name_in, named
from nsqc.httpd.logs import number_of, opened
from nsqc.httpd.peek import FORMS, Bodies, Filter, Letter, Query, Scan, origin_in
from nsqc.httpd.publish import topic_refusal, written
from nsqc.httpd.reply import ApiError, Request, check_publish, may_publish, read_arguments, read_whole
from nsqc.store.files import completed, rest
from nsqc.store.log import reading
from nsqc.store.log.names import Segment
from nsqc.wire.outside import Decoder, Json

# ====================================================================== moving
# Moves dead letters out of their topic: back to a channel, or drops them.
#
# A letter is settled once its copy in the channel is on disk, and synced. So after a kill, or a power failure, it is in
# one of them, or in both: never in neither.

_READ_AGAIN_S, _PATIENCE_S = 0.01, 5.0      # for messages that a thread reads from the disk
NO_ORIGIN = "it has no origin; name a channel (to=TOPIC/CHANNEL)"
MALFORMED_ORIGIN = "its origin is malformed; name a channel (to=TOPIC/CHANNEL)"
NO_GRANT = "the user has no grant publish for this topic"
NO_CHANNEL = "the channel does not exist; create it, or name another one (to=TOPIC/CHANNEL)"


class _Moved:
    """The result of a call so far."""

    def __init__(self, may_publish: Callable[[str], bool]) -> None:
        """may_publish: whether the client may publish to a topic."""
        self.count = 0
        self.skipped: dict[tuple[str | None, str], int] = {}
        self.permitted = cache(may_publish)

    def skip(self, origin: str | None, reason: str) -> None:
        """One letter stays in its topic."""
        self.skipped[origin, reason] = self.skipped.get((origin, reason), 0) + 1

    def answer(self, topic: Topic, query: Query, scan: Scan, word: str) -> Json:
        """For the client."""
        return {"topic": topic.name.decode(), "dry_run": query.dry_run, word: self.count,
                "skipped": [{"origin": origin, "reason": reason, "count": count}
                            for (origin, reason), count in self.skipped.items()], "next": scan.following}


# ---------------------------------------------------------------------- logs

async def redrive_letters(app: App, topic: Topic, query: Query, target: tuple[str, str], reads: int,
                  may_publish: Callable[[str], bool]) -> Json:
    """Redrives waiting letters, each to its own channel, or all to one. Letters to topics that the client may not
    publish to stay."""
    moved, scan = _Moved(may_publish), Scan(app, topic, query.offset)
    async with app.redrives:
        for _ in range(reads):
            letters = await _next(scan, query, moved.count)
            if letters is None:
                break
            await _put_all(app, topic, letters, target, query, moved)
            if moved.count == query.limit:
                break
    return moved.answer(topic, query, scan, "redriven")


async def _next(scan: Scan, query: Query, done: int) -> list[Letter] | None:
    """The next matching letters, within the limit; None at the end."""
    letters = await scan.some()
    if letters is None:
        return None
    wanted = list(filter(query.letters.fits, letters))
    left = query.limit - done
    if len(wanted) > left:
        scan.back_to(wanted[left].offset)
    return wanted[:left]


async def _put_all(app: App, topic: Topic, letters: list[Letter], target: tuple[str, str], query: Query,
                   moved: _Moved) -> None:
    """Puts letters into their channels, and settles them once they are on disk there. Raises ApiError."""
    slicer, writes, settled, failure = app.broker.slicer, _Writes(), list[int](), ""
    slicer.start()
    for letter in letters:
        origin = letter.origin
        to = target if target[0] or origin is None else (origin.topic, origin.channel)
        label = f"{to[0]}/{to[1]}" if to[0] else None
        found = app.broker.topic(to[0].encode())
        channel = None if found is None else found.channel(to[1].encode())
        if found is None or channel is None:
            moved.skip(label, NO_CHANNEL if label else MALFORMED_ORIGIN if letter.malformed else NO_ORIGIN)
            continue
        if not moved.permitted(to[0]):
            moved.skip(label, NO_GRANT)
            continue
        if not query.dry_run:
            result = put_again(app.broker, found, channel, letter.body)
            if result > 0:
                failure = f"{label}: {topic_refusal(result, found)}"
                break
            if result == PENDING:
                writes.add(found, channel)
            settled.append(letter.offset)
        moved.count += 1
        if slicer.is_over():
            writes.begin()
            await rest(slicer)
    if await writes.failed(app):
        raise ApiError(503, f"FAILED - channels could not be written, and may deliver up to {len(settled)} of these "
                       "letters, which stay in the dead-letter topic as well")
    await _settle(app, topic, settled)
    if failure:
        raise ApiError(503, f"{failure} - {moved.count} letters were redriven before")


class _Writes:
    """Commits to wait for."""

    def __init__(self) -> None:
        self._topics: dict[bytes, Topic] = {}    # that received messages in this loop iteration
        self._channels: dict[tuple[bytes, bytes], Channel] = {}
        self._under_way: list[asyncio.Future[int]] = []

    def add(self, topic: Topic, channel: Channel) -> None:
        """Notes a channel that received a message. Call begin() in the same loop iteration."""
        self._topics[topic.name] = topic
        self._channels[topic.name, channel.name] = channel

    def begin(self) -> None:
        """Begins to wait for the commits of the messages put so far; commits do not wait for this call."""
        self._under_way += map(written, self._topics.values())
        self._topics.clear()

    async def failed(self, app: App) -> bool:
        """Whether a commit or a channel's sync has failed, once all have ended."""
        self.begin()
        if any(await asyncio.gather(*self._under_way)):
            return True
        return not all(await asyncio.gather(*(synced(app.broker, channel) for channel in self._channels.values())))


async def _settle(app: App, topic: Topic, offsets: list[int]) -> None:
    log_of(topic)
    if offsets:
        settle(topic, offsets)
        await app.broker.recorded(topic)


async def drop_letters(app: App, topic: Topic, query: Query, reads: int) -> Json:
    """Settles waiting letters."""
    moved, scan = _Moved(bool), Scan(app, topic, query.offset)
    async with app.redrives:
        for _ in range(reads):
            letters = await _next(scan, query, moved.count)
            if letters is None:
                break
            if not query.dry_run:
                await _settle(app, topic, [letter.offset for letter in letters])
            moved.count += len(letters)
            if moved.count == query.limit:
                break
    return moved.answer(topic, query, scan, "dropped")


# ---------------------------------------------------------------------- in memory

async def redrive_memory(app: App, topic: Topic, source: Channel, query: Query, target: tuple[str, str]) -> Json:
    """Moves waiting messages of a channel of an in-memory dead-letter topic to one channel."""
    found = existing(app, target[0].encode())
    channel = existing_channel(found, target[1].encode())
    if channel is source:
        raise ApiError(400, "INVALID_ARG_TO - the messages already wait in that channel")
    moved, idle = min(query.limit, source.depth) if query.dry_run else 0, 0.0
    async with app.redrives:
        while not query.dry_run and moved < query.limit and not source.exiting:
            taken = Taken(source)
            count, result = taken.move(app.broker, found, channel, query.limit - moved)
            writes = _Writes()
            if count and not channel.ephemeral:
                writes.add(found, channel)
            if await writes.failed(app):
                taken.give_back()
                raise ApiError(503, f"FAILED - {target[0]}/{target[1]} could not be written, and may deliver up to "
                               f"{count} messages that are still in {topic.name.decode()} as well")
            taken.finish()
            moved += count
            if result > 0:
                raise ApiError(503, f"{topic_refusal(result, found)} - {moved} messages were redriven before")
            idle = 0.0 if count else idle + _READ_AGAIN_S
            if not count and (source.depth == 0 or idle > _PATIENCE_S):
                break       # none waits, or the disk does not return it
            await asyncio.sleep(0 if count else _READ_AGAIN_S)
    return {"topic": topic.name.decode(), "dry_run": query.dry_run, "redriven": moved, "skipped": [],
            "next": 0 if source.depth and not query.dry_run else None}


# ====================================================================== dead

_SUFFIX = b".dead"              # of the default dead-letter topic: see nsqc.options.rules
_DEFAULT_LIMIT, _MAX_LIMIT = 1000, 10_000
_DEFAULT_SHOWN, _MAX_SHOWN = 10, 1000
_DEFAULT_BYTES, _MAX_BYTES = 64 * 1024, 1024 * 1024
_SHOWN_BYTES = 256 * 1024       # of bodies in one answer, unless the first is larger
MALFORMED = "malformed_origin"  # reason of letters whose origin is damaged
_MOST_READS = 64                # of the log, for one call


class _DeadTopic(Struct, frozen=True, gc=False):
    """A dead-letter topic. waiting: messages not yet redriven or dropped; in memory, those of its channels."""

    topic: str
    storage: str
    waiting: int
    channels: list[str]     # that use it as dead-letter topic, as TOPIC/CHANNEL


class _Group(Struct):
    """Letters of one channel that died for the same reason; origin is None for messages that are not dead letters."""

    origin: str | None
    reason: str | None
    count: int
    oldest: int | None      # first publish time of the oldest, ns since 1970


class _Shown(Struct, frozen=True, omit_defaults=True):
    offset: int
    id: str
    timestamp: int
    size: int
    origin: Raw | None
    body: str | UnsetType = UNSET
    body_json: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    truncated: bool = False
    malformed_origin: bool = False


# ---------------------------------------------------------------------- GET /dead

async def topics(app: App, request: Request) -> dict[str, list[_DeadTopic]]:
    """The dead-letter topics of this node: those named by rules of its channels, and those with the default name."""
    slicer = app.broker.slicer
    slicer.start()
    sources: dict[bytes, list[str]] = {}
    for topic in list(app.broker.topics.values()):
        if topic.name.endswith(_SUFFIX):
            sources.setdefault(topic.name, [])
        for channel in list(topic.channels.values()):
            if channel.rule is not None and channel.rule.moves and channel.dead_letter:
                sources.setdefault(channel.dead_letter, []).append(f"{topic.name.decode()}/{channel.name.decode()}")
        await rest(slicer)
    found = []
    for name in sorted(sources):
        dead = app.broker.topic(name)
        if dead is not None and not dead.exiting:
            found.append(_DeadTopic(name.decode(), "memory" if dead.log is None else "log", _count(dead),
                                    sorted(sources[name])))
        await rest(slicer)
    return {"topics": found}


def _count(topic: Topic) -> int:
    if topic.log is not None:
        return waiting(topic)
    return topic.depth + sum(channel.depth for channel in topic.channels.values())


# ---------------------------------------------------------------------- GET /dead/list, /dead/show

def groups(app: App, request: Request) -> Awaitable[Json]:
    """Counts waiting letters by their channel and reason, in one part of the log."""
    topic, query = _asked(app, read_arguments(app.log, request), _MAX_LIMIT, 2**62)
    return _groups(app, topic, query)


async def _groups(app: App, topic: Topic, query: Query) -> Json:
    scan, found = Scan(app, topic, query.offset), dict[tuple[str | None, str | None], _Group]()
    for _ in range(_MOST_READS):
        letters = await scan.some()
        if letters is None:
            break
        for letter in filter(query.letters.fits, letters):
            origin = letter.origin
            key = ((None, MALFORMED if letter.malformed else None) if origin is None
                   else (f"{origin.topic}/{origin.channel}", origin.reason))
            group = found.setdefault(key, _Group(key[0], key[1], 0, None))
            group.count += 1
            if origin is not None:
                group.oldest = min(group.oldest or origin.timestamp, origin.timestamp)
    return {"topic": topic.name.decode(), "waiting": waiting(topic), "groups": list(found.values()),
            "next": scan.following}


def show(app: App, request: Request) -> Awaitable[Json]:
    """Letters with their bodies, a page at a time."""
    arguments = read_arguments(app.log, request)
    topic, query = _asked(app, arguments, _DEFAULT_SHOWN, _MAX_SHOWN)
    form = arguments.get(b"body", b"text").decode("latin-1")
    if form not in FORMS:
        raise invalid(b"body")
    most = number_of(arguments, b"max_bytes", _DEFAULT_BYTES, 0, _MAX_BYTES)
    return _show(app, topic, query, Bodies(form, most), most)


async def _show(app: App, topic: Topic, query: Query, bodies: Bodies, most: int) -> Json:
    scan, found, room = Scan(app, topic, query.offset), list[_Shown](), _SHOWN_BYTES
    for _ in range(_MOST_READS):
        letters = await scan.some()
        if letters is None:
            break
        for letter in filter(query.letters.fits, letters):
            if len(found) == query.limit or (found and room < min(len(letter.body), most)):
                scan.back_to(letter.offset)
                break
            room -= min(len(letter.body), most)
            found.append(_shown(letter, bodies, most))
        else:
            continue
        break
    return {"topic": topic.name.decode(), "messages": found, "next": scan.following}


def _shown(letter: Letter, bodies: Bodies, most: int) -> _Shown:
    cut = len(letter.body) > most
    body: Json = bodies.show(letter.body[:most], cut)
    return _Shown(letter.offset, letter.id, letter.timestamp, len(letter.body),
                  None if letter.raw is None else Raw(letter.raw), truncated=cut and bool(body),
                  malformed_origin=letter.malformed, **body)


def _asked(app: App, arguments: dict[bytes, bytes], default: int, most: int) -> tuple[Topic, Query]:
    topic = named(app, arguments)
    query = Query.of(arguments, default, most)
    log_of(topic)
    return topic, query


# ---------------------------------------------------------------------- POST /dead/redrive, /dead/drop

def redrive(app: App, request: Request) -> Awaitable[Json]:
    """Moves letters back to their channels, and to no other channel of those topics."""
    arguments = read_whole(app.log, request)
    topic, query = named(app, arguments), Query.of(arguments, _DEFAULT_LIMIT, _MAX_LIMIT)
    target = origin_in(arguments, b"to")
    if target[0] and not target[1]:
        raise invalid(b"to")
    if target[0]:
        check_publish(request, target[0])
    if topic.log is None and not topic.exiting:
        return _redrive_memory(app, topic, query, target, arguments)
    if b"source" in arguments:
        raise ApiError(400, f"INVALID_ARG_SOURCE - {topic.name.decode()} is log-backed: its letters wait in no "
                       "channel")
    log_of(topic)
    return redrive_letters(app, topic, query, target, _MOST_READS, partial(may_publish, request))


def _redrive_memory(app: App, topic: Topic, query: Query, target: tuple[str, str],
                    arguments: dict[bytes, bytes]) -> Awaitable[Json]:
    name, source = topic.name.decode(), arguments.get(b"source", b"")
    if not target[0] or not source:
        raise ApiError(400, f"MISSING_ARG_{'TO' if source else 'SOURCE'} - {name} is kept in memory, so its messages "
                       "have no origin: name the channel that holds them (source) and their destination "
                       "(to=TOPIC/CHANNEL)")
    if query.letters != Filter() or query.offset:
        raise ApiError(400, f"NO_LOG - {name} is kept in memory: its messages can only be redriven in order, without "
                       "origin, reason, id and from")
    return redrive_memory(app, topic, existing_channel(topic, source), query, target)


def drop(app: App, request: Request) -> Awaitable[Json]:
    """Settles letters without redelivery."""
    arguments = read_whole(app.log, request)
    topic, query = named(app, arguments), Query.of(arguments, _DEFAULT_LIMIT, _MAX_LIMIT)
    if topic.log is None and not topic.exiting:
        raise ApiError(400, f"NO_LOG - {topic.name.decode()} is kept in memory: /channel/empty and /topic/empty drop "
                       "its messages")
    log_of(topic)
    return drop_letters(app, topic, query, _MOST_READS)


# ====================================================================== cancel
# POST /message/cancel: cancels a deferred message, by its id.

_ID = re.compile(rb"[0-9a-f]{16}")
# Of an id: its time in units of 2^20 ns.
_TIME_SHIFT, _UNIT_SHIFT, _EPOCH_UNITS = 22, 20, 1288834974288
# A search begins this long before the time in an id; usually the first value is enough. Ids may run ahead of the clock,
# further after each kill of the daemon. They lag only after an idle time, which has no messages to search.
_BEFORE_NS = (50_000_000, 120 * 10**9, 48 * 3600 * 10**9)
_AT_ONCE = 1 << 20          # bytes of lines in one step
_MOST = 64 << 20            # bytes of lines to search for one id


class _CancelledLine(msgspec.Struct, gc=False):
    offset: int
    id: str


_decode = Decoder(_CancelledLine).decode


class Cancelled(msgspec.Struct, frozen=True, gc=False):
    """The channels that no longer deliver the message."""

    channels: list[str]


def cancel(app: App, request: Request) -> Awaitable[Cancelled]:
    """Finishes a deferred message in one channel, or in all; answers once a restart cannot bring it back."""
    arguments = read_whole(app.log, request)
    topic = named(app, arguments)
    name = name_in(arguments, b"channel") if b"channel" in arguments else None
    if name is not None:
        existing_channel(topic, name)
    if b"id" not in arguments:
        raise ApiError(400, "MISSING_ARG_ID")
    if not _ID.fullmatch(arguments[b"id"]):
        raise invalid(b"id")
    return _cancel_once(app, request, topic, name, arguments[b"id"])


async def _cancel_once(app: App, request: Request, topic: Topic, name: bytes | None, message_id: bytes) -> Cancelled:
    """Waits for earlier searches: many clients together get no more time than one."""
    left = False

    def leave() -> None:
        nonlocal left
        left = True

    request.when_dropped(leave)
    async with app.searches:
        if left:
            raise ApiError(503, "CLIENT_GONE")
        if topic.exiting:
            raise ApiError(404, "TOPIC_NOT_FOUND")
        return await _cancel(app, topic, name, message_id)


async def _cancel(app: App, topic: Topic, name: bytes | None, message_id: bytes) -> Cancelled:
    offset = await _offset_of(app, topic, message_id) if topic.log is not None else None
    channels = [*topic.channels.values()] if name is None else [topic.channels.get(name)]
    found = [channel for channel in channels
             if channel is not None and await _take(app, channel, message_id, offset)]
    if found:
        await app.broker.recorded(topic)
        return Cancelled(sorted(channel.name.decode() for channel in found))
    if any(channel is not None and is_on_disk(channel, message_id) for channel in channels):
        raise ApiError(409, "MESSAGE_ON_DISK - it is deferred in a disk queue, whose messages cannot be taken back")
    if topic.depth and (topic.paused or not topic.channels):
        raise ApiError(409, "MESSAGE_IN_TOPIC - it may wait in the topic, which is paused or has no channel: messages "
                       "there cannot be taken back")
    raise ApiError(404, "MESSAGE_NOT_DEFERRED")


async def _take(app: App, channel: Channel, message_id: bytes, offset: int | None) -> bool:
    if offset is not None and take_logged(channel, offset):
        return True
    return await completed(app.broker.slicer, "the search for a message", _found_in(channel, message_id))


def _found_in(channel: Channel, message_id: bytes) -> Generator[None, None, bool]:
    search = Search(channel, message_id)
    while (there := search.step()) is None:
        yield
    return there


# ---------------------------------------------------------------------- logs


async def _offset_of(app: App, topic: Topic, message_id: bytes) -> int | None:
    """The offset of a message in the topic's log; None: not found."""
    made_ns = ((int(message_id, 16) >> _TIME_SHIFT) + _EPOCH_UNITS) << _UNIT_SHIFT
    for before_ns in _BEFORE_NS:
        log = topic.log
        segments = [] if log is None else log.segments_at(made_ns - before_ns)
        segment = segments[0] if segments else None
        left, at, position = _MOST, -1, 0
        while log is not None and segment is not None and left > 0:
            # A step at once: other readers run in between.
            found = await app.readers.run(partial(_find, log.folder, segment, at, position, message_id,
                                                  made_ns - before_ns))
            if found.offset is not None:
                return found.offset
            at, position, left = found.at, found.position, left - found.searched
            if at >= segment[1]:
                segment, at, position = log.segment_at(segment[1]), -1, 0
            if found.is_past:
                break
    return None


class _Found(NamedTuple):
    """The result of a step. at, position: where the next one begins; searched: bytes of lines."""

    offset: int | None
    at: int
    position: int = 0
    searched: int = 0
    is_past: bool = False


def _find(folder: str, segment: Segment, at: int, position: int, message_id: bytes, first_ns: int) -> _Found:
    """Looks for an id among some messages from a time on, up to a higher id: those of a log rise. at: the first offset;
    below 0: that of the time. Runs on a worker thread. Raises OSError."""
    # Retention may have removed it.
    with suppress(FileNotFoundError), opened(folder, segment) as file:
        begin = at if at >= 0 else reading.first_at(file, segment, first_ns)
        if begin < segment[1]:
            _, following, position, lines = reading.records(file, segment, begin, position, segment[1], _AT_ONCE, True)
            if lines:
                if (place := lines.find(b'"id":"%b"' % message_id)) >= 0:
                    return _Found(_line_at(lines, place).offset, following, position)
                is_past = _line_at(lines, len(lines) - 2).id.encode() > message_id
                return _Found(None, following, position, len(lines), is_past)
    return _Found(None, segment[1])


def _line_at(lines: bytes, place: int) -> _CancelledLine:
    """The line that contains a byte."""
    end = lines.index(b"\n", place)
    return _decode(lines[lines.rfind(b"\n", 0, place) + 1:end])
