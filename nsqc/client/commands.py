"""Publications as commands: fully checked before the first one is sent, and rebuilt for each attempt."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

from nsqc.client import encode
from nsqc.client.errors import BadName
from nsqc.client.options import KIB, Options, checked
from nsqc.wire.names import is_valid_name

Body: TypeAlias = bytes | bytearray | memoryview

BATCH_BYTES = 256 * KIB
BATCH_ROWS = 10_000
WINDOW = 4                      # unanswered MPUBs
DEFERRED_AT_ONCE = 1000         # DPUBs sent before their answers are read


class Command(NamedTuple):
    """Bytes that nsqd answers with this many OKs. end: the messages of the publication up to its last one."""

    data: bytes
    answers: int
    end: int


class Publication:
    """The messages of one call, and their state. A retry continues after the last acknowledged one."""

    window = 1      # unanswered commands

    def __init__(self, total: int):
        self.total = total
        self.sent = 0               # count of messages sent, at least in part
        self.acknowledged = 0       # count of messages acknowledged
        self.progress_at = time.monotonic()     # time of the last acknowledgement, or of the call

    def commands(self) -> Iterator[Command]:
        """The commands for the unacknowledged messages."""
        return iter(())

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

    def __init__(self, options: Options, topic: str, body: Body):
        self._command = Command(encode.pub(topic_name(topic), encode.checked(body, options.max_msg_size)), 1, 1)
        super().__init__(1)

    def commands(self) -> Iterator[Command]:
        """See Publication."""
        return iter((self._command,))


class Many(Publication):
    """MPUBs of up to batch_bytes and batch_rows. bodies: any iterable; it is consumed here, so that nothing is sent if
    it raises or yields a body that nsqd would refuse. Raises BadName, BadMessage, TypeError, ValueError."""

    def __init__(self, options: Options, topic: str, bodies: Iterable[Body], batch_bytes: int = BATCH_BYTES,
                 batch_rows: int = BATCH_ROWS, window: int = WINDOW):
        checked(batch_bytes=batch_bytes, batch_rows=batch_rows, window=window)
        self.window = window
        self._name = topic_name(topic)
        self._bodies = encode.all_checked(bodies, options.max_msg_size)
        self._rows, self._limit = batch_rows, min(batch_bytes, options.max_body_size)
        super().__init__(len(self._bodies))

    def commands(self) -> Iterator[Command]:
        """See Publication."""
        at = self.acknowledged
        while at < self.total:
            data, at = encode.mpub(self._name, self._bodies, at, self._rows, self._limit)
            yield Command(data, 1, at)


class Deferred(Publication):
    """DPUBs. Raises the same as Many."""

    def __init__(self, options: Options, topic: str, bodies: Iterable[Body], delay_ms: int):
        checked(delay_ms=delay_ms)
        self._name, self._delay_ms = topic_name(topic), delay_ms
        self._bodies = encode.all_checked(bodies, options.max_msg_size)
        super().__init__(len(self._bodies))

    def commands(self) -> Iterator[Command]:
        """See Publication."""
        for at in range(self.acknowledged, self.total, DEFERRED_AT_ONCE):
            part = self._bodies[at:at + DEFERRED_AT_ONCE]
            yield Command(b"".join(encode.dpub(self._name, body, self._delay_ms) for body in part), len(part),
                          at + len(part))


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
