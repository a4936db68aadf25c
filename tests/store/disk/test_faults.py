"""Disk queues in the cases where a wrong implementation loses messages silently."""

import errno
import gc
import os
import random
import struct
from functools import partial

import pytest

from nsqc.store.disk import fileio, segment
from nsqc.store.disk.fileio import IoPool
from nsqc.store.disk.manager import Syncer
from nsqc.store.disk.queue import DiskQueue
from nsqc.store.disk.recovery import Index
from tests.compiled import diskqueue
from tests.store.disk.test_queue import open_below
from tests.support.log import RecordingLog

STAMP = 1_700_000_000_000_000_000
MAX_MESSAGE = 10_000


class Later:
    """Worker jobs that run on request."""

    def __init__(self):
        self.jobs = []

    def __call__(self, call):
        self.jobs.append(Job(call))
        return self.jobs[-1]

    def run_all(self):
        while self.jobs:
            self.jobs.pop(0).run()


class Job:
    def __init__(self, call):
        self.call = call
        self.callback = lambda job: None

    def add_done_callback(self, callback):
        self.callback = callback

    def run(self):
        self.answer = self.call()
        self.callback(self)

    def exception(self):
        return None

    def result(self):
        return self.answer


class Place:
    """A folder, and a function that opens queues in it."""

    def __init__(self, folder, max_bytes=10**6, every=10**6, run=None):
        self.folder = folder
        self.max_bytes = max_bytes
        self.log = RecordingLog()
        self.pool = IoPool()
        self.syncer = Syncer(every, 10**12, run, self.log)
        self.queues = {}

    def open(self, name="q"):
        """Like nsqc.store.disk.manager: while a deleted queue of that name exists, the new one begins after it."""
        earlier = self.queues.get(name)
        first = earlier.write_number if earlier is not None and earlier.deleted else None
        self.queues[name] = DiskQueue(name, str(self.folder), self.max_bytes, MAX_MESSAGE, self.pool, self.syncer,
                                      self.log, first=first)
        return self.queues[name]

    def names(self):
        return sorted(os.listdir(self.folder))

    def logged(self, text):
        return any(text in line for line in self.log.lines)


def record(number, body=b"body", size=None):
    size = 26 + len(body) if size is None else size
    return struct.pack(">iqH", size, STAMP + number, 0) + b"%016x" % number + body


def put(queue, *numbers, body=b"body"):
    for number in numbers:
        diskqueue.put(queue, body, b"%016x" % number, STAMP + number)


def take(queue, count=10**6):
    found = []
    while len(found) < count and (item := diskqueue.get(queue)) is not None:
        found.append(int(item[1], 16))
    return found


def as_backlog(queue):
    """Takes as long as depth is above 0, as a topic does."""
    found = []
    while queue.depth and (item := diskqueue.get(queue)) is not None:
        found.append(int(item[1], 16))
    return found


def write(folder, content, meta=None, number=0):
    (folder / f"q.diskqueue.{number:06d}.dat").write_bytes(content)
    if meta:
        (folder / "q.diskqueue.meta.dat").write_text(meta)


def half_read(place):
    """A queue of nine records, a few in each file; five are read."""
    queue = place.open()
    put(queue, *range(9))
    assert diskqueue.commit(queue) == 0
    assert take(queue, 5) == [0, 1, 2, 3, 4]
    return queue


# ---------------------------------------------------------------------- reused names


def test_files_of_a_new_queue_are_not_removed_with_those_of_the_old(tmp_path):
    """Delete a topic and publish to it again while a worker still has to remove the old one's consumed files."""
    later = Later()
    place = Place(tmp_path, max_bytes=100, run=later)
    queue = half_read(place)
    queue.delete()
    fresh = place.open()
    assert fresh.depth == 0
    put(fresh, 100, 101)
    assert diskqueue.commit(fresh) == 0
    later.run_all()
    assert take(fresh) == [100, 101]
    fresh.close()
    place.syncer.sync_closed()
    later.run_all()
    assert take(Place(tmp_path, max_bytes=100).open()) == []


def test_removal_that_lags_behind_a_sync_spares_the_new_queue(tmp_path):
    later = Later()
    place = Place(tmp_path, max_bytes=100, run=later)
    queue = half_read(place)
    later.jobs.pop(0).run()  # the sync; the files to remove still exist
    queue.delete()
    fresh = place.open()
    assert fresh.depth == 0
    put(fresh, 100)
    assert diskqueue.commit(fresh) == 0
    later.run_all()
    fresh.release()
    assert take(fresh) == [100]


# ---------------------------------------------------------------------- closing, with workers


