"""A sync: its steps, their order, and the effects of a failing one."""

import errno
import os
from concurrent.futures import Future

import pytest

from nsqc.store.disk import fileio, manager
from tests.compiled import diskqueue
from tests.store.disk.test_queue import Harness, drain, message_id, put


@pytest.fixture
def calls(monkeypatch):
    """Calls on files, in order: ("sync" or "positions", name) and ("write", name, from here on)."""
    found = []
    sync_path, put_positions = fileio.sync_path, manager.put_positions

    def synced(path, again_from=-1):
        if again_from >= 0:
            found.append(("write", os.path.basename(path), again_from))
        found.append(("sync", os.path.basename(path)))
        sync_path(path, again_from)

    def placed(work):
        found.append(("positions", os.path.basename(work.meta_path)))
        put_positions(work)

    monkeypatch.setattr(fileio, "sync_path", synced)
    monkeypatch.setattr(manager, "put_positions", placed)
    return found


def test_after_a_failed_sync_the_data_is_written_again(tmp_path, calls):
    files = Harness(tmp_path, 10**6, every=10**6)
    queue = files.open()
    put(queue, 1)
    diskqueue.commit(queue)
    files.syncer.start(queue)
    durable = queue.write_at
    put(queue, 2)
    diskqueue.commit(queue)
    fileio.fail("sync", errno.EIO)
    files.syncer.start(queue)
    assert any("failed to sync" in line for line in files.log.lines)
    assert not any(call[0] == "write" for call in calls)
    put(queue, 3)
    diskqueue.commit(queue)
    fileio.fail("sync", errno.EIO)      # once more, after the data was rewritten
    files.syncer.start(queue)
    del calls[:]
    files.syncer.start(queue)
    assert ("write", "q.diskqueue.000000.dat", durable) in calls
    assert calls[-2:] == [("positions", "q.diskqueue.meta.dat"), ("sync", tmp_path.name)]
    del calls[:]
    put(queue, 4)
    diskqueue.commit(queue)
    files.syncer.start(queue)
    assert not any(call[0] == "write" for call in calls), "it is believed again"
    assert drain(queue) == [1, 2, 3, 4]


def test_files_that_were_left_are_written_again_too(tmp_path, calls):
    files = Harness(tmp_path, 100, every=10**6)
    queue = files.open()
    fileio.fail("sync", errno.EIO)
    for number in range(6):
        put(queue, number)
    diskqueue.commit(queue)
    files.syncer.start(queue)
    files.syncer.start(queue)
    written = {call[1] for call in calls if call[0] == "write"}
    assert written == {name for name in os.listdir(tmp_path) if "meta" not in name}
    assert len(written) > 1


