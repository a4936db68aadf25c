from nsqc.store.log.recovery import SegmentState

def read_frames(path: str, segment: SegmentState) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Reads all frames of a segment: sound records, their size in files of disk queues, and damage: positions, each
    with the first lost offset and the one after the last. Raises OSError."""

def read_head(path: str) -> tuple[int, int, int, int]:
    """The header of a segment: the number of sound copies (of two); then the log's id, sequence and first offset, all 0
    without a sound copy. Raises OSError."""

def has_index(path: str, salt: int) -> bool:
    """Whether a file ends with its segment's index. Raises OSError."""
