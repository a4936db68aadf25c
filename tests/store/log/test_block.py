"""Frames of a log as Spark and the tools read them: from memory and from files."""

from __future__ import annotations

import json
import os
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqc.store.log.names import FRAMES_AT
from nsqc.store.log.reading import ID, OFFSET, ORIGIN, TIMESTAMP, VALUE, LogBlock, SegmentBlocks
from nsqc.store.log.segment import manifest_id
from nsqc.store.message import GuidFactory
from tests.compiled import logs
from tests.store.log.segments import LOG_ID, write_log
from tests.support.crc32c import crc32c
from tests.support.sizes import SIZES

SALT = 0x8877665544332211
NOW = 1_700_000_000_123_456_789
FIRST = 40
STEP = 10_000_000       # between messages that do not share a frame
NODE = 5


def pack(size: int) -> bytes:
    return struct.pack(">i", size)


Record = tuple[int, int, str, bytes, str | None]


def origin_of(body: bytes) -> str:
    return json.dumps({"topic": "t", "size": len(body), "pad": "é" * (len(body) % 50)})


def frames(sizes: list[int], position: int = FRAMES_AT, first: int = FIRST, together: int = 3,
           defer_ms: int = 0, dead: bool = False, hash: bytes = b"") -> tuple[bytes, list[Record]]:
    """Frames with this many messages each, and the expected result of iterating over them."""
    collector = logs.Collector(GuidFactory.make(NODE))
    ids = GuidFactory.make(NODE)
    data, records = b"", []
    for at in range(0, len(sizes), together):
        bodies = [random.randbytes(size) for size in sizes[at:at + together]]
        time_ns = NOW + at * STEP
        for body in bodies:
            if dead:
                collector.add_dead(body, origin_of(body).encode(), time_ns)
            else:
                collector.add(body, time_ns, defer_ms)
            if hash:
                collector.add_id(hash)
            records.append((first + len(records), time_ns, id_of(ids, time_ns), body, origin_of(body) if dead else None))
        data += collector.sealed(SALT, position + len(data), first + at, position)[0]
    return data, records


def id_of(ids: GuidFactory, time_ns: int) -> str:
    return str(logs.next_id(ids, time_ns))


def block_of(data: bytes, first: int, end: int, position: int = FRAMES_AT) -> LogBlock:
    return LogBlock(data, len(data), SALT, position, first, end)


def rows(block: LogBlock, max_rows: int = 2, max_bytes: int = 1 << 20) -> list[Record]:
    """Like iterating, but through columns; times are in microseconds."""
    found = []
    while (batch := block.batch(max_rows, max_bytes, VALUE | TIMESTAMP | ID | OFFSET | ORIGIN)) is not None:
        count, values, ends, times, ids, offsets, origins = batch
        origins = [None] * count if origins is None else origins
        bounds = memoryview(ends).cast("i")
        assert [len(ends), len(times), len(ids), len(offsets)] == [4 * count + 4, 8 * count, 16 * count, 8 * count]
        assert len(values) == bounds[count]
        found += [(memoryview(offsets).cast("q")[row], memoryview(times).cast("q")[row],
                   ids[16 * row:16 * row + 16].decode(), values[bounds[row]:bounds[row + 1]], origins[row])
                  for row in range(count)]
    return found


