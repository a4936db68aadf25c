"""Delays across stops and kills: they apply to messages that still exist, and to no others."""

import json
import struct
import time

import pytest

from nsqc.broker import nsqc_dat
from nsqc.store.disk.recovery import Index
from tests.support import nested
from tests.support.daemon import wait_until
from tests.support.log import RecordingLog

HOUR_NS = 3600 * 10**9


def record(number: int) -> bytes:
    return struct.pack(">iqH", 30, 10**18, 0) + b"%016x" % number + b"body"


def text(number: int) -> str:
    return f"{number:016x}"


def load(folder):
    log = RecordingLog()
    return nsqc_dat.load(folder, Index(str(folder)), nsqc_dat.load_ids(folder, log), log), log


def fill(folder, ids, meta="6\n1,34\n2,68\n"):
    """Files 0 to 2 of t:c with two messages each, 0 to 5; number 3 and above are unread."""
    for number in range(3):
        (folder / f"t:c.diskqueue.{number:06d}.dat").write_bytes(record(2 * number) + record(2 * number + 1))
    if meta:
        (folder / "t:c.diskqueue.meta.dat").write_text(meta)
    due = time.time_ns() + HOUR_NS
    nsqc_dat.save(folder, nsqc_dat.NsqcDat(77, {}, {"t:c": {text(number): due for number in ids}}))


def test_after_a_stop_all_delays_count(tmp_path):
    fill(tmp_path, range(9))
    nsqc_dat.save_ids(tmp_path, nsqc_dat.Ids(99, stopped=True))
    found, _ = load(tmp_path)
    assert len(found.channels["t:c"]) == 9
    assert found.reached_unit == 99


@pytest.mark.parametrize("ids", [
    None, nsqc_dat.Ids(50), b"", b"{", nested.OBJECT, b'{"reached_unit":-1}', b'{"reached_unit":9223372036854775807}',
    b'{"reached_unit":1%b}' % (b"0" * 40)])
def test_after_a_kill_those_count_that_are_there(tmp_path, ids):
    """Also if an earlier version wrote no id file, or a power cut emptied it."""
    fill(tmp_path, range(9))
    if isinstance(ids, bytes):
        (tmp_path / "nsqc.ids.dat").write_bytes(ids)
    elif ids is not None:
        nsqc_dat.save_ids(tmp_path, ids)
    found, _ = load(tmp_path)
    assert set(found.channels["t:c"]) == {text(number) for number in (3, 4, 5)}
    if isinstance(ids, nsqc_dat.Ids):
        assert found.reached_unit == 77
    else:       # no later than the ids on disk, even if the clock has been set back since they were made
        assert found.reached_unit > (time.time_ns() >> 20) + 3600 * 953
    assert set(json.loads((tmp_path / "nsqc.dat").read_text())["channels"]["t:c"]) == set(found.channels["t:c"])


def test_after_a_kill_without_positions_all_files_are_looked_through(tmp_path):
    fill(tmp_path, range(9), meta=None)
    assert set(load(tmp_path)[0].channels["t:c"]) == {text(number) for number in range(6)}


def test_after_a_kill_what_is_due_and_queues_that_are_gone_do_not_count(tmp_path):
    fill(tmp_path, [])
    past, later = time.time_ns() - 1, time.time_ns() + HOUR_NS
    nsqc_dat.save(tmp_path, nsqc_dat.NsqcDat(1, {"gone": {text(4): 500}},
                                           {"t:c": {text(4): past, text(5): later}, "gone:c": {text(5): later}}))
    found, _ = load(tmp_path)
    assert found.topics == {}
    assert found.channels == {"t:c": {text(5): later}}


def test_looking_through_is_bounded(tmp_path, monkeypatch):
    fill(tmp_path, range(9))
    monkeypatch.setattr(nsqc_dat, "MAX_SEARCHED_BYTES", 100)
    found, log = load(tmp_path)
    assert set(found.channels["t:c"]) == {text(number) for number in (3,)}
    assert any("too much" in line for line in log.lines)


@pytest.mark.parametrize("damage", [b"\xff" * 34, b"\0" * 34])
def test_damage_ends_the_search_of_a_file_only(tmp_path, damage):
    fill(tmp_path, range(9), meta=None)
    (tmp_path / "t:c.diskqueue.000001.dat").write_bytes(record(2) + damage + record(3))
    assert set(load(tmp_path)[0].channels["t:c"]) == {text(number) for number in (0, 1, 2, 4, 5)}


def test_a_kill_brings_no_deferred_counts_back_for_what_is_gone(daemon):
    node = daemon("--mem-queue-size=0", "--sync-every=1", "--sync-timeout=20ms")
    consumer = node.connect().sub("t", "c", 100)
    for _ in range(20):
        node.post("/pub?topic=t&defer=600000", b"x")
    wait_until(lambda: node.channel("t", "c")["deferred_count"] == 20)
    consumer.close()
    node.restart()
    assert node.channel("t", "c")["deferred_count"] == 20
    node.kill()
    node.start()
    assert node.channel("t", "c")["deferred_count"] == 20, "they are still there"
    assert node.channel("t", "c")["depth"] == 0
    node.post("/channel/empty?topic=t&channel=c")
    for n in range(30):
        node.post("/pub?topic=t", b"%d" % n)
    wait_until(lambda: node.channel("t", "c")["depth"] == 30)
    node.kill()
    node.start()
    found = node.channel("t", "c")
    assert (found["deferred_count"], found["depth"]) == (0, 30)


def test_while_it_runs_only_the_ids_are_noted(daemon):
    """Slow: ids are noted every 5 s."""

    def noted() -> bool:
        node.post("/pub?topic=u", b"x")
        return json.loads((node.data_path / "nsqc.ids.dat").read_text()) != ids

    node = daemon()
    consumer = node.connect().sub("t", "c", 100)
    node.post("/pub?topic=t&defer=600000", b"x")
    wait_until(lambda: node.channel("t", "c")["deferred_count"] == 1)
    consumer.close()
    node.restart()
    before = (node.data_path / "nsqc.dat").stat()
    ids = json.loads((node.data_path / "nsqc.ids.dat").read_text())
    wait_until(noted)
    assert (node.data_path / "nsqc.dat").stat() == before
    assert not json.loads((node.data_path / "nsqc.ids.dat").read_text())["stopped"]


@pytest.mark.parametrize("data", [
    nested.OBJECT, b'{"channels":{"t:c":{"0000000000000003":%d}}}' % (1 << 63), b'{"topics":{"t":{"0000000000000003":%d}}}' % (1 << 32),
    b'{"topics":{"t":{"0000000000000003":-1}}}', b'{"reached_unit":%d}' % (1 << 62)])
def test_a_file_that_cannot_be_used_costs_the_delays(tmp_path, data):
    fill(tmp_path, range(9))
    (tmp_path / "nsqc.dat").write_bytes(data)
    found, log = load(tmp_path)
    assert (found.topics, found.channels) == ({}, {})
    assert any("nsqc.dat cannot be used" in line for line in log.lines)
