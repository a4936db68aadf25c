"""GET /topic/peek and /channel/peek: shows messages in place, page by page. Delivery is unaffected.

A page goes through the parts of a queue in the order of delivery: `f`, at the front of an ordered channel; `a`,
requeued in a channel with message_ttl; `m`, in memory; `d`, on disk or being written; `r`, of a log, requeued; `o`, of
a log, not delivered yet. Messages in flight or deferred are listed by time, `t`. A cursor is the letter of a part and a
position in it.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import re
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, Raw, Struct, UnsetType

from nsqc.broker import survey as places
from nsqc.broker.storage import unsettled
from nsqc.httpd.app import App, existing_channel, invalid, log_of, named, topic_and_channel
from nsqc.httpd.logs import number_of, opened
from nsqc.httpd.reply import JSON, ApiError, HeldPage, Reply, Request, boolean_in, encoded, read_arguments
from nsqc.store import peek as disk
from nsqc.store.files import rest
from nsqc.store.log import reading
from nsqc.store.log.names import Segment
from nsqc.store.peek import Held, Page
from nsqc.wire.outside import Decoder, JSONError
from nsqc.wire.parser import is_valid_name

if TYPE_CHECKING:
    from nsqc.broker.channel import Channel
    from nsqc.broker.topic import Topic
    from nsqc.store.disk.queue import DiskQueue
    from nsqc.store.log.topiclog import TopicLog
    from nsqc.store.peek import Seen


# ====================================================================== letters
# Dead letters of a log, read on worker threads, with their origins.

_LETTER_BYTES = 256 * 1024        # of a log in one read, about
_TRIES = 5
_SIZE, _HEAD = struct.Struct(">i"), struct.Struct(">qH16s")     # of a record: its size; timestamp, attempts, id


class Origin(Struct, frozen=True, gc=False):
    """The origin of a dead letter: the fields that filters use."""

    topic: str
    channel: str
    id: str = ""
    reason: str = ""
    timestamp: int = 0


class Letter(NamedTuple):
    """A message of a dead-letter topic; origin and raw, its JSON, are None if it is not a dead letter, or if its origin
    is malformed."""

    offset: int
    id: str
    timestamp: int
    body: bytes
    origin: Origin | None
    raw: bytes | None
    malformed: bool = False


class Filter(NamedTuple):
    """Selects letters; empty fields match any."""

    topic: str = ""         # of the origin
    channel: str = ""
    reason: str = ""
    id: str = ""            # its own, or the message's earlier one

    def fits(self, letter: Letter) -> bool:
        """Whether a letter matches."""
        origin = letter.origin
        if self.id and self.id != letter.id and (origin is None or self.id != origin.id):
            return False
        if not (self.topic or self.reason):
            return True
        return (origin is not None and self.topic in ("", origin.topic) and self.channel in ("", origin.channel)
                and self.reason in ("", origin.reason))


class Query(NamedTuple):
    """The arguments of a call."""

    letters: Filter
    offset: int         # of the first letter
    limit: int          # messages
    dry_run: bool

    @staticmethod
    def of(arguments: dict[bytes, bytes], default: int, most: int) -> Query:
        """The arguments, checked."""
        topic, channel = origin_in(arguments, b"origin")
        return Query(Filter(topic, channel, arguments.get(b"reason", b"").decode("latin-1"),
                            arguments.get(b"id", b"").decode("latin-1")),
                     number_of(arguments, b"from", 0), number_of(arguments, b"limit", default, 1, most),
                     boolean_in(arguments, b"dry_run"))


def origin_in(arguments: dict[bytes, bytes], key: bytes) -> tuple[str, str]:
    """TOPIC or TOPIC/CHANNEL; empty if missing."""
    topic, slash, channel = arguments.get(key, b"").partition(b"/")
    if (topic or slash) and not (is_valid_name(topic) and (not slash or is_valid_name(channel))):
        raise invalid(key)
    return topic.decode(), channel.decode()


_origin = Decoder(Origin).decode


def origin_of(raw: bytes | None) -> Origin | None:
    """An origin from its JSON; None: there is none, or it is malformed."""
    try:
        return None if raw is None else _origin(raw)
    except JSONError:
        return None


def _letter(offset: int, record: memoryview, raw: bytes | None) -> Letter:
    """A letter from its record, in the format of disk queues (nsqc.store.disk.segment)."""
    timestamp, _, message_id = _HEAD.unpack_from(record)
    origin = origin_of(raw)
    return Letter(offset, message_id.decode("latin-1"), timestamp, bytes(record[_HEAD.size:]), origin,
                  None if origin is None else raw, raw is not None and origin is None)


def _read(folder: str, segment: Segment, position: int, offset: int) -> tuple[int, list[Letter]]:
    """Some letters from an offset on, at least one, and the offset after them. Runs on a worker thread. Raises
    OSError."""
    with opened(folder, segment) as file:
        first, following, _, data = reading.records(file, segment, offset, position, segment[1], _LETTER_BYTES, False)
        origins = reading.origins(file, segment, first, position, following)
    letters: list[Letter] = []
    view, at = memoryview(data), 0
    for number in range(first, following):
        end = at + _SIZE.size + _SIZE.unpack_from(view, at)[0]
        letters.append(_letter(number, view[at + _SIZE.size:end], origins.get(number)))
        at = end
    return following, letters


class Scan:
    """Iterates over a topic's waiting letters: those neither redriven nor dropped."""

    def __init__(self, app: App, topic: Topic, offset: int) -> None:
        self._app = app
        self._topic = topic
        self.offset = offset        # of the next letter to read

    @property
    def following(self) -> int | None:
        """Start offset for the next call; None: no more letters wait."""
        return self.offset if log_of(self._topic) and unsettled(self._topic, self.offset) else None

    def back_to(self, offset: int) -> None:
        """Continues with this letter."""
        self.offset = offset

    async def some(self) -> list[Letter] | None:
        """The next letters; [] if one read finds none; None at the end. Advances."""
        for _ in range(_TRIES):
            log = log_of(self._topic)
            span = unsettled(self._topic, self.offset)
            segment = None if span is None else log.segment_at(span[0])
            if span is None or segment is None:
                return None
            begin = max(span[0], segment[0])
            try:
                self.offset, letters = await self._app.readers.run(
                    partial(_read, log.folder, segment, log.position_for(begin), begin))
            except FileNotFoundError:
                continue        # retention removed it
            return self._waiting(letters)
        return None

    def _waiting(self, letters: list[Letter]) -> list[Letter]:
        log_of(self._topic)
        found: list[Letter] = []
        span: tuple[int, int] | None = (0, 0)
        for letter in letters:
            if span is not None and letter.offset >= span[1]:
                span = unsettled(self._topic, letter.offset)
            if span is not None and letter.offset >= span[0]:
                found.append(letter)
                if letter.malformed:
                    self._app.log.error(
                        "DEAD LETTERS: topic %s: the origin of the message at offset %d is malformed: it counts as a "
                        "message without an origin", self._topic.name.decode(), letter.offset,
                        kind=("malformed origins", self._topic.name))
        return found


