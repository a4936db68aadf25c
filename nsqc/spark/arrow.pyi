"""Arrow columns: bodies to publish, records of disk queues, ids seen recently. See the .pyi."""

from typing import Any, Final, Literal, Self, final

from nsqc.client.commands import Ids
from nsqc.spark.columns import RecordColumns

# ====================================================================== bodies

NULL_BODY: Final[str]
EMPTY_BODY: Final[str]
BIG_BODY: Final[str]

@final
class Bodies:
    """A column given by its buffers as returned by pyarrow's Array.buffers(): validity or None, offsets, data or None.

    first and rows: offset and length of the array in elements; wide: offsets have 64 bits. Raises ValueError for
    inconsistent buffers.
    """

    # Any: pyarrow has no types
    def __init__(self, validity: Any, offsets: Any, data: Any, first: int, rows: int, wide: bool) -> None: ...
    @property
    def rows(self) -> int: ...
    def find_bad(self, start: int, max_msg_size: int) -> tuple[int, Literal["null", "empty", "too big"], int] | None:
        """The first row from start on that nsqd would refuse: (row, fault, bytes), or None."""

    def mpub(self, topic: bytes, start: int, max_rows: int, max_bytes: int) -> tuple[bytes, int]:
        """One MPUB from row start on: (command, row after the last)."""

    def dpub(
        self, topic: bytes, delays: memoryview[int], start: int, max_rows: int, max_bytes: int, id: bytes = b""
    ) -> tuple[bytes, int]:
        """A DPUB for each row from start on, joined: (commands, row after the last). delays: milliseconds, by row. id:
        of all; each is followed by a number."""


# ====================================================================== records

@final
class Records:
    """Reads path from an offset to a limit (bytes). max_msg_size bounds a body. Raises OSError."""

    def __init__(self, path: str, start: int, limit: int, max_msg_size: int) -> None: ...
    @property
    def damaged(self) -> int:
        """Bytes so far that belong to no record."""

    @property
    def damage_at(self) -> int:
        """The offset of the first of them; -1: none."""

    @property
    def path(self) -> str: ...
    def batch(self, max_rows: int, max_bytes: int) -> RecordColumns | None:
        """The next records: (count, bodies, body offsets, timestamps, attempts, ids, positions), or None at the end."""


# ====================================================================== recent ids

@final
class RecentIds:
    """Remembers the last capacity ids (1 to 2^26), each with the number of its nsqd. Uses about 32 bytes of memory per
    id."""

    def __new__(cls, capacity: int) -> Self: ...
    @property
    def count(self) -> int:
        """Number of ids remembered."""

    def remember(self, ids: Ids, node: int) -> bytearray:
        """Adds ids (16 bytes each); a byte for each: 1 if it is new, 0 if it was known."""

    def known(self, ids: Ids, node: int) -> bytearray:
        """A byte for each of the ids: 1 if it is known."""

    def __len__(self) -> int: ...
