"""Commits: what happened to a node's logs, in their own terms, in objects numbered without gaps.

`commit/NUMBER` is created only if absent; whoever creates the next number owns the node. An object is

    at  bytes
    0   8     magic, with kind and version
    8   4     bytes of the header, big-endian
    12  4     CRC-32 of bytes 8 to 11, the header and the payload
    16        header (MessagePack), then payload

The payload of a commit has frames as the logs wrote them. A commit names its predecessor by CRC, so a chain is what its
numbers say, or is noticed not to be. Nothing in an object is trusted: `decode` and `check` bound every number and name.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from nsqc.bucket.store import BucketError, Data

COMMIT, CHECKPOINT = b"nsqcCOM\x01", b"nsqcCHK\x01"
HEAD = 16
INLINE_BYTES = 4 << 20          # of frames in a commit; more go to data objects
MOST_COMMIT = 64 << 20          # bytes that a reader accepts
PIECE_BYTES = 8 << 20           # of a data object, unless a single frame is larger

# Limits of numbers: offsets as in docs/ondisk.md, and what can be added without leaving 64 bits.
Count = Annotated[int, Meta(ge=0, le=2**62)]
Unsigned = Annotated[int, Meta(ge=0)]           # of 64 bits: ids and salts of logs
Hex = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
Object = Annotated[str, Meta(pattern=r"\A(|commit/[0-9]{20}|data/[0-9a-f]{32})\Z")]
Text = Annotated[str, Meta(max_length=1000)]
Head = Annotated[bytes, Meta(min_length=128, max_length=128)]           # the first copy of a segment's header
Key = Annotated[bytes, Meta(max_length=16)]
Topic = Annotated[str, Meta(pattern=r"\A[.a-zA-Z0-9_-]{1,64}\Z")]        # it becomes the name of a folder


class DamagedError(BucketError):
    """An object is not what it should be."""


class Frames(Struct, array_like=True, frozen=True):
    """Consecutive frames of a segment, complete ones, and where their bytes are."""

    segment: Count              # sequence number of the segment in its log
    salt: Unsigned              # of the segment; with the position, what checks a frame
    position: Count             # of the first byte in the segment
    length: Count               # bytes
    first: Count                # offset of the first message
    end: Count                  # after the last
    object: Object = ""         # in which the bytes are; empty: in the payload of the commit itself
    at: Count = 0               # in that object or payload

    def joins(self, following: Frames) -> bool:
        """Whether other frames follow at once, in the segment and in the object."""
        return ((self.segment, self.salt, self.object) == (following.segment, following.salt, following.object)
                and self.position + self.length == following.position and self.end == following.first
                and self.at + self.length == following.at)


class Records(Struct, array_like=True, frozen=True):
    """Frames of a journal beside a log, or the journal's whole state."""

    is_state: bool              # replaces all before
    last: Count                 # number of the last frame that is included
    data: bytes                 # see pack_journal()


# Of a journal: the number of a file, a position in it, and the bytes from there on.
Parts = list[tuple[int, int, bytes]]


def pack_journal(parts: Parts) -> bytes:
    return msgspec.msgpack.encode(parts)


def unpack_journal(records: Sequence[Records]) -> Parts:
    """Raises DamagedError."""
    try:
        return [part for some in records for part in JOURNAL_PARTS.decode(some.data)]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DamagedError(f"a journal is damaged: {error}") from None


JOURNAL_PARTS = msgspec.msgpack.Decoder(list[tuple[Count, Count, bytes]])


def head_numbers(head: bytes) -> tuple[int, int]:
    """(sequence, first offset) of a segment, from its header; see docs/ondisk.md."""
    return int.from_bytes(head[24:32], "big"), int.from_bytes(head[32:40], "big")


def ends_before(head: bytes) -> tuple[int, int]:
    """(latest due time of a deferred message in the segment before, latest publish time up to its end)."""
    return int.from_bytes(head[88:96], "big"), int.from_bytes(head[96:104], "big")


