"""One data file of a disk queue: records, the write buffer, the jobs that read and write it. See the .pxd."""

from typing import Final

# ====================================================================== segment

RECORD_SIZE_BYTES: Final[int]
RECORD_HEAD_BYTES: Final[int]
RECORD_ID_OFFSET: Final[int]

def count(path: str, start: int, max_bytes: int) -> tuple[int, int, int, int]: ...
def read_blocks_alive() -> int: ...


# ====================================================================== write buffer

def write_buffers_alive() -> int: ...
