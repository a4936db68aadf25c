"""The disk queue on real files: order, restarts, rolling, syncs, damage, faults."""

import errno
import os
import random
import resource
import struct
import subprocess
import sys
import textwrap
from collections import deque
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from nsqc.store.disk import fileio
from nsqc.store.disk.fileio import IoPool
from nsqc.store.disk.manager import Syncer
from nsqc.store.disk.queue import DiskQueue
from tests.compiled import diskqueue
from tests.support.log import RecordingLog
from tests.support.patience import WAIT_SECONDS
from tests.support.sizes import SIZES

STAMP = 1_700_000_000_000_000_000
MAX_MESSAGE = 10_000


class Harness:
    """Opens queues in a folder; syncs run at once."""

    def __init__(self, folder, max_bytes=500, every=10, pool=None):
        self.folder = str(folder)
        self.max_bytes = max_bytes
        self.log = RecordingLog()
        self.pool = pool or IoPool()
        self.syncer = Syncer(every, 10**9, None, self.log)

    def open(self, name="q") -> DiskQueue:
        return DiskQueue(name, self.folder, self.max_bytes, MAX_MESSAGE, self.pool, self.syncer, self.log)


def message_id(number: int) -> bytes:
    return b"%016x" % number


def put(queue, number: int, body: bytes | None = None, attempts: int = 0):
    diskqueue.put(queue, b"body-%d" % number if body is None else body, message_id(number), STAMP + number, attempts)


def record(number: int, body: bytes | None = None, attempts: int = 0) -> bytes:
    """A record as the format description defines it."""
    body = b"body-%d" % number if body is None else body
    return struct.pack(">iqH", 26 + len(body), STAMP + number, attempts) + message_id(number) + body


def drain(queue) -> list[int]:
    found = []
    while (item := diskqueue.get(queue)) is not None:
        found.append(int(item[1], 16))
    return found


@pytest.fixture
def files(tmp_path):
    return Harness(tmp_path)


def open_below(folder) -> list[str]:
    """The files there that this process has open."""
    found = []
    for link in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            path = os.readlink(f"/proc/self/fd/{link}")
            found += [path] if path.startswith(str(folder)) else []
    return found


def names(harness) -> list[str]:
    return sorted(os.listdir(harness.folder))


# ---------------------------------------------------------------------- a model


class QueueModel(RuleBasedStateMachine):
    """Against a deque: written records survive a kill, unwritten ones need not, and order always holds."""

    folder: Path

    @initialize(max_bytes=st.sampled_from([60, 200, 1000, 10**9]), every=st.sampled_from([1, 7, 10**6]))
    def start(self, max_bytes, every):
        for path in self.folder.iterdir():
            path.unlink()
        self.harness = Harness(self.folder, max_bytes, every)
        self.queue = self.harness.open()
        self.model = deque()
        self.made = 0
        self.unwritten = 0

    @rule(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=8), attempts=st.integers(0, 65535))
    def put(self, sizes, attempts):
        for size in sizes:
            put(self.queue, self.made, b"x" * size, attempts)
            self.model.append((self.made, size, attempts))
            self.made += 1
            self.unwritten += 1

    @rule()
    def commit(self):
        assert diskqueue.commit(self.queue) == 0
        self.unwritten = 0

    @rule()
    def rollback(self):
        assert diskqueue.rollback(self.queue) == self.unwritten
        for _ in range(self.unwritten):
            self.model.pop()
        self.unwritten = 0

    @rule(count=st.integers(1, 10))
    def get(self, count):
        for _ in range(count):
            found = diskqueue.get(self.queue)
            if not self.model:
                assert found is None
                return
            number, size, attempts = self.model.popleft()
            assert found == (b"x" * size, message_id(number), STAMP + number, attempts)
            self.unwritten = min(self.unwritten, len(self.model))

    @rule()
    def reopen(self):
        self.queue.close()
        self.unwritten = 0
        self.queue = self.harness.open()

    @rule()
    def kill(self):
        """Positions may be old, so records read since the last sync come again; no written record is left out."""
        for _ in range(self.unwritten):
            self.model.pop()
        self.unwritten = 0
        self.queue.release()
        self.harness = Harness(self.folder, self.harness.max_bytes, self.harness.syncer.every)
        self.queue = self.harness.open()
        again = self.queue.depth - len(self.model)
        assert again >= 0
        for _ in range(again):
            assert diskqueue.get(self.queue) is not None

    @rule()
    def empty(self):
        self.queue.empty()
        self.model.clear()
        self.unwritten = 0

    @invariant()
    def counts(self):
        assert self.queue.depth == len(self.model)

    def teardown(self):
        if hasattr(self, "queue"):
            self.queue.release()
            assert open_below(self.folder) == []
            assert not any(name.endswith(".bad") for name in os.listdir(self.folder))


