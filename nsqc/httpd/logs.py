"""GET and DELETE /topic/log: the contents of a topic's log, and the positions of its channels."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, Raw, Struct, UnsetType

from nsqc.httpd import records
from nsqc.httpd.app import App
from nsqc.httpd.naming import log_of, named
from nsqc.httpd.reply import ApiError, encoded
from nsqc.httpd.request import Request, boolean_in, read_arguments
from nsqc.store.log.names import FRAMES_AT
from nsqc.store.machine import folder_key
from nsqc.store.slices import Slicer
from nsqc.store.slicing import rest

if TYPE_CHECKING:
    from nsqc.broker.channel import Channel
    from nsqc.broker.topic import Topic
    from nsqc.store.log.topiclog import TopicLog

_LISTED_AT_ONCE = 256       # segments between two looks at the clock
# Retention may remove a segment that is being opened: the next look finds another.
_TRIES = 5
_BUSY_S = 0.01      # between two looks at a log in use by a thread


class ChannelPosition(Struct, frozen=True, gc=False):
    """A channel on a log. Its lag is the unfinished messages; the oldest of them has waited lag_seconds."""

    channel_name: str
    position: int
    oldest_unfinished: int
    lag_messages: int
    lag_seconds: float
    in_flight: int
    deferred: int


class LogState(Struct, frozen=True):
    """The answer of /topic/log. Times are in ns since 1970, None without a message; id is None for an unwritten log;
    folder and folder_key are None for that, too, and for a path that is not UTF-8."""

    topic: str
    id: str | None
    folder: str | None
    folder_key: str | None
    first_offset: int
    next_offset: int
    first_time: int | None
    last_time: int | None
    bytes: int
    segments: int
    damaged: int
    missing: int
    sync: str
    channels: list[ChannelPosition]
    # First offset, offset after the last, bytes of frames, salt of each; only on request.
    segment_list: Raw | UnsetType = UNSET


def show(app: App, request: Request) -> Awaitable[LogState]:
    """The log of a topic and the positions of its channels."""
    arguments = read_arguments(app.log, request)
    topic = named(app, arguments)
    log = log_of(topic)
    return _show(app, topic, log, boolean_in(arguments, b"segments"))


async def _show(app: App, topic: Topic, log: TopicLog, with_segments: bool) -> LogState:
    slicer = app.broker.slicer
    slicer.start()
    places: list[tuple[Channel, int, int]] = []     # with position and oldest unfinished offset
    for name in sorted(topic.channels):
        channel = topic.channels.get(name)
        position, oldest = (None, None) if channel is None else (channel.position, channel.oldest)
        if channel is not None and position is not None and oldest is not None:
            places.append((channel, position, oldest))
        await rest(slicer)
    listed: Raw | UnsetType = UNSET
    if with_segments:
        listed, known = await _listed(topic, slicer)
    else:
        known = _known(log_of(topic))
    first, last = known.first, known.next - 1
    where = {offset: (log.segment_at(offset), log.position_for(offset)) for offset in (first, last)}
    for at, (channel, position, oldest) in enumerate(places):
        # Skips offsets that retention removed, or that numbering skipped.
        oldest = _there(log, oldest)
        places[at] = channel, _there(log, position), oldest
        where[oldest] = log.segment_at(oldest), log.position_for(oldest)
        await rest(slicer)
    times = await app.readers.run(partial(records.timestamps, log.folder, where))
    folder, key = await app.readers.run(partial(_recognized, log.folder))
    now = time.time_ns()
    channels = []
    slicer.start()
    for channel, position, oldest in places:
        if not channel.exiting:
            channels.append(_position(channel, position, oldest, times[oldest], now))
        await rest(slicer)
    return LogState(
        topic=topic.name.decode(),
        id=log.id,
        folder=folder,
        folder_key=key,
        first_offset=first,
        next_offset=known.following,
        first_time=times[first],
        last_time=times[last],
        bytes=known.bytes,
        segments=known.segments,
        damaged=log.damaged,
        missing=known.missing,
        sync=topic.rule.sync,
        channels=channels,
        segment_list=listed,
    )


def _recognized(folder: str) -> tuple[str | None, str | None]:
    """A folder, and a key by which readers on the same machine recognise it. Runs on a worker thread."""
    try:
        folder.encode()             # JSON cannot contain bytes that are not text
        key = folder_key(folder)
    except (OSError, UnicodeEncodeError):
        return None, None
    return (folder, key) if key else (None, None)


class _Known(NamedTuple):
    """A log at one moment."""

    first: int
    next: int
    following: int
    bytes: int
    segments: int
    missing: int


def _known(log: TopicLog) -> _Known:
    begin, end = log.segment_numbers
    return _Known(log.first, log.next, log.following, log.bytes, end - begin, log.missing)


async def _listed(topic: Topic, slicer: Slicer) -> tuple[Raw, _Known]:
    """The segments as JSON, in slices, and the log at the same moment."""
    for _ in range(_TRIES):
        log = log_of(topic)
        known, (begin, after) = _known(log), log.segment_numbers
        newest = log.numbered(after - 1, 1)
        pieces: list[bytes] = []
        for at in range(begin, after, _LISTED_AT_ONCE):
            found = log.numbered(at, min(_LISTED_AT_ONCE, after - at))
            if at + _LISTED_AT_ONCE >= after:
                found[-1:] = newest     # it may have grown
            pieces.append(encoded([(first, end, position - FRAMES_AT, f"{salt:016x}")
                                   for first, end, position, salt in found])[1:-1])
            await rest(slicer)
        if log_of(topic).first == known.first:      # retention removed none meanwhile
            return Raw(b"[" + b",".join(pieces) + b"]"), known
    raise ApiError(500, "INTERNAL_ERROR")


def _there(log: TopicLog, offset: int) -> int:
    """An offset, or the next existing one; after the end, the offset itself."""
    segment = log.segment_at(offset)
    return offset if segment is None else max(offset, segment[0])


def _position(channel: Channel, position: int, oldest: int, stamp: int | None, now: int) -> ChannelPosition:
    in_flight, deferred = channel.in_flight_count, channel.deferred_count
    lag = channel.depth + in_flight + deferred
    seconds = 0.0 if stamp is None or not lag else max(0, now - stamp) / 1e9
    return ChannelPosition(channel.name.decode(), position, oldest, lag, seconds, in_flight, deferred)


def delete(app: App, request: Request) -> Awaitable[None]:
    """Deletes the log that a topic has switched from; answers once its files are gone."""
    topic = named(app, read_arguments(app.log, request))
    log_of(topic)
    return _delete(app, topic)


async def _delete(app: App, topic: Topic) -> None:
    name = topic.name.decode()
    while True:
        log = log_of(topic)
        if topic.rule.storage == "log":
            raise ApiError(409, f'LOG_IN_USE: the rule of {name} says storage = "log"; change it first, or delete the '
                                "topic")
        if topic.log_unfinished:
            raise ApiError(409, f"LOG_IN_USE: channels of {name} have not finished {topic.log_unfinished} messages of "
                                "its log; consume them, or empty or delete these channels")
        if topic.drop_log():
            break
        await asyncio.sleep(_BUSY_S)
    app.log.info("TOPIC(%s): %d bytes of its log are deleted", name, log.bytes)
    await app.broker.removed()
