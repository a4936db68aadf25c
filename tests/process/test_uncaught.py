"""Uncaught errors: one log line each, bounded, and never a write that blocks."""

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from nsqc.process.uncaught import Uncaught
from tests.support.daemon import wait_until
from tests.support.log import RecordingLog
from tests.support.patience import WAIT_SECONDS

F_SETPIPE_SZ = 1031
# Everything that prints on stderr by default, far more than a pipe holds.
FLOOD = """
import asyncio, gc, logging, sys, threading, warnings
import uvloop
from nsqc.log import Log
from nsqc.process.uncaught import Uncaught

log = Log("[x] ")
uncaught = Uncaught(log)
uncaught.install()

class Bad:
    def __del__(self):
        raise ValueError("lost " + "x" * 1000)

def fail():
    raise KeyError("y" * 1000)

async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(uncaught.in_loop)
    for number in range(1000):
        Bad()
        loop.call_soon(fail)
        warnings.warn(f"warned {number} " + "z" * 1000)
        logging.getLogger("some").error("said %s", "u" * 1000)
        print("printed", number, "v" * 1000, file=sys.stderr)
        if number % 100 == 0:
            thread = threading.Thread(target=fail, name="worker")
            thread.start()
            thread.join()
    loop.create_future().set_exception(OSError("never seen"))
    gc.collect()
    await asyncio.sleep(0)

warnings.simplefilter("always")
uvloop.run(main())
print("done", flush=True)
sys.stdin.readline()
log.close()
"""


@pytest.fixture
def unread():
    """Read and write end of a full pipe."""
    read, write = os.pipe()
    fcntl.fcntl(write, F_SETPIPE_SZ, 4096)
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, b"." * 512)
    os.set_blocking(write, True)
    yield read, write
    os.close(read)
    os.close(write)


def run_flood(stderr):
    return subprocess.Popen([sys.executable, "-c", FLOOD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)


def test_nothing_blocks_if_nobody_reads(unread):
    process = run_flood(unread[1])
    watch = threading.Timer(WAIT_SECONDS, process.kill)
    watch.start()
    assert process.stdout.readline() == b"done\n"
    process.communicate(b"\n", timeout=WAIT_SECONDS)
    watch.cancel()
    assert process.returncode == 0


def test_each_kind_has_a_line_and_floods_are_counted():
    out, err = run_flood(subprocess.PIPE).communicate(b"\n", timeout=WAIT_SECONDS)
    assert out == b"done\n"
    lines = err.decode().splitlines()
    assert all(line.startswith("[x] ") for line in lines)
    for text in ("exception ignored in Bad.__del__ - ValueError: lost x", " in fail)", "UserWarning: warned 0 z",
                 "some: said u", "stderr: printed 0 v", "uncaught exception in thread worker - KeyError",
                 "OSError: never seen"):
        # A line a second; the machine may take some for the whole.
        matching = [line for line in lines if text in line]
        assert 1 <= len(matching) < 100, (text, len(matching))


def test_a_failed_daemon_leaves_one_line(tmp_path):
    """An unexpected error at the start is a log line, too, and the exit code is 1."""
    code = ("import nsqc.daemon as d\n"
            "def fail(*_): raise ZeroDivisionError('made up')\n"
            "d.Daemon.__init__ = fail\n"
            "import sys; from nsqc.commands.start import serve; sys.exit(serve(sys.argv[1:]))")
    done = subprocess.run([sys.executable, "-c", code, f"--data-path={tmp_path}"], capture_output=True, text=True,
                          timeout=WAIT_SECONDS)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "ERROR: the daemon fails - ZeroDivisionError: made up (" in done.stderr


def test_a_daemon_with_an_unread_stderr_answers(tmp_path, unread):
    """Hundreds of bad commands, some of which used to raise in Python: the loop keeps running."""
    sock, web = tmp_path / "tcp.sock", tmp_path / "http.sock"
    process = subprocess.Popen(
        [sys.executable, "-m", "nsqc", "serve", f"--tcp-address={sock}", f"--http-address={web}",
         f"--data-path={tmp_path}"], stdout=subprocess.DEVNULL, stderr=unread[1])
    try:
        wait_until(lambda: web.exists() and sock.exists(), "the start")
        for body in (b"\xff\xfe{", b"[" * 9000, b'{"client_id": "\xff"}'):
            for _ in range(200):
                send(sock, b"  V2IDENTIFY\n" + len(body).to_bytes(4, "big") + body)
        assert b"200 OK" in send(web, b"GET /ping HTTP/1.0\r\n\r\n")
        answer = send(web, b"GET /stats?format=json HTTP/1.0\r\n\r\n")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["health"] == "OK"
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def send(path, data: bytes) -> bytes:
    """Sends over a new connection to a unix socket; everything received until it closes."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(WAIT_SECONDS)
        wait_until(lambda: sock.connect_ex(str(path)) == 0, "the connection")
        sock.sendall(data)
        if b"IDENTIFY" in data:
            sock.shutdown(socket.SHUT_WR)
        received = b""
        while more := sock.recv(65536):
            received += more
        return received


class NoMemory(RecordingLog):
    """A log that cannot write its first line; memory cannot be exhausted for that line alone."""

    full = True

    def error(self, text, *arguments, kind=None):
        if self.full:
            self.full = False
            raise MemoryError
        super().error(text, *arguments, kind=kind)


def test_an_error_that_cannot_be_reported_is_counted():
    """Raised out of the loop's exception handler, a MemoryError would end the loop."""
    log = NoMemory()
    uncaught = Uncaught(log)
    uncaught.report("first", ValueError("x"))
    assert log.lines == []
    uncaught.report("second", ValueError("y"))
    assert log.lines == ["second - ValueError: y", "1 errors were not reported - out of memory"]