# ====================================================================== peeked
# Peeked messages as JSON; reads those of a log on worker threads.

FORMS = ("text", "json", "base64", "none")
# A longer answer is sent in pieces, so that the release of its memory is noticed.
_SHORT_BYTES = 64 * 1024

_decode_raw = Decoder(Raw).decode
_PATIENCE_S = 30.0      # a client may accept nothing of a page for this long
_PIECE_CHARS = 32 * 1024    # of a long body: if every character needs an escape, this takes a millisecond


class Client(Struct, frozen=True, gc=False):
    """The client that a message is in flight to."""

    client_id: str
    hostname: str
    remote_address: str


class Shown:
    """A message on a page."""

    __slots__ = ("attempts", "client", "delay_ms", "delivered", "due", "offset", "origin", "seen")

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.attempts = seen.attempts
        self.offset = -1            # in a log; below 0: not in a log
        self.due = 0                # ns since 1970; for a message in flight, its timeout
        self.delivered = 0          # ns since 1970
        self.delay_ms = 0           # has not begun yet
        self.client: Client | None = None
        self.origin: bytes | None = None    # of a dead letter in a log, as JSON


class _Line(Struct, frozen=True, omit_defaults=True):
    id: str
    timestamp: int
    attempts: int
    state: str
    size: int
    offset: int | UnsetType = UNSET
    due: int | UnsetType = UNSET
    delay_ms: int | UnsetType = UNSET
    delivered: int | UnsetType = UNSET
    client: Client | UnsetType | None = UNSET
    origin: Raw | UnsetType = UNSET
    body: str | UnsetType = UNSET
    body_json: Raw | UnsetType = UNSET
    body_base64: str | UnsetType = UNSET
    truncated: bool = False


