from collections.abc import Callable
from typing import final

@final
class DiskSpace:
    low: bool
    reason: str
    unseen: int
    trusted: int
    look: Callable[[], object] | None
    def __init__(self) -> None: ...
