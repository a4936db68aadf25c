"""Publications as commands: fully checked before the first one is sent, and rebuilt for each attempt."""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol, TypeAlias

from nsqc.client import frames
from nsqc.client.errors import BadName, ConnectError
from nsqc.client.frames import Chunk
from nsqc.client.options import KIB, Options, checked
from nsqc.wire.parser import is_valid_name

# ====================================================================== batch
# Messages as columns.

Ids: TypeAlias = bytes | bytearray | memoryview | Chunk     # 16 bytes each
# Result of Inflow.columns(): count, bodies, offsets, timestamps, attempts, ids.
Columns: TypeAlias = tuple[int, Chunk, Chunk, Chunk, Chunk, Chunk]


class Answerable(Protocol):
    """The connection that delivered a message, as seen by messages and workers. address: of the nsqd."""

    address: str

    def forget(self, ids: Ids, /) -> None:
        """Counts messages as answered: touching them ends."""

    def finish_ids(self, ids: Ids, /) -> None:
        """FIN."""

    def requeue_ids(self, ids: Ids, delay_ms: int = 0, /) -> None:
        """REQ."""

    def move_id(self, message_id: bytes, topic: str, reason: str, /) -> bool:
        """DEAD; False: the server does not know it."""


class Batch:
    """Messages as columns, each an object with the buffer protocol: body n is bodies[offsets[n]:offsets[n + 1]], where
    offsets are int32; timestamps: int64; attempts: int32; ids: 16 bytes each. count: messages.

    `with batch:` finishes all of them at the end of the block, and requeues them at once if the block raises, unless
    finish() or requeue() was called inside.
    """

    __slots__ = ("_connection", "answered", "attempts", "bodies", "count", "ids", "offsets", "timestamps")

    def __init__(self, columns: Columns, connection: Answerable):
        self.count, self.bodies, self.offsets, self.timestamps, self.attempts, self.ids = columns
        self.answered = False
        self._connection = connection

    def __len__(self) -> int:
        return self.count

    def finish(self) -> None:
        """FIN for all messages, in one write. Raises ConnectError."""
        if not self.answered:
            self.answered = True
            self._connection.finish_ids(self.ids)

    def requeue(self, delay_ms: int = 0) -> None:
        """REQ for all messages: nsqd delivers them again after delay_ms milliseconds. Raises ConnectError."""
        if not self.answered:
            self.answered = True
            self._connection.requeue_ids(self.ids, delay_ms)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
            return
        with suppress(ConnectError):    # nsqd delivers them again anyway, and the error of the block matters more
            self.requeue()


# ====================================================================== commands

Body: TypeAlias = bytes | bytearray | memoryview

BATCH_BYTES = 256 * KIB
BATCH_ROWS = 10_000
WINDOW = 4                      # unanswered MPUBs
DEFERRED_AT_ONCE = 1000         # DPUBs sent before their answers are read
ID = re.compile(r"[!-~]{1,64}")
# Of a publication with several commands: a number is appended for each.
SHORT_ID = re.compile(r"[!-~]{1,48}")


class Offered(NamedTuple):
    """nsqc's extensions that a server has agreed to."""

    publish_ids: bool = False       # publishes may have an id
    deferred_batches: bool = False  # DMPUB is known
    dead_letters: bool = False      # DEAD is known

    @classmethod
    def by(cls, features: Mapping[str, object]) -> Offered:
        """As the answer to IDENTIFY says."""
        return cls(*(features.get(name) is True for name in cls._fields))


class Command(NamedTuple):
    """Bytes that nsqd answers with this many OKs. end: the messages of the publication up to its last one."""

    data: bytes
    answers: int
    end: int


class Publication:
    """The messages of one call, and their state. A retry continues after the last acknowledged one."""

    window = 1      # unanswered commands

    def __init__(self, total: int, id: str | None = None):
        """id: of the publication; None: it gets one when a server wants to know it."""
        self.total = total
        self._id = b"" if id is None else id.encode()
        self.sent = 0               # number of leading commands sent, the last perhaps in part
        self.acknowledged = 0       # number of leading commands acknowledged
        self.progress_at = time.monotonic()     # when the last ones were, or the call began

    def commands(self, offered: Offered) -> Iterator[Command]:
        """The commands for the messages that are not acknowledged, for a server that offers this. Those of a retry have
        the same ids as before."""
        return iter(())

    def word(self, offered: Offered, at: int) -> bytes:
        """The id of the command that begins with a message, as the last word of its line; empty: the server wants none.
        """
        if not offered.publish_ids:
            return b""
        self._id = self._id or new_id()
        return b" %b.%d" % (self._id, at) if at else b" " + self._id

    def submitting(self, end: int) -> None:
        """The messages up to this one are about to be sent."""
        self.sent = max(self.sent, end)

    def confirm(self, end: int) -> None:
        """The messages up to this one are acknowledged."""
        self.acknowledged, self.progress_at = end, time.monotonic()

    def __bool__(self) -> bool:
        return self.total > 0