def in_us(records: list[Record]) -> list[Record]:
    return [(offset, time_ns // 1000, *rest) for offset, time_ns, *rest in records]


# ---------------------------------------------------------------------- memory

def test_all_ways_return_the_same() -> None:
    data, records = frames([0, 1, 5, 3000, 0, 7, 9])
    end = FIRST + len(records)
    assert list(block_of(data, FIRST, end)) == records
    assert rows(block_of(data, FIRST, end)) == in_us(records)
    text = b"".join(b"> " + body + b"\n" for _, _, _, body, _ in records)
    assert block_of(data, FIRST, end).lines(99, b"> ", b"\n") == (text, len(records))
    assert block_of(data, FIRST, end).largest == 3000
    assert list(LogBlock(bytearray(data) + b"rest", len(data), SALT, FRAMES_AT, FIRST, end)) == records


@given(st.lists(st.integers(0, 300), min_size=1, max_size=40), st.integers(1, 7), st.booleans(), st.data())
def test_any_part_of_the_records(sizes: list[int], together: int, dead: bool, chosen: st.DataObject) -> None:
    data, records = frames(sizes, together=together, dead=dead)
    # The first returned frame has the first wanted record, and the last one the last.
    begin = chosen.draw(st.integers(0, len(records) - 1))
    end = chosen.draw(st.integers(begin + 1, len(records)))
    places = [frame[0] for frame in walked(data)]
    at, to = places[begin // together], [*places, FRAMES_AT + len(data)][(end - 1) // together + 1]
    part = data[at - FRAMES_AT:to - FRAMES_AT]
    def made() -> LogBlock:
        return LogBlock(part, len(part), SALT, at, FIRST + begin, FIRST + end)
    assert list(made()) == records[begin:end]
    assert rows(made(), chosen.draw(st.integers(1, 9)), chosen.draw(st.integers(0, 900))) == in_us(records[begin:end])
    mixed = made()
    first = mixed.lines(chosen.draw(st.integers(0, 5)), b"", b"")[0]
    batch = mixed.batch(3, 1 << 20, VALUE)
    left = b"".join(body for _, _, _, body, _ in mixed)
    assert first + (batch[1] if batch else b"") + left == b"".join(body for _, _, _, body, _ in records[begin:end])


def test_letters_and_other_messages_do_not_share_a_frame() -> None:
    """All within a millisecond; large origins close a frame, too, and damage is found anywhere in one."""
    collector = logs.Collector(GuidFactory.make(NODE))
    wanted = []
    for number in range(200):
        body, origin = b"%d" % number, json.dumps({"number": number, "pad": "p" * 1000}) if number % 7 < 4 else None
        if origin is None:
            collector.add(body, NOW)
        else:
            collector.add_dead(body, origin.encode(), NOW)
        wanted.append((body, origin))
    collector.add_batch(b"".join(pack(2) + b"%02d" % number for number in range(50)), 50, NOW)
    wanted += [(b"%02d" % number, None) for number in range(50)]
    data, end = collector.sealed(SALT, FRAMES_AT, FIRST, FRAMES_AT)
    assert end == FIRST + 250 and max(length for _, length in walked(data)) <= 65536 + 128
    assert [(body, origin) for *_, body, origin in block_of(data, FIRST, end)] == wanted
    assert len(walked(data)) == 58
    for at in random.sample(range(64, walked(data)[0][1] - 8), 20):
        assert logs.check(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:], SALT, FRAMES_AT)[0] == 2


def walked(data: bytes) -> list[tuple[int, int]]:
    """Position and first offset of each frame."""
    found, at = [], 0
    while at < len(data):
        answer, length = logs.check(data[at:], SALT, FRAMES_AT + at)
        assert answer == 0
        found.append((FRAMES_AT + at, length))
        at += length
    return found


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 9000))
def test_batches_are_as_large_as_asked_for(sizes: list[int], max_rows: int, max_bytes: int) -> None:
    data, _ = frames(sizes)
    block = block_of(data, FIRST, FIRST + len(sizes))
    got = 0
    while (found := block.batch(max_rows, max_bytes, VALUE)) is not None:
        part = sizes[got:got + found[0]]
        assert len(part) == found[0] <= max_rows and (sum(part) <= max_bytes or found[0] == 1)
        got += found[0]
        assert found[0] == max_rows or got == len(sizes) or sum(part) + sizes[got] > max_bytes
        assert found[3:] == (b"", b"", b"", None)
    assert got == len(sizes)