def test_a_last_sync_that_fails_is_reported_and_loses_no_file(tmp_path):
    later = Later()
    place = Place(tmp_path, run=later)
    queue = place.open()
    put(queue, 1, 2)
    queue.close()
    place.syncer.sync_closed()
    (tmp_path / "q.diskqueue.meta.dat").mkdir()  # a file cannot be renamed to a folder's name
    later.run_all()
    assert place.logged("DISKQUEUE(q) failed to sync - [Errno 21] Is a directory")
    assert "q.diskqueue.000000.dat" in place.names()


# ---------------------------------------------------------------------- tails


def test_size_that_points_beyond_the_file_costs_one_record(tmp_path):
    """After the write position of an old positions file; it looks like half a record and is not one."""
    good = [record(number) for number in range(6)]
    good[2] = record(2, size=5000)
    write(tmp_path, b"".join(good), "0\n0,0\n0,0\n")
    queue = Place(tmp_path).open()
    assert as_backlog(queue) == [0, 1, 3, 4, 5]
    assert queue.depth == 0
    assert (tmp_path / "q.diskqueue.000000.dat.bad").read_bytes() == b"".join(good)


def test_damage_after_a_crash_leaves_nothing_behind(tmp_path):
    """The positions are missing, a record in the middle of each file is damaged."""
    good = [record(number) for number in range(12)]
    good[2] = b"\xff" * 34
    good[8] = b"\xff" * 34
    write(tmp_path, b"".join(good[:6]))
    write(tmp_path, b"".join(good[6:]), number=1)
    queue = Place(tmp_path).open()
    assert queue.depth == 10
    assert as_backlog(queue) == [0, 1, 3, 4, 5, 6, 7, 9, 10, 11]
    assert queue.depth == 0


def test_zeros_at_the_end_are_half_a_record(tmp_path):
    """As some file systems leave them after a power cut."""
    write(tmp_path, record(0) + record(1) + bytes(300), "1\n0,0\n0,34\n")
    place = Place(tmp_path)
    queue = place.open()
    assert queue.depth == 2
    assert place.logged("300 bytes cut off")
    put(queue, 2)
    assert diskqueue.commit(queue) == 0
    assert take(queue) == [0, 1, 2]
    assert not [name for name in place.names() if "bad" in name]


# ---------------------------------------------------------------------- wrong positions


@pytest.mark.parametrize("depth", [0, 1, 2, 4, 7, 10**9])
def test_wrong_depth_is_corrected(tmp_path, depth):
    """A reader that goes by depth gets everything and terminates."""
    write(tmp_path, b"".join(record(number) for number in range(4)), f"{depth}\n0,0\n0,136\n")
    queue = Place(tmp_path).open()
    put(queue, 4)
    found = []
    while queue.depth and len(found) < 100:
        item = diskqueue.get(queue)
        if item is not None:
            found.append(int(item[1], 16))
    assert found == [0, 1, 2, 3, 4]
    assert queue.depth == 0


@pytest.mark.parametrize("meta", ["99999999999999999999999\n0,0\n0,0\n", "1\n0,99999999999999999999\n0,0\n"])
def test_numbers_that_are_too_large_are_no_positions(tmp_path, meta):
    write(tmp_path, record(0) + record(1), meta)
    assert take(Place(tmp_path).open()) == [0, 1]


def test_file_shorter_than_its_positions_say(tmp_path):
    write(tmp_path, b"".join(record(number) for number in range(3)), "9\n0,0\n0,306\n")
    place = Place(tmp_path)
    queue = place.open()
    assert queue.depth == 3
    assert place.logged("9 expected")
    put(queue, 3)
    assert diskqueue.commit(queue) == 0
    assert take(queue) == [0, 1, 2, 3]


def test_opening_a_long_queue_reads_only_what_is_new(tmp_path):
    """Three files; the positions cover two and a part: the first is read only at its beginning."""
    for number in range(3):
        write(tmp_path, b"".join(record(number * 10 + at) for at in range(10)), "21\n0,0\n2,34\n", number)
    with open(tmp_path / "q.diskqueue.000001.dat", "r+b") as file:
        file.write(b"\xff\xff")
    place = Place(tmp_path)
    queue = place.open()
    assert queue.depth == 30, "the damage in a file in between is found when it is read"
    assert not place.logged("damaged")
    assert as_backlog(queue) == [number for number in range(30) if number != 10]


# ---------------------------------------------------------------------- damage


def test_file_stays_kept_when_the_daemon_stops_in_the_middle_of_it(tmp_path):
    good = [record(number) for number in range(6)]
    good[1] = b"\xff" * 34
    write(tmp_path, b"".join(good), "6\n0,0\n0,204\n")
    queue = Place(tmp_path).open()
    assert take(queue, 2) == [0, 2]
    queue.close()
    place = Place(tmp_path)
    queue = place.open()
    assert take(queue) == [3, 4, 5]
    queue.close()
    assert place.names() == ["q.diskqueue.000000.dat.bad", "q.diskqueue.meta.dat"]
    assert (tmp_path / "q.diskqueue.000000.dat.bad").read_bytes() == b"".join(good)


