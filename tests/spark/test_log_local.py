"""Log-backed topics read by tasks on the node's machine: from its files, and missing parts from the node."""

import os
import shutil
from contextlib import closing, suppress
from pathlib import Path

import pytest

from nsqc.spark import options
from nsqc.spark.log import rows, table
from nsqc.spark.log.api import BadAnswer, DataLoss, LogApi, NoTopic, State, Unreachable
from nsqc.spark.log.narrow import Times
from nsqc.spark.log.ranges import Place, Range
from nsqc.spark.log.rows import LocalLog
from nsqc.store.files import boot_of, folder_key
from tests.spark.logs import FLAGS, name_of, publish, where
from tests.support.crc32c import crc32c
from tests.support.daemon import Daemon, batch, wait_until

COLUMNS = ["value", "topic", "id", "timestamp", "attempts", "nsqd", "offset"]


def state_of(node: Daemon, topic: str) -> State:
    with closing(LogApi(f"127.0.0.1:{node.http_port}", chosen())) as api:
        return api.state(topic)


def chosen(**more: str):
    return options.log_table({"nsqd": "a:1", "topic": "t", "backoff": "10ms", "failWhenUnreachable": "0.1",
                              "fetchBytes": "64k", **more})


def read(part: Range, **more: str) -> list[dict]:
    return [row for one in rows.read([part], chosen(**more), COLUMNS, Times()) for row in one.to_pylist()]


def whole(node: Daemon, topic: str) -> Range:
    state = state_of(node, topic)
    return Range(Place(topic, name_of(node)), f"127.0.0.1:{node.http_port}", state.first, state.next, state.id,
                 boot_of(state.folder_key))


@pytest.fixture(autouse=True)
def _files_are_worth_it(monkeypatch):
    """Reads from files, however little the first answer leaves to read."""
    monkeypatch.setattr(rows, "WORTH_FILES", 0)


@pytest.fixture
def asked(monkeypatch) -> list[tuple]:
    """The requests for records. The first is always made; a short range needs only that."""
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
        client.ok(f"DPUB {topic} 5", b"late")
    client.close()
    part = whole(node, topic)
    local = read(part, fetchBytes=piece)
    assert len(asked) == 1 and len(local) == 48
    over_http = read(part, fetchBytes=piece, localFiles="false")
    assert len(asked) > 2 and local == over_http
    for start, end in (0, 1), (5, 9), (47, 48), (13, 48):
        assert read(part._replace(start=start, end=end), fetchBytes=piece) == local[start:end]


def test_pieces_end_where_they_should(node, topic):
    publish(node, topic, range(5000))
    state = state_of(node, topic)
    files, first = LocalLog(state, 1 << 20), state.segments[0].end
    assert 100 < first < 5000
    for start, end, reached in (0, 5000, first), (90, 100, 100), (first, first + 1, first + 1), (4999, 6000, 5000):
        piece = files.piece(start, end, 1 << 20)
        assert (piece.first, piece.next, piece.damaged) == (start, reached, 0)
    # Any bytes may follow the end that the node reported.
    publish(node, topic, range(5000, 5100))
    assert files.piece(5000, 5100, 1 << 20) is None
    assert LocalLog(state_of(node, topic), 1 << 20).piece(5000, 5100, 1 << 20).next == 5100


def test_a_record_above_the_largest_message(node, topic):
    client = node.connect()
    for size in (10, 200_000, 10):
        client.pub(topic, b"x" * size)
    client.close()
    with pytest.raises(BadAnswer, match="maxMsgSize=100000 bounds a message"):
        read(whole(node, topic), maxMsgSize="100000")


def test_tables_read_files_where_they_may(node, topic, asked):
    client = node.connect()
    for _ in range(3):
        client.ok(f"MPUB {topic}", batch(*[b"x" * 1000] * 300))
    client.close()
    given = where(node, topic=topic, fetchBytes="64k")
    for more, requests in ({}, 1), ({"localFiles": "false"}, 15):
        asked.clear()
        reader = table.reader(options.log_table({**given, **more}), COLUMNS)
        found = [row["offset"] for part in reader.partitions() for one in reader.read(part) for row in one.to_pylist()]
        assert sorted(found) == list(range(900))
        assert len(asked) == 1 if requests == 1 else len(asked) >= requests


# ---------------------------------------------------------------------- requests over HTTP

def copy_of(state: State, tmp_path: Path) -> tuple[Path, State]:
    """The files elsewhere, as if the node had named them."""
    copy = Path(shutil.copytree(state.folder, tmp_path / "copy"))
    return copy, state._replace(folder=str(copy), folder_key=folder_key(str(copy)))


def rewrite_id(folder: Path, log_id: str) -> None:
    """Makes a folder that of another log."""
    data = bytearray((folder / "manifest").read_bytes())
    data[16:24] = bytes.fromhex(log_id)
    data[-4:] = crc32c(data[:-4]).to_bytes(4, "big")
    (folder / "manifest").write_bytes(data)


