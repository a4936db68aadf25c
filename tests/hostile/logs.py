"""Folders of logs: segments, indexes, manifests, journals of channels, summaries of publish ids."""

from __future__ import annotations

import errno
import os
import random
from contextlib import suppress
from pathlib import Path

from nsqc.store.files import MetadataError
from nsqc.store.log import reading
from nsqc.store.log.check import as_text, check_folder, read_log, summary
from nsqc.store.log.export import Export, ExportError, Sources
from nsqc.store.log.names import Segment, segment_path
from nsqc.store.log.reading import LogBlock, SegmentBlocks
from nsqc.store.log.recovery import LogError, read_folder
from nsqc.store.log.segment import manifest_id
from tests.broker.harness import publish, run
from tests.compiled.logs import compact_folder
from tests.compiled.taker import Taker
from tests.hostile.mutation import (
    Files,
    change_file,
    change_frames,
    change_number,
    frames,
    number,
    operations,
    seal,
    seal_frame,
)
from tests.store.log import journals, segments
from tests.store.log.segments import BASE, FRAMES_AT
from tests.support.log import RecordingLog

IDS = f"ids.{0:020}"
SALT_AT, MANIFEST_FIELDS, HEADER_FIELDS, SUMMARY_FIELDS = 40, 13, 12, 7
FAR = BASE * 2      # a due time
RULE = b'{"topics": {"t": {"storage": "log", "dedupe": %d}}}' % (FAR - BASE)


def make(folder: Path) -> Files:
    """A log with everything in it."""
    segments.write_log(folder, [(0, 40), (40, 50), (90, 30)], per_frame=2, more=range(60, 88, 2), synced=True,
                       delays={3: FAR, 50: 1, 95: FAR, 96: FAR},
                       ids={offset: bytes([offset]) * 16 for offset in (3, 45, 91, 92, 119)})
    journals.write_journal(folder, [(1, [(journals.NAME, "c"), (journals.RESET, 0), (journals.ADVANCE, 50)]),
                                    (2, [(journals.NAME, "d"), (journals.RESET, 5), (journals.SKIP, 60, 5)])],
                           [(1, [(journals.FIN, 3, 4), (journals.REQ, 20, 2, FAR), (journals.REQ, 21, 1, 0)]),
                            (0, [(journals.RESET, 120)])], twice=(0,))
    ended = segments.Written(0, 40, folder, 1, 0, 0, [], 0, 0)
    (folder / IDS).write_bytes(segments.summary(ended, [bytes([3]) * 16]))
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def change(rng: random.Random, files: Files) -> None:
    """Changes one file."""
    name = rng.choice(list(files))
    data, kind = bytearray(files[name]), rng.random()
    if kind < 0.1:
        files[name] = change_file(rng, files[name])
    elif kind < 0.15:
        other = rng.choice([f"{number(rng, 64):020}.log", f"{rng.randrange(200):020}.log", "cursors.000009",
                            "cursors.999999999999", f"ids.{number(rng, 64):020}", f"ids.{40:020}"])
        files[other] = files.pop(name) if rng.random() < 0.5 else files[name]
    elif name.endswith(".log"):
        change_segment(rng, data)
        files[name] = bytes(data)
    elif name == "manifest" and len(data) == 128:
        change_number(rng, data, 16 + 8 * rng.randrange(MANIFEST_FIELDS), 8)
        seal(data)
        files[name] = bytes(data)
    elif name[:3] == "cur":
        change_frames(rng, data, 0, int(name.split(".")[1]), lambda: operations(rng))
        files[name] = bytes(data)
    elif name[:3] == "ids" and len(data) >= 128:
        head = data[:128]
        change_number(rng, head, 16 + 8 * rng.randrange(SUMMARY_FIELDS), 8)
        seal(head)
        files[name] = bytes(head + data[128:])


def change_segment(rng: random.Random, data: bytearray) -> None:
    kind = rng.random()
    if len(data) < FRAMES_AT:
        return
    salt = int.from_bytes(data[SALT_AT:SALT_AT + 8], "big")
    if kind < 0.2:
        at = 16 + 8 * rng.randrange(HEADER_FIELDS)
        change_number(rng, data, at, 8)
        data[124:128] = b"    "
        copy = data[:128]
        seal(copy)
        data[:128] = copy
        data[2048:2176] = copy
    elif kind < 0.35:
        entries = [(number(rng, 63, 50), number(rng, 63, rng.choice(frames(data, FRAMES_AT) or [0])), number(rng, 63, BASE))
                   for _ in range(rng.choice([1, 2, 9]))]
        data += segments.index(salt, sorted(entries) if rng.random() < 0.7 else entries)
    else:
        change_frames(rng, data, FRAMES_AT, salt, None)
        for at in frames(data, FRAMES_AT):
            seal_frame(data, at, salt)


