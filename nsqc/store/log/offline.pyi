from nsqc.store.log.recovery import SegmentState

def read_frames(path: str, segment: SegmentState) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Reads all frames of a segment: sound records, the bytes that they take in files of disk queues, and where it is
    damaged: positions, each with the first offset that is lost and the one after the last. Raises OSError."""

def read_head(path: str) -> tuple[int, int, int, int]:
    """The header of a segment: how many of its two copies are sound; then id of the log, sequence and first offset, 0
    without a sound one. Raises OSError."""

def has_index(path: str, salt: int) -> bool:
    """Whether a file ends with the index of its segment. Raises OSError."""
