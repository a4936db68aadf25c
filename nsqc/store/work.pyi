"""Work that waits: its base types, the slicer that shares an iteration, commits. See the .pxd."""

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import final

from nsqc.loop.uv import Unread

# ====================================================================== space

@final
class DiskSpace:
    low: bool
    reason: str
    unseen: int
    trusted: int
    look: Callable[[], object] | None
    def __init__(self) -> None: ...


# ====================================================================== slices

@final
class Slicer:
    def __init__(self, loop: AbstractEventLoop | None = None, unread: Unread | None = None) -> None: ...
    @property
    def unread(self) -> Unread | None: ...
    def run(self) -> None: ...
    def start(self) -> None: ...
    def is_over(self) -> bool: ...
    def call(self, call: Callable[[], object]) -> None: ...
    def finish(self) -> None: ...

@final
class SlicedCall:
    def __init__(self, call: Callable[[], object]) -> None: ...

@final
class Trash: ...


# ====================================================================== commit

@final
class CommitSchedule:
    def __init__(self, loop: AbstractEventLoop | None = None, slicer: Slicer | None = None,
                 space: DiskSpace | None = None) -> None: ...
    @property
    def slicer(self) -> Slicer: ...
    def run(self) -> None: ...
    def finish(self) -> None: ...

@final
class Commit:
    @property
    def serial(self) -> int: ...

@final
class CallWaiter:
    def __init__(self, call: Callable[[int], object]) -> None: ...
