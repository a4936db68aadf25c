"""Files of disk queues, and the metadata in a data path."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path

from nsqc.broker import metadata, nsqc_dat
from nsqc.store.disk.check import Repair, TooLarge, findings, look, queue_names
from nsqc.store.disk.fileio import IoPool, split_name
from nsqc.store.disk.manager import Syncer
from nsqc.store.disk.queue import DiskQueue
from nsqc.store.disk.recovery import Index
from nsqc.store.files import MetadataError
from nsqc.store.log.check import merge_topic, read_saved, saved_topic
from tests.broker.harness import publish, run
from tests.compiled import diskqueue
from tests.hostile.mutation import Files, change_file, change_json, change_number, number
from tests.support.log import RecordingLog
from tests.support.logs import record

NAME = "t.diskqueue."
META = f"{NAME}meta.dat"
LARGEST = 10_000
STAMP = 1_700_000_000_000_000_000
DOCUMENTS = {
    "nsqd.dat": {"topics": [{"name": "t", "paused": False, "channels": [{"name": "c", "paused": True}]},
                            {"name": "u", "paused": True, "channels": None}], "version": "1.3.0"},
    "nsqd.dat.last": {"topics": [{"name": "t", "paused": False, "channels": []}], "version": "1.3.0"},
    "nsqc.dat": {"reached_unit": 1288834974288, "topics": {"t": {f"{7:016x}": 60000}}, "channels": {"t:c": {f"{8:016x}": 2 * STAMP}}},
    "nsqc.ids.dat": {"reached_unit": 1288834974288, "stopped": True, "boot_id": "x"},
}


def make(folder: Path) -> Files:
    """A queue of two files, and another of a channel."""
    records = [record(b"%04d" % at * (1 + at % 7), STAMP + at, at) for at in range(30)]
    files = {f"{NAME}000003.dat": b"".join(records[:20]), f"{NAME}000004.dat": b"".join(records[20:]),
             META: b"30\n3,0\n4,%d\n" % sum(map(len, records[20:])), "t:c.diskqueue.000000.dat": b"".join(records[7:9]),
             "t:c.diskqueue.meta.dat": b"2\n0,0\n0,%d\n" % sum(map(len, records[7:9]))}
    return files | {name: json.dumps(document).encode() for name, document in DOCUMENTS.items()}


def change(rng: random.Random, files: Files) -> None:
    """Changes one file."""
    name = rng.choice(list(files))
    data, kind = bytearray(files[name]), rng.random()
    if name.startswith("nsq"):
        text = json.dumps(change_json(rng, json.loads(files[name]))) if name in DOCUMENTS and kind < 0.8 and is_json(data) else None
        files[name] = text.encode() if text is not None else change_file(rng, files[name])
    elif kind < 0.2:
        files[name] = change_file(rng, files[name])
    elif kind < 0.4:
        queue = rng.choice(["t", "t:c", "u"])
        other = f"{queue}.diskqueue.{rng.choice([0, 2, 3, 5, 1004, 2000, 10**6, 10**17 - 1, number(rng, 40)]):06}.dat"
        files[other] = files.pop(name) if rng.random() < 0.5 else files[name]
    elif name.endswith("meta.dat"):
        values = [rng.choice([-1, 0, 3, 4, 5, 20, 10**17 - 1, 10**17, number(rng, 56)]) for _ in range(5)]
        files[name] = b"%d\n%d,%d\n%d,%d\n" % tuple(values)
    else:
        places = starts(files[name])
        for _ in range(rng.choice([1, 3])):
            at = rng.choice(places)
            offset, size = rng.choice([(0, 4), (0, 4), (4, 8), (12, 2), (14, 8)])
            change_number(rng, data, at + offset, size)
        files[name] = bytes(data)


def is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


def starts(data: bytes) -> list[int]:
    """Where records begin."""
    found, at = [0], 0
    while at + 30 < len(data):
        found.append(at)
        at += 4 + max(int.from_bytes(data[at:at + 4], "big"), 1)
    return found


def decode(rng: random.Random, folder: Path, scratch: Path) -> None:
    """A start, tools, readers, a broker."""
    log = RecordingLog()
    for name in queue_names(str(folder)):
        findings(look(str(folder), name, LARGEST))
    with suppress(MetadataError):
        read_saved(str(folder))
        merge_topic(str(folder), saved_topic(str(folder), "t"))
    kind = rng.random()
    if kind < 0.3:
        for name in queue_names(str(folder)):
            with suppress(TooLarge, OSError):
                Repair(str(folder), name, LARGEST, lambda *text: None).run()
        return
    if kind < 0.6:
        for name in sorted({parts[0] for path in folder.iterdir() if (parts := split_name(path.name))}):
            drain(DiskQueue(name, str(folder), 10**6, LARGEST, IoPool(), Syncer(1, 10**9, None, log), log, None))
        return
    serve(folder)


def drain(queue: DiskQueue) -> None:
    diskqueue.put(queue, b"new", b"%016x" % 99, STAMP)
    diskqueue.commit(queue)
    most = 2000
    while queue.depth and most:
        diskqueue.get(queue)
        most -= 1
    assert most, "more messages than there can be"


def serve(folder: Path) -> None:
    log = RecordingLog()
    index = Index(str(folder))
    ids = nsqc_dat.load_ids(str(folder), log)
    saved = nsqc_dat.load(str(folder), index, ids, log)
    try:
        found = metadata.load(str(folder), index, (), log)
    except metadata.MetadataError:
        return

    async def scenario(broker) -> None:
        metadata.restore(broker, found, log)
        nsqc_dat.restore(broker, saved)
        for topic in list(broker.topics.values()):
            topic.start()
            await publish(topic, b"new")

    run(folder, scenario)
