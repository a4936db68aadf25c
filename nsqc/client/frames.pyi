"""Frames of the Python client: received messages in columns, published commands. See the .pyi."""

import builtins
from collections.abc import Iterable
from types import TracebackType
from typing import Self, final

from nsqc.client.commands import Answerable, Columns, Ids

# ====================================================================== chunk

@final
class Chunk:
    """Bytes that compiled code appends to; read-only for Python."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

def alive() -> int:
    """Number of existing chunks."""


# ====================================================================== message

@final
class Message:
    """A delivered message: body, id, timestamp_ns (publication), attempts. Finish or requeue it within the message
    timeout, or nsqd delivers it again; a second answer is ignored.

    `with message:` finishes it at the end of the block, and requeues it at once if the block raises, unless it was
    answered inside. It works the same with the blocking client and asyncio's.
    """

    @property
    def body(self) -> bytes: ...
    @property
    def id(self) -> bytes:
        """16 characters."""

    @property
    def timestamp_ns(self) -> int:
        """Publish time, nanoseconds since 1970."""

    @property
    def attempts(self) -> int:
        """Number of deliveries, including this one."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers that with_headers() has put before the body; empty without."""

    @property
    def payload(self) -> bytes:
        """The body without its headers."""

    @property
    def nsqd(self) -> str:
        """The address of the nsqd that delivered it."""

    @property
    def connection(self) -> Answerable:
        """The connection that delivered it."""

    @property
    def answered(self) -> bool:
        """Whether it was finished, requeued or moved."""

    def finish(self) -> None:
        """FIN: the message is done. Raises ConnectError."""

    def requeue(self, delay_ms: int = 0) -> None:
        """REQ: nsqd delivers it again after delay_ms milliseconds. Raises ConnectError."""

    def move_to(self, topic: str, reason: str = "given_up") -> bool:
        """DEAD: nsqc moves the message to a topic of dead letters, with its origin and this reason, a name. False: an
        nsqd that does not know this; the message is unanswered. Raises ConnectError, BadName, ValueError."""

    def touch(self) -> None:
        """TOUCH: restarts its timeout. Raises ConnectError."""

    def __enter__(self) -> Message: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

def messages(columns: Columns, connection: Answerable | None) -> list[Message]:
    """A Message for each row of Inflow.columns()."""


# ====================================================================== inflow

class BadStream(ValueError):
    """Bytes that are not frames of nsqd."""

@final
class Inflow:
    """max_frame: the largest frame to accept, in bytes after its size field. tick_ns: the unit of timestamps in
    columns(), in nanoseconds."""

    def __new__(cls, max_frame: int, tick_ns: int = 1) -> Self: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, buffer: memoryview, /) -> None: ...
    @property
    def rows(self) -> int:
        """Messages collected."""

    @property
    def oldest(self) -> int:
        """The smallest timestamp among them, nanoseconds."""

    @property
    def replies(self) -> list[tuple[int, builtins.bytes]]:
        """(type, data) of responses and errors, in order; the reader clears it."""

    @property
    def bytes(self) -> int:
        """Size of the collected bodies."""

    def feed(self, data: builtins.bytes | bytearray | memoryview) -> None:
        """Takes bytes that were not received into the lent end. Raises BadStream."""

    def fed(self, count: int) -> None:
        """Takes the first count bytes of the lent end. Raises BadStream."""

    def columns(self) -> Columns:
        """Takes the collected messages: (count, bodies, body offsets, timestamps, attempts, ids); offsets int32, one
        more than messages; timestamps int64 in ticks; attempts int32; ids 16 bytes each."""


# ====================================================================== encode

def checked(body: bytes | bytearray | memoryview, max_msg_size: int) -> bytes:
    """One body as bytes. Raises BadMessage if nsqd would refuse it, TypeError if it is not a body."""

def all_checked(bodies: Iterable[bytes | bytearray | memoryview], max_msg_size: int) -> tuple[bytes, ...]:
    """All bodies of an iterable as bytes. Raises BadMessage for the first one that nsqd would refuse, TypeError if one
    is not a body, and the iterable's exceptions."""

def pub(topic: bytes, body: bytes) -> bytes:
    """PUB."""

def with_body(line: bytes, body: bytes) -> bytes:
    """A command with a body."""

def batch(line: bytes, bodies: tuple[bytes, ...], start: int, max_rows: int, max_bytes: int) -> tuple[bytes, int]:
    """A batch of bodies from start on, after the line of its command: (command, index after the last). At least one
    body, otherwise within both limits; max_bytes counts the body of the command. bodies: from all_checked."""

def finish(ids: Ids) -> bytes:
    """FIN for each of the ids, 16 bytes each."""

def requeue(ids: Ids, delay_ms: int = 0) -> bytes:
    """REQ after delay_ms milliseconds for each of the ids."""

def touch(ids: Ids) -> bytes:
    """TOUCH for each of the ids."""
