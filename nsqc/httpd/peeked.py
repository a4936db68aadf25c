"""Peeked messages as JSON; reads those of a log on worker threads."""

from __future__ import annotations

import asyncio
import base64
import codecs
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, Raw, Struct, UnsetType

from nsqc.httpd.records import opened
from nsqc.httpd.reply import JSON, Reply, encoded
from nsqc.httpd.streaming import Held
from nsqc.store.log import reading
from nsqc.store.log.names import Bounds
from nsqc.store.slicing import rest
from nsqc.wire.outside import Decoder, JSONError

if TYPE_CHECKING:
    from nsqc.broker.channel import Channel
    from nsqc.broker.topic import Topic
    from nsqc.httpd.app import App
    from nsqc.store.peek import Seen

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
    page = Held(parts, _PATIENCE_S)
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


def read_run(folder: str, segment: Bounds | None, position: int, offset: int, most: int, most_bytes: int) -> Run:
    """The first run of records from an offset on, at least one; if there is none, only the offset to continue at.

    position: as in find_run(). Runs on a worker thread. Raises OSError.
    """
    if segment is None:
        return Run(offset, offset, b"")
    with opened(folder, segment) as file:
        begin = max(offset, segment[0])
        first, next_, _, data = reading.records(file, segment, begin, position, begin + most, most_bytes, False)
        return Run(first, next_, data)


def read_some(folder: str, places: dict[int, tuple[Bounds | None, int]], room: int) -> dict[int, bytes]:
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


def read_origins(folder: str, places: dict[int, tuple[Bounds | None, int]]) -> dict[int, bytes]:
    """The origins of dead letters by offset, for those that have one. places: ascending offsets, as in read_some().

    Runs on a worker thread. Raises OSError.
    """
    found: dict[int, bytes] = {}
    runs: list[tuple[Bounds, int, int, int]] = []       # segment, position, first offset, the one after the last
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
            origins = reading.origins(file, segment, first, position, end)
            found.update((offset, origin) for offset, origin in origins.items() if _is_json(origin))
    return found
