from typing import final

@final
class Chunk:
    """Bytes that are appended in compiled code; read-only to Python."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

def alive() -> int:
    """Chunks that exist now."""
