"""Names of the files of a disk queue, the positions file, and names for unusable files."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqc.store import files
from nsqc.store.disk import fileio, recovery
from nsqc.store.disk.fileio import META
from nsqc.store.disk.recovery import ODD, listing, queue_files


@pytest.mark.parametrize("number, path", [
    (0, "/d/t.diskqueue.000000.dat"),
    (123456, "/d/t.diskqueue.123456.dat"),
    (1234567, "/d/t.diskqueue.1234567.dat"),
    (10**17 - 1, "/d/t.diskqueue.99999999999999999.dat"),
    (META, "/d/t.diskqueue.meta.dat"),
])
def test_paths(number, path):
    assert fileio.path_of("/d", "t", number) == path
    assert path.startswith(fileio.prefix_of("/d", "t"))
    assert fileio.split_name(fileio.file_name("t", number)) == ("t", number)


@pytest.mark.parametrize("entry", [
    "t.diskqueue.00000.dat", "t.diskqueue.0000000.dat", "t.diskqueue.012345678.dat", "t.diskqueue.000000.dat.bad",
    "t.diskqueue.100000000000000000.dat", "t.diskqueue.-00001.dat", "t.diskqueue.00000\u0661.dat", ".diskqueue.000000.dat",
    "t.diskqueue.metadat", "t.dat", "diskqueue.000000.dat", "t.diskqueue.meta.dat.1-2.tmp", "",
])
def test_other_names(entry):
    assert fileio.split_name(entry) is None


def test_a_topic_may_be_called_anything():
    assert fileio.split_name("a.diskqueue.meta.dat.diskqueue.000001.dat") == ("a.diskqueue.meta.dat", 1)
    assert fileio.split_name("t:c#x.diskqueue.000001.dat") == ("t:c#x", 1)


@given(st.text("ab.-_#", min_size=1), st.text("ab.-_#", min_size=1) | st.none())
def test_queues_of_topics_and_channels(topic, channel):
    queue = topic if channel is None else f"{topic}:{channel}"
    assert fileio.split_queue(queue) == (topic, channel)


def test_leftovers():
    first, second = fileio.temporary_of("/d/t.diskqueue.meta.dat"), fileio.temporary_of("/d/t.diskqueue.meta.dat")
    assert first != second and fileio.is_leftover(os.path.basename(first))
    assert fileio.is_leftover("t.diskqueue.000001.dat.retired-12-3")
    assert fileio.is_leftover("t.diskqueue.meta.dat.retired-12-3")
    for entry in ("t.diskqueue.000001.dat", "t.diskqueue.000001.dat.bad", "nsqd.dat.12.tmp", "t.diskqueue.000001.dat.1-2.tmp"):
        assert not fileio.is_leftover(entry)


def test_listings(tmp_path):
    for name, data in {"t.diskqueue.000001.dat": b"x" * 5, "t.diskqueue.000000.dat": b"", "t.diskqueue.meta.dat": b"m",
                       "t:c.diskqueue.000007.dat": b"y", "tt.diskqueue.000003.dat": b"", "nsqd.dat": b"{}"}.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "t.diskqueue.000002.dat").mkdir()
    folder = str(tmp_path)
    assert queue_files(folder, "t") == {0: 0, 1: 5, 2: ODD, META: 1}
    assert listing(folder) == {"t": {0: 0, 1: 5}, "t:c": {7: 1}, "tt": {3: 0}}
    assert list(listing(folder)["t"]) == [0, 1]


# ---------------------------------------------------------------------- positions


@given(st.tuples(st.integers(-5, 10**17 - 1), *[st.integers(0, 10**17 - 1)] * 4))
def test_positions_return(tmp_path_factory, five):
    path = tmp_path_factory.getbasetemp() / f"meta-{os.getpid()}"
    path.write_bytes(recovery.encode(*five))
    assert recovery.read(str(path)) == five
    path.write_bytes(recovery.encode(*five).rstrip())
    assert recovery.read(str(path)) == five


@pytest.mark.parametrize("text", [b"", b"1\n", b"1\n2,3\n", b"1\n2,3\n4\n", b"1\n2,3\n4,5\n6", b"1\n-2,3\n4,5\n",
                                  b"1\r\n2,3\r\n4,5\r\n", b"one\n2,3\n4,5\n", b"1\n2,3\n4," + b"9" * 18])
def test_positions_that_say_something_else(tmp_path, text):
    path = tmp_path / "meta"
    path.write_bytes(text)
    assert recovery.read(str(path)) is None


def test_positions_that_are_not_a_file(tmp_path):
    assert recovery.read(str(tmp_path / "missing")) is None
    assert recovery.read(str(tmp_path)) is None
    os.mkfifo(tmp_path / "pipe")
    assert recovery.read(str(tmp_path / "pipe")) is None


# ---------------------------------------------------------------------- unusable files


def test_earlier_damage_is_kept(tmp_path):
    path = tmp_path / "file"
    kept = []
    for number in range(3):
        path.write_text(str(number))
        kept.append(files.set_aside(str(path)))
    assert kept == [f"{path}.bad", f"{path}.bad.1", f"{path}.bad.2"]
    assert [Path(name).read_text() for name in kept] == ["0", "1", "2"]
    assert files.set_aside(str(path)) is None


def test_a_damaged_file_has_one_second_name(tmp_path):
    path = tmp_path / "file"
    (tmp_path / "file.bad").write_text("earlier")
    path.write_text("damaged")
    assert files.keep_bad(str(path)) and files.keep_bad(str(path))
    assert sorted(os.listdir(tmp_path)) == ["file", "file.bad", "file.bad.1"]
    assert os.path.samefile(path, tmp_path / "file.bad.1")
