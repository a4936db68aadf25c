from typing import final

BOUNDS_S: tuple[float, ...]

@final
class Table:
    @property
    def count(self) -> int: ...
    def total_times(self, column: int) -> tuple[list[int], int]: ...

@final
class Text:
    def __init__(self, first: Table, second: Table, families: list[tuple[int, int, bool, bytes, bytes]]) -> None: ...
    def piece(self, size: int, chunked: bool) -> bytes: ...
