"""The starting point of a queue after manual changes to its files: existing messages are never deleted or left out."""

import os
import socket
import struct

import pytest

from nsqc.store import files as badfiles
from nsqc.store.disk.fileio import META, IoPool
from nsqc.store.disk.manager import Syncer
from nsqc.store.disk.queue import DiskQueue
from nsqc.store.disk.recovery import ODD, Index, queue_files
from tests.compiled import diskqueue
from tests.support.log import RecordingLog

STAMP = 1_700_000_000_000_000_000
SIZE = 34  # of a record


class Place:
    """A data path; syncs run at once, with every operation."""

    def __init__(self, folder):
        self.folder = folder
        self.log = RecordingLog()
        self.syncer = Syncer(1, 10**9, None, self.log)

    def path(self, number):
        return self.folder / f"q.diskqueue.{number:06d}.dat"

    def write(self, number, *records):
        """A data file with these records."""
        self.path(number).write_bytes(b"".join(map(record, records)))

    def meta(self, depth, read, write):
        (self.folder / "q.diskqueue.meta.dat").write_text(
            f"{depth}\n{read[0]},{read[1]}\n{write[0]},{write[1]}\n")

    def open(self, files=None):
        return DiskQueue("q", str(self.folder), 10**6, 10_000, IoPool(), self.syncer, self.log, files)

    def names(self):
        return sorted(os.listdir(self.folder))

    def bad(self):
        return [name for name in self.names() if ".bad" in name]


def record(number: int) -> bytes:
    return struct.pack(">iqH", 30, STAMP + number, 0) + b"%016x" % number + b"%04d" % number


def put(queue, number):
    diskqueue.put(queue, b"%04d" % number, b"%016x" % number, STAMP + number)


def drain(queue) -> list[int]:
    """Reads like a channel: while depth is above 0."""
    found = []
    while queue.depth:
        item = diskqueue.get(queue)
        if item is None:
            assert not queue.read_error
            continue
        found.append(int(item[1], 16))
    assert diskqueue.get(queue) is None
    return found


def works_on(place, queue, expected):
    """It delivers that, takes more, and does so again after a stop."""
    put(queue, 9000)
    assert diskqueue.commit(queue) == 0
    assert queue.depth >= 1
    found = [diskqueue.get(queue) for _ in expected[:1]]
    assert [int(item[1], 16) for item in found] == expected[:1]
    queue.close()
    assert drain(Place(place.folder).open()) == [*expected[1:], 9000]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


AHEAD = {
    "both ahead": (10, (1, 0), (1, 10 * SIZE)),
    "both far ahead": (10, (7, 0), (7, 10 * SIZE)),
    "both ahead, empty": (0, (7, 0), (7, 0)),
    "both ahead with an offset, empty": (0, (1, SIZE), (1, SIZE)),
    "read ahead of write": (10, (3, 0), (0, 10 * SIZE)),
    "read offset ahead of write": (10, (0, 10 * SIZE), (0, 5 * SIZE)),
    "read offset behind the end": (10, (0, 99999), (0, 99999)),
    "read offset behind the end, empty": (0, (0, 99999), (0, 99999)),
    "read offset behind the end, files follow": (10, (0, 99999), (1, 0)),
    "depth below zero": (-5, (0, 0), (0, 10 * SIZE)),
    "depth says nothing": (0, (0, 0), (0, 10 * SIZE)),
    "depth says too much": (10**9, (0, 0), (0, 10 * SIZE)),
    "write number ahead": (10, (0, 0), (5, 0)),
    "write number and offset ahead": (10, (0, 0), (5, 777)),
    "write number far ahead": (10, (0, 0), (999_999_999, 0)),
    "everything far ahead": (0, (99_999_999_999_999_999, 0), (99_999_999_999_999_999, 0)),
    "write offset ahead": (10, (0, 0), (0, 99999)),
}


@pytest.mark.parametrize("meta", AHEAD.values(), ids=AHEAD)
def test_positions_that_do_not_fit_deliver_all_that_is_there(place, meta):
    place.write(0, *range(10))
    place.meta(*meta)
    queue = place.open()
    assert queue.depth == 10
    assert place.log.lines
    assert place.path(0).read_bytes() == b"".join(map(record, range(10)))
    works_on(place, queue, list(range(10)))


