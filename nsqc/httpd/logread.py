"""GET /topic/read: records of a topic's log."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from nsqc.httpd import records
from nsqc.httpd.app import App
from nsqc.httpd.naming import invalid, log_of, named
from nsqc.httpd.positions import beyond, gone, number_of, time_of
from nsqc.httpd.reply import ApiError, Reply
from nsqc.httpd.request import Request, read_arguments
from nsqc.loop.promise import promise

if TYPE_CHECKING:
    from nsqc.broker.topic import Topic
    from nsqc.store.log.names import Bounds
    from nsqc.store.log.topiclog import TopicLog

_DEFAULT_BYTES = 1024 * 1024
_MAX_BYTES = 64 * 1024 * 1024
_MAX_WAIT_MS = 60_000
_LINES = b"application/x-ndjson"
_FRAMES = b"application/vnd.nsqc.frames"
_REFUSED = re.compile(rb";\s*q\s*=\s*0(\.0*)?\s*(;|$)")     # of a media type that the client refuses
# Retention may remove a segment that is being opened: the next look finds another.
_TRIES = 5


class _Query(Struct, frozen=True, gc=False):
    """The arguments of a request; offset is None for the beginning, or with a time."""

    offset: int | None
    time: int | None
    wanted: records.Wanted
    wait_ms: int


def read(app: App, request: Request) -> Awaitable[Reply]:
    """Records from an offset or a time on; waits for new ones on request."""
    arguments = read_arguments(app.log, request)
    topic = named(app, arguments)
    log_of(topic)
    if b"offset" in arguments and b"time" in arguments:
        raise invalid(b"time")
    query = _Query(
        offset=number_of(arguments, b"offset", 0) if b"offset" in arguments else None,
        time=time_of(arguments, b"time"),
        wanted=records.Wanted(number_of(arguments, b"max_messages", 2**63 - 1, 1),
                              number_of(arguments, b"max_bytes", _DEFAULT_BYTES, 1, _MAX_BYTES),
                              _wants_lines(request.accept)),
        wait_ms=number_of(arguments, b"wait_ms", 0, 0, _MAX_WAIT_MS),
    )
    return _read(app, request, topic, query)


def _wants_lines(accept: bytes) -> bool:
    return not any(part.partition(b";")[0].strip().lower() == _FRAMES and not _REFUSED.search(part.lower())
                   for part in accept.split(b","))


async def _read(app: App, request: Request, topic: Topic, query: _Query) -> Reply:
    log = log_of(topic)
    if query.time is not None:
        offset = await offset_at(app, topic, query.time)
    else:
        offset = log.first if query.offset is None else query.offset
    if log.next <= offset <= log.following and query.wait_ms:
        await _until_readable(request, log, offset, query.wait_ms / 1000)
    for _ in range(_TRIES):
        log = log_of(topic)
        if offset < log.first:
            if query.time is None:
                return gone(log)
            offset = log.first      # removed after it was found
        if offset > log.following:
            return beyond(log)
        segment = log.segment_at(offset)    # the table may be long
        if offset >= log.next or segment is None:
            # No record up to the next one: they are lost, or numbering skipped the offsets.
            return _reply(log, log.following, log.following, 0, query.wanted.as_lines)
        try:
            found = await app.readers.run(partial(records.find, log.folder, segment, offset, log.position_for(offset),
                                                      query.wanted))
            found = await _all(app, request, log.folder, segment, found, query.wanted)
        except FileNotFoundError:
            continue
        run = found.run
        if run.damaged and log.found_damaged(run.first - run.damaged, run.first):
            app.log.error("LOG(%s): %d damaged messages before offset %d are skipped", log.name, run.damaged,
                          run.first)
        return _reply(log, run.first, run.next, run.damaged, query.wanted.as_lines, found, segment)
    raise ApiError(500, "INTERNAL_ERROR")


async def _all(app: App, request: Request, folder: str, segment: Bounds, found: records.Found,
               wanted: records.Wanted) -> records.Found:
    """Finds the wanted part of a run. Stops early, with the part found so far, if the client may have left."""
    left = False

    def leave() -> None:
        nonlocal left
        left = True

    request.when_dropped(leave)
    if not records.is_part(segment, found.run, wanted):
        return found
    async with app.readers.long:
        while not left and records.is_part(segment, found.run, wanted):
            more = await app.readers.run(partial(records.longer, folder, segment, found, wanted))
            if more is None:
                break
            found = more
    return found


async def offset_at(app: App, topic: Topic, time_ns: int) -> int:
    """The offset of the first record published at or after a time; the end if none."""
    for _ in range(_TRIES):
        log = log_of(topic)
        if not (segments := log.segments_at(time_ns)):
            return log.next
        try:
            return await app.readers.run(partial(records.offset_at, log.folder, segments[0], time_ns))
        except FileNotFoundError:
            continue
    raise ApiError(500, "INTERNAL_ERROR")


def _reply(log: TopicLog, first: int, following: int, damaged: int, lines: bool,
           found: records.Found | None = None, segment: Bounds | None = None) -> Reply:
    extra = (f"X-NSQ-First-Offset: {first}\r\nX-NSQ-Next-Offset: {following}\r\n"
             f"X-NSQ-Messages: {following - first}\r\nX-NSQ-Damaged: {damaged}\r\n")
    if log.id is not None:
        extra += f"X-NSQ-Log-Id: {log.id}\r\n"
    if found is not None and segment is not None and not lines:
        extra += f"X-NSQ-Log-Salt: {segment[3]:016x}\r\nX-NSQ-Log-Position: {found.run.start}\r\n"
    content_type = (_LINES if lines else _FRAMES).decode()
    if found is None:
        return Reply(200, b"", content_type, extra=extra)
    return Reply(200, found.body, content_type, extra=extra, stream=found.stream)


async def _until_readable(request: Request, log: TopicLog, offset: int, seconds: float) -> None:
    """Returns when a record exists at the offset, after a timeout, if the client has left, or if the topic is
    deleted."""
    ended, settle = promise()
    request.when_dropped(settle)
    readable = log.when_readable(offset, settle)
    timer = asyncio.get_running_loop().call_later(seconds, readable.expire)
    try:
        await ended
    finally:
        readable.cancel()
        timer.cancel()
