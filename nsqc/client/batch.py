"""Messages as columns."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

from nsqc.client.chunk import Chunk
from nsqc.client.errors import ConnectError

Ids: TypeAlias = bytes | bytearray | memoryview | Chunk     # 16 bytes each


class Answers(Protocol):
    """The connection that messages came over."""

    def finish_ids(self, ids: Ids, /) -> None:
        """FIN."""

    def requeue_ids(self, ids: Ids, delay_ms: int = 0, /) -> None:
        """REQ."""


class Columns(NamedTuple):
    """Each but the first is an object with the buffer protocol.

    Body n is bodies[offsets[n]:offsets[n + 1]] (int32); timestamps: int64; attempts: int32; ids: 16 bytes each.
    """

    count: int
    bodies: Chunk
    offsets: Chunk
    timestamps: Chunk
    attempts: Chunk
    ids: Chunk


class Batch(Columns):
    """Messages as columns. `with batch:` finishes all of them at the end of the block, and requeues them at once where
    the block raises, unless they were answered by finish() or requeue() within."""

    _connection: Answers
    answered: bool = False

    def over(self, connection: Answers) -> Batch:
        """Came over this connection."""
        self._connection = connection
        return self

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
        try:
            self.requeue()
        except ConnectError:
            pass    # they come again all the same, and what the block raised matters more