class Single(Publication):
    """PUB. Raises BadName, BadMessage, TypeError."""

    def __init__(self, options: Options, topic: str, body: Body, id: str | None = None):
        self._name = topic_name(topic)
        self._body = frames.checked(body, options.max_msg_size)
        super().__init__(1, checked_id(id, ID))

    def commands(self, offered: Offered) -> Iterator[Command]:
        """As of Publication."""
        return iter((Command(frames.pub(self._name + self.word(offered, 0), self._body), 1, 1),))


class Many(Publication):
    """MPUBs of up to batch_bytes and batch_rows. bodies: any iterable; it is consumed here, so that nothing is sent if
    it raises or yields a body that nsqd would refuse. Raises BadName, BadMessage, TypeError, ValueError."""

    def __init__(self, options: Options, topic: str, bodies: Iterable[Body], batch_bytes: int = BATCH_BYTES,
                 batch_rows: int = BATCH_ROWS, window: int = WINDOW, id: str | None = None):
        checked(batch_bytes=batch_bytes, batch_rows=batch_rows, window=window)
        self.window = window
        self._name = topic_name(topic)
        self._bodies = frames.all_checked(bodies, options.max_msg_size)
        self._rows, self._limit = batch_rows, min(batch_bytes, options.max_body_size)
        super().__init__(len(self._bodies), checked_id(id, SHORT_ID))

    def commands(self, offered: Offered) -> Iterator[Command]:
        """As of Publication."""
        at = self.acknowledged
        while at < self.total:
            line = b"MPUB " + self._name + self.word(offered, at) + b"\n"
            data, at = frames.batch(line, self._bodies, at, self._rows, self._limit)
            yield Command(data, 1, at)


class Deferred(Publication):
    """DMPUBs of up to BATCH_BYTES and BATCH_ROWS where the server knows them, otherwise DPUBs. Raises the same as Many.
    """

    def __init__(self, options: Options, topic: str, bodies: Iterable[Body], delay_ms: int, id: str | None = None):
        checked(delay_ms=delay_ms)
        self._name, self._delay_ms = topic_name(topic), delay_ms
        self._bodies = frames.all_checked(bodies, options.max_msg_size)
        self._limit = min(BATCH_BYTES, options.max_body_size)
        super().__init__(len(self._bodies), checked_id(id, SHORT_ID))

    def commands(self, offered: Offered) -> Iterator[Command]:
        """As of Publication."""
        at = self.acknowledged
        while at < self.total:
            if offered.deferred_batches and self.total > 1:
                data, end = frames.batch(self._line(b"DMPUB", offered, at), self._bodies, at, BATCH_ROWS, self._limit)
                yield Command(data, 1, end)
            else:
                end = min(at + DEFERRED_AT_ONCE, self.total)
                yield Command(b"".join(frames.with_body(self._line(b"DPUB", offered, index), self._bodies[index])
                                       for index in range(at, end)), end - at, end)
            at = end

    def _line(self, command: bytes, offered: Offered, at: int) -> bytes:
        return b"%b %b %d%b\n" % (command, self._name, self._delay_ms, self.word(offered, at))


def new_id() -> bytes:
    """For a publication: 120 random bits."""
    return base64.urlsafe_b64encode(os.urandom(15))


def checked_id(id: str | None, form: re.Pattern[str]) -> str | None:
    """The id of a publication. Raises ValueError, TypeError."""
    if id is None or (isinstance(id, str) and form.fullmatch(id)):
        return id
    if not isinstance(id, str):
        raise TypeError(f"id is {id!r}; it takes a str or None")
    raise ValueError(f"id is {id!r}; it takes 1 to {64 if form is ID else 48} printable ASCII characters, no blanks")


def topic_name(topic: str) -> bytes:
    """The name as bytes. Raises BadName, TypeError."""
    return checked_name("topic", topic)


def channel_name(channel: str) -> bytes:
    """The name as bytes. Raises BadName, TypeError."""
    return checked_name("channel", channel)


def checked_name(kind: str, name: str) -> bytes:
    """The name as bytes; kind: topic or channel. Raises BadName, TypeError."""
    if not isinstance(name, str):
        raise TypeError(f"a {kind} name is a str, not {type(name).__name__}")
    encoded = name.encode(errors="replace")
    if not is_valid_name(encoded):
        raise BadName(f"{kind} {name!r}: a name is 1 to 64 of . a-z A-Z 0-9 _ -, and #ephemeral may follow")
    return encoded