def test_like_a_deque(tmp_path):
    """Slow: hypothesis drives a queue and a model of it through thousands of steps, on a disk."""
    QueueModel.folder = tmp_path
    run_state_machine_as_test(QueueModel, settings=settings(
        stateful_step_count=40, max_examples=120, deadline=None, suppress_health_check=list(HealthCheck)))


# ---------------------------------------------------------------------- format


def test_bytes_on_disk(files):
    queue = files.open("t:c")
    put(queue, 1, b"hello", 3)
    put(queue, 2, b"")
    queue.close()
    assert names(files) == ["t:c.diskqueue.000000.dat", "t:c.diskqueue.meta.dat"]
    folder = Path(files.folder)
    assert (folder / "t:c.diskqueue.000000.dat").read_bytes() == record(1, b"hello", 3) + record(2, b"")
    assert (folder / "t:c.diskqueue.meta.dat").read_text() == "2\n0,0\n0,65\n"
    assert os.stat(folder / "t:c.diskqueue.000000.dat").st_mode & 0o777 == 0o600


def test_reads_what_the_original_writes(files):
    folder = Path(files.folder)
    (folder / "q.diskqueue.000007.dat").write_bytes(record(1) + record(2))
    (folder / "q.diskqueue.000008.dat").write_bytes(record(3) + record(4, b"x" * 200))
    (folder / "q.diskqueue.meta.dat").write_text(f"3\n7,{len(record(1))}\n8,{len(record(3)) + 230}\n")
    queue = files.open()
    assert queue.depth == 3
    assert drain(queue) == [2, 3, 4]
    put(queue, 5)
    queue.close()
    assert "q.diskqueue.000007.dat" not in names(files)
    assert (folder / "q.diskqueue.meta.dat").read_text().startswith("1\n8,")


def test_names_above_a_million_files(files):
    folder = Path(files.folder)
    (folder / "q.diskqueue.1234567.dat").write_bytes(record(1))
    (folder / "q.diskqueue.meta.dat").write_text(f"1\n1234567,0\n1234567,{len(record(1))}\n")
    assert drain(files.open()) == [1]


def test_rolls_before_the_limit_would_be_passed(files):
    queue = files.open()
    for number in range(20):
        put(queue, number, b"x" * 70)  # 100 bytes each, 500 in a file
    assert diskqueue.commit(queue) == 0
    sizes = [os.stat(Path(files.folder) / name).st_size for name in names(files) if "meta" not in name]
    assert sizes == [500] * 4
    assert drain(queue) == list(range(20))
    assert [n for n in names(files) if "meta" not in n] == ["q.diskqueue.000003.dat"], "read files are gone"


def test_a_record_larger_than_a_file_has_one_of_its_own(files):
    queue = files.open()
    put(queue, 1, b"x" * 2000)
    put(queue, 2)
    assert diskqueue.commit(queue) == 0
    assert queue.write_number == 1
    assert drain(queue) == [1, 2]


def test_reader_that_caught_up_survives_the_roll(files):
    queue = files.open()
    for number in range(200):
        put(queue, number, b"x" * 70)
        assert diskqueue.commit(queue) == 0
        assert drain(queue) == [number]
    assert not [line for line in files.log.lines if "damaged" in line]
    assert not [name for name in names(files) if name.endswith(".bad")]


def test_unwritten_records_can_be_read(files):
    queue = files.open()
    put(queue, 1)
    put(queue, 2)
    assert drain(queue) == [1, 2]
    put(queue, 3)
    put(queue, 4)
    assert diskqueue.get(queue)[1] == message_id(3)
    assert diskqueue.commit(queue) == 0
    assert drain(queue) == [4]


def test_empty_and_delete_remove_files(files):
    queue = files.open()
    for number in range(30):
        put(queue, number)
    diskqueue.commit(queue)
    queue.empty()
    assert [n for n in names(files) if n.endswith(".dat") and "meta" not in n] == []
    put(queue, 99)
    diskqueue.commit(queue)
    assert drain(queue) == [99]
    queue.delete()
    assert names(files) == []


def test_a_new_queue_of_a_deleted_name_begins_anew(files):
    queue = files.open()
    put(queue, 1)
    diskqueue.commit(queue)
    queue.delete()
    queue = files.open()
    assert queue.depth == 0
    put(queue, 2)
    queue.close()
    assert drain(files.open()) == [2]


