from typing import final

@final
class Chunks:
    done: bool
    def feed(self, data: bytes, at: int, body: bytearray | None) -> int: ...
