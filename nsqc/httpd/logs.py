"""GET and DELETE /topic/log: the contents of a topic's log, and the positions of its channels."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import UNSET, Raw, Struct, UnsetType

from nsqc.broker.topic import Topic
from nsqc.httpd.app import App, existing_channel, invalid, log_of, named, topic_and_channel
from nsqc.httpd.reply import JSON, ApiError, Reply, Request, Stream, boolean_in, encoded, read_arguments, read_whole
from nsqc.loop.slow import promise
from nsqc.options.places import BEGINNING, END, MOST, Place, moment_of, parse_place
from nsqc.options.places import number_of as number_of_text
from nsqc.store.files import folder_key, rest
from nsqc.store.log import reading
from nsqc.store.log.names import FRAMES_AT, RemoteError, Segment, frames_path
from nsqc.store.log.reading import Run
from nsqc.store.work import Slicer

if TYPE_CHECKING:
    from nsqc.broker.channel import Channel
    from nsqc.store.log.topiclog import TopicLog


# ====================================================================== positions
# Positions in a log, as clients write them: offsets, times, `beginning` and `end`.

def number_of(arguments: dict[bytes, bytes], key: bytes, default: int, least: int = 0, most: int = MOST) -> int:
    """A whole number within bounds."""
    text = arguments.get(key)
    if text is None:
        return default
    number = number_of_text(written(text))
    if number is None or not least <= number <= most:
        raise invalid(key)
    return number


def time_of(arguments: dict[bytes, bytes], key: bytes) -> int | None:
    """A time, in ns since 1970: such a number, RFC 3339, or an age; None: missing."""
    text = arguments.get(key)
    if text is None:
        return None
    words = written(text)
    moment = number_of_text(words)
    if moment is None:
        moment = moment_of(words)
    if moment is None:
        raise invalid(key)
    return moment


def written(text: bytes) -> str:
    """An argument as text. Non-ASCII bytes become replacement characters, which are invalid in positions."""
    return text.decode("ascii", "replace")


def gone(log: TopicLog) -> Reply:
    """The answer for an offset that retention removed."""
    first = log.first
    return Reply(410, encoded({"message": "OFFSET_GONE", "first_offset": first}), JSON, nsq=True,
                 extra=f"X-NSQ-First-Offset: {first}\r\n")


def beyond(log: TopicLog) -> Reply:
    """The answer for an offset after the end."""
    following = log.following
    return Reply(416, encoded({"message": "OFFSET_BEYOND_END", "next_offset": following}), JSON, nsq=True,
                 extra=f"X-NSQ-Next-Offset: {following}\r\n")


# ====================================================================== records
# Records of a log for clients: found on a worker thread, and sent as the file's frames or as lines of JSON.

# A shorter body is read during the search; a longer one is sent in pieces.
SHORT_BYTES = 64 * 1024
# Limits of one call of send(): for a socket, and for a transport, where bytes stay until the client reads.
_SENT_AT_ONCE = 4 * 1024 * 1024
_KEPT_BYTES = 16 * 1024
_READ_AT_ONCE = 64 * 1024
# Bytes that one call checks, in some milliseconds: a longer range continues after other work of the thread.
_CHECKED_AT_ONCE = 4 * 1024 * 1024
_CHECKED_LINES_AT_ONCE = 1024 * 1024


class Wanted(NamedTuple):
    """The limits of a request, from an offset on."""

    max_messages: int
    max_bytes: int      # at least one record or frame of any size
    as_lines: bool


class Found:
    """The records for a client: a short body, or their place in a file."""

    __slots__ = ("body", "place", "run", "stream")

    def __init__(self, run: Run, place: tuple[int, int], body: bytes, stream: Frames | Lines | None) -> None:
        self.run = run
        self.place = place          # device and inode: the name may belong to another topic's file by now
        self.body = body
        self.stream = stream


def find(folder: str, segment: Segment, offset: int, position: int, wanted: Wanted) -> Found:
    """The first run of valid frames of a segment from an offset on, or its beginning: see longer(). position: see
    find_run(). Runs on a worker thread. Raises OSError."""
    with opened(folder, segment) as file:
        run = reading.find_run(file, segment, max(offset, segment[0]), position, wanted.max_messages,
                               min(wanted.max_bytes, _at_once(wanted)), wanted.as_lines)
        return _found(folder, segment, file, run, wanted)


def is_part(segment: Segment, run: Run, wanted: Wanted) -> bool:
    """Whether longer() may extend the run of find()."""
    return (_at_once(wanted) < wanted.max_bytes and run.first < run.next < segment[1]
            and run.next - run.first < wanted.max_messages and run.end - run.start < wanted.max_bytes)


def longer(folder: str, segment: Segment, found: Found, wanted: Wanted) -> Found | None:
    """The same run, extended; None: no more records. Runs on a worker thread. Raises OSError."""
    before = found.run
    with opened(folder, segment) as file:
        if _place(file) != found.place:
            return None
        more = reading.find_run(file, segment, before.next, before.last if wanted.as_lines else before.end,
                                wanted.max_messages - (before.next - before.first),
                                min(wanted.max_bytes - (before.end - before.start), _at_once(wanted)), wanted.as_lines)
        if (more.damaged or not more.first == before.next < more.next
                or (not wanted.as_lines and more.end - before.start > wanted.max_bytes)):
            return None
        run = before._replace(next=more.next, end=more.end, last=more.last, lines=before.lines + more.lines)
        return _found(folder, segment, file, run, wanted)


def _at_once(wanted: Wanted) -> int:
    return _CHECKED_LINES_AT_ONCE if wanted.as_lines else _CHECKED_AT_ONCE


def _found(folder: str, segment: Segment, file: int, run: Run, wanted: Wanted) -> Found:
    place = _place(file)
    length = run.lines if wanted.as_lines else run.end - run.start
    if length > SHORT_BYTES:
        return Found(run, place, b"", (Lines if wanted.as_lines else Frames)(folder, segment, place, run))
    if wanted.as_lines:
        return Found(run, place, reading.records(file, segment, run.first, run.start, run.next, length, True)[3], None)
    return Found(run, place, os.pread(file, length, run.start), None)


def _place(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def timestamps(folder: str, places: dict[int, tuple[Segment | None, int]]) -> dict[int, int | None]:
    """For each offset, when the first record from there on was published, in ns since 1970; None: unknown.

    places: the segments that contain the offsets, or follow them, and positions as in find_run(). Runs on a worker
    thread. Records that retention removes meanwhile are unknown.
    """
    return {offset: _timestamp(folder, *places[offset], offset) for offset in sorted(places)}


def offset_in_segment(folder: str, segment: Segment, time_ns: int) -> int:
    """The first offset of a segment published at or after a time; the end if none.

    Runs on a worker thread. Raises OSError.
    """
    with opened(folder, segment) as file:
        return reading.first_at(file, segment, time_ns)


def _timestamp(folder: str, segment: Segment | None, position: int, offset: int) -> int | None:
    if segment is None:
        return None
    if segment.is_remote:
        return segment.made_ns      # about: not worth fetching it
    with suppress(FileNotFoundError), opened(folder, segment) as file:
        return reading.time_of(file, segment, max(offset, segment[0]), position)
    return None


@contextmanager
def opened(folder: str, segment: Segment) -> Iterator[int]:
    """A descriptor of a segment, which may have become remote meanwhile, for a with block. Raises RemoteError if its
    frames have to be fetched first, and OSError."""
    for is_remote in (True,) if segment.is_remote else (False, True):
        place = segment._replace(is_remote=is_remote)
        try:
            # Non-blocking: the name may belong to something other than a file.
            file = os.open(frames_path(folder, place), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            if is_remote:
                raise RemoteError(folder, place) from None
            raise
        if is_remote or not os.fstat(file).st_size == FRAMES_AT < segment.position:
            break
        os.close(file)      # only the header is left of it
    try:
        yield file
    finally:
        os.close(file)


class Part(Stream):
    """Records of a segment, whose file is closed while the client does not read. Meanwhile the segment may become
    remote, or its fetched file may go: send() raises RemoteError then, and continues once it has been fetched."""

    def __init__(self, folder: str, segment: Segment, place: tuple[int, int], length: int) -> None:
        self.length = self.left = length
        self._folder = folder
        self._segment = segment
        self._place: tuple[int, int] | None = place     # None: it is fetched again

    @contextmanager
    def _again(self) -> Iterator[int]:
        """A descriptor of the file. Raises RemoteError or OSError."""
        try:
            with opened(self._folder, self._segment) as file:
                if self._place not in (None, _place(file)):
                    # Fetched again; or another log has this name by now, so its log is asked.
                    raise RemoteError(self._folder, self._segment._replace(is_remote=True)) from FileNotFoundError(
                        errno.ENOENT, "the segment has been replaced", self._folder)
                self._place = _place(file)
                yield file
        except RemoteError as error:
            self._segment, self._place = error.segment, None
            raise


class Frames(Part):
    """A part of a segment, unchanged. Without TLS the kernel sends it from the page cache, without a copy here."""

    def __init__(self, folder: str, segment: Segment, place: tuple[int, int], run: Run) -> None:
        super().__init__(folder, segment, place, run.end - run.start)
        self._at = run.start

    def send(self, socket: int) -> bytes:
        with self._again() as file:
            if socket >= 0 and not self._send_file(file, socket):
                return b""
            data = os.pread(file, min(self.left, _READ_AT_ONCE if socket < 0 else _KEPT_BYTES), self._at)
        if self.left and not data:
            raise OSError(errno.EIO, "the segment is shorter than before", self._folder)
        self._passed(len(data))
        return data

    def _send_file(self, file: int, socket: int) -> bool:
        """Whether the socket accepts no more; the transport will report why."""
        allowed = _SENT_AT_ONCE
        while allowed and self.left:
            try:
                sent = os.sendfile(socket, file, self._at, min(allowed, self.left))
            except (BlockingIOError, ConnectionError):
                return True
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ENOSYS):
                    return True     # the file system does not support this: the transport sends
                raise
            if not sent:
                raise OSError(errno.EIO, "the segment is shorter than before", self._folder)
            allowed -= sent
            self._passed(sent)
        return False

    def _passed(self, sent: int) -> None:
        self._at += sent
        self.left -= sent


class Lines(Part):
    """Records as lines of JSON."""

    def __init__(self, folder: str, segment: Segment, place: tuple[int, int], run: Run) -> None:
        super().__init__(folder, segment, place, run.lines)
        self._run = run
        self._offset = run.first
        self._position = run.start

    def send(self, socket: int) -> bytes:
        with self._again() as file:
            first, next_, position, data = reading.records(file, self._segment, self._offset, self._position,
                                                           self._run.next, _READ_AT_ONCE, True)
        if first != self._offset or not 0 < len(data) <= self.left:
            raise OSError(errno.EIO, "the segment has changed", self._folder)
        self._offset, self._position = next_, position
        self.left -= len(data)
        return data


# ====================================================================== logread
# GET /topic/read: records of a topic's log.

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
    wanted: Wanted
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
        wanted=Wanted(number_of(arguments, b"max_messages", 2**63 - 1, 1),
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
    if log.readable <= offset <= log.following and query.wait_ms:
        await _until_readable(request, log, offset, query.wait_ms / 1000)
    for _ in range(_TRIES):
        log = log_of(topic)
        if offset < log.first:
            if query.time is None:
                return gone(log)
            offset = log.first      # removed after it was found
        if offset > log.following:
            return beyond(log)
        segment, end = log.segment_at(offset), log.readable     # the table may be long
        if segment is None or offset >= end or segment.first >= end:
            # No record up to the next one: they are lost, numbering skipped the offsets, or the bucket lacks them.
            following = log.following if end == log.next else max(offset, end)
            return _reply(log, following, following, 0, query.wanted.as_lines)
        segment = segment._replace(end=min(segment.end, end))
        try:
            found = await app.readers.run(partial(find, log.folder, segment, offset, log.position_for(offset),
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


async def _all(app: App, request: Request, folder: str, segment: Segment, found: Found,
               wanted: Wanted) -> Found:
    """Finds the wanted part of a run. Stops early, with the part found so far, if the client may have left."""
    left = False

    def leave() -> None:
        nonlocal left
        left = True

    request.when_dropped(leave)
    if not is_part(segment, found.run, wanted):
        return found
    async with app.readers.long:
        while not left and is_part(segment, found.run, wanted):
            more = await app.readers.run(partial(longer, folder, segment, found, wanted))
            if more is None:
                break
            found = more
    return found


async def offset_at(app: App, topic: Topic, time_ns: int) -> int:
    """The offset of the first record published at or after a time; the end if none."""
    for _ in range(_TRIES):
        log = log_of(topic)
        if not (segments := log.segments_at(time_ns)):
            return log.readable
        try:
            return await app.readers.run(partial(offset_in_segment, log.folder, segments[0], time_ns))
        except FileNotFoundError:
            continue
    raise ApiError(500, "INTERNAL_ERROR")


def _reply(log: TopicLog, first: int, following: int, damaged: int, lines: bool,
           found: Found | None = None, segment: Segment | None = None) -> Reply:
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


# ====================================================================== cursors
# Positions of channels in a log: POST /channel/seek, and /channel/create with a start position.

# to= and from= may have their value in one of these arguments.
_SPELLED_OUT = (b"offset", b"time")


def seek(app: App, request: Request) -> Awaitable[Reply | None]:
    """Moves a channel of a log; answers once the move is in the journal.

    Forgets messages that were in flight or waiting: only messages after the new position are delivered.
    """
    arguments = read_whole(app.log, request)
    topic, name = topic_and_channel(app, arguments)
    existing_channel(topic, name)
    log_of(topic)
    if b"to" not in arguments:
        raise ApiError(400, "MISSING_ARG_TO")
    return _seek(app, topic, name, Target(arguments, b"to"))


async def _seek(app: App, topic: Topic, name: bytes, place: Target) -> Reply | None:
    offset = await place.resolve(app, topic)
    if isinstance(offset, Reply):
        return offset
    existing_channel(topic, name).seek(offset)
    await app.broker.recorded(topic)
    return None


def create_from(app: App, request: Request, topic: Topic, name: bytes, arguments: dict[bytes, bytes]
                ) -> Awaitable[Reply | None]:
    """Creates a channel of a log at the position `from`; answers once that is in the journal."""
    log_of(topic)
    return _create_from(app, request, topic, name, Target(arguments, b"from"))


async def _create_from(app: App, request: Request, topic: Topic, name: bytes, place: Target) -> Reply | None:
    offset = await place.resolve(app, topic)
    if isinstance(offset, Reply):
        return offset
    if topic.channel(name) is not None:
        # It exists at another position, and may be in use: /channel/seek moves it.
        raise ApiError(409, "CHANNEL_EXISTS")
    request.made += 1
    app.broker.get_channel(topic, name, offset)
    await app.broker.recorded(topic)
    return None


class Target:
    """A position in a log from a call's arguments: `to=` or `from=`, in one argument or split into two."""

    def __init__(self, arguments: dict[bytes, bytes], key: bytes) -> None:
        word = arguments[key]
        if word in _SPELLED_OUT:
            if word not in arguments:
                raise ApiError(400, f"MISSING_ARG_{word.decode().upper()}")
            self._place = (Place(offset=number_of(arguments, word, -1)) if word == b"offset"
                           else Place(time=time_of(arguments, word)))
            return
        try:
            self._place = parse_place(written(word))
        except ValueError:
            raise invalid(key) from None

    async def resolve(self, app: App, topic: Topic) -> int | Reply:
        """The offset, or the answer if it does not exist."""
        place = self._place
        offset = place.offset if place.time is None else await offset_at(app, topic, place.time)
        log = log_of(topic)
        if place.word == BEGINNING:
            return log.first
        if place.word == END:
            return log.next
        if offset < log.first:
            return gone(log)
        return beyond(log) if offset > log.following else offset


