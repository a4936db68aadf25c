"""Fetched history is read like a local segment, and takes no more room than allowed."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from nsqc.bucket.fetch import Cache
from nsqc.bucket.reading import read_chain
from nsqc.bucket.ship import Shipper
from nsqc.bucket.store import Missing
from nsqc.store.log.reading import find_run, records
from tests.bucket.support import Log, Machine, MemoryLogs, MemoryStore
from tests.bucket.test_ship import bodies, publish


@pytest.fixture
def shipped(tmp_path):
    """(the node's bucket, four extents of ten messages)."""
    store = MemoryStore()
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    machine = Machine(store, tmp_path, "one")
    shipper = Shipper(machine.take_over(), logs, linger=0.0, idle=3600)
    shipper.start()
    for _ in range(4):
        publish(shipper, log, 10)
        assert logs.wait(log)
    extents = [*read_chain(machine.root.below("nsqd-1"), machine.root.get("cluster").decode())[0].extents()]
    assert len(extents) == 4
    yield machine.root.below("nsqd-1"), extents
    shipper.stop(60)


def test_a_fetched_extent_is_read_like_a_segment(shipped, tmp_path):
    node, extents = shipped
    cache = Cache(node, str(tmp_path / "cache"), 1 << 20)
    for part, following in zip(extents, [*extents[1:], None], strict=True):
        descriptor = cache.open(part, following)
        bounds = (part.first, part.end, part.position + part.length, part.salt)
        run = find_run(descriptor, bounds, part.first + 3, part.position, 5, 1 << 20, False)
        assert (run.first, run.next) == (part.first + 3, part.first + 8)
        first, end, _, lines = records(descriptor, bounds, part.first, part.position, part.end, 1 << 20, True)
        assert (first, end) == (part.first, part.end) and all(body in lines for body in bodies(part.first, 10))
        os.close(descriptor)
    cache.close()
    assert os.listdir(tmp_path / "cache") == []


def test_the_folder_is_bounded_and_open_files_stay_readable(shipped, tmp_path):
    node, extents = shipped
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/earlier.frames").write_bytes(b"of an earlier process")
    cache = Cache(node, str(tmp_path / "cache"), extents[0].length)
    first = cache.open(extents[0])
    with ThreadPoolExecutor(4) as threads:
        for descriptor in threads.map(cache.open, extents * 20):
            os.close(descriptor)
    os.close(cache.open(extents[3]))
    assert len(os.listdir(tmp_path / "cache")) == 1
    part = extents[0]
    assert find_run(first, (part.first, part.end, part.position + part.length, part.salt), 0, part.position, 10, 1 << 20,
                    False).next == 10
    os.close(first)
    cache.close()


def test_an_extent_that_is_gone_may_come_back(shipped, tmp_path):
    node, extents = shipped
    cache = Cache(node, str(tmp_path / "cache"), 1 << 20)
    data = node.get(extents[0].object)
    node.delete(extents[0].object)
    with pytest.raises(Missing):
        cache.open(extents[0])
    node.create(extents[0].object, data)
    os.close(cache.open(extents[0]))
    cache.close()
