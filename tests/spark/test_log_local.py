"""Topics in a log as tasks on the node's machine read them: from its files, and from the node what is not there."""

import os
import shutil
import struct
from contextlib import closing, suppress
from pathlib import Path

import pytest

from nsqc.spark import options
from nsqc.spark.log import rows, table
from nsqc.spark.log.api import LogApi, State
from nsqc.spark.log.errors import DataLoss, NoTopic
from nsqc.spark.log.local import LocalLog
from nsqc.spark.log.narrow import Times
from nsqc.spark.log.ranges import Place, Range
from nsqc.store.disk.segment import RECORD_HEAD_BYTES
from tests.spark.test_log import FLAGS, name_of, publish, where
from tests.support.daemon import Daemon, batch, wait_until

COLUMNS = ["value", "topic", "id", "timestamp", "attempts", "nsqd", "offset"]
NOBODY = "127.0.0.1:1"      # answers nothing


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    one = Daemon(tmp_path_factory.mktemp("log") / "data", *FLAGS)
    yield one
    one.close()


def state_of(node: Daemon, topic: str) -> State:
    with closing(LogApi(f"127.0.0.1:{node.http_port}", chosen())) as api:
        return api.state(topic)


def chosen(**more: str):
    return options.log_table({"nsqd": "a:1", "topic": "t", "backoff": "10ms", "failWhenUnreachable": "0.1", **more})


def read(part: Range, **more: str) -> list[dict]:
    return [row for one in rows.read([part], chosen(**more), COLUMNS, Times()) for row in one.to_pylist()]


def whole(node: Daemon, topic: str, http: str = NOBODY, **more) -> Range:
    state = state_of(node, topic)
    return Range(Place(topic, name_of(node)), http, state.first, state.next, state.id, state.folder)._replace(**more)


@pytest.fixture
def asked(monkeypatch) -> list[tuple]:
    """The requests for records."""
    requests: list[tuple] = []
    ask = LogApi.ask

    def noted(self, *request) -> None:
        requests.append(request)
        ask(self, *request)

    monkeypatch.setattr(LogApi, "ask", noted)
    return requests


def folder_of(node: Daemon, topic: str) -> Path:
    return Path(state_of(node, topic).folder)


# ---------------------------------------------------------------------- the same rows

@pytest.mark.parametrize("piece", ["64k", "4m"])
def test_files_have_the_rows_that_the_node_answers(node, topic, asked, piece):
    client = node.connect()
    for size in (1, 2, 200, 5000, 70_000, 300_000):     # above a piece, and above a segment
        client.ok(f"MPUB {topic}", batch(*(bytes([number]) * size for number in range(7))))
        client.ok(f"DPUB {topic} 5", struct.pack(">I", 4) + b"late")
    client.close()
    part = whole(node, topic)
    local = read(part, fetchBytes=piece)
    assert not asked and len(local) == 48
    over_http = read(part._replace(http=f"127.0.0.1:{node.http_port}"), fetchBytes=piece, localFiles="false")
    assert asked and local == over_http
    for start, end in (0, 1), (5, 9), (47, 48), (13, 48):
        assert read(part._replace(start=start, end=end), fetchBytes=piece) == local[start:end]


def test_a_segment_that_grows_is_read_to_where_it_has_grown(node, topic, asked):
    publish(node, topic, range(100))
    part = whole(node, topic)
    with closing(LocalLog(part.folder, part.id, 1 << 20)) as files:
        buffer = bytearray(1 << 16)
        assert files.piece(90, 100, 1 << 16, buffer).next == 100
        assert files.piece(100, 200, 1 << 16, buffer) is None       # not there yet
        publish(node, topic, range(100, 200))
        assert files.piece(100, 200, 1 << 16, buffer).next == 200
        assert files.piece(100, 150, 1 << 16, buffer).next == 150   # no further than the node has said
    assert not asked


def test_tables_and_streams_read_files_where_they_may(node, topic, asked):
    publish(node, topic, range(3000))
    given = where(node, topic=topic, minPartitions="3")
    for more, requests in ({}, False), ({"localFiles": "false"}, True):
        reader = table.reader(options.log_table({**given, **more}), COLUMNS)
        found = [row["offset"] for part in reader.partitions() for one in reader.read(part) for row in one.to_pylist()]
        assert sorted(found) == list(range(3000)) and bool(asked) is requests


# ---------------------------------------------------------------------- what is asked for over HTTP

