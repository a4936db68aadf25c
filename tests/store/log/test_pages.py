"""Windows on files: only what is in memory, and a page that is taken away is no crash."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nsqc.store.log import pages
from tests.compiled.pages import Window

PAGE = 4096
DATA = bytes(range(256)) * (64 * PAGE // 256) + b"the end"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    for at in range(0, len(DATA), PAGE):        # each alone, or the page cache holds several as one
        os.pwrite(fd, DATA[at:at + PAGE], at)
    yield fd
    os.close(fd)
    assert pages.alive() == 0


def forget(fd: int) -> None:
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize(("at", "length"), [(0, 1), (1, 2 * PAGE), (PAGE - 1, 2), (5 * PAGE, PAGE), (63 * PAGE + 9, PAGE - 2)])
def test_has_what_the_file_has(file, at, length):
    window = Window()
    assert window.map(file, 1, at, length) == 0
    assert window.read() == DATA[at:at + length]
    assert pages.alive() == 1
    assert not window.lost
    window.unmap()


def test_a_window_serves_what_follows(file):
    window = Window()
    assert window.map(file, 1, PAGE + 7, 10, most=20 * PAGE) == 0
    begin = window.begin
    assert window.map(file, 1, 18 * PAGE, 2 * PAGE, most=20 * PAGE) == 0
    assert window.begin == begin
    assert window.read() == DATA[18 * PAGE:20 * PAGE]
    assert window.map(file, 1, 60 * PAGE, 4 * PAGE, most=4 * PAGE) == 0     # not this
    assert window.read() == DATA[60 * PAGE:64 * PAGE]
    assert pages.alive() == 1
    window.unmap()


def test_another_file_is_another_window(file, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"y" * 2 * PAGE)
    fd = os.open(other, os.O_RDONLY)
    window = Window()
    assert window.map(file, 1, 0, PAGE) == 0
    assert window.map(fd, 2, 0, PAGE) == 0
    assert window.read() == b"y" * PAGE
    window.unmap()
    os.close(fd)


def test_what_is_written_behind_its_beginning_is_seen(file):
    window = Window()
    assert window.map(file, 1, 64 * PAGE, 7) == 0
    os.pwrite(file, b" of it", 64 * PAGE + 7)
    assert window.map(file, 1, 64 * PAGE, 13) == 0
    assert window.read() == b"the end of it"
    window.unmap()


def test_only_what_is_in_memory(file):
    """A window ends where the page cache does."""
    window = Window()
    forget(file)
    assert window.map(file, 1, 0, 10, most=64 * PAGE) == errno.EAGAIN
    assert pages.alive() == 0
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)      # nothing is read ahead
    os.pread(file, 3 * PAGE, 0)
    assert window.map(file, 1, 0, 3 * PAGE, most=64 * PAGE) == 0
    assert window.read() == DATA[:3 * PAGE]
    assert window.map(file, 1, 2 * PAGE, 2 * PAGE, most=64 * PAGE) == errno.EAGAIN


def test_what_cannot_be_mapped(file, tmp_path):
    window = Window()
    reader, writer = os.pipe()
    assert window.map(reader, 2, 0, 10) == errno.ENODEV
    os.close(reader)
    os.close(writer)
    assert window.map(-1, 3, 0, 10) == errno.EBADF
    assert window.map(file, 1, 0, 1 << 40) == errno.EFBIG
    assert window.map(file, 1, 100 * PAGE, 10) == errno.EAGAIN      # there is nothing, so nothing is in memory


def test_pages_that_are_taken_away(file):
    """They have zeros, and the window says so; others do not, and a new one sees what is there."""
    window, other = Window(), Window()
    assert window.map(file, 1, 0, 8 * PAGE) == 0
    assert other.map(file, 1, 0, PAGE) == 0
    os.ftruncate(file, 4 * PAGE)
    assert not window.lost
    assert window.read() == DATA[:4 * PAGE] + bytes(4 * PAGE)
    assert window.lost
    assert other.read() == DATA[:PAGE]
    assert not other.lost
    assert window.map(file, 1, 0, 8 * PAGE) == errno.EAGAIN
    assert window.map(file, 1, 0, 4 * PAGE) == 0
    assert window.read() == DATA[:4 * PAGE]
    assert not window.lost
    window.unmap()
    other.unmap()


def test_other_bus_errors_are_none_of_ours(tmp_path):
    """They end the process, as they would have."""
    script = tmp_path / "script.py"
    script.write_text("""
import ctypes, mmap, os, sys
from tests.compiled.pages import Window
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(fd, b"x" * 8192)
window = Window()
assert window.map(fd, 1, 0, 4096) == 0
mapped = mmap.mmap(fd, 8192)
os.ftruncate(fd, 4096)
print(mapped[0], flush=True)
print(mapped[5000], flush=True)
""")
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, script, tmp_path / "file"], cwd=root, env={**os.environ, "PYTHONPATH": str(root)},
                          capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "120\n")
