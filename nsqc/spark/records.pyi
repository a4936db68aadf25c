from typing import final

from nsqc.spark.columns import RecordColumns

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