class LogNews(Struct, array_like=True, frozen=True):
    """What happened to one log, in this order: frames, cursors, then its numbers."""

    id: Unsigned
    topic: Topic
    frames: Sequence[Frames] = ()
    cursors: Sequence[Records] = ()             # where the channels are
    reserved: Count = 0         # offsets are handed out only below this; 0: as before
    trimmed: Count = 0          # the first offset that retention has not removed; 0: as before
    dropped: bool = False       # the log is deleted; the topic's next log continues at `reserved`, unless 0
    heads: Sequence[Head] = ()  # of the segments that begin in these frames
    key: Key = b""              # of the hashes of publish ids; empty: as before
    time_ns: Count = 0          # no record is newer
    due_ns: Count = 0           # no record of the newest segment is deferred for longer
    dedupe_ns: Count = 0        # how long ids of publishes are remembered


class Commit(Struct, array_like=True, frozen=True):
    number: Count
    cluster: Hex
    epoch: Count                # claims so far, this one included
    writer: Hex                 # random, drawn for each claim
    previous: Count             # CRC of commit number - 1; 0 for the first
    time_ns: Count              # by the writer's clock, since 1970
    host: Text                  # for people
    is_claim: bool = False
    is_stop: bool = False       # the last one of a clean stop
    metadata: bytes | None = None               # topics, channels, rules: all of it, if changed
    logs: Sequence[LogNews] = ()


# ====================================================================== objects

S = TypeVar("S", bound=Struct)


def seal(magic: bytes, header: bytes, payload: Sequence[Data]) -> bytes:
    """The bytes of an object."""
    length = len(header).to_bytes(4, "big")
    crc = zlib.crc32(header, zlib.crc32(length))
    for part in payload:
        crc = zlib.crc32(part, crc)
    return b"".join((magic, length, crc.to_bytes(4, "big"), header, *payload))


def unseal(name: str, magic: bytes, data: bytes, kind: type[S]) -> tuple[S, int, int]:
    """(header, start of the payload, CRC) of an object. Raises DamagedError."""
    if len(data) < HEAD or data[:7] != magic[:7]:
        raise DamagedError(f"{name}: not written by nsqc")
    if data[:8] != magic:
        raise DamagedError(f"{name}: version {data[7]} is not known; it was written by a later nsqc")
    start = HEAD + int.from_bytes(data[8:12], "big")
    with memoryview(data) as view:
        crc = zlib.crc32(view[HEAD:], zlib.crc32(view[8:12]))
        if start > len(data) or crc != int.from_bytes(data[12:16], "big"):
            raise DamagedError(f"{name}: damaged: the checksum of its {len(data):,} bytes is wrong")
        try:
            return msgspec.msgpack.decode(view[HEAD:start], type=kind), start, crc
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise DamagedError(f"{name}: damaged: {error}") from None


def crc_of(data: bytes) -> int:
    """The CRC of a sealed object."""
    return int.from_bytes(data[12:16], "big")


def commit_name(number: int) -> str:
    return f"commit/{number:020}"


def checkpoint_name(number: int) -> str:
    return f"checkpoint/{number:020}"


# ====================================================================== commits


def encode_commit(commit: Commit, payload: Sequence[Data] = ()) -> bytes:
    """payload: what frames without an object refer to."""
    return seal(COMMIT, msgspec.msgpack.encode(commit), payload)


def decode_commit(number: int, data: bytes) -> tuple[Commit, int]:
    """(commit, CRC); all its frames name an object, this one if no other. Raises DamagedError."""
    name = commit_name(number)
    commit, start, crc = unseal(name, COMMIT, data, Commit)
    if commit.number != number:
        raise DamagedError(f"{name}: is commit {commit.number}, copied")
    logs = []
    for news in commit.logs:
        check(name, news.frames)
        frames = [part if part.object else msgspec.structs.replace(part, object=name, at=start + part.at)
                  for part in news.frames]
        if any(part.object == name and part.at + part.length > len(data) for part in frames):
            raise DamagedError(f"{name}: damaged: frames of {news.topic} lie after its end")
        logs.append(msgspec.structs.replace(news, frames=frames))
    return msgspec.structs.replace(commit, logs=logs), crc


def check(name: str, frames: Sequence[Frames]) -> None:
    """Frames that can be: in order, none twice. Raises DamagedError."""
    end = 0
    for part in frames:
        if part.length == 0 or part.first < end or part.end <= part.first:
            raise DamagedError(f"{name}: damaged: offsets {part.first} to {part.end} cannot follow {end}")
        end = part.end