@pytest.mark.parametrize("dead", [True, False])
def test_delays_and_publish_ids_are_no_records(dead: bool) -> None:
    data, records = frames([3, 4, 5], defer_ms=1000 * (not dead), dead=dead, hash=b"h" * 16)
    assert list(block_of(data, FIRST, FIRST + 3)) == records
    assert data.count(b"h" * 16) == 3


def test_a_batch_in_several_frames_has_consecutive_ids() -> None:
    collector = logs.Collector(GuidFactory.make(NODE))
    bodies = [b"%05d" % number * 10 for number in range(9000)]
    collector.add_batch(b"".join(len(body).to_bytes(4, "big") + body for body in bodies), len(bodies), NOW)
    data, end = collector.sealed(SALT, FRAMES_AT, 0, 0)
    ids = GuidFactory.make(NODE)
    found = list(block_of(data, 0, end))
    assert [body for _, _, _, body, _ in found] == bodies
    assert [id_ for _, _, id_, *_ in found] == [id_of(ids, NOW) for _ in bodies]
    assert rows(block_of(data, 0, end), 1000) == in_us(found)


def test_none() -> None:
    block = LogBlock(b"", 0, 0, 0, 0, 0)
    assert (block.first, block.next, block.largest, list(block)) == (0, 0, 0, [])
    assert block.batch(1, 1, VALUE) is None and block.lines(5, b"a", b"b") == (b"", 0)


# ---------------------------------------------------------------------- invalid frames

def test_every_flipped_bit_of_what_is_checked_is_found() -> None:
    data, records = frames([4, 9, 40], together=2)
    padding = {at for position, length in walked(data) for at in range(position - FRAMES_AT, position - FRAMES_AT + length)}
    for position, length in walked(data):
        used = 64 + int.from_bytes(data[position - FRAMES_AT + 8:position - FRAMES_AT + 12], "big")
        padding -= set(range(position - FRAMES_AT, position - FRAMES_AT + used))
        assert used <= length < used + 8
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        if at in padding:
            assert list(block_of(bytes(changed), FIRST, FIRST + 3)) == records
            continue
        with pytest.raises(ValueError, match="no frame of the log at byte"):
            block_of(bytes(changed), FIRST, FIRST + 3)


@pytest.mark.parametrize("cut", range(1, 200, 7))
def test_frames_that_are_cut(cut: int) -> None:
    data, _ = frames([30, 20, 10], together=1)
    with pytest.raises(ValueError, match=r"frame|records"):
        block_of(data[:-cut], FIRST, FIRST + 3)


@given(st.lists(st.integers(0, 300), min_size=1, max_size=20), st.data())
def test_data_that_arrives_in_parts(sizes: list[int], chosen: st.DataObject) -> None:
    data, records = frames(sizes)
    into, at, end = bytearray(len(data) + 5), 0, FIRST + len(records)
    block = LogBlock(into, None, SALT, FRAMES_AT, FIRST, end)
    while at < len(data):
        if chosen.draw(st.booleans()):
            with pytest.raises(ValueError, match=r"no frame of the log at byte \d+"):
                block.complete(len(data))
        to = chosen.draw(st.integers(at + 1, len(data)))
        into[at:to] = data[at:to]
        block.more(to)
        at = to
    block.complete(len(data))
    assert list(block) == records
    for length in len(data) - 1, len(data) + 6:
        with pytest.raises(ValueError, match=f"{length} bytes of {len(into)}"):
            block.more(length)


def test_frames_of_another_place_or_log() -> None:
    data, _ = frames([5])
    for salt, position in (SALT + 1, FRAMES_AT), (SALT, FRAMES_AT + 8), (SALT, 0):
        with pytest.raises(ValueError, match="no frame of the log at byte 0"):
            LogBlock(data, len(data), salt, position, FIRST, FIRST + 1)


