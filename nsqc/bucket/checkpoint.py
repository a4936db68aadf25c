"""The map: everything up to a commit. A chain of commits folds into one, and a checkpoint is one, encoded.

`Map.apply` is the only function that says what a commit means; takeovers, checkpoints and readers all use it.

The frames of a log are a list of extents. A checkpoint moves those in commits to data objects, together with smaller
extents before them, as in a binary counter: so each byte moves about log2(4 MiB / first size) times, and a log has few
extents besides those of 4 MiB and more. What a checkpoint no longer names is deleted a day later (ship.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from nsqc.bucket.commit import (
    CHECKPOINT,
    PIECE_BYTES,
    Commit,
    Count,
    DamagedError,
    Frames,
    Hex,
    LogNews,
    Object,
    Parts,
    Records,
    Text,
    Topic,
    Unsigned,
    check,
    checkpoint_name,
    commit_name,
    head_numbers,
    pack_journal,
    seal,
    unpack_journal,
    unseal,
)
from nsqc.bucket.store import Data
from nsqc.store.log.journal import fold

Unneeded = Annotated[str, Meta(pattern=r"\A(checkpoint/[0-9]{20}|data/[0-9a-f]{32})\Z")]
FINAL_BYTES = 4 << 20           # an extent of this size moves no more
LOGS_A_PART = 256               # of a checkpoint, encoded in one step
MOST_JOURNAL = 65536            # bytes of frames of a journal that a checkpoint has


class OtherChainError(DamagedError):
    """A commit does not follow the ones before: what was read is not, or no longer, the node's chain."""


class LogMap(Struct, array_like=True):
    """A log, as the bucket has it."""

    topic: Topic
    frames: list[Frames] = []
    cursors: list[Records] = []         # the last state, and the frames of the journal after it
    reserved: Count = 0
    trimmed: Count = 0
    heads: list[bytes] = []             # headers of its segments, oldest first
    key: bytes = b""
    time_ns: Count = 0
    due_ns: Count = 0
    dedupe_ns: Count = 0


class Head(Struct, array_like=True):
    """A map, but for its logs."""

    number: Count               # of the last commit that is included
    cluster: Hex
    epoch: Count = 0
    writer: str = ""            # of the last claim
    crc: Count = 0              # of the last commit
    time_ns: Count = 0          # the latest of a commit
    host: Text = ""
    is_stopped: bool = False
    metadata: bytes = b""
    left: dict[Topic, Count] = {}       # topic: the offset at which its next log continues
    objects: dict[Object, Count] = {}   # data objects that are named, and their bytes
    claims: list[Count] = []            # numbers of claims from `commits_from` on
    unneeded: list[Unneeded] = []       # objects that earlier maps named, to be deleted
    commits_from: Count = 1             # commits before this are deleted, except claims
    parts: list[Count] = []             # encoded: bytes of each part of the payload


class Map:
    def __init__(self, head: Head, logs: dict[int, LogMap] | None = None) -> None:
        self.head = head
        self.logs = logs or {}

    # ------------------------------------------------------------------ commits

    def apply(self, commit: Commit, crc: int) -> None:
        """Takes the next commit, as decoded. Raises OtherChainError or DamagedError; the map is then unusable."""
        head, name = self.head, commit_name(commit.number)
        if (commit.number, commit.previous, commit.cluster) != (head.number + 1, head.crc, head.cluster):
            raise OtherChainError(f"{name}: does not follow commit {head.number}")
        if (commit.epoch, commit.writer) != (head.epoch, head.writer) and not (
                commit.is_claim and commit.epoch == head.epoch + 1):
            raise OtherChainError(f"{name}: its writer does not own the node")
        head.number, head.crc, head.epoch, head.writer = commit.number, crc, commit.epoch, commit.writer
        head.time_ns = max(head.time_ns, commit.time_ns)
        head.host, head.is_stopped = commit.host, commit.is_stop
        if commit.is_claim:
            head.claims.append(commit.number)
        if commit.metadata is not None:
            head.metadata = commit.metadata
        for news in commit.logs:
            self.take(name, news)

    def take(self, name: str, news: LogNews) -> None:
        log = self.logs.setdefault(news.id, LogMap(news.topic))
        if news.frames and log.frames and news.frames[0].first < log.frames[-1].end:
            raise DamagedError(f"{name}: offset {news.frames[0].first} of {news.topic} is there already")
        for part in news.frames:
            if part.object.startswith("data/"):
                self.head.objects[part.object] = max(self.head.objects.get(part.object, 0), part.at + part.length)
            append(log.frames, part)
        for records in news.cursors:
            if records.is_state:
                log.cursors.clear()
            log.cursors.append(records)
        log.heads.extend(news.heads)
        log.topic, log.key = news.topic, news.key or log.key
        log.reserved = max(log.reserved, news.reserved)
        log.time_ns, log.due_ns = max(log.time_ns, news.time_ns), max(log.due_ns, news.due_ns)
        log.dedupe_ns = news.dedupe_ns
        if news.trimmed > log.trimmed:
            log.trimmed = news.trimmed
            log.frames = [part for part in log.frames if part.end > log.trimmed]
            oldest = log.frames[0].segment if log.frames else head_numbers(log.heads[-1])[0] if log.heads else 0
            log.heads = [head for head in log.heads if head_numbers(head)[0] >= oldest]
        if news.dropped:
            del self.logs[news.id]
            if news.reserved:
                self.head.left[news.topic] = news.reserved

    # ------------------------------------------------------------------ objects

    def encode(self) -> bytes:
        """The bytes of a checkpoint. Each step takes about a millisecond, so other threads run."""
        parts, items = [], [*self.logs.items()]
        for at in range(0, len(items), LOGS_A_PART):
            parts.append(msgspec.msgpack.encode(items[at:at + LOGS_A_PART]))
        self.head.parts = [len(part) for part in parts]
        return seal(CHECKPOINT, msgspec.msgpack.encode(self.head), parts)

    def fold(self) -> None:
        """Replaces long journals by their states, so that a map stays small. Raises DamagedError or OSError."""
        for log in self.logs.values():
            if len(log.cursors) > 1 and sum(len(records.data) for records in log.cursors) > MOST_JOURNAL:
                log.cursors = [fold_journal(unpack_journal(log.cursors))]

    def extents(self) -> Iterator[Frames]:
        for log in self.logs.values():
            yield from log.frames

    def alive(self) -> dict[str, int]:
        """Bytes of each object that some log has."""
        alive: dict[str, int] = {}
        for part in self.extents():
            alive[part.object] = alive.get(part.object, 0) + part.length
        return alive