def open_below(*folders: Path) -> list[str]:
    """The files there that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):       # that of the listing
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [path for path in found if any(path.startswith(str(folder) + "/") for folder in folders)]


def other_id(part: Range, tmp_path: Path) -> Range:
    return part._replace(id="0123456789abcdef")


def no_id(part: Range, tmp_path: Path) -> Range:
    return part._replace(id="")


def path_as_id(part: Range, tmp_path: Path) -> Range:
    return part._replace(id=f"x/../id.{part.id}")


def relative(part: Range, tmp_path: Path) -> Range:
    return part._replace(folder=os.path.relpath(part.folder))


def zero(part: Range, tmp_path: Path) -> Range:
    return part._replace(folder=part.folder + "\0")


def absent(part: Range, tmp_path: Path) -> Range:
    return part._replace(folder=part.folder + "x")


def copy_of(part: Range, tmp_path: Path) -> Path:
    return Path(shutil.copytree(part.folder, tmp_path / "copy"))


def a_file(part: Range, tmp_path: Path) -> Range:
    return part._replace(folder=f"{part.folder}/{part.start:020}.dat")


def fifos(part: Range, tmp_path: Path) -> Range:
    copy = copy_of(part, tmp_path)
    for segment in copy.glob("*.dat"):
        segment.unlink()
        os.mkfifo(segment)
    return part._replace(folder=str(copy))


def folders(part: Range, tmp_path: Path) -> Range:
    copy = copy_of(part, tmp_path)
    for index in copy.glob("*.idx"):
        index.unlink()
        index.mkdir()
    return part._replace(folder=str(copy))


def no_index(part: Range, tmp_path: Path) -> Range:
    copy = copy_of(part, tmp_path)
    for index in copy.glob("*.idx"):
        index.unlink()
    return part._replace(folder=str(copy))


def short(part: Range, tmp_path: Path) -> Range:
    copy = copy_of(part, tmp_path)
    for segment in copy.glob("*.dat"):
        os.truncate(segment, 10)
    return part._replace(folder=str(copy))


def zeros(part: Range, tmp_path: Path) -> Range:
    copy = copy_of(part, tmp_path)
    for segment in copy.glob("*.dat"):
        segment.write_bytes(bytes(segment.stat().st_size))
    return part._replace(folder=str(copy))


def nothing(part: Range, tmp_path: Path) -> Range:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / f"id.{part.id}").touch()
    return part._replace(folder=str(tmp_path / "empty"))


@pytest.mark.parametrize("change", [other_id, no_id, path_as_id, relative, zero, absent, a_file, fifos, folders,
                                    no_index, short, zeros, nothing])
def test_what_is_not_the_log_as_it_should_be_is_not_read(node, topic, asked, tmp_path, change):
    publish(node, topic, range(1000))
    part = change(whole(node, topic, f"127.0.0.1:{node.http_port}"), tmp_path)
    if change is other_id:      # the node refuses that one, too
        with pytest.raises(DataLoss, match="was deleted and made again"):
            read(part)
    elif change is path_as_id:
        assert not LocalLog(part.folder, part.id, 1 << 20).there
    else:
        assert [row["offset"] for row in read(part)] == list(range(1000)) and asked
    assert not open_below(node.data_path, tmp_path)


def test_files_that_may_not_be_read(node, topic, monkeypatch):
    """As for a task of another user; this one may be root."""
    publish(node, topic, range(1000))
    opened = os.open

    def refused(path, flags, *more, **places):
        if str(path).endswith(".dat"):
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *more, **places)

    monkeypatch.setattr(os, "open", refused)
    assert len(read(whole(node, topic, f"127.0.0.1:{node.http_port}"))) == 1000


def test_a_folder_whose_name_is_no_text(tmp_path):
    """The node does not tell it."""
    one = Daemon(tmp_path / "\udcff", *FLAGS)
    try:
        publish(one, "t", range(1000))
        assert state_of(one, "t").folder == ""
        assert len(read(whole(one, "t", f"127.0.0.1:{one.http_port}"))) == 1000
    finally:
        one.close()


# ---------------------------------------------------------------------- while it is read

def test_a_log_that_is_removed_and_made_again_while_it_is_read(node, topic):
    publish(node, topic, range(3000))
    part = whole(node, topic, f"127.0.0.1:{node.http_port}")
    batches = rows.read([part], chosen(), COLUMNS, Times())
    first = next(batches).column("offset").to_pylist()
    assert first == list(range(len(first))) and len(first) < 3000
    node.post(f"/topic/delete?topic={topic}")
    with pytest.raises(NoTopic, match=f"offset {len(first)}: .* has no topic {topic}"):
        list(batches)
    publish(node, topic, range(3000))
    with pytest.raises(DataLoss, match="was deleted and made again"):
        read(part)


def test_segments_that_retention_removes_while_they_are_read(node, topic):
    publish(node, topic, range(3000))
    part = whole(node, topic, f"127.0.0.1:{node.http_port}")
    batches = rows.read([part], chosen(), COLUMNS, Times())
    first = next(batches).num_rows
    node.post(f"/channel/create?topic={topic}&channel=c&from=end")
    wait_until(lambda: state_of(node, topic).first > first, "retention")
    begins = state_of(node, topic).first
    with pytest.raises(DataLoss, match=f"begins at offset {begins}: retention has removed .* from {first} on"):
        list(batches)
    assert [row["offset"] for row in read(part, failOnDataLoss="false")] == list(range(begins, 3000))


@pytest.mark.parametrize("local", ["true", "false"])
def test_damage_is_told_by_the_node_whoever_finds_it(node, topic, local):
    publish(node, topic, range(1000))
    part = whole(node, topic, f"127.0.0.1:{node.http_port}")
    segment = sorted(folder_of(node, topic).glob("*.dat"))[0]
    record = segment.stat().st_size // 600
    with segment.open("r+b") as file:
        file.seek(100 * record + RECORD_HEAD_BYTES // 2)
        file.write(b"\xff" * 3)
    with pytest.raises(DataLoss, match=r": [12] messages from offset \d+ on are damaged"):
        read(part, localFiles=local)
    left = [row["offset"] for row in read(part, localFiles=local, failOnDataLoss="false")]
    assert 997 < len(left) < 1000 and left == sorted(set(left))
