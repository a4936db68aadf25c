"""Staging logs, ledgers of archives, and checkpoints."""

from __future__ import annotations

import json
import random
import struct
import zlib
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from nsqc.spark import columns, frames
from nsqc.spark.jobs import checkpoints
from nsqc.spark.jobs.ledger import Ledger, LedgerError
from nsqc.spark.jobs.running import JobError
from nsqc.spark.stagelog import StageError, StageLog, read_place
from tests.hostile.mutation import Files, change_file, change_json, number, origin

LEDGER = {"version": 1, "topic": "t", "files": {"date=2026-11-21/000000000001-00000000.parquet": {
    "rows": 3, "bytes": 4, "first": 1, "last": 2}}, "batches": {"q": 4}}
CHECKPOINT = {"topics": {"t": {"n": 5}}, "joined": {"t": {"n": [0, 1]}}, "ids": {"t": {"n": "00000000000000ff"}}}


def batch(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([
        pa.array([b"body %d" % at for at in range(count)], pa.binary()), pa.array([f"{at:016x}" for at in range(count)]),
        pa.array(range(count), pa.timestamp("us", tz="UTC")), pa.array([1] * count, pa.int32())], schema=frames.STORED)


def make(folder: Path) -> Files:
    """A staging log of two segments; an archive's ledger; a checkpoint."""
    stage = StageLog(str(folder / "stage"), "t", "c", 2000, wait=0)
    for count in 3, 9, 1, 20:
        stage.append("127.0.0.1:4150", batch(count))
    stage.sync()
    stage.close()
    files = {f"stage/{path.name}": path.read_bytes() for path in sorted((folder / "stage").iterdir())}
    return files | {"archive/_ledger.json": json.dumps(LEDGER).encode(),
                    "check/offsets/3": b"v1\n{}\n" + json.dumps(CHECKPOINT).encode()}


def change(rng: random.Random, files: Files) -> None:
    """Changes one file."""
    name = rng.choice(list(files))
    data = files[name]
    if name.endswith(".seg"):
        files[name] = change_stage(rng, bytearray(data)) if rng.random() < 0.8 else change_file(rng, data)
    elif rng.random() < 0.2:
        files[name] = change_file(rng, data)
    else:
        head, _, last = data.rpartition(b"\n")
        with suppress(ValueError, RecursionError):
            files[name] = head + b"\n" * bool(head) + json.dumps(change_json(rng, json.loads(last))).encode()
    if rng.random() < 0.05:
        files[f"stage/{rng.choice([f'{number(rng, 64):020}', 'abc', '1'])}.seg"] = data


def change_stage(rng: random.Random, data: bytearray) -> bytes:
    """Changes frames and renews their checksums."""
    at = 40
    while at + frames.HEAD.size <= len(data):
        _, body, _, node, _ = frames.HEAD.unpack_from(data, at)
        length = frames.HEAD.size + frames.padded(node) + body
        if at + length > len(data) or length < frames.HEAD.size + 9:
            break
        if rng.random() < 0.5:
            form, place = rng.choice([("<I", 4), ("<I", 8), ("<I", 12), ("<Q", 16)]) if rng.random() < 0.3 else (
                rng.choice(["<B", "<I", "<Q"]), rng.randrange(frames.HEAD.size, length - 8))
            struct.pack_into(form, data, at + place, number(rng, {"B": 8, "I": 32, "Q": 64}[form[1]]))
        struct.pack_into("<I", data, at, zlib.crc32(bytes(data[at + 4:at + length])))
        at += length
    return bytes(data)


def decode(rng: random.Random, folder: Path, scratch: Path) -> None:
    """A query's start and reads; an archive; a report of lag."""
    with suppress(StageError, OSError):
        read_stage(rng, folder / "stage")
    with suppress(LedgerError, OSError):
        ledger = Ledger(folder / "archive", "t")
        with ledger.pinned():
            pass
        with ledger.job("j"):
            pass
    with suppress(JobError):
        checkpoints.read(folder / "check")
    texts = [None, *(origin(rng).decode("utf-8", "replace") for _ in range(3))]
    assert len(columns.origins(texts, 4)) == 4


def read_stage(rng: random.Random, folder: Path) -> None:
    stage = StageLog(str(folder), "t", "c", 2000, keep_rows=10, skip_bad=rng.random() < 0.7, wait=0)
    try:
        for place in stage.places(0, stage.rows):
            with suppress(frames.BadFrame):
                stored = frames.decode(read_place(place), "t")
                assert all(len(stored.column(name).to_pylist()) == stored.num_rows for name in ("value", "id", "nsqd"))
        stage.oldest(0)
        assert all(len(ids) % 16 == 0 for _, ids in stage.newest_ids())
        stage.append("127.0.0.1:4150", batch(2))
        stage.release(stage.sync())
    finally:
        stage.close()