@pytest.mark.parametrize(("first", "end"), [(FIRST - 1, FIRST + 1), (FIRST, FIRST + 4), (0, 1), (FIRST + 3, FIRST + 4),
                                            (FIRST + 2, FIRST + 2**40)])
def test_records_that_the_frames_do_not_have(first: int, end: int) -> None:
    data, _ = frames([5, 5, 5], together=2)
    with pytest.raises(ValueError, match="do not have the records"):
        block_of(data, first, end)


@pytest.mark.parametrize("arguments", [(-1, SALT, 0, 0, 1), (10**6, SALT, 0, 0, 1), (5, SALT, -8, 0, 1), (5, SALT, 0, 2, 1),
                                       (5, SALT, 0, -1, 1), (5, SALT, 0, 0, 2**62 + 1)])
def test_impossible_arguments(arguments: tuple[int, int, int, int, int]) -> None:
    with pytest.raises(ValueError):
        LogBlock(bytes(100), *arguments)


def test_frames_with_a_gap_between_them() -> None:
    one, _ = frames([5], first=0)
    for first in 0, 2, 2**62, 2**63 - 1:
        other, _ = frames([5], position=FRAMES_AT + len(one), first=first)
        with pytest.raises(ValueError, match="do not have the records" if first < 2**62 else "no frame of the log"):
            block_of(one + other, 0, 2)


def made_up(payload: bytes, records: int, delays: int, first: int, ids: int = 0) -> bytes:
    """A frame with correct checksums, valid otherwise or not."""
    head = struct.pack(">IIHHIHHIqqqq", len(payload), crc32c(payload), 2 * bool(delays) + 8 * bool(ids), 0, records, delays,
                       ids, 0, first, NOW, 2**63 - 1, 0)
    frame = struct.pack(">II", 0x6E714652, crc32c(struct.pack(">Qq", SALT, FRAMES_AT) + head)) + head + payload
    return frame + bytes(-len(frame) % 8)


@given(st.lists(st.one_of(st.binary(max_size=9), st.sampled_from([pack(size) for size in SIZES])), max_size=9),
       st.one_of(st.integers(0, 9), st.sampled_from([2**16, 2**32 - 1])),
       st.one_of(st.integers(0, 2), st.sampled_from([2**12, 2**16 - 1])), st.sampled_from([0, 0, 1, 2, 2**16 - 1]),
       st.one_of(st.integers(0, 9), st.sampled_from([-1, 2**62, 2**63 - 1, -2**63])))
def test_frames_that_anybody_may_have_written(parts: list[bytes], records: int, delays: int, ids: int, first: int) -> None:
    payload = b"".join(parts)
    data = made_up(payload, records, delays, first, ids)
    bodies, at = [], 0
    for _ in range(min(records, len(payload))):
        size = int.from_bytes(payload[at:at + 4].ljust(4, b"\xff"), "big")
        bodies.append(payload[at + 4:at + 4 + size])
        at += 4 + size
    end = min(max(first, 0) + records, 2**62)
    due = [struct.unpack_from(">Iq", payload, begin) for begin in range(at, len(payload) - 15, 16)][:delays]
    delayed = [record for record, when in due if when >= 0]
    if (0 < records == len(bodies) and at + 16 * (delays + ids) == len(payload) and ids <= records and 0 <= first <= 2**62 - records
            and len(delayed) == delays and delayed == sorted(set(delayed)) and all(at < records for at in delayed)):
        block = block_of(data, first, end)
        assert [body for _, _, _, body, _ in block] == bodies
        assert rows(block_of(data, first, end))
    else:
        with pytest.raises(ValueError):
            block_of(data, min(max(first, 0), 2**62), end)


def test_a_block_is_made_once() -> None:
    data, _ = frames([5])
    block = block_of(data, FIRST, FIRST + 1)
    with pytest.raises(ValueError, match="has its records"):
        block.__init__(data, len(data), SALT, FRAMES_AT, FIRST, FIRST + 1)    # type: ignore[misc]


