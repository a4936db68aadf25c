from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import final

from nsqc.store.slices import Slicer
from nsqc.store.space import DiskSpace

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