@pytest.mark.parametrize("meta", [(0, (5, 0), (5, 0)), (9, (6, 0), (4, 10)), (4, (7, 1), (7, 99)), (1, (4, 9999), (4, 9999))])
def test_several_files_before_positions_that_do_not_fit(place, meta):
    for number in (2, 3):
        place.write(number, number * 10, number * 10 + 1)
    place.meta(*meta)
    works_on(place, place.open(), [20, 21, 30, 31])


def test_files_that_only_the_positions_call_consumed_are_kept(place):
    """A queue that ended with a full file, killed before its removal; or a false mark. The two look the same."""
    place.write(0, *range(10))
    place.meta(0, (1, 0), (1, 0))
    queue = place.open()
    assert queue.depth == 0
    assert place.bad() == ["q.diskqueue.000000.dat.bad"]
    assert (place.folder / place.bad()[0]).stat().st_size == 10 * SIZE
    assert any("kept as" in line for line in place.log.lines)
    works_on(place, queue, [])


def test_consumed_files_go_where_the_positions_fit(place):
    place.write(0, 0, 1)
    place.write(1, 2, 3)
    place.write(2, 4, 5)
    place.meta(1, (2, SIZE), (2, 2 * SIZE))
    queue = place.open()
    assert drain(queue) == [5]
    queue.close()
    assert place.names() == ["q.diskqueue.000002.dat", "q.diskqueue.meta.dat"]


def test_an_emptied_queue_that_was_killed_before_its_positions_were_written(place):
    """The previous files are gone, the next number has new messages, the positions are old."""
    place.write(3, 30, 31)
    place.meta(9, (1, SIZE), (2, 2 * SIZE))
    works_on(place, place.open(), [30, 31])


@pytest.mark.parametrize(("meta", "first"), [
    (None, 0),
    ((5, (0, 0), (1_000_000_000, SIZE)), 0),
    ((4, (0, SIZE), (1_000_000_000, SIZE)), 1),
    ((3, (999_999_998, 0), (1_000_000_000, SIZE)), 2),
    ((5, (2, 2), (1, 1)), 0),
])
def test_large_gaps_are_closed(place, meta, first):
    """Reading steps over missing files one by one."""
    place.write(0, 0, 1)
    place.write(999_999_998, 2)
    place.write(999_999_999, 3)
    place.write(1_000_000_000, 4)
    if meta:
        place.meta(*meta)
    queue = place.open()
    assert queue.read_number >= 999_999_997
    assert queue.depth == 5 - first
    works_on(place, queue, list(range(first, 5)))


def test_small_gaps_are_stepped_over(place):
    for number in (0, 3, 9):
        place.write(number, number)
    place.meta(3, (0, 0), (9, SIZE))
    works_on(place, place.open(), [0, 3, 9])
    assert any("7 files are missing, the first of them" in line and "000001" in line for line in place.log.lines)


@pytest.mark.parametrize("gap", [2, 40, 900])
def test_a_gap_that_comes_while_it_is_open_is_left_behind_in_one_step(place, gap):
    place.write(0, 0)
    place.write(1, 1)
    place.write(gap + 1, 2, 3)
    place.meta(4, (0, 0), (gap + 1, 2 * SIZE))
    queue = place.open()
    assert diskqueue.get(queue)[0] == b"0000"
    os.unlink(queue.path_of(1))
    assert [diskqueue.get(queue)[0], diskqueue.get(queue)[0]] == [b"0002", b"0003"]
    assert diskqueue.get(queue) is None
    assert queue.depth == 0
    reports = [line for line in place.log.lines if f"{gap} files are missing" in line or "is missing" in line]
    assert len(reports) <= 2, "not one for each"


def test_numbers_at_the_end_of_nine_digits(place):
    place.write(999_999_999, 1)
    place.meta(1, (999_999_999, 0), (999_999_999, SIZE))
    works_on(place, place.open(), [1])


@pytest.mark.parametrize("name", ["q.diskqueue.9999999999999999999999.dat", "q.diskqueue.0000007.dat",
                                  "q.diskqueue.12345.dat", "q.diskqueue.\u0661\u0661\u0661\u0661\u0661\u0661.dat"])
def test_names_that_are_none_are_left_alone(place, name):
    (place.folder / name).write_bytes(record(1))
    queue = place.open()
    assert queue.depth == 0
    works_on(place, queue, [])
    assert (place.folder / name).read_bytes() == record(1)


