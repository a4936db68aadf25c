from typing import Any, Final, Literal, final

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
