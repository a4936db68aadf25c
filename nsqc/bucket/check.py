"""What a bucket has: a summary of each node, faults and orphans, the removal of a node, and files of an earlier owner.

An orphan is an object that nothing names and no owner will delete, as a crash between two puts leaves it. Objects are
listed first and the chain is read afterwards: so what a living owner names meanwhile does not look like one.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from nsqc.bucket.checkpoint import Map
from nsqc.bucket.commit import MOST_COMMIT, checkpoint_name, commit_name, decode_commit
from nsqc.bucket.reading import cluster_of, read_chain, read_frames
from nsqc.bucket.store import Bucket, BucketError, Entry, Missing
from nsqc.bucket.takeover import WATCH_SECONDS, RefusedError
from nsqc.store.files import sync_folder
from nsqc.store.log.names import folders_in
from nsqc.store.log.recovery import read_folder

ORPHAN_SECONDS = 7 * 86400.0    # an orphan may be removed when the newest commit is this much newer
NODE = re.compile("(?!probe$)[A-Za-z0-9._-]+")          # a folder below the URI


class Summary(NamedTuple):
    node: str
    number: int                 # of the last commit
    checkpoint: int             # number of the newest one; 0: none
    epoch: int
    host: str
    time_ns: int                # of the last commit, by its writer's clock
    is_stopped: bool
    topics: int
    messages: int
    bytes: int                  # of frames

    @classmethod
    def of(cls, node: str, whole: Map, base: int) -> Summary:
        head, extents = whole.head, [*whole.extents()]
        return cls(node, head.number, base, head.epoch, head.host, head.time_ns, head.is_stopped,
                   len({log.topic for log in whole.logs.values()}), sum(part.end - part.first for part in extents),
                   sum(part.length for part in extents))


class Verdict(NamedTuple):
    summary: Summary
    faults: list[str]
    orphans: list[Entry]
    removable: list[Entry]      # orphans that are old enough


def nodes_of(root: Bucket) -> list[str]:
    """Raises Missing if no node has ever used the URI."""
    cluster_of(root)
    return [name for name in root.folders() if NODE.fullmatch(name)]


def chain_of(root: Bucket, node: str) -> tuple[Map, int]:
    """As read_chain(). Raises Missing for an unknown node."""
    whole, base = read_chain(root.below(node), cluster_of(root))
    if not whole.head.number:
        raise Missing(f"node {node} does not exist")
    return whole, base


def summary(root: Bucket, node: str) -> Summary:
    return Summary.of(node, *chain_of(root, node))


def verify(root: Bucket, node: str) -> Verdict:
    """Reads every message. Raises BucketError if the chain cannot be read."""
    bucket = root.below(node)
    entries = bucket.entries()
    whole, base = chain_of(root, node)
    faults = []
    for part in whole.extents():
        try:
            read_frames(bucket, part)
        except BucketError as error:
            faults.append(str(error))
    orphans = [entry for entry in entries if not is_named(bucket, whole, base, entry.name)]
    newest = max((entry.modified for entry in entries if entry.name.startswith("commit/")), default=0.0)
    removable = [entry for entry in orphans if newest - entry.modified >= ORPHAN_SECONDS]
    return Verdict(Summary.of(node, whole, base), faults, orphans, removable)


def is_named(bucket: Bucket, whole: Map, base: int, name: str) -> bool:
    """Whether an object belongs to the chain, or will be deleted by its owner."""
    head = whole.head
    if name in head.objects or name in head.unneeded or name == checkpoint_name(base):
        return True
    folder, _, digits = name.partition("/")
    if folder != "commit" or not digits.isdecimal() or name != commit_name(int(digits)):
        return False
    number = int(digits)
    with suppress(BucketError):
        return number >= head.commits_from or decode_commit(number, bucket.get(name, MOST_COMMIT))[0].is_claim
    return False


class Unshipped(NamedTuple):
    """Messages in a data path that the bucket does not have."""

    topic: str
    first: int                  # offset of the first of them
    messages: int


def unshipped(root: Bucket, node: str, data_path: str) -> list[Unshipped]:
    """The messages that only the logs in a data path have, and the bucket lacks. Raises BucketError or OSError."""
    whole, _ = chain_of(root, node)
    shipped: dict[int, int] = {}        # by salt: up to which offset the bucket has a segment, or had it
    for part in whole.extents():
        shipped[part.salt] = max(shipped.get(part.salt, 0), part.end)
    found = []
    for topic, folder in folders_in(data_path).items():
        opened = read_folder(folder)
        trimmed = whole.logs[opened.id].trimmed if opened.id in whole.logs else 0
        lacking = [(max(segment.first, shipped.get(segment.salt, trimmed)), segment.end) for segment in opened.segments]
        if count := sum(max(0, end - first) for first, end in lacking):
            found.append(Unshipped(topic, next(first for first, end in lacking if first < end), count))
    return found


def set_aside(data_path: str, folder: str) -> None:
    """Moves the files of a data path to a folder, made for them on the same file system. Raises OSError."""
    os.mkdir(folder, 0o700)
    for entry in [*os.scandir(data_path)]:
        if not entry.is_dir() or entry.name.split("~")[0].endswith(".log"):
            os.rename(entry.path, os.path.join(folder, entry.name))
    for path in (data_path, folder, os.path.dirname(os.path.abspath(folder))):
        sync_folder(path)


def drop(root: Bucket, node: str, watch: float = WATCH_SECONDS,
         say: Callable[[str], object] = lambda text: None) -> int:
    """Deletes all objects of a node that is not alive; returns their number. Raises RefusedError if it is."""
    bucket, is_stopped = root.below(node), False
    before = bucket.entries("commit/")
    with suppress(BucketError):         # what cannot be read, and what an earlier call has left, goes too
        is_stopped = chain_of(root, node)[0].head.is_stopped
    if not is_stopped:
        say(f"watching node {node} for {watch:.0f} s")
        time.sleep(watch)
        if bucket.entries("commit/") != before:
            raise RefusedError(f"node {node} is alive: its commits have changed meanwhile")
    entries = bucket.entries()
    for entry in entries:
        bucket.delete(entry.name)
    return len(entries)

