"""Writes journals as docs/ondisk.md describes them, and computes their meaning with a plain model."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

from nsqc.store.log.manager import TopicProgress
from tests.support.crc32c import crc32c

ADVANCE, FIN, REQ, RESET, NAME, DROP, SKIP = range(1, 8)
MORE = 1
HEAD_BYTES = 64

Op = tuple  # kind and arguments
Frame = list[tuple[int, list[Op]]]  # numbers of channels, and their operations


def encode(number: int, op: Op) -> bytes:
    """An operation of a channel."""
    kind, *rest = op
    offset = end = attempts = 0
    name = b""
    if kind in (ADVANCE, RESET):
        offset, = rest
    elif kind in (FIN, SKIP):
        offset, end = rest[0], rest[0] + rest[1]
    elif kind == REQ:
        offset, attempts, end = rest
    elif kind == NAME:
        name = rest[0].encode()
    data = struct.pack(">BBHIqq", kind, len(name), min(attempts, 65535), number, offset, end)
    return data + name.ljust(72, b"\0") if kind == NAME else data


def operations(frame: Frame) -> bytes:
    """The encoded operations of a frame."""
    return b"".join(encode(number, op) for number, ops in frame for op in ops)


def framed(ops: bytes, file: int, position: int, number: int, begins: int, flags: int = 0) -> bytes:
    """A frame at a position of a file; begins: number of the state that the file begins with, or 0."""
    payload = struct.pack(">I", len(ops)) + ops
    fields = struct.pack(">IIHHIIIqqqq", len(payload), crc32c(payload), flags, 0, 1, 0, 0, position, begins, number, 0)
    head = struct.pack(">I", 0x6E714652) + struct.pack(">I", crc32c(struct.pack(">qq", file, position) + fields)) + fields
    data = head + payload
    return data + bytes(-len(data) % 8)


def journal_path(folder: Path, file: int = 1) -> Path:
    """The path of a file."""
    return folder / f"cursors.{file:06}"


def write_journal(folder: Path, *frames: Frame, file: int = 1, first: int = 1, twice: tuple[int, ...] = ()) -> list[int]:
    """Writes a file with these frames and no state, or adds them to one; returns where each ends. first: number of the
    first one; twice: indexes of those that are there twice."""
    path = journal_path(folder, file)
    data = path.read_bytes() if path.exists() else b""
    begins, ends = 0, []
    if data:
        at = 0
        while at < len(data):
            begins, number = struct.unpack_from(">qq", data, at + 40)
            at += -(-(HEAD_BYTES + struct.unpack_from(">I", data, at + 8)[0]) // 8) * 8
            first = number + 1
    for index, frame in enumerate(frames):
        for _ in range(1 + (index in twice)):
            data += framed(operations(frame), file, len(data), first + index, begins)
        ends.append(len(data))
    path.write_bytes(data)
    return ends


@dataclass
class ChannelModel:
    """A channel, in sets."""

    name: str = ""
    cursor: int = 0
    out: set[int] = field(default_factory=set)
    skips: set[int] = field(default_factory=set)
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)

    def advance(self, cursor: int) -> None:
        """Advances the cursor, never back."""
        if cursor > self.cursor:
            self.out |= set(range(self.cursor, cursor)) - self.skips
            self.skips = {offset for offset in self.skips if offset >= cursor}
            self.cursor = cursor

    def apply(self, op: Op) -> None:
        """One operation, of a correct writer."""
        kind, *rest = op
        if kind == ADVANCE:
            self.advance(rest[0])
        elif kind == RESET:
            self.cursor, self.out, self.skips, self.waiting = rest[0], set(), set(), {}
        elif kind == FIN:
            self.advance(rest[0] + rest[1])
            for offset in range(rest[0], rest[0] + rest[1]):
                self.out.discard(offset)
                self.waiting.pop(offset, None)
        elif kind == REQ:
            self.advance(rest[0] + 1)
            self.out.discard(rest[0])
            self.waiting[rest[0]] = (rest[1], rest[2])
        elif kind == SKIP:
            self.skips |= set(range(rest[0], rest[0] + rest[1]))

    def pending(self) -> set[int]:
        """Offsets below the cursor that are not finished."""
        return self.out | set(self.waiting)


Model = dict[int, ChannelModel]


def apply(model: Model, number: int, ops: list[Op]) -> None:
    """Operations of a channel."""
    for op in ops:
        if op[0] == DROP:
            model.pop(number, None)
            continue
        channel = model.setdefault(number, ChannelModel())
        if op[0] == NAME:
            for other in [other for other, its in model.items() if its.name == op[1] and other != number]:
                del model[other]
            channel.name = op[1]
        else:
            channel.apply(op)


def described(model: Model) -> dict[int, tuple]:
    """The model, for comparison."""
    return {number: (its.name, its.cursor, its.out, its.skips, its.waiting) for number, its in model.items()}


def spread(ranges: list[tuple[int, int]]) -> set[int]:
    """The offsets of ranges."""
    return {offset for first, end in ranges for offset in range(first, end)}


def as_described(progress: TopicProgress) -> dict[int, tuple]:
    """The same for parsed progress."""
    return {its.number: (its.name, its.cursor, spread(its.out), spread(its.skips),
                         {entry.offset: (entry.attempts, entry.due_ns) for entry in its.waiting})
            for its in progress.channels}
