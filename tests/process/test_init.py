"""Process 1 of a container: signals reach the program, orphans are reaped, its exit code is passed on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemon import wait_until
from tests.support.pages import ROOT
from tests.support.patience import WAIT_SECONDS

IN_NAMESPACES = ("unshare", *(("--user", "--map-root-user") if os.getuid() else ()), "--pid", "--fork", "--kill-child",
                 "--mount-proc")
START = "import os, signal, sys, time\nfrom nsqc.process.lifecycle import become_init\nbecome_init()\n"

can = subprocess.run([*IN_NAMESPACES, "true"], capture_output=True).returncode == 0
pytestmark = pytest.mark.skipif(not can, reason="this machine gives no namespaces")


def start(program: str, stderr: int | None = None) -> subprocess.Popen:
    return subprocess.Popen([*IN_NAMESPACES, sys.executable, "-c", START + program], stdout=subprocess.PIPE, stderr=stderr, text=True,
                            env={**os.environ, "PYTHONPATH": str(ROOT)})


def first(outer) -> int:
    path = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    return int(wait_until(lambda: path.read_text().split(), "process 1")[0])


@pytest.mark.parametrize("program, code", [
    ("sys.exit(7)", 7), ("pass", 0), ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ("os.abort()", 128 + signal.SIGABRT), ("print(os.getpid() != 1 and os.getppid() == 1); sys.exit(3)", 3),
])
def test_the_exit_code(program, code):
    outer = start(program)
    told, _ = outer.communicate(timeout=WAIT_SECONDS)
    assert outer.returncode == code
    assert told in ("", "True\n")


@pytest.mark.parametrize("number, told", [
    (signal.SIGKILL, "nsqc: ended by SIGKILL: the kernel does that when memory runs out (memory.max)\n"),
    (signal.SIGSEGV, "nsqc: ended by SIGSEGV\n"), (signal.SIGTERM, ""), (signal.SIGPIPE, ""),
])
def test_what_has_ended_the_program_is_told(number, told):
    outer = start(f"signal.signal({int(number)}, signal.SIG_DFL) if {int(number)} != 9 else None\nos.kill(os.getpid(), {int(number)})",
                  stderr=subprocess.PIPE)
    assert outer.communicate(timeout=WAIT_SECONDS)[1] == told
    assert outer.returncode == 128 + number


def test_stderr_that_nobody_reads_does_not_hold_it_up():
    outer = start("import fcntl\nfcntl.fcntl(2, fcntl.F_SETFL, os.O_NONBLOCK)\ntry:\n    while True: os.write(2, b'x' * 4096)\n"
                  "except BlockingIOError: pass\nfcntl.fcntl(2, fcntl.F_SETFL, 0)\nos.kill(os.getpid(), 9)", stderr=subprocess.PIPE)
    assert outer.wait(WAIT_SECONDS) == 128 + signal.SIGKILL
    outer.stderr.close()
    outer.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT])
def test_signals_that_the_program_does_not_handle_end_it(number):
    # A shell that starts the tests in the background makes them ignore some signals.
    outer = start(f"signal.signal({int(number)}, signal.SIG_DFL)\nprint('up', flush=True)\ntime.sleep(1000)")
    assert outer.stdout.readline() == "up\n"
    os.kill(first(outer), number)
    assert outer.wait(WAIT_SECONDS) == 128 + number
    outer.stdout.close()


def test_a_handler_and_a_blocked_signal_before_the_fork():
    outer = start("signal.signal(signal.SIGTERM, lambda *of: sys.exit(5))\nprint('up', flush=True)\ntime.sleep(1000)")
    assert outer.stdout.readline() == "up\n"
    os.kill(first(outer), signal.SIGTERM)
    assert outer.wait(WAIT_SECONDS) == 5
    outer.stdout.close()


def test_orphans_are_reaped():
    outer = start("""
if os.fork() == 0:
    if os.fork() == 0:
        os._exit(0)         # an orphan of process 1, once its parent has gone
    os._exit(0)
os.wait()
def others():
    return {pid for pid in os.listdir("/proc") if pid.isdigit()} - {"1", str(os.getpid())}
while others():
    time.sleep(0.01)
print("none", flush=True)
""")
    told, _ = outer.communicate(timeout=WAIT_SECONDS)
    assert (outer.returncode, told) == (0, "none\n")
