"""Reads the logs of nodes from a bucket: for takeovers, Spark and tools. Needs no node, alive or dead.

A reader lists checkpoints once, reads the newest, then commits by number. If an object is gone, or a commit has another
predecessor, the reader was too slow, and starts over. A number that is not there is the end, or was deleted meanwhile:
so a reader lists again after a while without a new number.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from nsqc.bucket.checkpoint import Head, LogMap, Map, OtherChainError, decode_checkpoint
from nsqc.bucket.commit import MOST_COMMIT, Commit, DamagedError, Frames, checkpoint_name, commit_name, decode_commit
from nsqc.bucket.store import Bucket, Missing
from nsqc.store.log.reading import LogBlock

AHEAD = 8                       # commits requested at once, once there is more than one
STALE_SECONDS = 30.0            # without a new number, before checkpoints are listed again
RELOAD_COMMITS = 5000           # followed since the last checkpoint that was read
STARTS = 20                     # times that a reader starts over, before it gives up
NUMBERED = re.compile("checkpoint/[0-9]{20}")


def cluster_of(root: Bucket) -> str:
    """The id of the cluster below a URI. Raises Missing if no node has ever used it."""
    try:
        return root.get("cluster", 100).decode("ascii", "replace")
    except Missing:
        raise Missing("no node has used this bucket: it has no object `cluster`") from None


def newest_checkpoint(node: Bucket) -> int:
    """Its number; 0: there is none."""
    entries = node.entries("checkpoint/")
    return max((int(entry.name[-20:]) for entry in entries if NUMBERED.fullmatch(entry.name)), default=0)


def check_beginning(node: Bucket) -> None:
    """Without a checkpoint, commits begin with the first one. Raises DamagedError: a chain that seems empty would be
    begun again, and what is left of it would be lost."""
    names = {entry.name for entry in node.entries("commit/")}
    if names and commit_name(1) not in names:
        raise DamagedError(f"{min(names)} is there, but no checkpoint and not the first commit: objects were removed, "
                           "or have expired; `nsqc bucket drop` removes the rest")


def load(node: Bucket, cluster: str, number: int) -> Map:
    """A checkpoint as a map; number 0: an empty one. Raises Missing or DamagedError."""
    if number == 0:
        return Map(Head(0, cluster))
    whole = decode_checkpoint(number, node.get(checkpoint_name(number)))
    if whole.head.cluster != cluster:
        raise DamagedError(f"{checkpoint_name(number)}: is of another cluster, {whole.head.cluster}; it was copied")
    return whole


def follow(node: Bucket, whole: Map) -> Iterator[Commit]:
    """Applies the commits after a map, and returns each. Raises OtherChainError or DamagedError."""
    def fetch(number: int) -> bytes | None:
        try:
            return node.get(commit_name(number), MOST_COMMIT)
        except Missing:
            return None

    with ThreadPoolExecutor(AHEAD) as threads:
        requested: deque[Future[bytes | None]] = deque()
        number, ahead = whole.head.number + 1, 1
        while True:
            while len(requested) < ahead:
                requested.append(threads.submit(fetch, number + len(requested)))
            data = requested.popleft().result()
            if data is None:
                return
            commit, crc = decode_commit(number, data)
            whole.apply(commit, crc)
            yield commit
            number, ahead = number + 1, AHEAD


def read_chain(node: Bucket, cluster: str) -> tuple[Map, int]:
    """(everything up to the last commit, number of the checkpoint it was read from). Starts over while writers overtake
    it. Raises BucketError."""
    for attempt in range(STARTS):
        try:
            base = newest_checkpoint(node)
            whole = load(node, cluster, base)
            if not base:
                check_beginning(node)
            for _ in follow(node, whole):
                pass
            return whole, base
        except (OtherChainError, Missing):
            if attempt == STARTS - 1:
                raise
            time.sleep(0.1 * attempt)
    raise AssertionError


def read_frames(node: Bucket, part: Frames) -> bytes:
    """The frames of an extent, checked: they are whole, unchanged, and have exactly its messages. Raises Missing or
    DamagedError."""
    data = node.get_part(part.object, part.at, part.length)
    verify_frames(part, data)
    return data


def verify_frames(part: Frames, data: bytes) -> None:
    try:
        LogBlock(data, len(data), part.salt, part.position, part.first, part.end)
    except ValueError as error:
        where = part.object or "frames"
        raise DamagedError(f"{where}: messages {part.first} to {part.end - 1} are damaged: {error}") from None


# ====================================================================== readers by offset


class Range(NamedTuple):
    """Messages of one log of a node: `first` to `end` - 1, in extents that may have more at both ends."""

    node: str
    log_id: int
    topic: str
    first: int
    end: int
    extents: list[Frames]


class NodeReader:
    """Follows one node's chain; for the driver of a Spark job, and tools. Not thread-safe."""

    def __init__(self, root: Bucket, node: str) -> None:
        self.name = node
        self.bucket = root.below(node)
        self.cluster = cluster_of(root)
        self.whole, self.base = read_chain(self.bucket, self.cluster)
        self.changed = time.monotonic()

    def refresh(self, again: bool = False) -> Map:
        """Reads what is new. again: an object that this map names was gone. Raises BucketError."""
        before = self.whole.head.number
        try:
            for _ in follow(self.bucket, self.whole):
                pass
        except OtherChainError:
            again = True
        now = time.monotonic()
        if self.whole.head.number != before:
            self.changed = now
        elif now - self.changed >= STALE_SECONDS:
            self.changed, again = now, again or newest_checkpoint(self.bucket) > before
        # By now a checkpoint has packed what these commits have; a day later they are deleted.
        if again or self.whole.head.number - self.base >= RELOAD_COMMITS:
            self.whole, self.base = read_chain(self.bucket, self.cluster)
        return self.whole

    def logs(self, topic: str) -> list[tuple[int, LogMap]]:
        """The logs of a topic: more than one if it was deleted and created again."""
        return sorted((log_id, log) for log_id, log in self.whole.logs.items() if log.topic == topic)

    def plan(self, log_id: int, first: int, end: int, messages: int) -> list[Range]:
        """Divides the messages of a log, `first` to before `end`, into ranges of about `messages`, cut between extents.
        Raises KeyError: the log no longer exists."""
        log = self.whole.logs[log_id]
        first = max(first, log.trimmed)
        ranges: list[Range] = []
        chosen: list[Frames] = []
        for part in log.frames:
            if part.end <= first or part.first >= end:
                continue
            if chosen and part.end - chosen[0].first > messages:
                ranges.append(self.range_of(log_id, log, first, end, chosen))
                chosen = []
            chosen.append(part)
        if chosen:
            ranges.append(self.range_of(log_id, log, first, end, chosen))
        return ranges

    def range_of(self, log_id: int, log: LogMap, first: int, end: int, chosen: list[Frames]) -> Range:
        return Range(self.name, log_id, log.topic, max(first, chosen[0].first), min(end, chosen[-1].end), chosen)