def other_id(state: State, tmp_path: Path) -> State:
    copy, changed = copy_of(state, tmp_path)
    rewrite_id(copy, "0123456789abcdef")
    return changed


def a_copy_at_the_same_path(state: State, tmp_path: Path) -> State:
    """As on a copy of the machine: path and id are the same."""
    return state._replace(folder=copy_of(state, tmp_path)[1].folder)


def another_boot(state: State, tmp_path: Path) -> State:
    return state._replace(folder_key="x" + state.folder_key)


def no_key(state: State, tmp_path: Path) -> State:
    return state._replace(folder_key="")


def relative(state: State, tmp_path: Path) -> State:
    return state._replace(folder=os.path.relpath(state.folder))


def zero(state: State, tmp_path: Path) -> State:
    return state._replace(folder=state.folder + "\0")


def surrogate(state: State, tmp_path: Path) -> State:
    return state._replace(folder="/\ud800")


def absent(state: State, tmp_path: Path) -> State:
    return state._replace(folder=state.folder + "x")


def a_file(state: State, tmp_path: Path) -> State:
    return state._replace(folder=f"{state.folder}/{state.first:020}.log")


def fifos(state: State, tmp_path: Path) -> State:
    copy, changed = copy_of(state, tmp_path)
    for segment in copy.glob("*.log"):
        segment.unlink()
        os.mkfifo(segment)
    return changed


def folders(state: State, tmp_path: Path) -> State:
    copy, changed = copy_of(state, tmp_path)
    (copy / "manifest").unlink()
    (copy / "manifest").mkdir()
    return changed


def no_manifest(state: State, tmp_path: Path) -> State:
    copy, changed = copy_of(state, tmp_path)
    (copy / "manifest").unlink()
    return changed


def damaged_manifest(state: State, tmp_path: Path) -> State:
    copy, changed = copy_of(state, tmp_path)
    data = bytearray((copy / "manifest").read_bytes())
    data[100] ^= 1
    (copy / "manifest").write_bytes(data)
    return changed


def other_salts(state: State, tmp_path: Path) -> State:
    return state._replace(segments=tuple(segment._replace(salt=segment.salt ^ 1) for segment in state.segments))


def short(state: State, tmp_path: Path) -> State:
    copy, changed = copy_of(state, tmp_path)
    for segment in copy.glob("*.log"):
        os.truncate(segment, 4100)
    return changed


def zeros(state: State, tmp_path: Path) -> State:
    copy, changed = copy_of(state, tmp_path)
    for segment in copy.glob("*.log"):
        segment.write_bytes(bytes(segment.stat().st_size))
    return changed


def nothing(state: State, tmp_path: Path) -> State:
    (tmp_path / "empty").mkdir()
    shutil.copy(f"{state.folder}/manifest", tmp_path / "empty")
    return state._replace(folder=str(tmp_path / "empty"), folder_key=folder_key(str(tmp_path / "empty")))


def open_below(*folders: Path) -> list[str]:
    """The files there that this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):       # the listing's own descriptor
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [path for path in found if any(path.startswith(str(folder) + "/") for folder in folders)]


@pytest.mark.parametrize("change", [other_id, a_copy_at_the_same_path, another_boot, no_key, relative, zero, surrogate,
                                    absent, a_file, fifos, folders, no_manifest, damaged_manifest, other_salts,
                                    short, zeros, nothing])
def test_what_is_not_the_log_as_it_should_be_is_not_read(node, topic, asked, tmp_path, monkeypatch, change):
    publish(node, topic, range(5000))
    part = whole(node, topic)
    state = change(state_of(node, topic), tmp_path)
    monkeypatch.setattr(LogApi, "state", lambda api, topic: state)
    assert [row["offset"] for row in read(part)] == list(range(5000)) and len(asked) > 1
    assert not open_below(node.data_path, tmp_path)


def test_a_whole_copy_is_read(node, topic, asked, tmp_path, monkeypatch):
    """Shows that the changes of the test above matter."""
    publish(node, topic, range(5000))
    part = whole(node, topic)
    state = copy_of(state_of(node, topic), tmp_path)[1]
    monkeypatch.setattr(LogApi, "state", lambda api, topic: state)
    assert [row["offset"] for row in read(part)] == list(range(5000)) and len(asked) == 1


def test_only_on_the_machine_of_the_node_is_its_state_asked_for(node, topic, monkeypatch):
    publish(node, topic, range(5000))
    part = whole(node, topic)
    monkeypatch.setattr(LogApi, "state", lambda api, topic: pytest.fail("asked"))
    for other in part._replace(boot_id=""), part._replace(boot_id="another"), part._replace(id=""):
        assert len(read(other)) == 5000
    assert len(read(part._replace(end=300))) == 300     # fits into the first answer


def test_a_node_that_does_not_tell_its_state(node, topic, asked, monkeypatch):
    publish(node, topic, range(5000))
    part = whole(node, topic)

    def fails(api, topic):
        raise BadAnswer("no state")

    monkeypatch.setattr(LogApi, "state", fails)
    assert len(read(part)) == 5000 and len(asked) > 1


def test_files_that_may_not_be_read(node, topic, asked, monkeypatch):
    """As for a task of another user; this one may be root."""
    publish(node, topic, range(5000))
    opened = os.open

    def refused(path, flags, *more, **places):
        if str(path).endswith(".log"):
            raise PermissionError(13, "Permission denied")
        return opened(path, flags, *more, **places)

    part = whole(node, topic)
    monkeypatch.setattr(os, "open", refused)
    assert len(read(part)) == 5000 and len(asked) > 1


def test_a_folder_whose_name_is_no_text(tmp_path):
    """The node does not report it."""
    one = Daemon(tmp_path / "\udcff", *FLAGS)
    try:
        publish(one, "t", range(1000))
        assert state_of(one, "t").folder == state_of(one, "t").folder_key == ""
        assert len(read(whole(one, "t"))) == 1000
    finally:
        one.close()


@pytest.mark.parametrize("what", ["refused", "zeros"])
def test_what_lies_behind_the_records_that_a_node_counts(tmp_path, what, asked):
    """A write failed and could not be cut off, for example: a segment's files are longer than the segment."""
    one = Daemon(tmp_path / "data", "--topic-storage=log", "--max-bytes-per-file=20000")
    try:
        publish(one, "t", range(3000))
        assert one.stop() == 0
        first, second = sorted((one.data_path / "t.log").glob("*.log"))[:2]
        data = second.read_bytes()[4096:]
        with first.open("ab") as file:
            file.write(data if what == "refused" else bytes(len(data)))
        one.start()
        part = whole(one, "t")
        bodies = [int(row["value"]) for row in read(part)]
        assert bodies == list(range(3000)) and len(asked) == 1
    finally:
        one.close()


