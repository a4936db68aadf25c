from typing import final

from nsqc.spark.columns import RecordColumns

VALUE: int
TIMESTAMP: int
ATTEMPTS: int
ID: int
OFFSET: int

@final
class Block:
    """The first length bytes of data are count records; offset: of the first of them in the log. Of these, most are
    handed out. Raises ValueError if they are anything else."""

    def __init__(self, data: bytes | bytearray, length: int, offset: int, count: int, most: int) -> None: ...
    @property
    def offset(self) -> int:
        """Of the next record."""

    @property
    def end(self) -> int: ...
    def batch(self, max_rows: int, max_bytes: int, wanted: int) -> RecordColumns | None:
        """The next records, None at the end. At least one; otherwise at most max_rows, and max_bytes of records.

        wanted: the sum of VALUE, TIMESTAMP, ATTEMPTS, ID, OFFSET; other columns are empty. Body offsets are int32, one
        more than records; timestamps int64 in microseconds; attempts int32; ids 16 bytes each; offsets int64.
        """
