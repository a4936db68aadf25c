"""Startup failures for lack of a resource, and their errors."""

import errno
import subprocess
import sys

import pytest

from nsqc.process.machine import shortage
from tests.support.pages import ROOT
from tests.support.patience import WAIT_SECONDS


@pytest.mark.parametrize("error, reason", [
    (MemoryError(), "out of memory; raise the limit of memory (ulimit -v, memory.max)"),
    (OSError(errno.EMFILE, "Too many open files", "x"), "[Errno 24] Too many open files: 'x'; raise the limit of open files (ulimit -n)"),
    (OSError(errno.EAGAIN, "No"), "[Errno 11] No; raise the limit of processes (ulimit -u, pids.max)"),
    (ImportError("a.so: failed to map segment from shared object"), "a.so: failed to map segment from shared object: raise the limit of "
     "memory (ulimit -v, memory.max), or move it from a file system that is mounted noexec"),
    (ImportError("a.so: cannot open shared object file: Too many open files"),
     "a.so: cannot open shared object file: Too many open files: raise the limit of open files (ulimit -n)"),
    (ImportError("a.so: cannot allocate memory in static TLS block"),
     "a.so: cannot allocate memory in static TLS block: raise the limit of memory (ulimit -v, memory.max)"),
    (OSError(errno.ENOENT, "No such file"), None), (ImportError("No module named x"), None), (ValueError("failed to map segment"), None),
])
def test_the_reason(error, reason):
    assert shortage(error) == reason


FAILS = """
import sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "nsqc.commands.start":
            {act}
sys.meta_path.insert(0, Finder())
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv = ["nsqc", "serve"]
from nsqc.cli import main
main()
"""


def start(act: str) -> tuple[int, str]:
    """A start that hits an obstacle while the daemon's modules are imported: exit code and stderr."""
    done = subprocess.run([sys.executable, "-c", FAILS.format(act=act)], capture_output=True, text=True, cwd=ROOT, timeout=WAIT_SECONDS)
    return done.returncode, done.stderr


def test_a_start_without_memory_ends_with_one_line():
    assert start("raise MemoryError") == (1, "nsqc: out of memory; raise the limit of memory (ulimit -v, memory.max)\n")


def test_other_errors_keep_their_traceback():
    code, told = start("raise ImportError('nothing of the kind')")
    assert code == 1 and told.startswith("Traceback") and told.endswith("nothing of the kind\n")


def test_an_interrupted_start_has_no_traceback():
    assert start("import os, signal; os.kill(os.getpid(), signal.SIGINT)") == (-2, "")
