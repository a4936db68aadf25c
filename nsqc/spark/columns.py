"""The columns of the sources, as Spark's and as Arrow's types, and Arrow arrays built from plain buffers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from nsqc.wire.outside import decode

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from nsqc.client.commands import Ids
    from nsqc.client.frames import Chunk


MESSAGE = "value binary, topic string, id string, timestamp timestamp, attempts int, nsqd string"
# Where a dead letter comes from, as the daemon's JSON has it; a struct's fields have no space between them.
ORIGIN = ("struct<topic:string,channel:string,node:string,node_id:int,id:string,timestamp:timestamp,attempts:int,"
          "reason:string,client:struct<client_id:string,hostname:string,remote_address:string>>")
LOG = f"{MESSAGE}, offset bigint, origin {ORIGIN}"
RECORD = ("value binary, topic string, id string, timestamp timestamp, attempts int, channel string, file string, "
          "pos bigint")
ID_BYTES = 16
# Of Records.batch(): count, bodies, body offsets, timestamps, attempts, ids, positions.
RecordColumns: TypeAlias = "tuple[int, Chunk, Chunk, Chunk, Chunk, Chunk, Chunk]"
# Of LogBlock.batch().
LogColumns: TypeAlias = "tuple[int, bytes, bytes, bytes, bytes, bytes, list[str | None] | None]"
Column: TypeAlias = "bytes | Chunk"

TIMESTAMP = pa.timestamp("us", tz="UTC")
TYPES = {
    "value": pa.binary(), "topic": pa.string(), "id": pa.string(), "timestamp": TIMESTAMP, "attempts": pa.int32(),
    "nsqd": pa.string(), "offset": pa.int64(), "channel": pa.string(), "file": pa.string(), "pos": pa.int64(),
    "origin": pa.struct([
        ("topic", pa.string()), ("channel", pa.string()), ("node", pa.string()), ("node_id", pa.int32()),
        ("id", pa.string()), ("timestamp", TIMESTAMP), ("attempts", pa.int32()), ("reason", pa.string()),
        ("client", pa.struct([("client_id", pa.string()), ("hostname", pa.string()), ("remote_address", pa.string())])),
    ]),
}


def kinds(ddl: str) -> dict[str, str]:
    """The columns of a schema in Spark's DDL, as above, and their types."""
    return dict(field.split(" ") for field in ddl.split(", "))


def names(ddl: str) -> list[str]:
    """The column names of a schema."""
    return list(kinds(ddl))


def schema(columns: Iterable[str]) -> pa.Schema:
    """The Arrow schema of these columns."""
    return pa.schema([pa.field(column, TYPES[column]) for column in columns])


def chosen(asked: StructType, known: str, source: str) -> list[str]:
    """The columns of a Spark schema, which must be known and have the right types. Raises ValueError."""
    allowed = kinds(known)
    found: list[str] = []
    for field in asked.fields:
        kind = field.dataType.simpleString()
        if field.name not in allowed:
            raise ValueError(f"{source}: unknown column {field.name} {kind}; choose from {known}")
        if kind != allowed[field.name]:
            raise ValueError(f"{source}: column {field.name} has type {kind}; declare it as {field.name} "
                             f"{allowed[field.name]}, and cast it in the query if need be")
        if field.name in found:
            raise ValueError(f"{source}: column {field.name} appears twice")
        if not field.nullable:
            raise ValueError(f"{source}: omit NOT NULL for column {field.name}")
        found.append(field.name)
    if not found:       # Arrow has no rows without columns
        raise ValueError(f"{source}: a schema needs at least one column; choose from {known}")
    return found


def ids(buffer: Ids, count: int) -> pa.Array:
    """Adjacent texts of 16 bytes."""
    return pa.StringArray.from_buffers(count, id_offsets(1 << max(count, 1024).bit_length()), pa.py_buffer(buffer))


@lru_cache(maxsize=32)
def id_offsets(count: int) -> pa.Buffer:
    """0, 16, 32, …: for up to count ids."""
    import array

    return pa.py_buffer(array.array("i", range(0, (count + 1) * ID_BYTES, ID_BYTES)))


def bodies(offsets: Column, data: Column, count: int) -> pa.Array:
    """Binary values by int32 offsets."""
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def fixed(kind: pa.DataType, data: Column, count: int) -> pa.Array:
    """Values of a fixed width without nulls."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


@lru_cache(maxsize=8)
def same(value: str | None, count: int) -> pa.Array:
    """A text, or null, repeated. Most batches have as many rows as the previous one: they share it."""
    return pa.nulls(count, pa.string()) if value is None else pa.repeat(pa.scalar(value), count)


@lru_cache(maxsize=8)
def zeros(count: int) -> pa.Array:
    """The attempts of messages in a log: zeros."""
    return pa.repeat(pa.scalar(0, pa.int32()), count)


def origins(texts: list[str | None] | None, count: int) -> pa.Array:
    """Where dead letters come from; null for other messages, and for texts that no daemon has written."""
    if texts is None:
        return no_origins(count)
    try:
        return pa.array(map(origin, texts), TYPES["origin"])
    except NO_ORIGIN:
        return pa.array(map(origin_if_sound, texts), TYPES["origin"])


NO_ORIGIN = (ValueError, TypeError, KeyError, OverflowError, pa.ArrowException)


# Any: JSON
def origin_if_sound(text: str | None) -> dict[str, Any] | None:
    """None: it is not an origin."""
    try:
        found = origin(text)
        pa.scalar(found, TYPES["origin"])
    except NO_ORIGIN:
        return None
    return found


# Any: JSON
def origin(text: str | None) -> dict[str, Any] | None:
    """A struct of a row."""
    if text is None:
        return None
    found: dict[str, Any] = decode(text)        # Any: JSON
    return found | {"timestamp": found["timestamp"] // 1000}


@lru_cache(maxsize=8)
def no_origins(count: int) -> pa.Array:
    """Nulls."""
    return pa.nulls(count, TYPES["origin"])
