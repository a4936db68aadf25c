"""Disk queues to Arrow: a daemon's files, read without Spark and compared with the daemon's own answers."""

import struct

import pytest

from nsqc.spark import columns, options, queue_files
from tests.support.daemon import wait_until
from tests.support.sizes import SIZES

ALL = columns.names(columns.RECORD)


def record(body: bytes, number: int = 1, attempts: int = 0) -> bytes:
    return struct.pack(">iqH16s", 26 + len(body), 1_700_000_000_000_000_000 + number, attempts, b"%016x" % number) + body


def rows(path, wanted=tuple(ALL), **more) -> list[dict]:
    chosen = options.diskqueue({"path": str(path), **more})
    return [row for span in queue_files.spans(chosen) for batch in queue_files.read(span, chosen, list(wanted))
            for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """A stopped daemon's data path: a topic without readers, one with channels, files of 20 kB."""
    from tests.support.daemon import Daemon, batch

    folder = tmp_path_factory.mktemp("left") / "data"
    daemon = Daemon(folder, "--max-bytes-per-file=20000", "--mem-queue-size=0", "--sync-every=1")
    try:
        client = daemon.connect()
        client.ok("MPUB lonely", batch(*(b"lonely %d" % n for n in range(1000))))
        daemon.post("/topic/create?topic=busy")
        for channel in ("a", "b"):
            daemon.post(f"/channel/create?topic=busy&channel={channel}")
        client.ok("MPUB busy", batch(*(b"busy %d" % n for n in range(700))))
        reader = daemon.connect().sub("busy", "a", 1)
        reader.messages(300, finish=True)
        reader.close()
        wait_until(lambda: daemon.channel("busy", "b")["depth"] == 700, "the depth of b")
        client.close()
        depths = {("lonely", None): daemon.stats("lonely")["depth"],
                  **{("busy", name): daemon.channel("busy", name)["depth"] for name in "ab"}}
        assert daemon.stop() == 0
    finally:
        daemon.close()
    return folder, depths


def test_unread_is_what_the_daemon_said_it_held(left):
    folder, depths = left
    found = rows(folder)
    for (topic, channel), depth in depths.items():
        one = [row for row in found if (row["topic"], row["channel"]) == (topic, channel)]
        # The message in flight when the reader disconnected goes back to the file of its channel.
        assert depth <= len(one) <= depth + 1
        assert len({row["id"] for row in one}) == len(one)
    lonely = [row["value"] for row in found if row["topic"] == "lonely"]
    assert lonely == [b"lonely %d" % n for n in range(1000)]


def test_columns_say_where_a_record_lies(left):
    folder, _ = left
    for row in rows(folder, topic="lonely")[::100]:
        data = (folder / row["file"]).read_bytes()[row["pos"]:]
        assert data.startswith(record(row["value"])[:4]) and data[14:30].decode() == row["id"]
        assert data[30:30 + len(row["value"])] == row["value"]
        assert int(row["timestamp"].timestamp() * 1e6) == struct.unpack_from(">q", data, 4)[0] // 1000
        assert row["attempts"] == 0 and row["channel"] is None


def test_all_is_more_than_unread_while_files_are_there(left):
    folder, _ = left
    assert len(rows(folder, topic="busy", channel="a")) < len(rows(folder, topic="busy", channel="a", range="all"))


@pytest.mark.parametrize(("more", "expected"), [
    ({"queues": "topics"}, {("lonely", None)}),
    ({"queues": "channels"}, {("busy", "a"), ("busy", "b")}),
    ({"topic": "busy"}, {("busy", "a"), ("busy", "b")}),
    ({"channel": "b"}, {("busy", "b")}),
    ({"topic": "other"}, set()),
])
def test_queues_are_chosen(left, more, expected):
    assert {(row["topic"], row["channel"]) for row in rows(left[0], **more)} == expected


def test_a_subset_of_the_columns(left):
    assert rows(left[0], ["value"], topic="lonely")[5] == {"value": b"lonely 5"}


def test_a_torn_end_fails_or_is_skipped(tmp_path):
    whole = b"".join(record(b"m%d" % n, n + 1, n) for n in range(5))
    (tmp_path / "t.diskqueue.000003.dat").write_bytes(whole + record(b"torn", 9)[:17])
    with pytest.raises(queue_files.BadRecord, match=f"000003.dat: no record at offset {len(whole)}: .*onBadRecord=skip"):
        rows(tmp_path)
    found = rows(tmp_path, onBadRecord="skip")
    assert [(row["value"], row["attempts"]) for row in found] == [(b"m%d" % n, n) for n in range(5)]


@pytest.mark.parametrize("size", SIZES)
def test_a_record_with_a_hostile_size_costs_only_itself(tmp_path, size):
    data = bytearray(b"".join(record(b"m%d" % number, number) for number in range(6)))
    data[2 * 32:2 * 32 + 4] = struct.pack(">i", size)
    (tmp_path / "t.diskqueue.000000.dat").write_bytes(data)
    (tmp_path / "t.diskqueue.meta.dat").write_text(f"6\n0,0\n0,{len(data)}\n")
    assert [row["value"] for row in rows(tmp_path, onBadRecord="skip")] == [b"m0", b"m1", b"m3", b"m4", b"m5"]
    with pytest.raises(queue_files.BadRecord):
        rows(tmp_path)


def test_records_behind_a_damage_are_read(tmp_path):
    parts = [record(b"m%d" % n, n + 1) for n in range(5)]
    parts[2] = b"\xff" * len(parts[2])
    (tmp_path / "t.diskqueue.000000.dat").write_bytes(b"".join(parts))
    assert [row["value"] for row in rows(tmp_path, onBadRecord="skip")] == [b"m0", b"m1", b"m3", b"m4"]


def test_positions_bound_what_is_unread_and_newer_files_count(tmp_path):
    parts = [record(b"m%d" % n, n + 1) for n in range(4)]
    for number in range(3):
        (tmp_path / f"t.diskqueue.{number:06d}.dat").write_bytes(b"".join(parts))
    (tmp_path / "t.diskqueue.meta.dat").write_text(f"6\n1,{len(parts[0]) * 2}\n2,0\n")
    assert [(row["file"][-5], row["value"]) for row in rows(tmp_path)] == [
        ("1", b"m2"), ("1", b"m3"), *(("2", b"m%d" % n) for n in range(4))]


def test_names_that_are_no_queues_are_left_alone(tmp_path):
    for name in ("nsqd.dat", "t.diskqueue.000000.dat.bad", "bad name.diskqueue.000000.dat", "t.diskqueue.1.dat"):
        (tmp_path / name).write_bytes(record(b"x"))
    assert rows(tmp_path) == []


def test_big_bodies_pass_the_limit_only_where_it_is_raised(tmp_path):
    (tmp_path / "t.diskqueue.000000.dat").write_bytes(record(b"x" * 2_000_000))
    with pytest.raises(queue_files.BadRecord, match="maxMsgSize"):
        rows(tmp_path)
    assert len(rows(tmp_path, maxMsgSize="2000000")) == 1


def test_a_data_path_in_use_is_noticed(daemon, tmp_path):
    one = daemon()
    assert queue_files.in_use(str(one.data_path))
    assert one.stop() == 0
    assert not queue_files.in_use(str(one.data_path))
