from typing import final

from nsqc.store.log.earlier import Earlier

# first, end, bytes, due_bytes, base_ns, last_ns, time, unsynced: see recovery.SegmentFound
_Segment = tuple[int, int, int, int, int, int, int, int]

@final
class Looks:
    def __init__(self, folders: list[bytes]) -> None: ...
    def run(self) -> None: ...
    def take(self, folder: bytes) -> tuple[int, list[_Segment], Earlier, int] | None: ...
