"""A frame of the staging log: messages of one nsqd as an Arrow batch with a checksum. Knows no files.

    offset  bytes  field                        numbers little-endian
         0      4  CRC-32 of all that follows
         4      4  length of the Arrow message, a multiple of 8
         8      4  rows
        12      4  length of the nsqd's address
        16      8  number of its first row in the log
        24      n  address, padded with zeros to a multiple of 8
                m  Arrow IPC record batch: value, id, timestamp, attempts

Topic and nsqd are the same for all rows and are added when a frame is read.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from nsqc.spark import columns

Bytes: TypeAlias = bytes | memoryview

HEAD = struct.Struct("<IIIIq")
STORED = columns.schema(["value", "id", "timestamp", "attempts"])
FULL_SCHEMA = columns.schema(columns.names(columns.MESSAGE))
MAX_NODE_BYTES = 512


class BadFrame(ValueError):
    """The bytes are not a complete and intact frame."""


class Head(NamedTuple):
    """The fixed part of a frame."""

    crc: int
    body: int
    rows: int
    node: int
    first: int

    @property
    def length(self) -> int:
        """Bytes of the whole frame."""
        return HEAD.size + padded(self.node) + self.body


def padded(length: int) -> int:
    """The next multiple of 8."""
    return -(-length // 8) * 8


def encode(first: int, node: str, batch: pa.RecordBatch) -> tuple[list[Bytes | pa.Buffer], int]:
    """A frame in parts, and its length. batch: the stored columns."""
    name = node.encode()
    if not 0 < len(name) <= MAX_NODE_BYTES:
        raise ValueError(f"an address has 1 to {MAX_NODE_BYTES} bytes")
    name += bytes(padded(len(name)) - len(name))
    body = batch.serialize()
    head = HEAD.pack(0, body.size, batch.num_rows, len(node.encode()), first)
    crc = zlib.crc32(body, zlib.crc32(name, zlib.crc32(head[4:])))
    return [struct.pack("<I", crc) + head[4:], name, body], HEAD.size + len(name) + body.size


def read_head(data: Bytes) -> Head:
    """Parses the head at the start of data, without verifying its checksum. Raises BadFrame."""
    if len(data) < HEAD.size:
        raise BadFrame("an incomplete head")
    head = Head(*HEAD.unpack_from(data))
    if not head.rows or not 0 < head.node <= MAX_NODE_BYTES or head.body % 8 or head.first < 0:
        raise BadFrame("not a head")
    return head


def check(data: Bytes) -> Head:
    """The head of the frame in data, verified. Raises BadFrame."""
    head = read_head(data)
    if head.length != len(data):
        raise BadFrame("an incomplete frame")
    if zlib.crc32(memoryview(data)[4:]) != head.crc:
        raise BadFrame("the checksum differs")
    return head


def decode(data: Bytes, topic: str) -> pa.RecordBatch:
    """All columns of the frame in data. Raises BadFrame."""
    node, stored = decode_stored(data)
    count = stored.num_rows
    value, ids, times, attempts = stored.columns
    return pa.RecordBatch.from_arrays(
        [value, columns.same(topic, count), ids, times, attempts, columns.same(node, count)], schema=FULL_SCHEMA)


def decode_stored(data: Bytes) -> tuple[str, pa.RecordBatch]:
    """The nsqd's address and the stored columns. Raises BadFrame."""
    head = check(data)
    begin = HEAD.size + padded(head.node)
    try:
        node = bytes(data[HEAD.size:HEAD.size + head.node]).decode()
        batch = pa.ipc.read_record_batch(pa.py_buffer(data).slice(begin, head.body), STORED)
        # The checksum only proves that the bytes are unchanged: Arrow would follow any offsets.
        batch.validate(full=True)
    except (ValueError, EOFError, OSError, MemoryError, pa.ArrowException) as error:
        raise BadFrame(f"not a batch: {error}") from None
    if batch.num_rows != head.rows:
        raise BadFrame(f"{batch.num_rows} rows instead of {head.rows}")
    return node, batch