# ---------------------------------------------------------------------- crashes and damage


def crash(harness, queue) -> Harness:
    """The process is gone: nothing more is written."""
    queue.release()
    return Harness(harness.folder, harness.max_bytes)


def test_half_a_record_at_the_end_is_cut_off(tmp_path):
    files = Harness(tmp_path, 10**6)
    queue = files.open()
    for number in range(5):
        put(queue, number)
    queue.close()
    with (tmp_path / "q.diskqueue.000000.dat").open("ab") as file:
        file.write(record(5, b"y" * 100)[:50])
    again = Harness(tmp_path, 10**6)
    queue = again.open()
    assert queue.depth == 5
    assert any("50 bytes cut off" in line for line in again.log.lines)
    put(queue, 6)
    diskqueue.commit(queue)
    assert drain(queue) == [0, 1, 2, 3, 4, 6]
    assert not [name for name in names(again) if name.endswith(".bad")]


@pytest.mark.parametrize("meta", [None, b"", b"garbage", b"5\n0,0\n", b"99999\n9,9\n7,7\n", b"-4\n0,0\n0,10\n"])
def test_positions_are_rebuilt(tmp_path, meta):
    files = Harness(tmp_path, 100)
    queue = files.open()
    for number in range(10):
        put(queue, number)
    queue.close()
    path = tmp_path / "q.diskqueue.meta.dat"
    path.unlink()
    if meta is not None:
        path.write_bytes(meta)
    queue = Harness(tmp_path, 100).open()
    assert queue.depth == 10
    assert drain(queue) == list(range(10))


def test_missing_file_in_the_middle(tmp_path):
    files = Harness(tmp_path, 100)
    queue = files.open()
    for number in range(9):
        put(queue, number, b"x" * 20)  # 50 bytes, two in a file
    queue.close()
    (tmp_path / "q.diskqueue.000001.dat").unlink()
    queue = Harness(tmp_path, 100).open()
    assert drain(queue) == [0, 1, 4, 5, 6, 7, 8]
    assert queue.depth == 0


def test_unreadable_file_at_the_start(tmp_path):
    (tmp_path / "q.diskqueue.000000.dat").write_bytes(bytes.fromhex("7fffffff00112233445566778899"))
    (tmp_path / "q.diskqueue.meta.dat").write_text("1\n0,0\n0,14\n")
    files = Harness(tmp_path)
    queue = files.open()
    assert queue.depth == 0
    assert names(files) == ["q.diskqueue.000000.dat.bad", "q.diskqueue.meta.dat"]
    put(queue, 1)
    diskqueue.commit(queue)
    assert drain(queue) == [1]


def test_every_intact_record_around_a_damage_is_delivered(tmp_path):
    for seed in range(100):
        folder = tmp_path / f"seed{seed}"
        folder.mkdir()
        deliver_around_a_damage(folder, seed)


def deliver_around_a_damage(folder, seed):
    rng = random.Random(seed)
    files = Harness(folder, rng.choice([400, 10**6]))
    queue = files.open()
    bodies = [rng.randbytes(rng.randint(1, 120)) for _ in range(30)]
    for number, body in enumerate(bodies):
        put(queue, number, body)
    queue.close()
    victims = sorted(folder.glob("*.dat"))
    victim = rng.choice([path for path in victims if "meta" not in path.name])
    content = bytearray(victim.read_bytes())
    begin = rng.randrange(len(content))
    length = rng.randint(1, 40)
    if rng.random() < 0.7:
        for at in range(begin, min(begin + length, len(content))):
            content[at] = rng.getrandbits(8)
    else:
        del content[begin:begin + length]
    hit, at = set(), 0
    numbers = chain(victim, folder, bodies)
    for number in numbers:
        size = 30 + len(bodies[number])
        if at < begin + length and at + size > begin:
            hit.add(number)
        at += size
    victim.write_bytes(bytes(content))
    again = Harness(folder, files.max_bytes)
    queue = again.open()
    found = []
    while (item := diskqueue.get(queue)) is not None:
        found.append((item[1], item[0]))
    intact = [(message_id(number), body) for number, body in enumerate(bodies) if number not in hit]
    assert [pair for pair in found if pair in intact] == intact
    assert queue.depth == 0
    put(queue, 1000)
    assert diskqueue.commit(queue) == 0
    assert drain(queue) == [1000]


def chain(victim, folder, bodies) -> list[int]:
    """The numbers of the records in a file, before it was damaged."""
    total, number = 0, 0
    for path in sorted(p for p in folder.glob("*.dat") if "meta" not in p.name):
        size, at, inside = path.stat().st_size, 0, []
        while at < size:
            inside.append(number)
            at += 30 + len(bodies[number])
            number += 1
        if path == victim:
            return inside
        total += size
    return []