# ---------------------------------------------------------------------- changes during a read

def begun(node: Daemon, part: Range, **more: str):
    """A reader that has its first rows, over HTTP, and the next ones from files; and the number of these."""
    batches = rows.read([part], chosen(batchRows="500", **more), COLUMNS, Times())
    got = 0
    while got < 3000:
        got += next(batches).num_rows
    return batches, got


def long_log(node: Daemon, topic: str) -> Range:
    client = node.connect()
    for _ in range(10):
        client.ok(f"MPUB {topic}", batch(*[b"x" * 100] * 1000))
    client.close()
    return whole(node, topic)


def test_a_log_that_is_removed_and_made_again_while_it_is_read(tmp_path, topic, asked):
    node = Daemon(tmp_path / "data", "--topic-storage=log")    # one segment
    try:
        part = long_log(node, topic)
        batches, got = begun(node, part)
        assert len(asked) == 1 and not open_below(node.data_path)
        node.post(f"/topic/delete?topic={topic}")
        with pytest.raises(NoTopic, match=f"has no topic {topic}"):
            for one in batches:
                got += one.num_rows
        assert got < 10_000
        batches, got = begun(node, long_log(node, topic))
        with pytest.raises(DataLoss, match="was deleted and created again"):
            read(part)
        # Another log's files in the same folder, and no server.
        folder = folder_of(node, topic)
        node.kill()
        rewrite_id(folder, "0123456789abcdef")
        with pytest.raises(Unreachable):
            for one in batches:
                got += one.num_rows
        assert got < 10_000
    finally:
        node.close()


def test_segments_that_retention_removes_while_they_are_read(node, topic):
    part = long_log(node, topic)
    batches, got = begun(node, part)
    node.post(f"/channel/create?topic={topic}&channel=c&from=end")
    folder = folder_of(node, topic)
    # The log's beginning moves at once; a worker removes the files, which can be read until then.
    wait_until(lambda: len(list(folder.glob("*.log"))) == 1, "retention")
    begins = state_of(node, topic).first
    assert begins > got
    with pytest.raises(DataLoss, match=f"begins at offset {begins}: retention has removed"):
        for one in batches:
            got += one.num_rows
    assert [row["offset"] for row in read(part, failOnDataLoss="false")] == list(range(begins, 10_000))


@pytest.mark.parametrize("local", ["true", "false"])
def test_damage_is_told_by_the_node_whoever_finds_it(node, topic, local):
    part = long_log(node, topic)
    segment = sorted(folder_of(node, topic).glob("*.log"))[3]
    with segment.open("r+b") as file:
        file.seek(4096 + 64 + 50 * 104)
        file.write(b"\xff" * 3)
    lost = state_of(node, topic).segments[3].first
    with pytest.raises(DataLoss, match=rf": \d+ messages from offset {lost} on are damaged"):
        read(part, localFiles=local)
    left = [row["offset"] for row in read(part, localFiles=local, failOnDataLoss="false")]
    assert left == [*range(lost), *range(10_000 - (len(left) - lost), 10_000)] and len(left) >= 9000
