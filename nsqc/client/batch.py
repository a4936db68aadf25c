"""Messages as columns."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol, TypeAlias

from nsqc.client.chunk import Chunk
from nsqc.client.errors import ConnectError

Ids: TypeAlias = bytes | bytearray | memoryview | Chunk     # 16 bytes each
# As Inflow.columns() gives them: count, bodies, offsets, timestamps, attempts, ids.
Columns: TypeAlias = tuple[int, Chunk, Chunk, Chunk, Chunk, Chunk]


class Answers(Protocol):
    """The connection that messages came over."""

    def finish_ids(self, ids: Ids, /) -> None:
        """FIN."""

    def requeue_ids(self, ids: Ids, delay_ms: int = 0, /) -> None:
        """REQ."""


class Batch:
    """Messages as columns, each an object with the buffer protocol: body n is bodies[offsets[n]:offsets[n + 1]], where
    offsets are int32; timestamps: int64; attempts: int32; ids: 16 bytes each. count: how many messages.

    `with batch:` finishes all of them at the end of the block, and requeues them at once where the block raises, unless
    they were answered by finish() or requeue() within.
    """

    __slots__ = ("_connection", "answered", "attempts", "bodies", "count", "ids", "offsets", "timestamps")

    def __init__(self, columns: Columns, connection: Answers):
        self.count, self.bodies, self.offsets, self.timestamps, self.attempts, self.ids = columns
        self.answered = False
        self._connection = connection

    def __len__(self) -> int:
        return self.count

    def finish(self) -> None:
        """FIN for all of them, in one write. Raises ConnectError."""
        if not self.answered:
            self.answered = True
            self._connection.finish_ids(self.ids)

    def requeue(self, delay_ms: int = 0) -> None:
        """REQ for all of them: they are to come again, after delay_ms milliseconds. Raises ConnectError."""
        if not self.answered:
            self.answered = True
            self._connection.requeue_ids(self.ids, delay_ms)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()
            return
        with suppress(ConnectError):    # they come again all the same, and what the block raised matters more
            self.requeue()
