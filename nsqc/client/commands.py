"""Publications as commands: checked in full before the first one is sent, and built again for each try."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from nsqc.client import encode
from nsqc.client.errors import BadName
from nsqc.client.options import KIB, Options, checked
from nsqc.wire.names import is_valid_name

Body: TypeAlias = bytes | bytearray | memoryview

BATCH_BYTES = 256 * KIB
BATCH_ROWS = 10_000
WINDOW = 4                      # unanswered MPUBs at a time
DEFERRED_AT_ONCE = 1000         # DPUBs sent before their answers are read


class Single:
    """PUB. Raises BadName, BadMessage, TypeError."""

    window = 1

    def __init__(self, options: Options, topic: str, body: Body):
        self._command = encode.pub(topic_name(topic), encode.checked(body, options.max_msg_size))

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        """The commands, each with the number of its answers."""
        return iter(((self._command, 1),))


class Many:
    """MPUBs of up to batch_bytes and batch_rows. bodies: any iterable; it is consumed here, so that nothing is sent if
    it raises or yields a body that nsqd would refuse. Raises BadName, BadMessage, TypeError, ValueError."""

    def __init__(self, options: Options, topic: str, bodies: Iterable[Body], batch_bytes: int = BATCH_BYTES,
                 batch_rows: int = BATCH_ROWS, window: int = WINDOW):
        checked(batch_bytes=batch_bytes, batch_rows=batch_rows, window=window)
        self.window = window
        self._name = topic_name(topic)
        self._bodies = encode.all_checked(bodies, options.max_msg_size)
        self._rows, self._limit = batch_rows, min(batch_bytes, options.max_body_size)

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        at = 0
        while at < len(self._bodies):
            command, at = encode.mpub(self._name, self._bodies, at, self._rows, self._limit)
            yield command, 1

    def __bool__(self) -> bool:
        return bool(self._bodies)


class Deferred:
    """DPUBs. Raises the same as Many."""

    window = 1

    def __init__(self, options: Options, topic: str, bodies: Iterable[Body], delay_ms: int):
        checked(delay_ms=delay_ms)
        self._name, self._delay_ms = topic_name(topic), delay_ms
        self._bodies = encode.all_checked(bodies, options.max_msg_size)

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        for at in range(0, len(self._bodies), DEFERRED_AT_ONCE):
            part = self._bodies[at:at + DEFERRED_AT_ONCE]
            yield b"".join(encode.dpub(self._name, body, self._delay_ms) for body in part), len(part)

    def __bool__(self) -> bool:
        return bool(self._bodies)


Publication: TypeAlias = Single | Many | Deferred


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