def test_earlier_bad_file_is_not_overwritten(tmp_path):
    (tmp_path / "q.diskqueue.000000.dat.bad").write_bytes(b"first")
    write(tmp_path, b"\xff" * 99, "1\n0,0\n0,99\n")
    place = Place(tmp_path)
    place.open().close()
    assert (tmp_path / "q.diskqueue.000000.dat.bad").read_bytes() == b"first"
    assert (tmp_path / "q.diskqueue.000000.dat.bad.1").read_bytes() == b"\xff" * 99


@pytest.mark.parametrize("bit", range(32))
def test_flipped_bit_in_a_size_costs_that_record_only(tmp_path, bit):
    good = [record(number, body=b"x" * (200 + 3 * number)) for number in range(8)]
    size, = struct.unpack(">I", good[3][:4])
    good[3] = struct.pack(">I", size ^ (1 << bit)) + good[3][4:]
    content = b"".join(good)
    write(tmp_path, content, f"8\n0,0\n0,{len(content)}\n")
    place = Place(tmp_path)
    queue = place.open()
    found = []
    while queue.depth and (item := diskqueue.get(queue)) is not None:
        found.append((int(item[1], 16), item[0]))
    expected = [(number, b"x" * (200 + 3 * number)) for number in range(8) if number != 3]
    assert [item for item in found if item[0] != 3] == expected
    assert any("bad" in name for name in place.names())
    assert queue.depth == 0


def test_bodies_that_look_like_records_are_bodies(tmp_path):
    """Without damage, no search runs."""
    place = Place(tmp_path, max_bytes=3000)
    queue = place.open()
    bodies = [b"".join(record(100 + at) for at in range(number)) for number in range(12)]
    for number, body in enumerate(bodies):
        diskqueue.put(queue, body, b"%016x" % number, STAMP)
    assert diskqueue.commit(queue) == 0
    assert [item[0] for item in iter(partial(diskqueue.get, queue), None)] == bodies
    queue.close()
    assert not place.logged("damaged")


def test_ids_of_other_writers_are_read(tmp_path):
    content = b"".join(struct.pack(">iqH", 26 + 4, 0, 1) + b"Z" * 16 + b"body" for _ in range(5))
    write(tmp_path, content, f"5\n0,0\n0,{len(content)}\n")
    place = Place(tmp_path)
    assert [item[1] for item in iter(partial(diskqueue.get, place.open()), None)] == [b"Z" * 16] * 5
    assert not place.logged("damaged")


def test_large_records_around_a_damage(tmp_path):
    """Larger than a read block, damage at its edges."""
    rng = random.Random(1)
    place = Place(tmp_path, max_bytes=10**8)
    queue = DiskQueue("q", str(tmp_path), 10**8, 10**6, place.pool, place.syncer, place.log)
    sizes = [rng.choice([10, 5000, 300_000, 900_000]) for _ in range(30)]
    for number, size in enumerate(sizes):
        put(queue, number, body=b"y" * size)
    queue.close()
    path = tmp_path / "q.diskqueue.000000.dat"
    starts = [sum(30 + size for size in sizes[:number]) for number in range(30)]
    with open(path, "r+b") as file:
        for number in (7, 8, 20):
            file.seek(starts[number])
            file.write(b"\xff" * 8)
    queue = DiskQueue("q", str(tmp_path), 10**8, 10**6, place.pool, place.syncer, place.log)
    assert as_backlog(queue) == [number for number in range(30) if number not in (7, 8, 20)]
    assert queue.depth == 0


# ---------------------------------------------------------------------- a failing disk


@pytest.mark.parametrize("error", [errno.EACCES, errno.ENOMEM, errno.EMFILE])
def test_file_that_cannot_be_read_for_a_moment_is_not_given_up(tmp_path, error):
    queue = Place(tmp_path).open()
    put(queue, *range(5))
    queue.close()
    place = Place(tmp_path)
    queue = place.open()
    put(queue, 5)
    fileio.fail("read", error, times=2)
    assert diskqueue.get(queue) is None
    assert diskqueue.get(queue) is None
    assert queue.depth == 6
    assert take(queue) == [0, 1, 2, 3, 4, 5]
    assert not [name for name in place.names() if "bad" in name]
    assert place.logged(os.strerror(error))


