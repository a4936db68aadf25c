"""Buckets: the same answers from a folder and from S3, and what is known after each kind of failure."""

import errno
import os
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest

from nsqc.bucket.ship import Shipper
from nsqc.bucket.store import Bucket, BucketError, Gone, Missing, Unclear, open_bucket, probe
from tests.bucket.s3 import SECRET, Server
from tests.bucket.support import Collected, Log, Machine, MemoryLogs, MemoryStore
from tests.bucket.test_ship import bodies, publish, restored


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.close()


def open_s3(server, monkeypatch, request):
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    server.faults, server.rate = [], 0.0
    return open_bucket(f"s3://acme/{request.node.name.replace('[', '-').replace(']', '')}", patience=30)


@pytest.fixture
def s3(server, monkeypatch, request):
    return open_s3(server, monkeypatch, request)


@pytest.fixture(params=["file", "server", pytest.param("ceph", marks=pytest.mark.long)])
def bucket(request, tmp_path, monkeypatch):
    if request.param == "file":
        return open_bucket(f"file://{tmp_path}/bucket")
    return open_s3(request.getfixturevalue(request.param), monkeypatch, request)


def test_an_object_is_created_once(bucket):
    assert bucket.create("a/1", b"first") is None
    assert bucket.create("a/1", b"first") is None
    assert bucket.create("a/1", b"second") == b"first"
    assert bucket.get("a/1") == b"first"


def test_one_of_many_creations_at_once_wins(bucket):
    with ThreadPoolExecutor(8) as threads:
        outcomes = [*threads.map(lambda n: bucket.create("a/1", b"%d" % n), range(8))]
    assert outcomes.count(None) == 1
    assert {outcome for outcome in outcomes if outcome is not None} == {b"%d" % outcomes.index(None)}


def test_objects_are_read_listed_and_deleted(bucket):
    inner = bucket.below("node")
    for name in ("a/1", "a/2", "b/1"):
        inner.create(name, name.encode() * 10)
    assert inner.get_part("a/2", 3, 6) == b"a/2a/2"
    assert [(entry.name, entry.size) for entry in inner.entries("a/")] == [("a/1", 30), ("a/2", 30)]
    assert [entry.name for entry in bucket.entries()] == ["node/a/1", "node/a/2", "node/b/1"]
    assert (bucket.folders(), inner.folders()) == (["node"], ["a", "b"])
    inner.delete("a/1")
    inner.delete("a/1")
    assert [entry.name for entry in inner.entries("a/")] == ["a/2"]
    assert inner.entries("c/") == []
    for read in (lambda: inner.get("a/1"), lambda: inner.get_part("a/1", 0, 1), lambda: inner.get_part("a/2", 29, 2)):
        with pytest.raises(Missing):
            read()
    with pytest.raises(BucketError, match="more than the expected 29"):
        inner.get("a/2", 29)


def test_a_probe_finds_one_cluster(bucket):
    cluster = probe(bucket)
    assert len(cluster) == 32 and probe(bucket) == cluster
    assert [entry.name for entry in bucket.entries()] == ["cluster"]


def test_a_folder_has_no_traces_of_interrupted_puts(tmp_path):
    bucket = open_bucket(f"file://{tmp_path}/bucket")
    bucket.create("a/1", b"data")
    (tmp_path / "bucket/a/.0123.tmp").write_bytes(b"half")
    assert [entry.name for entry in bucket.entries()] == ["a/1"]
    with pytest.raises(Gone):
        bucket.get("../outside")


@pytest.mark.parametrize("removed", ["bucket", "bucket/node", "bucket/node/a"])
def test_a_folder_that_was_there_is_not_made_again(tmp_path, removed):
    """As if its file system were no longer mounted: what was put before would be missing."""
    bucket = open_bucket(f"file://{tmp_path}/bucket", patience=0).below("node")
    bucket.create("a/1", b"data")
    (tmp_path / removed).rename(tmp_path / "away")
    with pytest.raises(Gone, match=r"/bucket.*: the folder was removed"):
        bucket.create("a/2", b"data")
    with pytest.raises(Missing):
        bucket.get("a/1")
    (tmp_path / "away").rename(tmp_path / removed)
    assert bucket.create("a/2", b"data") is None
    (tmp_path / "file").write_text("")
    with pytest.raises(Gone, match=r"/file: not a folder"):
        open_bucket(f"file://{tmp_path}/file", patience=0).create("a/1", b"data")


