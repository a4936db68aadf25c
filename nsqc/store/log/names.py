"""Names of the files of a log topic: see docs/ondisk.md."""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple

from nsqc.wire.parser import is_ephemeral, is_valid_name

# During a removal, a second folder of its name gets a number; any other spelling of the number is not the daemon's.
FOLDER = re.compile(r"([^~]+)\.log(?:~([1-9][0-9]{0,17}))?")
GONE = ".gone"  # suffix of a folder that is being removed
SEGMENT = re.compile(r"([0-9]{20})\.log")
SUMMARY = re.compile(r"ids\.([0-9]{20})")  # of the publish ids of a sealed segment
OTHER = re.compile(rf"manifest|cursors\.[0-9]{{6,13}}|{SUMMARY.pattern}")
TEMPORARY = re.compile(
    rf"(next|remote|manifest(\.[0-9]+-[0-9]+)?|cursors|{SUMMARY.pattern})\.tmp|[0-9]{{20}}\.(log\.tmp|fetched(\.tmp)?)")
FETCHED = ".fetched"  # suffix of the frames of a remote segment, beside its header
# An empty file in the data path: the topic has switched from its log, and its next log continues the numbering here.
LEFT = re.compile(r"([^~]+)\.log\.next\.([0-9]{20})")
FRAMES_AT = 4096  # where the frames of a segment begin: see segment.pxd
# In the journal, for redriven or dropped dead letters: no channel can have this name.
SETTLED = b"(settled)"
# The same, for the first offset that retention has not removed: if the first segment begins later, others are missing.
REMOVED = b"(removed)"
# Offset limit for the start of a segment. Publishes are refused before offsets reach it.
MOST_OFFSET = 2**62


class Segment(NamedTuple):
    """A segment. The last fields are known to tools, from its files."""

    first: int  # offset of its first record
    end: int  # after its last
    position: int  # where its frames end
    salt: int
    sequence: int = 0
    size: int = 0  # of the file
    lost: int = 0  # records of missing segments before it
    damaged: int = 0  # its records that a scan found lost
    made_ns: int = 0  # when it was begun, since 1970
    is_remote: bool = False  # its frames are in the bucket only

    @property
    def bytes(self) -> int:
        """Of its frames."""
        return self.position - FRAMES_AT


class RemoteError(OSError):
    """The frames of a segment are in the bucket only, and have to be fetched."""

    def __init__(self, folder: str, segment: Segment) -> None:
        super().__init__(errno.ENODATA, "only the bucket has these messages: start with its --bucket to read them",
                         segment_path(folder, segment.first))
        self.folder, self.segment = folder, segment


class Extent(NamedTuple):
    """Frames in a file, of a segment or of a journal, that never change again."""

    path: str
    salt: int  # of the segment; the number of a journal's file
    position: int
    length: int  # below 0: up to the end of the file, to which nothing more is written
    first: int  # offset of the first record, of a segment's
    end: int  # after the last
    sequence: int = 0  # of the segment


class Point(NamedTuple):
    """A moment of a log: where its frames, and the journal of its cursors, ended."""

    id: int  # of the log
    file: int  # number of the journal's file,
    file_at: int  # and where it ended
    sequence: int  # of the newest segment; 0: none
    salt: int
    position: int  # where it ended
    next: int  # the offset after the last record


class News(NamedTuple):
    """What is new since a point of a log; the next call continues at its point."""

    journal: list[Extent]
    frames: list[Extent]  # oldest first
    point: Point
    is_state: bool  # the journal's extents are all of it: those before do not count any more
    last: int  # number of the last frame of the journal
    first: int  # the first offset that retention has not removed
    reserved: int  # offsets below this one may have been used
    key: bytes  # of the hashes of publish ids; empty: none are remembered
    time_ns: int  # no record is newer
    due_ns: int  # no record of the newest segment is deferred for longer
    dedupe_ns: int  # how long ids of publishes are remembered


def split_folder(name: str) -> tuple[str, int]:
    """(topic, number) from a folder's name; no topic: not the folder of a log."""
    found = FOLDER.fullmatch(name)
    if found is None or not found[1].isascii():
        return "", 0
    topic = found[1].encode()
    if not is_valid_name(topic) or is_ephemeral(topic):
        return "", 0
    return found[1], int(found[2] or 0)


def topic_of(folder: str) -> str:
    """The topic from a folder's name; empty: not the folder of a log."""
    return split_folder(os.path.basename(os.path.abspath(folder)))[0]


def folders_in(data_path: str) -> dict[str, str]:
    """The topics that have a log, and their folders. Raises OSError."""
    found: dict[str, tuple[bool, int, str]] = {}
    with os.scandir(data_path) as entries:
        for entry in entries:
            topic, number = split_folder(entry.name)
            # A link: the operator has moved the folder to another disk.
            if topic and entry.is_dir():
                found[topic] = max(found.get(topic, (False, -1, "")), (not entry.is_symlink(), number, entry.path))
    return {topic: os.path.abspath(folder) for topic, (_, _, folder) in sorted(found.items())}


def segment_path(folder: str, first: int) -> str:
    """The file of the segment that begins with an offset."""
    return os.path.join(folder, f"{first:020}.log")


def frames_path(folder: str, segment: Segment) -> str:
    """The file with the frames of a segment; of a remote one it exists while they are fetched."""
    return os.path.join(folder, f"{segment.first:020}{FETCHED if segment.is_remote else '.log'}")


def first_of(name: str) -> int | None:
    """The first offset of a segment, from its file's name; None: another file."""
    found = SEGMENT.fullmatch(name)
    return int(found[1]) if found else None


def left_path(data_path: str, topic: str, offset: int) -> str:
    """The file whose name says that a topic has switched from its log, and where numbering continues."""
    return os.path.join(data_path, f"{topic}.log.next.{offset:020}")


def left_of(name: str) -> tuple[str, int]:
    """(topic, offset) from such a name; no topic: another file."""
    found = LEFT.fullmatch(name)
    if found is None or int(found[2]) > MOST_OFFSET or split_folder(f"{found[1]}.log") != (found[1], 0):
        return "", 0
    return found[1], int(found[2])


def new_id() -> int:
    """For a new log: 64 bits, never 0."""
    return int.from_bytes(os.urandom(8), "big") or 1