class Fuller:
    """A disk with no room for new data."""

    def __init__(self, monkeypatch):
        self.full = False
        self.open = os.open
        monkeypatch.setattr(os, "open", self)

    def __call__(self, path, flags, *mode):
        if self.full and flags & os.O_CREAT and not os.path.exists(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return self.open(path, flags, *mode)


@pytest.mark.parametrize("before", [True, False], ids=["positions", "no positions"])
def test_a_full_disk_empties(tmp_path, monkeypatch, before):
    files = Harness(tmp_path, 100, every=10**6)
    queue = files.open()
    for number in range(20):
        put(queue, number)
    diskqueue.commit(queue)
    if before:
        files.syncer.start(queue)
    disk = Fuller(monkeypatch)
    disk.full = True
    for number in range(15):
        assert diskqueue.get(queue)[1] == message_id(number)
    files.syncer.start(queue)
    assert before != bool(files.syncer.failing), "where there never was a block for positions, they stay unwritten"
    left = sorted(name for name in os.listdir(tmp_path) if "meta" not in name)
    assert len(left) <= 4, left
    disk.full = False
    if before:
        again = Harness(tmp_path, 100).open()
        assert drain(again) == list(range(15, 20))
    else:
        # The position in the first file is unknown.
        assert set(drain(Harness(tmp_path, 100).open())) >= set(range(15, 20))


def test_positions_that_a_crash_left_half_overwritten_are_rebuilt(tmp_path):
    files = Harness(tmp_path, 10**6)
    queue = files.open()
    put(queue, 1)
    put(queue, 2)
    queue.close()
    (tmp_path / "q.diskqueue.meta.dat").write_bytes(b"1\n0,36\n0,72\n2\n")
    assert drain(Harness(tmp_path, 10**6).open()) == [1, 2]


class Jobs(list):
    """Jobs of worker threads, each run on request."""

    def __call__(self, call):
        job = Job(self, call)
        self.append(job)
        return job


class Job:
    def __init__(self, jobs, call):
        self.jobs, self.call, self.callbacks = jobs, call, []

    def add_done_callback(self, callback):
        self.callbacks.append(callback)

    def run(self):
        self.jobs.remove(self)
        self.answer = self.call()
        for callback in self.callbacks:
            callback(self)

    def exception(self):
        return None

    def result(self):
        return self.answer


@pytest.mark.parametrize("closes", [False, True], ids=["running", "closed"])
def test_positions_of_a_topic_do_not_trust_a_sync_of_a_channel_that_has_not_ended(tmp_path, calls, closes):
    """The channel's sync has begun, so none of it still needs a sync; but none of it is durable either."""
    jobs = Jobs()
    files = Harness(tmp_path, 10**6, every=10**6)
    files.syncer = manager.Syncer(10**6, 10**9, jobs, files.log)
    topic, channel = files.open("t"), files.open("t:c")
    topic.copies.append(channel)
    put(topic, 1)
    diskqueue.commit(topic)
    put(channel, 1)
    diskqueue.commit(channel)
    if closes:
        channel.close()
        topic.close()
        files.syncer.sync_closed()
    else:
        files.syncer.start(channel)
        files.syncer.start(topic)
    of_channel, of_topic = jobs
    of_topic.run()
    while closes and jobs:
        jobs[-1].run()
    assert calls.index(("sync", "t:c.diskqueue.000000.dat")) < calls.index(("positions", "t.diskqueue.meta.dat"))
    assert ("sync", tmp_path.name) in calls, "nor is the name of the file"
    if not closes:
        of_channel.run()
        del calls[:]
        put(topic, 2)
        diskqueue.commit(topic)
        files.syncer.start(topic)
        jobs[0].run()
        assert ("sync", "t:c.diskqueue.000000.dat") not in calls, "it is durable by now"


def test_a_queue_of_the_same_name_waits_for_the_files_of_the_old_one_to_go(tmp_path):
    jobs = Jobs()
    files = Harness(tmp_path, 10**6, every=1)
    files.syncer = manager.Syncer(1, 10**9, jobs, files.log)
    queue = files.open()
    put(queue, 1)
    diskqueue.commit(queue)
    jobs[0].run()
    queue.delete()
    fresh = type(queue)("q", str(tmp_path), 10**6, 10_000, files.pool, files.syncer, files.log, first=queue.write_number)
    put(fresh, 2)
    diskqueue.commit(fresh)
    assert len(jobs) == 1, "the removal; the first sync of the new queue waits"
    jobs[0].run()
    while jobs:
        jobs[0].run()
    assert drain(Harness(tmp_path, 10**6).open()) == [2]


# ---------------------------------------------------------------------- the folder


@pytest.fixture
def names(monkeypatch, tmp_path):
    """Changes of names in the folder, in order: (call, name); a sync of the folder has no name."""
    found = []

    def notes(module, function, call):
        inner = getattr(module, function)

        def noted(path, *more):
            inner(path, *more)
            found.append((call, "" if str(path) == str(tmp_path) else os.path.basename(path)))

        monkeypatch.setattr(module, function, noted)

    notes(fileio, "sync_path", "sync")
    notes(fileio, "rename_file", "rename")
    notes(os, "unlink", "unlink")
    return found


def renames(names) -> list[int]:
    return [at for at, (call, name) in enumerate(names) if call == "rename" and ".tmp" in name]


def test_the_folder_is_synced_behind_new_files_and_behind_positions(tmp_path, names):
    files = Harness(tmp_path, 100, every=10**6)
    queue = files.open()
    for number in range(10):
        put(queue, number)
    diskqueue.commit(queue)
    assert [diskqueue.get(queue)[1] for _ in range(7)] == [message_id(number) for number in range(7)]
    files.syncer.start(queue)
    assert ("sync", "") in names[:renames(names)[0]], "positions must not refer to files that may be gone"
    assert all(names[at + 1] == ("sync", "") for at in renames(names))
    gone = [at for at, (call, name) in enumerate(names) if call == "unlink"]
    assert len(gone) == 3
    for at in gone:
        assert names[at - 1] == ("sync", ""), "a file goes once no positions can come back that refer to it"


def test_a_sync_without_new_files_syncs_the_folder_once(tmp_path, names):
    files = Harness(tmp_path, 10**6, every=10**6)
    queue = files.open()
    for number in range(2):
        del names[:]
        put(queue, number)
        diskqueue.commit(queue)
        files.syncer.start(queue)
    assert [call for call, name in names if not name] == ["sync"]
    assert names[-1] == ("sync", "")


def test_a_folder_that_cannot_be_synced_keeps_the_files(tmp_path, names):
    """Positions are replaced, but a power failure might bring the old ones back."""
    files = Harness(tmp_path, 100, every=10**6)
    queue = files.open()
    for number in range(10):
        put(queue, number)
    diskqueue.commit(queue)
    files.syncer.start(queue)
    before = {name for name in os.listdir(tmp_path) if "meta" not in name}
    fileio.fail("sync", errno.EIO, skip=1)    # after the temporary file's sync
    for _ in range(2):
        diskqueue.get(queue)
    assert any("failed to sync" in line for line in files.log.lines)
    assert {name for name in os.listdir(tmp_path) if "meta" not in name} == before
    files.syncer.start(queue)
    assert {name for name in os.listdir(tmp_path) if "meta" not in name} < before
    assert drain(queue) == list(range(2, 10))


def test_closed_queues_share_the_syncs_of_the_folder(tmp_path, names):
    jobs = Jobs()
    files = Harness(tmp_path, 10**6, every=10**6)
    files.syncer = manager.Syncer(10**6, 10**9, jobs, files.log)
    for number in range(20):
        queue = files.open(f"q{number}")
        put(queue, number)
        diskqueue.commit(queue)
        queue.close()
    files.syncer.sync_closed()
    while jobs:
        jobs[0].run()
    folder = [at for at, call in enumerate(names) if call == ("sync", "")]
    placed = renames(names)
    assert len(folder) == 2 and len(placed) == 20
    assert folder[0] < placed[0] and placed[-1] < folder[1]
    again = Harness(tmp_path, 10**6)
    assert [drain(again.open(f"q{number}")) for number in range(20)] == [[number] for number in range(20)]


def test_a_closed_queue_that_cannot_be_synced_holds_up_no_other(tmp_path, names):
    jobs = Jobs()
    files = Harness(tmp_path, 10**6, every=10**6)
    files.syncer = manager.Syncer(10**6, 10**9, jobs, files.log)
    for name in ("a", "b", "c"):
        queue = files.open(name)
        put(queue, 1)
        diskqueue.commit(queue)
        queue.close()
    (tmp_path / "b.diskqueue.meta.dat").mkdir()
    files.syncer.sync_closed()
    while jobs:
        jobs[0].run()
    assert list(files.syncer.failing) == ["b"]
    assert all((tmp_path / f"{name}.diskqueue.meta.dat").is_file() for name in ("a", "c"))


def test_what_a_killed_run_has_written_is_synced_before_positions_rely_on_it(tmp_path, names):
    files = Harness(tmp_path, 100, every=10**6)
    queue = files.open()
    for number in range(3):
        put(queue, number)
    diskqueue.commit(queue)
    files.syncer.start(queue)
    for number in range(3, 12):
        put(queue, number)
    diskqueue.commit(queue)
    del names[:]
    again = Harness(tmp_path, 100, every=10**6)     # the first is not closed: it was killed
    fresh = again.open()
    assert fresh.depth == 12
    again.syncer.start(fresh)
    before = names[:renames(names)[0]]
    written = sorted(name for name in os.listdir(tmp_path) if "meta" not in name)
    assert len(written) > 3
    assert {name for call, name in before if call == "sync"} >= {"", *written[1:]}
    assert drain(fresh) == list(range(12))


def test_a_look_at_many_queues_has_an_end(tmp_path, monkeypatch):
    files = Harness(tmp_path, 10**6, every=10**6)
    queues = [files.open(f"q{number}") for number in range(10)]
    for queue in queues:
        put(queue, 1)
        diskqueue.commit(queue)
    files.syncer.timeout_ns = 0
    monkeypatch.setattr(manager, "SLICE_NS", 0)
    left = []
    while files.syncer.tick():
        left.append(sum(queue.needs_sync for queue in queues))
    assert left[:10] == list(range(9, -1, -1)), "one in each slice"


def whole_look(files: Harness) -> None:
    """On a busy machine it takes several slices."""
    while files.syncer.tick():
        pass


def test_no_more_syncs_begin_than_can_be_under_way(tmp_path, monkeypatch):
    files = Harness(tmp_path, 10**6, every=10**6)
    queues = [files.open(f"q{number}") for number in range(10)]
    for queue in queues:
        put(queue, 1)
        diskqueue.commit(queue)
    jobs = []

    def run(job):
        jobs.append((job, Future()))
        return jobs[-1][1]

    files.syncer.timeout_ns = 0
    monkeypatch.setattr(files.syncer, "_run", run)
    monkeypatch.setattr(manager, "MOST_RUNNING", 4)
    whole_look(files)
    assert len(jobs) == 4
    for job, future in jobs[:3]:
        future.set_result(job())
    whole_look(files)
    assert len(jobs) == 7
    for job, future in jobs[3:]:
        future.set_result(job())
    whole_look(files)
    for job, future in jobs[7:]:
        future.set_result(job())
    assert len(jobs) == 10
    assert not any(queue.needs_sync for queue in queues)