# ====================================================================== logs

_LISTED_AT_ONCE = 256       # segments between two looks at the clock
# Retention may remove a segment that is being opened: the next look finds another.
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
    local_bytes: int
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
    first, last = known.first, _last(log)
    where = {offset: (log.segment_at(offset), log.position_for(offset)) for offset in (first, last)}
    for at, (channel, position, oldest) in enumerate(places):
        # Skips offsets that retention removed, or that numbering skipped.
        oldest = _there(log, oldest)
        places[at] = channel, _there(log, position), oldest
        where[oldest] = log.segment_at(oldest), log.position_for(oldest)
        await rest(slicer)
    times = await app.readers.run(partial(timestamps, log.folder, where))
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
        local_bytes=known.local_bytes,
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
    local_bytes: int
    segments: int
    missing: int


def _known(log: TopicLog) -> _Known:
    begin, end = log.segment_numbers
    return _Known(log.first, log.next, log.following, log.bytes, log.local_bytes, end - begin, log.missing)


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
            pieces.append(encoded([(segment.first, segment.end, segment.bytes, f"{segment.salt:016x}")
                                   for segment in found])[1:-1])
            await rest(slicer)
        if log_of(topic).first == known.first:      # retention removed none meanwhile
            return Raw(b"[" + b",".join(pieces) + b"]"), known
    raise ApiError(500, "INTERNAL_ERROR")


def _last(log: TopicLog) -> int:
    """The offset of the last record: numbering may have skipped some after it, as after a takeover."""
    begin, end = log.segment_numbers
    for number in range(end - 1, begin - 1, -1):
        for segment in log.numbered(number, 1):
            if segment.first < segment.end:
                return segment.end - 1
    return log.next - 1


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
