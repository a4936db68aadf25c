"""Messages as columns."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol, TypeAlias

from nsqc.client.chunk import Chunk
from nsqc.client.errors import ConnectError

Ids: TypeAlias = bytes | bytearray | memoryview | Chunk     # 16 bytes each
# Result of Inflow.columns(): count, bodies, offsets, timestamps, attempts, ids.
Columns: TypeAlias = tuple[int, Chunk, Chunk, Chunk, Chunk, Chunk]


class Answerable(Protocol):
    """The connection that delivered a message, as seen by messages."""

    def finish_ids(self, ids: Ids, /) -> None:
        """FIN."""

    def requeue_ids(self, ids: Ids, delay_ms: int = 0, /) -> None:
        """REQ."""


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
