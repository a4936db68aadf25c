"""Ships logs, is fenced, takes over and restores: real threads on stores that fail."""

import contextlib
import random
import threading
import time

import pytest

from nsqc.bucket.commit import DamagedError, commit_name
from nsqc.bucket.reading import NodeReader, read_chain
from nsqc.bucket.ship import Shipper
from nsqc.bucket.store import Bucket, Exists, Gone, Missing, Unclear
from nsqc.bucket.takeover import Claim, Journal, RefusedError
from tests.bucket.support import Collected, FaultyStore, Log, Machine, MemoryLogs, MemoryStore, read_range

FAST = {"linger": 0.01, "idle": 0.2}


def bodies(first: int, count: int, size: int = 20) -> list[bytes]:
    return [(b"message %d " % number).ljust(size, b".") for number in range(first, first + count)]


def publish(shipper: Shipper, log: Log, count: int, size: int = 20) -> None:
    shipper.wake(log.append(bodies(log.end, count, size)))


def restored(machine: Machine) -> Collected:
    return Collected(machine.take_over())


def wait_for(condition: object, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def store():
    return MemoryStore()


def test_another_machine_has_everything_that_was_shipped(store, tmp_path):
    log, other = Log(7, "orders"), Log(8, "events")
    logs = MemoryLogs(log, other)
    logs.metadata = b"topics"
    shipper = Shipper(Machine(store, tmp_path, "one").take_over(), logs, **FAST)
    shipper.start()
    for _ in range(5):
        log.journal += 1
        publish(shipper, log, 3)
        publish(shipper, other, 1)
        assert logs.wait(log)
    assert logs.wait(other)
    sink = restored(Machine(store, tmp_path, "two"))
    assert sink.logs == {7: dict(enumerate(bodies(0, 15))), 8: dict(enumerate(bodies(0, 5)))}
    assert sink.topics == {7: "orders", 8: "events"}
    assert sink.journals[7] == [b"journal 3", b"journal 4", b"journal 5"]
    assert sink.head.metadata == b"topics"
    wait_for(lambda: logs.reason)               # the first machine's next commit fences it
    assert "two, epoch 2" in logs.reason


def test_a_fenced_process_ships_nothing_more(store, tmp_path):
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    shipper = Shipper(Machine(store, tmp_path, "one").take_over(), logs, linger=0.01, idle=3600)
    shipper.start()
    publish(shipper, log, 1)
    assert logs.wait(log)
    Machine(store, tmp_path, "two").take_over()
    objects = {*store.objects}
    publish(shipper, log, 1)
    assert not logs.wait(log)
    publish(shipper, log, 1)
    assert not shipper.stop(10)
    assert {*store.objects} == objects
    assert shipper.status().fenced == logs.reason


def test_a_large_backlog_goes_to_data_objects(store, tmp_path):
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    for _ in range(40):
        log.append(bodies(log.end, 4, 250_000))
    shipper = Shipper(Machine(store, tmp_path, "one").take_over(), logs, **FAST)
    shipper.start()
    assert logs.wait(log)
    assert shipper.stop(30)
    assert max(len(data) for name, data in store.objects.items() if "/commit/" in name) < 100_000
    assert sum(len(data) for name, data in store.objects.items() if "/data/" in name) > 40_000_000
    assert restored(Machine(store, tmp_path, "two")).logs[7] == dict(enumerate(bodies(0, 160, 250_000)))


def test_a_backlog_keeps_the_store_busy(store, tmp_path):
    """Data objects are put in parallel, those of the next commit while one is put."""
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    for _ in range(60):
        log.append(bodies(log.end, 4, 250_000))
    create, begun, together, ahead = store.create, [], threading.Event(), threading.Event()

    def put(name: str, data: bytes) -> None:
        if "/data/" in name:
            begun.append(name)
            if len(begun) == 3:
                together.set()
            if len(begun) == 5:         # the first commit has four
                ahead.set()
            assert together.wait(60)
        elif "/commit/" in name and begun:
            assert ahead.wait(60)
        create(name, data)

    shipper = Shipper(Machine(store, tmp_path, "one").take_over(), logs, **FAST)
    store.create = put
    shipper.start()
    assert logs.wait(log)
    assert shipper.stop(30)
    assert Collected(Machine(store, tmp_path, "two").take_over()).logs[7] == dict(enumerate(bodies(0, 240, 250_000)))


def test_a_clean_stop_has_a_checkpoint_and_needs_no_watch(store, tmp_path):
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    shipper = Shipper(Machine(store, tmp_path, "one").take_over(), logs, **FAST)
    shipper.start()
    publish(shipper, log, 2)
    assert shipper.stop(30)
    owned = Machine(store, tmp_path, "two").take_over(force=False, watch=3600)
    assert owned.base == shipper.number
    assert owned.whole.head.epoch == 2
    assert all(part.object.startswith("data/") for part in owned.whole.extents())


def test_a_living_node_is_not_replaced(store, tmp_path):
    logs = MemoryLogs(Log(7, "orders"))
    shipper = Shipper(Machine(store, tmp_path, "one").take_over(), logs, **FAST)
    shipper.start()
    with pytest.raises(RefusedError, match="alive on one"):
        Machine(store, tmp_path, "two").take_over(force=False, watch=60)
    assert shipper.stop(30)
    dead = Machine(store, tmp_path, "three").take_over()
    assert Machine(store, tmp_path, "four").take_over(force=False, watch=0.1).whole.head.epoch == dead.whole.head.epoch + 1


def test_files_of_an_earlier_epoch_are_refused(store, tmp_path):
    one = Machine(store, tmp_path, "one")
    one.take_over()
    assert not one.take_over(has_files=True, force=False, watch=3600).had_files       # not restored yet
    Journal.read(str(one.folder)).restored()
    assert one.take_over(has_files=True, force=False, watch=3600).had_files           # its own: no watch
    Machine(store, tmp_path, "two").take_over()
    with pytest.raises(RefusedError, match="two took over node nsqd-1"):
        one.take_over(has_files=True)


def test_a_claim_that_lands_after_a_restart_is_recognized(store, tmp_path):
    """The first claim is in flight when the process ends; the next start finds it."""
    one = Machine(store, tmp_path, "one")
    one.take_over()
    Journal.read(str(one.folder)).restored()
    late: list[tuple[str, bytes]] = []

    class Lost(Exception):
        pass

    class Losing(MemoryStore):
        def create(self, name, data):
            if "commit/" in name:
                late.append((name, data))
                raise Lost
            store.create(name, data)

        def __getattribute__(self, name):
            return object.__getattribute__(self, name) if name in ("create", "__class__") else getattr(store, name)

    one.root.store = Losing()
    for _ in range(2):          # two claims, both in flight
        with pytest.raises(Lost):
            one.take_over(has_files=True, force=False, watch=3600)
    store.create(*late[0])
    one.root.store = store
    owned = one.take_over(has_files=True, force=False, watch=3600)
    assert (owned.had_files, owned.whole.head.epoch) == (True, 3)


def test_a_claim_is_void_if_a_checkpoint_landed_meanwhile(store, tmp_path):
    """The checkpoint of the former owner is in flight while another reads the chain and claims; after it, the former owner
    could have deleted what the claim relies on."""
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    shipper = Shipper(Machine(store, tmp_path, "one").take_over(), logs, linger=0.0, idle=3600, checkpoint_commits=2)
    create, held = store.create, []

    def hold(name: str, data: bytes) -> None:
        if "/checkpoint/" in name:
            held.append((name, data))
            raise Unclear("no answer yet")
        if "/commit/" in name and held and b"two" in data:
            with contextlib.suppress(Exists):
                create(*held[0])
        create(name, data)

    store.create = hold
    shipper.start()
    for _ in range(3):
        publish(shipper, log, 1)
        assert logs.wait(log)
    wait_for(lambda: held)
    owned = Machine(store, tmp_path, "two").take_over()
    assert (owned.base, owned.whole.head.epoch) == (int(held[0][0][-20:]), 3)
    store.create = create
    assert not shipper.stop(60)


def test_nothing_is_deleted_that_a_successor_relies_on(store, tmp_path):
    """A checkpoint of the former owner lands after the takeover: only a commit of its own would allow deletions."""
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    shipper = Shipper(Machine(store, tmp_path, "one").take_over(), logs, linger=0.0, idle=3600, checkpoint_commits=3,
                      delete_after=0.001)
    create, blocking, released = store.create, threading.Event(), threading.Event()

    def hold(name: str, data: bytes) -> None:
        if "/checkpoint/" in name and blocking.is_set():
            released.wait(60)
        create(name, data)

    store.create = hold
    shipper.start()
    publish(shipper, log, 1)
    while not shipper.checkpoints.newest:
        publish(shipper, log, 1)
        assert logs.wait(log)
    blocking.set()
    for _ in range(4):
        publish(shipper, log, 1)
        assert logs.wait(log)
    owned = Machine(store, tmp_path, "two").take_over()
    rounds, delete = [], shipper.checkpoints.delete
    shipper.checkpoints.delete = lambda: (delete(), rounds.append(shipper.checkpoints.newest))
    before = shipper.checkpoints.newest
    released.set()
    wait_for(lambda: len([newest for newest in rounds if newest > before]) > 2)
    sink = Collected(owned)
    assert sink.logs[7] == dict(enumerate(bodies(0, log.end)))
    assert not shipper.stop(60)


def test_files_of_another_node_are_refused(store, tmp_path):
    one = Machine(store, tmp_path, "one")
    one.take_over("nsqd-1")
    with pytest.raises(RefusedError, match="belong to node nsqd-1"):
        one.take_over("nsqd-2")
    with pytest.raises(RefusedError, match="belong to node nsqd-1"):
        Machine(MemoryStore(), tmp_path, "one").take_over("nsqd-1")


def test_a_damaged_journal_is_refused(tmp_path):
    (tmp_path / "bucket.json").write_text('{"cluster": 1}')
    with pytest.raises(RefusedError, match=r"bucket\.json"):
        Journal.read(str(tmp_path))


def test_checkpoints_replace_commits_and_objects(store, tmp_path):
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    shipper = Shipper(Machine(store, tmp_path, "one").take_over(), logs, linger=0.0, idle=0.05, checkpoint_commits=3,
                      delete_after=0.01)
    shipper.start()

    def deleted() -> bool:
        """Whether objects of each kind were deleted. Objects are packed again only where more arrives meanwhile."""
        publish(shipper, log, 2)
        assert logs.wait(log)
        return {"commit", "data", "checkpoint"} <= {name.split("/")[1] for name in [*store.deleted]}

    wait_for(deleted)
    assert shipper.stop(30)
    assert f"nsqd-1/{commit_name(1)}" in store.objects          # a claim
    two = Machine(store, tmp_path, "two")
    assert restored(two).logs[7] == dict(enumerate(bodies(0, log.end)))
    whole, _ = read_chain(two.root.below("nsqd-1"), two.root.get("cluster").decode())
    named = {*whole.head.objects, *whole.head.unneeded}
    data = {name.partition("/")[2] for name in store.objects if "/data/" in name}
    assert data <= named, "an object that nobody would delete"
    assert {part.object for part in whole.extents()} <= data


def test_a_store_that_refuses_us_stops_nothing_for_ever(store, tmp_path):
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    shipper = Shipper(Machine(store, tmp_path, "one").take_over(), logs, **FAST)
    refusing = threading.Event()
    create = store.create

    def refuse(name: str, data: bytes) -> None:
        if refusing.is_set():
            raise Gone("403")
        create(name, data)

    store.create = refuse
    refusing.set()
    shipper.start()
    publish(shipper, log, 1)
    wait_for(lambda: shipper.status().error == "403")
    assert not logs.ends and not logs.reason
    assert shipper.status().waiting_seconds > 0 and shipper.status().waiting_bytes == len(log.segments[0][1])
    refusing.clear()
    assert logs.wait(log)
    wait_for(lambda: shipper.status().error == "" and shipper.status().waiting_bytes == 0)
    assert shipper.stop(30)


def shipped(store, tmp_path):
    """A log with one message, which is in the bucket, the logs, and the running shipper."""
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    shipper = Shipper(Machine(store, tmp_path, "one").take_over(), logs, **FAST)
    shipper.start()
    publish(shipper, log, 1)
    assert logs.wait(log)
    return log, logs, shipper


def test_removed_objects_are_noticed(store, tmp_path):
    """Commits without what was before them would be worth nothing."""
    log, logs, shipper = shipped(store, tmp_path)
    with store.lock:
        objects, store.objects = store.objects, {}
    wait_for(lambda: "objects of this node were removed" in shipper.status().error)
    publish(shipper, log, 1)
    wait_for(lambda: shipper.status().waiting_seconds > 1)
    with store.lock:
        strays, store.objects = store.objects, {**objects, **store.objects}
    assert {name for name in strays if "/commit/" in name} <= {f"nsqd-1/{commit_name(number)}" for number in (3, 4)}
    assert logs.wait(log)
    assert shipper.stop(30)
    assert restored(Machine(store, tmp_path, "two")).logs[7] == dict(enumerate(bodies(0, 2)))


def test_a_chain_without_its_beginning_is_not_begun_again(store, tmp_path):
    _, _, shipper = shipped(store, tmp_path)
    assert shipper.stop(30)
    for name in [name for name in store.objects if "/checkpoint/" in name or name.endswith(commit_name(1))]:
        store.delete(name)      # as an expiry rule of the bucket does
    before = {*store.objects}
    with pytest.raises(DamagedError, match="no checkpoint and not the first commit"):
        Machine(store, tmp_path, "two").take_over()
    assert {*store.objects} == before


def test_a_stop_gives_up_in_time(store, tmp_path):
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    shipper = Shipper(Machine(store, tmp_path, "one").take_over(), logs, **FAST)

    def refuse(name: str, data: bytes) -> None:
        raise Gone("403")

    store.create = refuse
    shipper.start()
    publish(shipper, log, 1)
    assert not shipper.stop(0.2)
    shipper.thread.join(60)
    shipper.checkpoints.thread.join(60)
    assert not shipper.thread.is_alive() and not shipper.checkpoints.thread.is_alive()


@pytest.mark.parametrize("seed", range(4))
def test_nothing_acknowledged_is_lost_on_a_store_that_fails(store, tmp_path, seed):
    """Owners follow each other, each while the one before still publishes; a reader by offset runs along."""
    chance = random.Random(seed)
    acknowledged: dict[int, dict[int, bytes]] = {}
    shippers: list[tuple[Shipper, MemoryLogs, Log]] = []
    for round_ in range(4):
        machine = Machine(FaultyStore(store, seed * 10 + round_), tmp_path, f"machine {round_}")
        log = Log(100 + round_, "orders")
        logs = MemoryLogs(log)
        owned = machine.take_over()
        sink = Collected(owned)
        for log_id, messages in acknowledged.items():
            assert sink.logs[log_id] | messages == sink.logs[log_id]
        shipper = Shipper(owned, logs, linger=0.0, idle=0.02, checkpoint_commits=chance.choice((2, 5)), delete_after=0.05)
        shipper.start()
        shippers.append((shipper, logs, log))
        for _ in range(chance.randrange(3, 10)):
            first = log.end
            publish(shipper, log, chance.randrange(1, 4))
            if not logs.wait(log):
                break
            acknowledged.setdefault(log.id, {}).update({n: bodies(n, 1)[0] for n in range(first, log.end)})
    shippers[-1][0].stop(60)
    for shipper, logs, _ in shippers[:-1]:
        wait_for(lambda logs=logs: logs.reason)
        assert not shipper.stop(60)
    sink = restored(Machine(store, tmp_path, "last"))
    for log_id, messages in acknowledged.items():
        assert sink.logs[log_id] | messages == sink.logs[log_id]


@pytest.mark.parametrize("rounds", [3, pytest.param(40, marks=pytest.mark.long)])
def test_two_machines_that_fight_for_a_node_lose_nothing(store, tmp_path, rounds):
    """Each takes over as soon as it is fenced; both claim at once, again and again."""
    acknowledged: dict[int, dict[int, bytes]] = {}
    failures: list[BaseException] = []

    def fight(number: int) -> None:
        try:
            for round_ in range(rounds):
                machine = Machine(FaultyStore(store, number * 1000 + round_, rate=0.1), tmp_path, f"machine {number}")
                log = Log(1000 * number + round_, "orders")
                logs = MemoryLogs(log)
                shipper = Shipper(machine.take_over(), logs, linger=0.0, idle=0.05, checkpoint_commits=3, delete_after=0.2)
                shipper.start()
                for _ in range(5):
                    first = log.end
                    publish(shipper, log, 2)
                    if not logs.wait(log):
                        break
                    acknowledged.setdefault(log.id, {}).update(enumerate(bodies(first, 2), first))
                shipper.stop(60)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=fight, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert failures == []
    sink = restored(Machine(store, tmp_path, "last"))
    for log_id, messages in acknowledged.items():
        assert sink.logs[log_id] | messages == sink.logs[log_id]


def test_a_reader_by_offset_follows(store, tmp_path):
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    machine = Machine(store, tmp_path, "one")
    shipper = Shipper(machine.take_over(), logs, linger=0.0, idle=3600, checkpoint_commits=4, delete_after=0.001)
    shipper.start()
    publish(shipper, log, 2)
    assert logs.wait(log)
    root = Bucket(store, "memory://acme")
    reader = NodeReader(root, "nsqd-1")
    seen: dict[int, bytes] = {}
    while log.end < 60:
        publish(shipper, log, 2)
        assert logs.wait(log)
        if log.end % 10 == 0:
            if reader.refresh().logs[7].frames[-1].end < log.end:       # commits are deleted here at once, too
                reader.refresh(again=True)
            assert reader.whole.logs[7].frames[-1].end == log.end
            while len(seen) < log.end:
                try:
                    for part in reader.plan(7, len(seen), log.end, 3):
                        seen.update({row[0]: row[3] for row in read_range(root.below(part.node), part)})
                except Missing:         # packed and deleted meanwhile: here at once, elsewhere after a day
                    reader.refresh(again=True)
    assert seen == dict(enumerate(bodies(0, 60)))
    assert [log_id for log_id, _ in reader.logs("orders")] == [7]
    assert shipper.stop(30)


def test_claims_are_journalled_until_one_is_known_to_have_landed(tmp_path):
    journal = Journal.read(str(tmp_path))
    journal.belongs("c" * 32, "nsqd-1")
    journal.tries(Claim(1, "a"))
    journal.tries(Claim(2, "b"))
    again = Journal.read(str(tmp_path))
    assert again.knows("a") and again.knows("b")
    again.landed(Claim(2, "b"), False)
    assert not Journal.read(str(tmp_path)).knows("a")