class Clients:
    """The clients of a channel, by id; each is looked up once."""

    def __init__(self, channel: Channel | None) -> None:
        self._channel = channel
        self._known: dict[int, Client | None] = {}

    def of(self, owner: int) -> Client | None:
        """None: it is gone."""
        if owner not in self._known:
            # Any: a V2 session, of a higher room
            session: Any = self._channel.clients.get(owner) if self._channel is not None else None
            stats = session.stats() if session is not None else None
            self._known[owner] = (None if stats is None else
                                  Client(stats.client_id, stats.hostname, stats.remote_address))
        return self._known[owner]


class Bodies:
    """How bodies are shown, and how much of each."""

    def __init__(self, form: str, most: int) -> None:
        self._form = form
        self._most = most

    def show(self, body: bytes, truncated: bool) -> dict[str, str | Raw]:
        """The field of a body."""
        if self._form == "none":
            return {}
        if self._form != "base64" and (text := _text(body, truncated)) is not None:
            if self._form == "json" and not truncated and _is_json(body):
                return {"body_json": Raw(body)}
            return {"body": text}
        return {"body_base64": base64.b64encode(body).decode()}


def _text(body: bytes, truncated: bool) -> str | None:
    """A body as text, without a truncated last character; None: not UTF-8."""
    try:
        return codecs.utf_8_decode(body, "strict", not truncated)[0]
    except UnicodeDecodeError:
        return None


def _is_json(body: bytes) -> bool:
    """Whether a UTF-8 body is a JSON value that other parsers accept, too."""
    try:
        _decode_raw(body)
    except JSONError:
        return False
    return True


async def reply(app: App, topic: Topic, channel: Channel | None, state: str, bodies: Bodies, shown: list[Shown],
                following: str | None) -> Reply:
    """The answer, encoded a few messages per step."""
    await asyncio.sleep(0)
    slicer = app.broker.slicer
    slicer.start()
    head = {"topic": topic.name.decode(), "state": state,
            "count": topic.depth if channel is None else _count(channel, state), "next": following}
    if channel is not None:
        head["channel"] = channel.name.decode()
    parts = [encoded(head)[:-1]]
    before = b',"messages":['
    for item in shown:
        for piece in _pieces(item, state, bodies):
            parts.append(before + piece)
            before = b""
            await rest(slicer)
        before = b",\n"
    parts.append(b"]}" if shown else before + b"]}")
    if sum(map(len, parts)) <= _SHORT_BYTES:
        return Reply(200, b"".join(parts), JSON, nsq=True)
    page = HeldPage(parts, _PATIENCE_S)
    app.pages.add(page)
    return Reply(200, b"", JSON, nsq=True, stream=page)


def _count(channel: Channel, state: str) -> int:
    if state == "in_flight":
        return channel.in_flight_count
    return channel.deferred_count if state == "deferred" else channel.depth


def _pieces(shown: Shown, state: str, bodies: Bodies) -> Iterator[bytes]:
    """A message; a long text is made in pieces, and comes last."""
    seen = shown.seen
    truncated = len(seen.body) < seen.size
    # Any: the field of the body depends on its form
    body: dict[str, Any] = bodies.show(seen.body, truncated)
    truncated = truncated and bool(body)
    text = body.get("body", "")
    if len(text) <= _PIECE_CHARS:
        yield _line(shown, state, body, truncated)
        return
    yield _line(shown, state, {}, truncated)[:-1] + b',"body":"'
    for at in range(0, len(text), _PIECE_CHARS):
        yield encoded(text[at:at + _PIECE_CHARS])[1:-1]
    yield b'"}'


