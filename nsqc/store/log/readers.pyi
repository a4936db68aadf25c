from asyncio import AbstractEventLoop
from typing import final

@final
class Readers:
    def __init__(self, loop: AbstractEventLoop) -> None: ...
    def wake_some(self) -> None: ...

@final
class WaitsForRecords:
    def cancel(self) -> None: ...