@pytest.mark.parametrize("size", SIZES)
def test_damaged_file_is_kept_and_reported(tmp_path, size):
    files = Harness(tmp_path, 10**6)
    queue = files.open()
    for number in range(10):
        put(queue, number)
    queue.close()
    path = tmp_path / "q.diskqueue.000000.dat"
    content = bytearray(path.read_bytes())
    content[3 * 36:3 * 36 + 4] = struct.pack(">i", size)
    path.write_bytes(content)
    again = Harness(tmp_path, 10**6)
    queue = again.open()
    assert drain(queue) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    queue.close()
    assert (tmp_path / "q.diskqueue.000000.dat.bad").read_bytes() == bytes(content)
    assert any("damaged at 108" in line and "6 intact messages follow" in line for line in again.log.lines)


# ---------------------------------------------------------------------- faults


def test_a_directory_in_place_of_the_file(tmp_path):
    queue = Harness(tmp_path).open()
    (tmp_path / "q.diskqueue.000000.dat").mkdir()
    put(queue, 1)
    assert diskqueue.commit(queue) == errno.EISDIR
    assert queue.depth == 1
    (tmp_path / "q.diskqueue.000000.dat").rmdir()
    assert diskqueue.commit(queue) == 0
    assert drain(queue) == [1]


def test_full_disk_changes_nothing_and_heals(tmp_path):
    script = textwrap.dedent("""
        import errno, os, resource, signal, sys
        sys.path.insert(0, os.getcwd())
        from tests.compiled import diskqueue
        from tests.store.disk.test_queue import Harness, drain, put
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        folder = sys.argv[1]
        files = Harness(folder, 10**6, every=10**6)
        queue = files.open()
        for number in range(20):
            put(queue, number, b"x" * 70)
            if number == 4:
                assert diskqueue.commit(queue) == 0
        assert diskqueue.commit(queue) == errno.EFBIG
        assert queue.depth == 20 and queue.write_at == 500
        assert os.stat(folder + "/q.diskqueue.000000.dat").st_size == 500
        assert [diskqueue.get(queue)[1] for _ in range(7)][-1] == b"%016x" % 6, "also what could not be written can be read"
        assert diskqueue.commit(queue) == errno.EFBIG
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert diskqueue.commit(queue) == 0
        assert drain(queue) == list(range(7, 20))
        print("done")
    """)
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.stdout == "done\n", done.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def test_failed_write_over_several_files_is_taken_back(tmp_path):
    files = Harness(tmp_path, 200)
    queue = files.open()
    put(queue, 0, b"x" * 70)
    assert diskqueue.commit(queue) == 0
    for number in range(1, 9):
        put(queue, number, b"x" * 70)
    fileio.fail("write", errno.ENOSPC, skip=2)
    assert diskqueue.commit(queue) == errno.ENOSPC
    assert (queue.write_number, queue.write_at, queue.depth) == (0, 100, 9)
    assert diskqueue.rollback(queue) == 8
    for number in range(10, 14):
        put(queue, number, b"x" * 70)
    assert diskqueue.commit(queue) == 0
    queue.close()
    assert drain(Harness(tmp_path, 200).open()) == [0, 10, 11, 12, 13]


def test_failed_sync_is_tried_again(tmp_path):
    files = Harness(tmp_path, 10**6, every=5)
    queue = files.open()
    fileio.fail("sync", errno.EIO)
    for number in range(5):
        put(queue, number)
    diskqueue.commit(queue)
    assert any("failed to sync" in line for line in files.log.lines)
    assert "q.diskqueue.meta.dat" not in names(files)
    for number in range(5, 10):
        put(queue, number)
    diskqueue.commit(queue)
    assert (tmp_path / "q.diskqueue.meta.dat").read_text().startswith("10\n")


# ---------------------------------------------------------------------- descriptors and syncs


def test_queues_hold_no_descriptors(tmp_path):
    files = Harness(tmp_path, 10**6, every=10**6)
    queues = [files.open(f"q{n}") for n in range(20)]
    for turn in range(5):
        for number, queue in enumerate(queues):
            put(queue, turn * 100 + number)
            assert diskqueue.commit(queue) == 0
            assert open_below(tmp_path) == []
    for number, queue in enumerate(queues):
        assert drain(queue) == [turn * 100 + number for turn in range(5)]
    for _ in range(2):
        for queue in queues:
            files.syncer.start(queue)
        while files.syncer.tick():
            pass
    assert open_below(tmp_path) == []


