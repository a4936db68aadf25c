from collections.abc import Iterable
from typing import final

@final
class Census:
    counts: dict[type, int]
    complete: bool
    def __init__(self, roots: Iterable[object]) -> None: ...
    def go_on(self, for_ns: int) -> bool: ...
    def close(self) -> None: ...