def test_only_the_owner_reads_the_objects_of_a_folder(tmp_path):
    open_bucket(f"file://{tmp_path}/bucket", patience=0).create("a/b/1", b"data")
    modes = {path.relative_to(tmp_path).as_posix(): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {"bucket": 0o700, "bucket/a": 0o700, "bucket/a/b": 0o700, "bucket/a/b/1": 0o600}


def test_what_is_not_a_file_is_no_object(tmp_path):
    bucket = open_bucket(f"file://{tmp_path}/bucket", patience=0)
    bucket.create("a/1", b"data")
    os.mkfifo(tmp_path / "bucket/a/fifo")
    (tmp_path / "bucket/a/folder").mkdir()
    (tmp_path / "bucket/a/loop").symlink_to("loop")
    for name in "fifo", "folder":
        with pytest.raises(BucketError, match=f"a/{name}: not a file"):
            bucket.get(f"a/{name}")
    with pytest.raises(Unclear, match="Too many levels"):
        bucket.get("a/loop")
    assert [entry.name for entry in bucket.entries()] == ["a/1", "a/fifo", "a/loop"]
    bucket.delete("a/loop")
    assert [entry.name for entry in bucket.entries()] == ["a/1", "a/fifo"]


@pytest.mark.parametrize(("error", "kind"), [(errno.EROFS, Gone), (errno.EACCES, Gone), (errno.ENOSPC, Unclear)])
def test_what_a_disk_refuses(tmp_path, monkeypatch, error, kind):
    """What people have to change is not repeated; a full disk may have room again. Neither leaves a file."""
    bucket = open_bucket(f"file://{tmp_path}/bucket", patience=0)
    bucket.create("a/1", b"data")

    def refuse(*_):
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        with pytest.raises(kind, match=f"{tmp_path}/bucket/a/2: {os.strerror(error)}"):
            bucket.create("a/2", b"data")
    assert os.listdir(tmp_path / "bucket/a") == ["1"]
    assert bucket.create("a/2", b"data") is None


def test_a_put_in_a_folder_is_synced_before_it_has_a_name(tmp_path, monkeypatch):
    steps = []
    fsync, link = os.fsync, os.link

    def record_sync(descriptor):
        steps.append("sync " + ("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file"))
        fsync(descriptor)

    def record_link(*args):
        steps.append("link")
        link(*args)

    bucket = open_bucket(f"file://{tmp_path}")
    bucket.create("a/1", b"data")
    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "link", record_link)
    bucket.create("a/2", b"data")
    assert steps == ["sync file", "link", "sync folder"]


@pytest.mark.parametrize("fault", ["500", "503", "409", "lost", "cut", "500 done", "slow"])
def test_a_creation_has_its_outcome_whatever_is_answered(s3, server, fault):
    server.faults = [fault] * 3
    assert s3.create("a/1", b"mine") is None
    server.faults = [fault] * 2
    assert s3.create("a/1", b"other") == b"mine"
    server.faults = [fault] if fault != "500 done" else []
    assert s3.get("a/1") == b"mine"


@pytest.mark.parametrize("fault", ["403", "401", "301", "400"])
def test_a_refusal_needs_people(s3, server, fault):
    server.faults = [fault]
    with pytest.raises(Gone, match=f"a/1: .*({fault}|region)") as raised:
        s3.create("a/1", b"mine")
    shown = "".join(traceback.format_exception(raised.value))
    assert SECRET not in shown and "127.0.0.1" not in shown and "\n" not in str(raised.value)


def test_a_missing_bucket_needs_people(s3):
    other = open_bucket("s3://nobody-made-this/prod", patience=1)
    for call in (lambda: other.create("a", b""), lambda: other.get("a"), other.entries):
        with pytest.raises(Gone):
            call()


def test_no_server_is_unclear(s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(Unclear, match="a/1: cannot connect"):
        open_bucket("s3://acme/prod", patience=0.3).create("a/1", b"")


def test_stopping_ends_repeats(s3, server):
    server.faults = ["503"] * 1000
    threading.Timer(0.3, s3.stopping.set).start()
    with pytest.raises(Unclear):
        s3.create("a/1", b"")
    server.faults = []


@pytest.mark.parametrize("uri", ["acme/prod", "ftp://acme", "s3://", "file://host/x", "file:///", "s3://user:pw@acme/x",
                                 "s3://acme/x?token=pw", "az://acme/x#pw"])
def test_uris_that_cannot_be_one_are_refused(uri):
    with pytest.raises(ValueError) as raised:
        open_bucket(uri)
    assert "pw" not in str(raised.value)


class Replacing(MemoryStore):
    """A store without conditional puts."""

    def create(self, name, data):
        self.objects[name] = data


class Racing(MemoryStore):
    """A store that checks, and then creates."""

    def __init__(self):
        super().__init__()
        self.barrier = threading.Barrier(2)
        self.count = 0

    def create(self, name, data):
        self.count += 1
        if name in self.objects or not name.startswith("probe/") or self.count < 3:
            super().create(name, data)
            return
        self.barrier.wait(30)
        self.objects[name] = data


@pytest.mark.parametrize(("store", "reason"), [(Replacing, "replaces objects"), (Racing, "both of two puts")])
def test_a_store_without_conditional_puts_is_refused(store, reason):
    with pytest.raises(BucketError, match=f"memory://acme: this store cannot be used: it .*{reason}"):
        probe(Bucket(store(), "memory://acme"))


def test_a_node_moves_over_s3_while_it_fails(s3, server, tmp_path):
    """Ships, is replaced and restored, with a fault in every third request."""
    server.rate = 0.3
    log = Log(7, "orders")
    logs = MemoryLogs(log)
    one, two = Machine(MemoryStore(), tmp_path, "one"), Machine(MemoryStore(), tmp_path, "two")
    one.root = two.root = s3
    shipper = Shipper(one.take_over(), logs, linger=0.0, idle=0.1, checkpoint_commits=4, delete_after=0.1)
    shipper.start()
    for _ in range(12):
        log.journal += 1
        publish(shipper, log, 3)
        assert logs.wait(log)
    sink: Collected = restored(two)
    assert sink.logs[7] == dict(enumerate(bodies(0, 36)))
    server.rate = 0.0
    with logs.changed:
        assert logs.changed.wait_for(lambda: logs.reason, 60)
    assert not shipper.stop(30)