def test_sync_every_counts_reads_and_writes(tmp_path):
    files = Harness(tmp_path, 10**6, every=10)
    queue = files.open()
    meta = tmp_path / "q.diskqueue.meta.dat"
    for number in range(9):
        put(queue, number)
        diskqueue.commit(queue)
    assert not meta.exists()
    put(queue, 9)
    diskqueue.commit(queue)
    assert meta.read_text() == f"10\n0,0\n0,{queue.write_at}\n"
    for _ in range(10):
        diskqueue.get(queue)
    assert meta.read_text().startswith("0\n0,360\n")


def test_sync_is_always_under_way_while_more_is_due(tmp_path):
    """With a slow worker, the next sync begins when the running one ends."""
    jobs = []

    class Job:
        def __init__(self, call):
            self.call = call
            self.callbacks = []
            jobs.append(self)

        def add_done_callback(self, callback):
            self.callbacks.append(callback)

        def exception(self):
            return None

        def result(self):
            return self.answer

        def finish(self):
            self.answer = self.call()
            for callback in self.callbacks:
                callback(self)

    log = RecordingLog()
    syncer = Syncer(5, 10**9, Job, log)
    queue = DiskQueue("q", str(tmp_path), 10**6, MAX_MESSAGE, IoPool(), syncer, log)
    for number in range(23):
        put(queue, number)
        diskqueue.commit(queue)
    assert len(jobs) == 1
    jobs[0].finish()
    assert (tmp_path / "q.diskqueue.meta.dat").read_text().startswith("5\n")
    assert len(jobs) == 2
    jobs[1].finish()
    assert (tmp_path / "q.diskqueue.meta.dat").read_text().startswith("23\n")
    assert len(jobs) == 2


def test_deleted_queue_does_not_get_its_positions_back(tmp_path):
    pending = []

    class Job:
        def __init__(self, call):
            self.call = call
            pending.append(self)

        def add_done_callback(self, callback):
            self.callback = callback

        def exception(self):
            return None

        def result(self):
            return self.answer

    log = RecordingLog()
    syncer = Syncer(1, 10**9, Job, log)
    queue = DiskQueue("q", str(tmp_path), 10**6, MAX_MESSAGE, IoPool(), syncer, log)
    put(queue, 1)
    diskqueue.commit(queue)
    first = pending[0]
    first.answer = first.call()
    queue.delete()
    first.callback(first)
    for job in pending[1:]:
        job.call()
    assert os.listdir(tmp_path) == []


def test_random_order_of_everything_leaves_no_descriptor(tmp_path):
    rng = random.Random(5)
    files = Harness(tmp_path, 300, every=3)
    queues = {}
    for _ in range(500):
        name = f"q{rng.randrange(6)}"
        if name not in queues:
            queues[name] = files.open(name)
        queue = queues[name]
        action = rng.random()
        if action < 0.5:
            put(queue, rng.randrange(10**6))
        elif action < 0.7:
            diskqueue.commit(queue)
        elif action < 0.9:
            diskqueue.get(queue)
        elif action < 0.95:
            queue.empty()
        else:
            queue.delete()
            del queues[name]
    for queue in queues.values():
        queue.close()
    assert open_below(tmp_path) == []


def test_roll_while_the_reader_has_the_rest_of_the_file_at_hand(tmp_path):
    queue = Harness(tmp_path, 1000, every=1).open()
    for number, size in enumerate([64, 300, 300]):
        put(queue, number, b"x" * size)
    diskqueue.commit(queue)
    assert diskqueue.get(queue)[1] == message_id(0)
    put(queue, 3, b"x" * 217)
    diskqueue.commit(queue)
    assert drain(queue) == [1, 2, 3]


@pytest.mark.parametrize("large", [True, False])
def test_an_empty_queue_that_is_idle_takes_no_space(tmp_path, large):
    """Its last file is removed once it is read, unless it is small."""
    files = Harness(tmp_path, 10**9)
    queue = files.open()
    body = b"x" * 1000
    count = 1100 if large else 900
    for number in range(count):
        put(queue, number, body)
    assert diskqueue.commit(queue) == 0
    queue.release()
    assert drain(queue) == list(range(count))
    queue.release()
    files.syncer.start(queue)
    assert [path.name for path in tmp_path.glob("*.diskqueue.0*")] == ([] if large else ["q.diskqueue.000000.dat"])
    put(queue, 5)
    assert diskqueue.commit(queue) == 0
    queue.close()
    again = Harness(tmp_path, 10**9)
    assert drain(again.open()) == [5]
    assert again.log.lines == []
