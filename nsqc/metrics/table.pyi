from typing import final

@final
class Table:
    @property
    def count(self) -> int: ...

@final
class Text:
    def __init__(self, first: Table, second: Table, families: list[tuple[int, int, bool, bytes, bytes]]) -> None: ...
    def piece(self, size: int, chunked: bool) -> bytes: ...
