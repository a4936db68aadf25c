from typing import final

from nsqc.store.log.recovery import SegmentState

@final
class FrameWalk:
    """The frames of a segment, in order, for tools. Its file is open while the object exists."""

    def __init__(self, folder: str, segment: SegmentState, offset: int = 0, heads: bool = False) -> None:
        """Begins at or before the frame with an offset. heads: payloads are neither read nor checked. Raises OSError."""
    def step(self) -> bool:
        """Goes to the next valid frame; False: there are no more. Raises OSError."""
    def reach(self, offset: int) -> bool:
        """Goes to the frame with an offset, or to the first one after it; stays if that is the present one. False: there
        is none. Raises OSError."""
    @property
    def first(self) -> int:
        """Offset of the frame's first record; after the last frame, the end of the segment."""
    @property
    def end(self) -> int:
        """After its last record."""
    @property
    def time_ns(self) -> int:
        """When it was published, since 1970."""
    @property
    def hole(self) -> int:
        """Position of the damage before the frame, or before the end of the segment; -1: there is none."""
    @property
    def lost(self) -> int:
        """Records between the frame before, or the beginning of the segment, and this one."""
    @property
    def queue_bytes(self) -> int:
        """Of its records in a file of a disk queue."""
    def queue_records(self, first: int, end: int, attempts: int) -> bytes:
        """Some of its records as files of disk queues have them."""

def read_head(path: str) -> tuple[int, int, int, int]:
    """The header of a segment: how many of its two copies are sound; then id of the log, sequence and first offset, 0
    without a sound one. Raises OSError."""

def has_index(path: str, salt: int) -> bool:
    """Whether a file ends with the index of its segment. Raises OSError."""
