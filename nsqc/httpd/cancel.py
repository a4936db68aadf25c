"""POST /message/cancel: cancels a deferred message, by its id."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Generator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import msgspec

from nsqc.broker.cancel import Search, is_on_disk, take_logged
from nsqc.broker.channel import Channel
from nsqc.broker.topic import Topic
from nsqc.httpd.app import App
from nsqc.httpd.naming import existing_channel, invalid, name_in, named
from nsqc.httpd.records import opened
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request, read_whole
from nsqc.store.log import reading
from nsqc.store.log.names import Bounds
from nsqc.store.slicing import completed
from nsqc.wire.outside import Decoder

_ID = re.compile(rb"[0-9a-f]{16}")
# Of an id: its time in units of 2^20 ns.
_TIME_SHIFT, _UNIT_SHIFT, _EPOCH_UNITS = 22, 20, 1288834974288
# A search begins this long before the time in an id: usually the first does. Ids may have run ahead of the clock, the
# more often the daemon was killed. Behind the clock they are only after an idle time, with no messages to search.
_BEFORE_NS = (50_000_000, 120 * 10**9, 48 * 3600 * 10**9)
_AT_ONCE = 1 << 20          # bytes of lines in one step
_MOST = 64 << 20            # bytes of lines to search for one id


class _Line(msgspec.Struct, gc=False):
    offset: int
    id: str


_decode = Decoder(_Line).decode


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


def _find(folder: str, segment: Bounds, at: int, position: int, message_id: bytes, first_ns: int) -> _Found:
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


def _line_at(lines: bytes, place: int) -> _Line:
    """The line that contains a byte."""
    end = lines.index(b"\n", place)
    return _decode(lines[lines.rfind(b"\n", 0, place) + 1:end])
