"""packaging/compile.py: progress of a build, on a terminal and in a pipe, and its state after a failure."""

import os
import pty
import subprocess
import sys

import pytest

from tests.support.pages import ROOT
from tests.support.patience import WAIT_SECONDS

COMPILE = (sys.executable, str(ROOT / "packaging/compile.py"), "build.log")
# Stands for setup.py: reports its steps in the same way.
SETUP = """
import os, sys, time
print("what the compiler says")
for stage in ("translating-to-C", "compiling"):
    for done in (1, 2, 3):
        os.write(int(os.environ["NSQC_PROGRESS"]), f"{stage} {done} 3\\n".encode())
sys.exit(CODE)
"""


@pytest.fixture
def folder(tmp_path):
    def made(code: int):
        (tmp_path / "setup.py").write_text(SETUP.replace("CODE", str(code)))
        return tmp_path
    return made


def test_in_a_pipe_there_are_lines(folder):
    where = folder(0)
    done = subprocess.run(COMPILE, cwd=where, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    first, *steps = done.stdout.splitlines()
    assert first.startswith("nsqc: compiling; the first time takes some minutes")
    # The first and the last of each stage, and no more often than every few seconds in between.
    assert [step.partition(" (")[0] for step in steps] == [
        "nsqc: translating to C, 1 of 3 modules", "nsqc: translating to C, 3 of 3 modules",
        "nsqc: compiling, 1 of 3 modules", "nsqc: compiling, 3 of 3 modules"]
    assert not (where / "build.log").exists()


def test_on_a_terminal_one_line_changes(folder):
    master, slave = pty.openpty()
    process = subprocess.Popen(COMPILE, cwd=folder(0), stdout=slave, stderr=slave)
    os.close(slave)
    told = b""
    try:
        while part := os.read(master, 1000):
            told += part
    except OSError:
        pass  # the other end is closed
    os.close(master)
    assert process.wait(WAIT_SECONDS) == 0
    lines = told.decode().split("\r\n")
    assert len(lines) == 4 and lines[-1] == ""
    assert [step.partition(" (")[0] for step in lines[2].split("\r") if step] == [
        f"nsqc: compiling, {done} of 3 modules" for done in (1, 2, 3)]


def test_a_build_that_fails_says_why_and_keeps_its_log(folder):
    where = folder(1)
    done = subprocess.run(COMPILE, cwd=where, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 1
    assert "compiling failed; build.log has what follows\nwhat the compiler says\n" in done.stdout
    assert (where / "build.log").read_text() == "what the compiler says\n"


def test_setup_tells_of_each_module(tmp_path):
    """The real one, of which nothing is compiled: only the version is requested."""
    told, tells = os.pipe()
    done = subprocess.run([sys.executable, "setup.py", "--quiet", "--version"], cwd=ROOT, capture_output=True, text=True,
                          env={**os.environ, "NSQC_PROGRESS": str(tells)}, pass_fds=[tells], timeout=300)
    os.close(tells)
    with open(told) as steps:
        lines = steps.read().splitlines()
    assert done.returncode == 0, done.stderr
    count = len(list((ROOT / "nsqc").rglob("*.pyx")))
    assert lines == [f"translating-to-C {number} {count}" for number in range(1, count + 1)]
