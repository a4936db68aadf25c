from typing import Final

RECORD_SIZE_BYTES: Final[int]
RECORD_HEAD_BYTES: Final[int]
RECORD_ID_OFFSET: Final[int]

def count(path: str, start: int, max_bytes: int) -> tuple[int, int, int, int]: ...
def alive() -> int: ...
