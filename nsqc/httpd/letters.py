"""Dead letters of a log, read on worker threads, with their origins."""

from __future__ import annotations

from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from nsqc.broker.settled import unsettled
from nsqc.httpd.naming import invalid, log_of
from nsqc.httpd.positions import number_of
from nsqc.httpd.records import opened
from nsqc.httpd.request import boolean_in
from nsqc.store.log import reading
from nsqc.wire.names import is_valid_name
from nsqc.wire.outside import Decoder, JSONError

if TYPE_CHECKING:
    from nsqc.broker.topic import Topic
    from nsqc.httpd.app import App
    from nsqc.store.log.names import Bounds

_READ_BYTES = 256 * 1024        # of a log in one read, about
_TRIES = 5
_RECORD = Struct(">4xq2x16s")    # timestamp and id, before the body


class Origin(msgspec.Struct, frozen=True, gc=False):
    """The origin of a dead letter: the fields that filters use."""

    topic: str
    channel: str
    id: str = ""
    reason: str = ""
    timestamp: int = 0


class Letter(NamedTuple):
    """A message of a dead-letter topic; origin and raw, its JSON, are None if it is not a dead letter."""

    offset: int
    id: str
    timestamp: int
    body: bytes
    origin: Origin | None
    raw: bytes | None


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


def _letter(offset: int, record: bytes, raw: bytes | None) -> Letter:
    """record: in the format of disk queues."""
    origin = None
    if raw is not None:
        try:
            origin = _origin(raw)
        except JSONError:
            raw = None      # no daemon has written it
    timestamp, id_ = _RECORD.unpack_from(record)
    return Letter(offset, id_.decode(), timestamp, record[_RECORD.size:], origin, raw)


def _read(folder: str, segment: Bounds, position: int, offset: int) -> tuple[int, list[Letter]]:
    """Some letters from an offset on, at least one, and the offset after them. Runs on a worker thread. Raises
    OSError."""
    with opened(folder, segment) as file:
        first, following, _, data = reading.records(file, segment, offset, position, segment[1], _READ_BYTES, False)
        origins = reading.origins(file, segment, first, position, following)
    letters, at = [], 0
    for number in range(first, following):
        end = at + 4 + int.from_bytes(data[at:at + 4], "big")
        letters.append(_letter(number, data[at:end], origins.get(number)))
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
        return found
