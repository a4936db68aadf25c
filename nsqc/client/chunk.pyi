from typing import final

@final
class Chunk:
    """Bytes that compiled code appends to; read-only for Python."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

def alive() -> int:
    """Number of existing chunks."""
