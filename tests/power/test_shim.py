"""The proof of the proof: a small program that writes and syncs in known ways leaves the expected disks."""

from __future__ import annotations

import errno
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.support.patience import WAIT_SECONDS
from tests.support.power.disk import Chance, Disk, Everything, Some
from tests.support.power.trace import Trace

NOTHING, ALL = Chance(), Everything()
PROGRAM = """
import errno, os, sys
os.chdir(sys.argv[1])
def put(name, data, flags=0):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | flags)
    os.write(fd, data)
    return fd
def sync(path="."):
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
"""


class Traced:
    """A folder, and programs that work in it under the shim."""

    def __init__(self, tmp_path: Path):
        self.tmp_path = tmp_path
        self.folder = tmp_path / "folder"
        self.folder.mkdir()
        self.trace = Trace(tmp_path / "trace", self.folder)
        self.made = 0

    def run(self, script: str, code: int = 0) -> str:
        done = subprocess.run([sys.executable, "-c", PROGRAM + textwrap.dedent(script), str(self.folder)],
                              env=self.trace.environment(), capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert done.returncode == code, (done.returncode, done.stderr)
        return done.stdout + done.stderr

    def disk(self, chance: Chance = NOTHING, until: int | None = None) -> dict[str, bytes]:
        """The files of the disk by name; folders end with a slash."""
        disk = Disk()
        disk.play(event for event in self.trace.events() if until is None or event.end <= until)
        self.made += 1
        folder = self.tmp_path / f"disk{self.made}"
        disk.write(folder, chance)
        return {str(path.relative_to(folder)) + "/" * path.is_dir(): b"" if path.is_dir() else path.read_bytes()
                for path in folder.rglob("*")}


@pytest.fixture
def traced(tmp_path):
    traced = Traced(tmp_path)
    yield traced
    traced.trace.close()


def test_a_file_is_there_when_it_and_its_folder_are_synced(traced):
    traced.run("""
        for name, synced in (("neither", ""), ("file", "f"), ("folder", "d"), ("both", "df")):
            fd = put(name, b"data")
            if "f" in synced:
                os.fdatasync(fd)
        sync()
        put("later", b"data")
    """)
    assert traced.disk() == {"neither": b"", "file": b"data", "folder": b"", "both": b"data"}
    assert traced.disk(ALL) == dict.fromkeys(("neither", "file", "folder", "both", "later"), b"data")


def test_a_sync_covers_what_was_written_before_it_began(traced):
    traced.run("""
        fd = put("f", b"one")
        sync()
        os.fsync(fd)
        os.pwrite(fd, b"TWO", 1)
        os.pwritev(fd, [b"x", b"", b"yz"], 8)
        os.write(fd, b"-")
        appended = put("f", b"end", os.O_APPEND)
    """)
    assert traced.disk() == {"f": b"one"}
    assert traced.disk(ALL) == {"f": (traced.folder / "f").read_bytes()} == {"f": b"oTW-\0\0\0\0xyzend"}


def test_sizes(traced):
    traced.run("""
        fd = put("f", b"0123456789")
        os.ftruncate(fd, 4)
        os.fsync(fd)
        sync()
        os.posix_fallocate(fd, 0, 6)
        os.ftruncate(fd, 2)
        open("g", "wb").write(b"old")
        open("g", "wb").write(b"new")
    """)
    assert traced.disk() == {"f": b"0123"}
    assert traced.disk(ALL) == {"f": b"01", "g": b"new"}


def test_names_follow_their_folder(traced):
    traced.run("""
        os.mkdir("in")
        fd = put("in/a.tmp", b"a")
        os.fsync(fd)
        os.rename("in/a.tmp", "in/a")
        sync()
    """)
    assert traced.disk() == {"in/": b""}
    traced.run("""
        sync("in")
        os.link("in/a", "in/b")
        os.unlink("in/a")
        os.rename("in", "out")
        os.mkdir("gone")
        os.rmdir("gone")
    """)
    assert traced.disk() == {"in/": b"", "in/a": b"a"}
    assert traced.disk(ALL) == {"out/": b"", "out/b": b"a"}


def test_a_rename_is_there_as_a_whole_or_not(traced):
    traced.run("""
        for data in (b"1", b"2"):
            fd = put("f.tmp", data)
            os.fsync(fd)
            os.rename("f.tmp", "f")
            if data == b"1":
                sync()
    """)
    for seed in range(50):
        files = traced.disk(Some(seed))
        assert files.get("f") in (b"1", b"2")
        assert set(files) in ({"f"}, {"f", "f.tmp"})
        assert (files["f"] == b"1") or set(files) == {"f"}


def test_an_inode_that_is_given_again_is_another_file(traced):
    """File systems reuse the number of a removed file."""
    traced.run("""
        for number in range(20):
            fd = put(f"f{number}", b"%d" % number)
            os.fsync(fd)
            os.close(fd)
            if number != 7:
                os.unlink(f"f{number}")
        sync()
    """)
    assert traced.disk() == {"f7": b"7"}


def test_calls_with_a_folder_and_files_opened_before_a_rename(traced):
    traced.run("""
        os.mkdir("d")
        here = os.open("d", os.O_RDONLY)
        fd = os.open("a", os.O_WRONLY | os.O_CREAT, dir_fd=here)
        os.rename("a", "b", src_dir_fd=here, dst_dir_fd=here)
        os.write(fd, b"data")
        os.fsync(fd)
        os.fsync(here)
        sync()
        os.unlink("b", dir_fd=here)
    """)
    assert traced.disk() == {"d/": b"", "d/b": b"data"}
    assert traced.disk(ALL) == {"d/": b""}


def test_what_exists_at_the_start_is_durable_and_other_folders_do_not_count(traced):
    (traced.folder / "old").write_bytes(b"old")
    (traced.folder / "sub").mkdir()
    (traced.folder / "sub" / "empty").touch()
    (traced.tmp_path / "folder-too").mkdir()
    traced.run("""
        put("../folder-too/f", b"elsewhere")
        os.write(os.open("old", os.O_WRONLY), b"N")
    """)
    assert traced.disk() == {"old": b"old", "sub/": b"", "sub/empty": b""}
    assert traced.disk(ALL) == {"old": b"Nld", "sub/": b"", "sub/empty": b""}
    traced.run("os.write(os.open('old', os.O_WRONLY), b'NEW'); sync('old')")
    assert traced.disk() == {"old": b"NEW", "sub/": b"", "sub/empty": b""}


def test_some_of_what_is_not_synced_is_there_in_sectors(traced):
    traced.run("""
        fd = put("f", b"a" * 1000)
        os.fsync(fd)
        sync()
        os.write(fd, b"b" * 3000)
        os.write(fd, b"c" * 100)
    """)
    seen = {traced.disk(Some(seed))["f"] for seed in range(200)}
    assert all(data[:1000] == b"a" * 1000 for data in seen)
    whole = b"a" * 1000 + b"b" * 3000 + b"c" * 100
    assert whole in seen and b"a" * 1000 in seen
    assert {len(data) for data in seen} >= {1000, 4000, 4100}
    for data in seen:
        # Each byte is either the written one or zero, and switches only between sectors.
        assert all(byte in (0, wanted) for byte, wanted in zip(data, whole, strict=False))
        for at in range(1024, len(data) - SECTOR_BYTES, SECTOR_BYTES):
            assert len(set(data[at:min(at + SECTOR_BYTES, 4000)])) <= 1
    assert any(0 in data for data in seen)
    assert traced.disk(Some(3)) == traced.disk(Some(3))


SECTOR_BYTES = 512


def test_a_sync_that_fails_makes_nothing_durable_and_neither_does_the_next(traced):
    traced.trace.fail("sync", errno.EIO, skip=1)
    out = traced.run("""
        fd = put("f", b"abcd")
        sync()
        try:
            os.fsync(fd)
        except OSError as error:
            print(error.errno)
        os.pwrite(fd, b"B", 1)
        os.fsync(fd)
    """)
    assert out == f"{errno.EIO}\n"
    assert traced.trace.failed("sync") == 1
    assert traced.disk() == {"f": b"\0B"}
    assert traced.disk(ALL) == {"f": b"aBcd"}


@pytest.mark.parametrize("call", ["write", "read"])
def test_calls_fail_as_asked(traced, call):
    (traced.folder / "f").write_bytes(b"x")
    traced.trace.fail(call, errno.ENOSPC, skip=2, times=3)
    out = traced.run("""
        fd = os.open("f", os.O_RDWR)
        for calls in (lambda: os.pwrite(fd, b"y", 0), lambda: os.pread(fd, 1, 0)):
            for _ in range(8):
                try:
                    calls()
                    print("ok", end=" ")
                except OSError as error:
                    print(errno.errorcode[error.errno], end=" ")
    """).split()
    some, other = ["ok"] * 2 + ["ENOSPC"] * 3 + ["ok"] * 3, ["ok"] * 8
    assert out == (some + other if call == "write" else other + some)
    assert traced.trace.failed(call) == 3


def test_killed_with_a_record(traced):
    script = """
        for number in range(10):
            put(f"f{number}", b"x" * 100)
    """
    traced.trace.kill_with(6, "write")
    traced.run(script, code=-9)
    assert traced.disk(ALL) == {f"f{number}": b"x" * 100 for number in range(6)}
    assert traced.disk(ALL) == {path.name: path.read_bytes() for path in traced.folder.iterdir()}
    traced.trace.kill_with(2)       # any: the start, and the first write, because the files exist
    traced.run(script.replace("x", "y"), code=-9)
    assert traced.disk(ALL) == {"f0": b"y" * 100} | {f"f{number}": b"x" * 100 for number in range(1, 6)}


def test_a_trace_that_is_full_ends_the_process(tmp_path):
    traced = Traced(tmp_path)
    traced.trace = Trace(tmp_path / "small", traced.folder, room=1000)
    assert "the trace is full" in traced.run("put('f', b'x' * 1000)", code=-6)


def test_threads_and_restarts(traced):
    script = """
        import threading
        def work(number):
            fd = put(f"{sys.argv[2]}-{number}", b"")
            for count in range(200):
                os.write(fd, b"%d," % count)
                if count % 50 == 0:
                    os.fdatasync(fd)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    """
    for name in ("a", "b"):
        traced.run(script.replace("sys.argv[2]", repr(name)))
    assert traced.disk(ALL) == {path.name: path.read_bytes() for path in traced.folder.iterdir()}
    assert [event.kind for event in traced.trace.events()].count("start") == 1
    assert traced.disk() == {}


@pytest.mark.parametrize("call", [
    "import mmap; fd = os.open('f', os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 9); mmap.mmap(fd, 9)",
    "put('g', b'x'); os.sendfile(put('f', b''), os.open('g', os.O_RDONLY), 0, 1)",
    "put('g', b'x'); os.copy_file_range(os.open('g', os.O_RDONLY), put('f', b''), 1)",
    "put('f', b'x'); os.truncate('f', 0)",
    "put('f', b''); os.rename('f', '../f')",
])
def test_a_call_that_cannot_be_noted_ends_the_process(traced, call):
    assert "not noted" in traced.run(call, code=-6)