@pytest.mark.parametrize("meta", [None, (0, (0, 0), (0, 0)), (4, (0, 0), (2, SIZE)), (7, (1, 5), (1, 9))])
def test_empty_files(place, meta):
    place.write(0)
    place.write(1)
    place.write(2, 1)
    if meta:
        place.meta(*meta)
    works_on(place, place.open(), [1])


# ---------------------------------------------------------------------- other than files


def make_folder(path):
    path.mkdir()
    (path / "within").write_text("x")


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


KINDS = {
    "folder": make_folder,
    "fifo": os.mkfifo,
    "socket": make_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "dangling": lambda path: path.symlink_to(path.with_name("nowhere")),
    "loop": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("indexed", [False, True], ids=["listed", "indexed"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_stands_in_place_of_a_data_file_is_set_aside(place, kind, indexed):
    place.write(0, 0, 1)
    kind(place.path(1))
    place.write(2, 2, 3)
    place.meta(6, (0, 0), (2, 2 * SIZE))
    queue = place.open(Index(str(place.folder)).take("q") if indexed else None)
    assert place.bad() == ["q.diskqueue.000001.dat.bad"]
    assert any("is not a regular file" in line for line in place.log.lines)
    works_on(place, queue, [0, 1, 2, 3])


@pytest.mark.parametrize("indexed", [False, True], ids=["listed", "indexed"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_stands_in_place_of_everything_is_set_aside(place, kind, indexed):
    kind(place.path(0))
    kind(place.folder / "q.diskqueue.meta.dat")
    queue = place.open(Index(str(place.folder)).take("q") if indexed else None)
    assert place.bad() == ["q.diskqueue.000000.dat.bad", "q.diskqueue.meta.dat.bad"]
    works_on(place, queue, [])


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_stands_in_place_of_the_positions_is_set_aside(place, kind):
    place.write(3, 0, 1)
    kind(place.folder / "q.diskqueue.meta.dat")
    queue = place.open()
    assert place.bad() == ["q.diskqueue.meta.dat.bad"]
    works_on(place, queue, [0, 1])


def test_what_cannot_be_set_aside_is_written_past(place, monkeypatch):
    place.path(4).mkdir()
    monkeypatch.setattr(badfiles, "set_aside", lambda path: None)
    queue = place.open()
    assert queue.write_number == 5
    put(queue, 1)
    assert diskqueue.commit(queue) == 0
    assert drain(queue) == [1]


def test_a_link_to_a_file_is_a_file(place, tmp_path):
    (tmp_path / "elsewhere").write_bytes(record(1))
    place.path(0).symlink_to(tmp_path / "elsewhere")
    place.meta(1, (0, 0), (0, SIZE))
    works_on(place, place.open(), [1])


def test_a_file_that_cannot_be_read_now_waits(place, monkeypatch):
    """Its messages are not counted, and it blocks the queue until it can be read."""
    place.write(0, 0, 1)

    def count(path, at, largest):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("nsqc.store.disk.recovery.count", count)
    queue = place.open()
    assert queue.depth == 1
    assert drain(queue) == [0, 1]


# ---------------------------------------------------------------------- the index


def test_the_index_knows_what_a_listing_finds(place):
    place.write(0, 0, 1)
    place.write(1, 2)
    place.path(2).mkdir()
    place.meta(3, (0, 0), (1, SIZE))
    (place.folder / "q:c.diskqueue.000000.dat").write_bytes(b"")
    (place.folder / "q.diskqueue.q.diskqueue.meta.dat").write_bytes(b"")
    (place.folder / ".diskqueue.meta.dat").write_bytes(b"")
    index = Index(str(place.folder))
    assert index.names(False) == ["q", "q.diskqueue.q", "q:c"]
    assert index.names(True) == ["q"]
    for name in index.names(False):
        assert queue_files(str(place.folder), name) == index.queues[name]
    assert index.take("q") == {0: 2 * SIZE, 1: SIZE, 2: ODD, META: queue_files(
        str(place.folder), "q")[META]}
    assert index.take("q") == index.take("unknown") == {}


def test_a_name_without_files_touches_none(place, monkeypatch):
    def refuse(*arguments):
        raise AssertionError(arguments)

    for call in ("scandir", "listdir", "open", "stat"):
        monkeypatch.setattr(os, call, refuse)
    monkeypatch.setattr("builtins.open", refuse)
    queue = place.open({})
    monkeypatch.undo()
    works_on(place, queue, [])