def test_read_that_succeeds_when_repeated_is_no_damage(tmp_path):
    place = Place(tmp_path)
    queue = place.open()
    put(queue, *range(5))
    diskqueue.commit(queue)
    fileio.fail("read", errno.EIO, times=3)
    assert take(queue) == [0, 1, 2, 3, 4]
    assert not [name for name in place.names() if "bad" in name]


def test_unreadable_page_costs_what_lies_on_it(tmp_path):
    place = Place(tmp_path)
    queue = place.open()
    put(queue, *range(300), body=b"z" * 70)  # 100 bytes each: the first page ends within record 40
    queue.close()
    queue = place.open()
    fileio.fail("read", errno.EIO, times=4)
    assert take(queue) == list(range(41, 300))
    assert queue.depth == 0
    assert place.logged("damaged at 0")


def test_file_that_goes_away_during_its_salvage_ends_it(tmp_path):
    good = [record(number, body=b"b" * 900) for number in range(400)]
    good[1] = b"\xff" * 930
    content = b"".join(good)
    write(tmp_path, content, f"400\n0,0\n0,{len(content)}\n")
    place = Place(tmp_path)
    queue = place.open()
    assert take(queue, 2) == [0, 2]
    queue.release()
    (tmp_path / "q.diskqueue.000000.dat").unlink()
    assert take(queue, 1000) == []
    assert queue.depth == 0
    assert place.logged("missing")


def test_close_that_cannot_write_still_notes_what_was_read(tmp_path):
    queue = Place(tmp_path).open()
    put(queue, *range(5))
    queue.close()
    queue = Place(tmp_path).open()
    assert take(queue, 3) == [0, 1, 2]
    put(queue, 9)
    fileio.fail("write", errno.ENOSPC)
    with pytest.raises(OSError, match="1 messages are lost"):
        queue.close()
    assert take(Place(tmp_path).open()) == [3, 4]


# ---------------------------------------------------------------------- handing over, holding nothing


def test_positions_never_rest_at_the_end_of_a_full_file(tmp_path):
    """nsqd would take that for damage and rename the file."""
    place = Place(tmp_path, max_bytes=100)
    queue = place.open()
    for number in range(20):
        put(queue, number)
        assert diskqueue.commit(queue) == 0
        assert take(queue, 1) == [number]
        put(queue, 1000 + number)
        assert diskqueue.commit(queue) == 0
        depth, read, _ = queue.meta_text().decode().split("\n")[:3]
        read_file, read_at = map(int, read.split(","))
        path = tmp_path / f"q.diskqueue.{read_file:06d}.dat"
        assert int(depth) == 1
        assert read_at < path.stat().st_size
        assert take(queue) == [1000 + number]


def test_open_queues_hold_nothing_until_they_are_used(tmp_path):
    place = Place(tmp_path)
    for number in range(5):
        queue = place.open(f"q{number}")
        put(queue, 1, 2)
        queue.close()
    place = Place(tmp_path)
    queues = [place.open(f"q{number}") for number in range(5)]
    assert open_below(tmp_path) == []
    assert [take(queue) for queue in queues] == [[1, 2]] * 5


def test_read_blocks_go_with_what_they_were_read_for(tmp_path):
    place = Place(tmp_path)
    queue = place.open()
    put(queue, *range(1000))
    queue.close()
    queue = place.open()
    before = segment.read_blocks_alive()
    take(queue, 10)
    assert segment.read_blocks_alive() == before + 1
    while place.syncer.tick():
        pass
    assert segment.read_blocks_alive() == before + 1, "it has been used since the last look"
    queue.close()
    assert segment.read_blocks_alive() == before
    assert open_below(tmp_path) == []


def test_queue_that_is_collected_with_its_syncer_leaves_nothing(tmp_path):
    """They refer to each other, so the collector takes them apart in any order. Slow: Python's collector scans
    everything, again and again."""
    gc.collect()
    before = segment.read_blocks_alive()
    for number in range(20):
        place = Place(tmp_path)
        queue = place.open(f"q{number}")
        put(queue, 1)
        diskqueue.commit(queue)
        del queue, place
        gc.collect()
    assert segment.read_blocks_alive() == before
    assert open_below(tmp_path) == []


def test_leftovers_of_a_crash_are_removed(tmp_path):
    for name in ("q.diskqueue.000003.dat.retired-12-0", "q:c.diskqueue.meta.dat.retired-1-1",
                 "q.diskqueue.meta.dat.99-1.tmp", "q.diskqueue.meta.dat.8674665223082153551.tmp",
                 "q.diskqueue.000003.dat", "q.diskqueue.000001.dat.bad", "nsqd.dat"):
        (tmp_path / name).write_bytes(b"")
    Index(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["nsqd.dat", "q.diskqueue.000001.dat.bad", "q.diskqueue.000003.dat"]
