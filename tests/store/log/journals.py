"""Writes journals as docs/ondisk.md describes them, and says with a plain model what they mean."""

import struct
from dataclasses import dataclass, field
from pathlib import Path

from nsqc.store.log.progress import TopicProgress
from tests.support.crc32c import crc32c

ADVANCE, FIN, REQ, RESET, NAME, DROP, OUT, SKIP = range(1, 9)


def varint(value: int) -> bytes:
    """LEB128."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def delta(offset: int, last: int) -> bytes:
    """The zigzag difference."""
    change = offset - last
    return varint(2 * change if change >= 0 else -2 * change - 1)


Op = tuple  # kind, and what it has


def encode(ops: list[Op], base: int = 0) -> bytes:
    """Operations of a section."""
    out, last = bytearray(), base
    for kind, *rest in ops:
        out.append(kind)
        if kind in (ADVANCE, RESET):
            out += delta(rest[0], last)
            last = rest[0]
        elif kind in (FIN, OUT, SKIP):
            out += delta(rest[0], last) + varint(rest[1])
            last = rest[0] + rest[1]
        elif kind == REQ:
            out += delta(rest[0], last) + varint(rest[1]) + struct.pack(">q", rest[2])
            last = rest[0]
        elif kind == NAME:
            out += varint(len(rest[0])) + rest[0].encode()
    return bytes(out)


def section(number: int, ops: list[Op], base: int = 0) -> bytes:
    """A section: operations of one channel."""
    data = encode(ops, base)
    return struct.pack(">IIq", number, len(data), base) + data


def frame(*sections: bytes) -> bytes:
    """A frame."""
    payload = b"".join(sections)
    return struct.pack(">II", len(payload), crc32c(payload)) + payload


def head(number: int) -> bytes:
    """Of a journal or snapshot."""
    first = b"NSQCJNL1" + struct.pack(">I", number)
    return first + struct.pack(">I", crc32c(first))


def write_journal(folder: Path, number: int, *frames: bytes) -> Path:
    """Writes a journal; returns its path."""
    path = folder / f"cursors.{number:06}.journal"
    path.write_bytes(head(number) + b"".join(frames))
    return path


@dataclass
class ChannelModel:
    """A channel, in sets."""

    name: str = ""
    cursor: int = 0
    out: set[int] = field(default_factory=set)
    skips: set[int] = field(default_factory=set)
    waiting: dict[int, tuple[int, int]] = field(default_factory=dict)

    def apply(self, op: Op) -> None:
        """One operation, of a writer that makes no mistakes."""
        kind, *rest = op
        if kind == ADVANCE:
            self.out |= set(range(self.cursor, rest[0])) - self.skips
            self.skips = {offset for offset in self.skips if offset >= rest[0]}
            self.cursor = rest[0]
        elif kind == RESET:
            self.cursor, self.out, self.skips, self.waiting = rest[0], set(), set(), {}
        elif kind == FIN:
            for offset in range(rest[0], rest[0] + rest[1]):
                self.out.discard(offset)
                self.waiting.pop(offset, None)
        elif kind == REQ:
            self.out.discard(rest[0])
            self.waiting[rest[0]] = (rest[1], rest[2])
        elif kind == SKIP:
            self.skips |= set(range(rest[0], rest[0] + rest[1]))

    def pending(self) -> set[int]:
        """Offsets below the cursor that are not finished."""
        return self.out | set(self.waiting)


Model = dict[int, ChannelModel]


def apply(model: Model, number: int, ops: list[Op]) -> None:
    """A section of a channel."""
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
    """The model, to be compared."""
    return {number: (its.name, its.cursor, its.out, its.skips, its.waiting) for number, its in model.items()}


def spread(ranges: list[tuple[int, int]]) -> set[int]:
    """The offsets of ranges."""
    return {offset for first, end in ranges for offset in range(first, end)}


def as_described(progress: TopicProgress) -> dict[int, tuple]:
    """What was read, likewise."""
    return {its.number: (its.name, its.cursor, spread(its.out), spread(its.skips),
                         {entry.offset: (entry.attempts, entry.due_ns) for entry in its.waiting})
            for its in progress.channels}