def decode_checkpoint(number: int, data: bytes) -> Map:
    """Raises DamagedError."""
    name = checkpoint_name(number)
    head, start, _ = unseal(name, CHECKPOINT, data, Head)
    if head.number != number or head.commits_from > number + 1 or start + sum(head.parts) != len(data):
        raise DamagedError(f"{name}: damaged: is checkpoint {head.number}, with parts of {sum(head.parts):,} bytes")
    logs: dict[int, LogMap] = {}
    with memoryview(data) as view:
        for length in head.parts:
            try:
                items = msgspec.msgpack.decode(view[start:start + length], type=list[tuple[Unsigned, LogMap]])
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
                raise DamagedError(f"{name}: damaged: {error}") from None
            for log_id, log in items:
                check(name, log.frames)
                logs[log_id] = log
            start += length
    return Map(head, logs)


def fold_journal(parts: Parts) -> Records:
    """The state after frames of a journal. Raises OSError."""
    last, data = fold(parts, 0)
    return Records(True, last, pack_journal([(0, 0, data)]))


def append(frames: list[Frames], part: Frames) -> None:
    """Adds frames, to the last extent if they continue it."""
    if frames and frames[-1].joins(part):
        last = frames[-1]
        frames[-1] = replace(last, length=last.length + part.length, end=part.end)
    else:
        frames.append(part)


# ====================================================================== packing


def movable(frames: Sequence[Frames], sparse: set[str]) -> set[int]:
    """Which extents of a log a checkpoint moves: those in commits, smaller ones before them, and those in objects of
    which little is alive."""
    moves = {index for index, part in enumerate(frames) if part.object.startswith("commit/") or part.object in sparse}
    length = sum(frames[index].length for index in moves)
    for index in range(len(frames) - 1, -1, -1):
        part = frames[index]
        if index in moves:
            continue
        if not moves or index > min(moves) or part.length >= min(FINAL_BYTES, 2 * length):
            break
        moves.add(index)
        length += part.length
    return moves


def pack(whole: Map, read: Callable[[Frames], bytes], write: Callable[[str, Data], object]) -> None:
    """Moves extents to new data objects, sorted by log; afterwards no extent is in a commit, and `unneeded` has what is
    no longer named. Raises whatever read and write raise; then the map is unchanged."""
    alive, head = whole.alive(), whole.head
    sparse = {name for name, size in head.objects.items() if 0 < alive.get(name, 0) < size // 4}
    packer = Packer(write, new_name())
    packed: dict[int, list[Frames]] = {}
    for log_id, log in whole.logs.items():
        if moves := movable(log.frames, sparse):
            packed[log_id] = []
            for index, part in enumerate(log.frames):
                packer.add(packed[log_id], part, read(part) if index in moves else None)
    packer.flush()
    for log_id, frames in packed.items():
        merged: list[Frames] = []
        for part in frames:
            append(merged, part)
        whole.logs[log_id].frames = merged
    named = {part.object for part in whole.extents()}
    head.objects.update(packer.sizes)
    head.unneeded += sorted(head.objects.keys() - named)
    head.objects = {name: size for name, size in head.objects.items() if name in named}


class Packer:
    """Collects frames of many logs in data objects of about PIECE_BYTES, or in a commit's payload, without a name."""

    def __init__(self, write: Callable[[str, Data], object], name: str) -> None:
        self.write = write
        self.sizes: dict[str, int] = {}         # of the objects written
        self.name, self.parts, self.length = name, list[Data](), 0

    def add(self, frames: list[Frames], part: Frames, data: Data | None) -> None:
        """Appends an extent to the list of a log: moved with its data, or, without, as it is."""
        if data is None:
            frames.append(part)
            return
        if self.length and self.length + part.length > PIECE_BYTES:
            self.flush()
        self.parts.append(data)
        frames.append(replace(part, object=self.name, at=self.length))
        self.length += part.length

    def flush(self) -> None:
        if self.length:
            self.write(self.name, self.parts[0] if len(self.parts) == 1 else b"".join(self.parts))
            self.sizes[self.name] = self.length
            self.name, self.parts, self.length = new_name(), [], 0


def new_name() -> str:
    return f"data/{secrets.token_hex(16)}"