# Any: as above
def _line(shown: Shown, state: str, body: dict[str, Any], truncated: bool) -> bytes:
    seen = shown.seen
    return encoded(_Line(
        id=seen.id.decode("latin-1"), timestamp=seen.timestamp, attempts=shown.attempts,
        state="deferred" if state == "queued" and (shown.due or shown.delay_ms) else state, size=seen.size,
        offset=shown.offset if shown.offset >= 0 else UNSET, due=shown.due or UNSET,
        delay_ms=shown.delay_ms or UNSET, delivered=shown.delivered or UNSET,
        client=shown.client if shown.delivered else UNSET,
        origin=UNSET if shown.origin is None else Raw(shown.origin), truncated=truncated, **body))


# ---------------------------------------------------------------------- records of a log

class Run(NamedTuple):
    """Records of a log, in the format of disk queues."""

    first: int      # offset of the first
    next: int       # after the last
    data: bytes


def read_run(folder: str, segment: Segment | None, position: int, offset: int, most: int, most_bytes: int) -> Run:
    """The first run of records from an offset on, at least one; if there is none, only the offset to continue at.

    position: as in find_run(). Runs on a worker thread. Raises OSError.
    """
    if segment is None:
        return Run(offset, offset, b"")
    with opened(folder, segment) as file:
        begin = max(offset, segment[0])
        first, next_, _, data = reading.records(file, segment, begin, position, begin + most, most_bytes, False)
        return Run(first, next_, data)


def read_some(folder: str, places: dict[int, tuple[Segment | None, int]], room: int) -> dict[int, bytes]:
    """Single records by offset, with their segments and positions as in find_run(): as many leading ones as fit into
    `room` bytes, and one more; empty: damaged or removed.

    Runs on a worker thread. Raises OSError.
    """
    found: dict[int, bytes] = {}
    for offset, (segment, position) in places.items():
        found[offset] = b""
        try:
            run = read_run(folder, segment, position, offset, 1, 1)
        except FileNotFoundError:
            continue
        if run.first == offset:
            found[offset] = run.data
        room -= len(found[offset])
        if room < 0:
            break
    return found


def read_origins(folder: str, places: dict[int, tuple[Segment | None, int]]) -> dict[int, bytes]:
    """The well-formed origins of dead letters by offset. places: ascending offsets, as in read_some().

    Runs on a worker thread. Raises OSError.
    """
    found: dict[int, bytes] = {}
    runs: list[tuple[Segment, int, int, int]] = []       # segment, position, first offset, the one after the last
    for offset, (segment, position) in places.items():
        if segment is None:
            continue
        if runs and runs[-1][3] == offset < runs[-1][0][1]:
            runs[-1] = (*runs[-1][:3], offset + 1)
        else:
            runs.append((segment, position, offset, offset + 1))
    for segment, position, first, end in runs:
        # Retention may have removed it.
        with suppress(FileNotFoundError), opened(folder, segment) as file:
            found.update({offset: raw for offset, raw in reading.origins(file, segment, first, position, end).items()
                          if origin_of(raw) is not None})
    return found


# ====================================================================== peek

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
        if form not in FORMS:
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
        return await reply(app, looking.topic, looking.channel, looking.query.state, looking.query.bodies,
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
            read_some, log.folder,
            {offset: (log.segment_at(offset), log.position_for(offset)) for offset in offsets},
            self.page.room))
        self.still_there()
        return taken

    async def _run(self, log: TopicLog, offset: int) -> Run | None:
        """Records of the log from an offset on; None: just removed."""
        segment = log.segment_at(offset)
        try:
            return await self.app.readers.run(partial(
                read_run, log.folder, segment, log.position_for(offset), offset, _READ_RECORDS, _READ_BYTES))
        except FileNotFoundError:
            return None

    async def add_origins(self) -> None:
        """Adds their origins to dead letters of a log."""
        log = self.topic.log
        offsets = sorted({shown.offset for shown in self.shown if shown.offset >= 0})
        if log is None or not offsets:
            return
        places = {offset: (log.segment_at(offset), log.position_for(offset)) for offset in offsets}
        origins = await self.app.readers.run(partial(read_origins, log.folder, places))
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
        """Shows those that fit on the page; returns the last shown or skipped one."""
        last = None
        clients = Clients(self.channel)
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