# ---------------------------------------------------------------------- readers

def decode(rng: random.Random, folder: Path, scratch: Path) -> None:
    """All that reads a log: starts, tools, readers of a node's frames, a broker."""
    try:
        read_all(rng, folder, scratch)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:     # a frame of a later version
            raise


def read_all(rng: random.Random, folder: Path, scratch: Path) -> None:
    try:
        log = read_log(str(folder))
    except OSError:
        with suppress(LogError):
            check_folder(str(folder))
        return
    check_bounds(folder, log.segments)
    check_folder(str(folder))
    read_folder(str(folder), True)
    as_text(summary(log))
    with suppress(LogError):
        Sources(log)
    for segment in log.segments:
        read_segment(rng, Path(segment_path(str(folder), segment.first)), segment)
    with suppress(FileNotFoundError):
        manifest_id((folder / "manifest").read_bytes() or b"x")
    if rng.random() < 0.3:
        with suppress(ExportError, MetadataError):
            Export(str(folder), str(scratch), lambda text: None, RecordingLog()).run()
    if rng.random() < 0.5:
        serve(rng, folder.parent)
    else:
        compact_folder(str(folder))
        read_folder(str(folder))


def check_bounds(folder: Path, found: list[Segment]) -> None:
    """No number exceeds what the files can have."""
    end = 0
    for segment in found:
        size = os.path.getsize(segment_path(str(folder), segment.first))
        assert end <= segment.first <= segment.end and segment.position <= max(size, FRAMES_AT), segment
        end = segment.end
    assert end <= 2**62


def read_segment(rng: random.Random, path: Path, segment: Segment) -> None:
    with path.open("rb", buffering=0) as file:
        fd = file.fileno()
        for offset in {segment.first, segment.end - 1, (segment.first + segment.end) // 2, segment.first + rng.randrange(60)}:
            if not segment.first <= offset < segment.end:
                continue
            for as_lines in False, True:
                run_ = reading.find_run(fd, segment, offset, 0, 100, 1 << 20, as_lines)
                assert offset <= run_.first <= run_.next <= segment.end and run_.damaged == run_.first - offset, run_
                first, next_, _, _ = reading.records(fd, segment, offset, 0, segment.end, 1 << 16, as_lines)
                assert offset <= first <= next_ <= segment.end, (first, next_)
            reading.origins(fd, segment, offset, 0, segment.end)
            reading.time_of(fd, segment, offset, 0)
            block = SegmentBlocks().read(fd, segment, offset, segment.end, 1 << 16)
            if block is not None:
                read_block(rng, block)
        for time_ns in 0, BASE, BASE + 50 * 10**9, 2**63 - 1:
            reading.first_at(fd, segment, time_ns)
    data = path.read_bytes()[FRAMES_AT:segment.position]
    with suppress(ValueError):
        read_block(rng, LogBlock(data, len(data), segment.salt, FRAMES_AT, segment.first, segment.end))


def read_block(rng: random.Random, block: LogBlock) -> None:
    if rng.random() < 0.4:
        assert all(len(row) == 5 for row in block)
    elif rng.random() < 0.5:
        block.lines(10**9, b"<", b">")
    else:
        while block.batch(rng.choice([1, 7, 1000]), 1 << 16, 31) is not None:
            pass


def serve(rng: random.Random, data_path: Path) -> None:
    """A broker with two channels, of which one consumes; it remembers publish ids."""
    (data_path / "nsqc.rules.json").write_bytes(RULE)

    async def scenario(broker) -> None:
        topic = broker.get_topic(b"t", True)
        channel = topic.get_channel(b"c")
        taker = Taker(rng.choice([1, 500]))
        topic.start()
        taker.subscribe(channel)
        await publish(topic, b"new")
        for other in list(topic.channels.values()):
            assert other.depth >= 0 and other.deferred_count >= 0
        channel.pause()
        channel.unpause()

    with suppress(OSError):     # the folder is unusable, or the last messages cannot be written
        run(data_path, scenario, topic_storage="log")
