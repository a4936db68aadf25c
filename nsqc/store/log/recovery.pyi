"""Opens a log: which frames and positions count, after any kind of end; also offline. See the .pxd."""

from typing import final

from nsqc.store.log.cursor import Earlier
from nsqc.store.log.names import Segment
from nsqc.store.log.topiclog import TopicLog

# ====================================================================== recovery

class LogError(OSError):
    """An unusable folder; its files stay unchanged."""

@final
class Opened:
    @property
    def earlier(self) -> Earlier: ...
    @property
    def next(self) -> int: ...
    resume_at: int
    @property
    def lost(self) -> int: ...
    @property
    def had(self) -> int: ...
    @property
    def unlisted(self) -> int: ...
    @property
    def id(self) -> int: ...
    @property
    def has_manifest(self) -> bool: ...
    @property
    def clean(self) -> bool: ...
    @property
    def segments(self) -> list[Segment]: ...
    @property
    def delays(self) -> list[tuple[int, int]]: ...

def enter(log: TopicLog, opened: Opened) -> None: ...
def read_folder(folder: str, power_failed: bool = False, keeps: bool = False) -> Opened:
    """Reads a folder: all headers and journals, and the frames of a segment whose end is unknown. Raises OSError.

    power_failed: since the last run. keeps: records the end that it found in the manifest.
    """


# ====================================================================== offline

def read_frames(path: str, segment: Segment) -> tuple[int, int, list[tuple[int, int, int]]]:
    """Reads all frames of a segment: sound records, their size in files of disk queues, and damage: positions, each
    with the first lost offset and the one after the last. Raises OSError."""

def read_head(path: str) -> tuple[int, int, int, int]:
    """The header of a segment: the number of sound copies (of two); then the log's id, sequence and first offset, all 0
    without a sound copy. Raises OSError."""

def has_index(path: str, salt: int) -> bool:
    """Whether a file ends with its segment's index. Raises OSError."""
