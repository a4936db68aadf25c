"""Dead letters of a log: read on worker threads, with where they come from."""

from __future__ import annotations

import os
from base64 import b64decode
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Raw, Struct

from nsqc.broker.settled import unsettled
from nsqc.httpd.positions import log_of
from nsqc.httpd.records import opened
from nsqc.store.log import reading
from nsqc.wire.outside import Decoder

if TYPE_CHECKING:
    from nsqc.broker.topic import Topic
    from nsqc.httpd.app import App
    from nsqc.store.log.names import Bounds

_READ_BYTES = 256 * 1024        # of a log at a time, about
_TRIES = 5


class Origin(Struct, frozen=True, gc=False):
    """Where a dead letter comes from, as far as filters ask; the rest is shown as it is."""

    topic: str
    channel: str
    id: str = ""
    reason: str = ""
    timestamp: int = 0


class Letter(NamedTuple):
    """A message of a dead-letter topic; origin and raw, its JSON, are None where something else published it."""

    offset: int
    id: str
    timestamp: int
    body: bytes
    origin: Origin | None
    raw: bytes | None


class Filter(NamedTuple):
    """Which letters are meant; empty: any."""

    topic: str = ""         # of the origin
    channel: str = ""
    reason: str = ""
    id: str = ""            # its own, or that which the message had before

    def fits(self, letter: Letter) -> bool:
        """Whether this is one of them."""
        origin = letter.origin
        if self.id and self.id != letter.id and (origin is None or self.id != origin.id):
            return False
        if not (self.topic or self.reason):
            return True
        return (origin is not None and self.topic in ("", origin.topic) and self.channel in ("", origin.channel)
                and self.reason in ("", origin.reason))


_NO_RAW = Raw(b"")


class _Line(Struct, frozen=True, gc=False):
    """A record as nsqc.store.log.jsonlines writes it."""

    offset: int
    id: str
    timestamp: int
    body: str | None = None
    body_base64: str = ""
    origin: Raw = _NO_RAW


_line = Decoder(_Line).decode
_origin = Decoder(Origin).decode


def _letter(text: bytes) -> Letter:
    line = _line(text)
    raw = bytes(line.origin) or None
    return Letter(line.offset, line.id, line.timestamp,
                  b64decode(line.body_base64) if line.body is None else line.body.encode(),
                  None if raw is None else _origin(raw), raw)


def _read(folder: str, segment: Bounds, position: int, offset: int) -> tuple[int, list[Letter]]:
    """Some letters from an offset on, one at least, and the offset where to go on. Runs on a worker thread. Raises
    OSError."""
    file = opened(folder, segment)
    try:
        following, text = reading.records(file, segment, offset, position, segment[1], _READ_BYTES, True)[1:4:2]
    finally:
        os.close(file)
    return following, [_letter(line) for line in text.splitlines()]


class Scan:
    """Goes through the letters of a topic that wait: those that were neither redriven nor dropped."""

    def __init__(self, app: App, topic: Topic, offset: int) -> None:
        self._app = app
        self._topic = topic
        self.offset = offset        # where to go on

    @property
    def following(self) -> int | None:
        """Where the next call begins; None: nothing waits behind."""
        return self.offset if log_of(self._topic) and unsettled(self._topic, self.offset) else None

    def back_to(self, offset: int) -> None:
        """What follows begins with this letter again."""
        self.offset = offset

    async def some(self) -> list[Letter] | None:
        """The next ones, of which there may be none in what was read; None: that was all. Moves on."""
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
                continue        # retention has removed it
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
