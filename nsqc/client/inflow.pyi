import builtins
from typing import Self, final

from nsqc.client.batch import Columns

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
