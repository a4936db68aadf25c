from typing import final

@final
class OpenBatch:
    @staticmethod
    def sized(body: bytes, end: int, defer_ms: int = 0) -> OpenBatch: ...
    @staticmethod
    def lines(body: bytes, defer_ms: int = 0) -> OpenBatch: ...
    @property
    def open(self) -> bool: ...