# ---------------------------------------------------------------------- files

@contextmanager
def opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "segment.log"
    path.write_bytes(bytes(FRAMES_AT) + data + b"what nobody has acknowledged")
    return path


def test_a_file_is_read_in_pieces(tmp_path: Path) -> None:
    data, records = frames([200] * 2000)
    segment = FIRST, FIRST + len(records), FRAMES_AT + len(data), SALT
    with opened(written(tmp_path, data)) as file:
        for start, end, max_bytes in (0, 2000, 1), (0, 2000, 20_000), (777, 1500, 5000), (1999, 2000, 1 << 20):
            blocks, at, found = SegmentBlocks(), FIRST + start, []
            while at < FIRST + end:
                block = blocks.read(file, segment, at, FIRST + end, max_bytes)
                assert block is not None and block.first == at < block.next
                found += list(block)
                at = block.next
            assert found == records[start:end]
        # A segment that ends before its file does.
        block = SegmentBlocks().read(file, (FIRST, FIRST + 2, FRAMES_AT + len(data), SALT), FIRST, FIRST + 9, 1 << 20)
        assert block is not None and list(block) == records[:2]
        block = SegmentBlocks().read(file, (*segment[:2], FRAMES_AT + walked(data)[0][1], SALT), FIRST, FIRST + 9, 1 << 20)
        assert block is not None and list(block) == records[:3]


def test_blocks_stay_when_the_next_is_read(tmp_path: Path) -> None:
    data, records = frames([200] * 300)
    segment = FIRST, FIRST + 300, FRAMES_AT + len(data), SALT
    with opened(written(tmp_path, data)) as file:
        blocks = SegmentBlocks()
        made = [blocks.read(file, segment, FIRST + at, FIRST + 300, 1 << 20) for at in (0, 100, 200)]
        del blocks
        assert [list(block) for block in made if block] == [records[at:] for at in (0, 100, 200)]


def test_what_a_file_does_not_have(tmp_path: Path) -> None:
    data, records = frames([200] * 30)
    segment = FIRST, FIRST + 30, FRAMES_AT + len(data), SALT
    places = [position for position, _ in walked(data)]
    path = written(tmp_path, data)
    with opened(path) as file:
        blocks = SegmentBlocks()
        assert blocks.read(file, (*segment[:3], SALT + 1), FIRST, FIRST + 1, 100) is None
        assert blocks.read(file, segment, FIRST + 30, FIRST + 31, 100) is None
        assert blocks.read(file, segment, FIRST, FIRST, 100) is None
        assert blocks.read(file, (FIRST, FIRST + 40, *segment[2:]), FIRST + 35, FIRST + 40, 100) is None
        changed = bytearray(path.read_bytes())
        changed[places[4] + 80] ^= 1
        path.write_bytes(changed)
        block = blocks.read(file, segment, FIRST, FIRST + 30, 1 << 20)
        assert block is not None and list(block) == records[:12]
        assert all(blocks.read(file, segment, FIRST + offset, FIRST + 30, 1 << 20) is None for offset in (12, 13, 14))
        block = blocks.read(file, segment, FIRST + 15, FIRST + 30, 1 << 20)
        assert block is not None and list(block) == records[15:]
        os.truncate(path, places[5] + 9)
        assert blocks.read(file, segment, FIRST + 15, FIRST + 30, 1 << 20) is None


def test_the_id_of_a_log(tmp_path: Path) -> None:
    write_log(tmp_path, [(0, 3)])
    data = (tmp_path / "manifest").read_bytes()
    assert manifest_id(data) == manifest_id(data + b"more") == LOG_ID
    for other in b"", b"x", bytes(128), bytes(4096), data[:-1], data[1:]:
        assert manifest_id(other) is None
    for at in range(len(data)):
        assert manifest_id(data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]) is None
