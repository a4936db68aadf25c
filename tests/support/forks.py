"""Daemons forked from a process that has imported their modules: they start in a fifth of the processor time. The tests
start thousands, and the imports are the same each time.

They run `python -m nsqc COMMAND` from its first line on, each in its own process. Tests of the start itself use the
command (conformance, tests/commands, tests/packaging, all with an environment or preexec of their own).
"""

from __future__ import annotations

import array
import atexit
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).parent.parent.parent
# The modules that servers import.
PACKAGES = ("admin", "broker", "httpd", "log", "lookupd", "loop", "metrics", "net", "options", "peers", "process", "store", "tcp", "wire")
MODULES = ("nsqc.cli", "nsqc.commands.start", "nsqc.options.servers", "nsqc.options.servers", "nsqc.daemon")
REQUEST_BYTES = 1 << 20
STATUS_BYTES = 4
DESCRIPTOR_BYTES = array.array("i").itemsize


class Forked:
    """A process that was forked; the part of subprocess.Popen that tests use."""

    def __init__(self, args: list[str], pid: int, status: int):
        """status: a pipe that its exit code comes from."""
        self.args = args
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()
        self._pid_file: int | None = None
        with suppress(ProcessLookupError):      # it has ended
            self._pid_file = os.pidfd_open(pid)

    def __del__(self) -> None:
        for descriptor in (self._status, self._pid_file):
            if descriptor is not None:
                os.close(descriptor)

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _wait(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            with self._lock:
                if self.returncode is None:
                    data = os.read(self._status, STATUS_BYTES)
                    assert data, "the process that forks daemons has ended"
                    self.returncode = int.from_bytes(data, "big", signed=True)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """A signal, unless it has ended."""
        if self.poll() is None and self._pid_file is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pid_file, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Forks:
    """The client side of the process that forks."""

    def __init__(self) -> None:
        self.lock = threading.Lock()    # an answer belongs to the preceding request
        self.control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self.control.setsockopt(socket.SOL_SOCKET, buffer, REQUEST_BYTES)
            other.setsockopt(socket.SOL_SOCKET, buffer, REQUEST_BYTES)
        with other:
            self.process = subprocess.Popen([sys.executable, "-m", __spec__.name, str(other.fileno())], cwd=ROOT,
                                            stdin=subprocess.DEVNULL, pass_fds=[other.fileno()])

    def start(self, words: list[str], log: int) -> Forked:
        """`nsqc WORDS`, with its output sent to a descriptor."""
        status, other = os.pipe()
        try:
            request = json.dumps([words, os.getcwd(), dict(os.environ)]).encode("utf-8", "surrogateescape")
            with self.lock:
                socket.send_fds(self.control, [request], [log, other])
                pid = int(self.control.recv(REQUEST_BYTES) or 0)
        finally:
            os.close(other)
        assert pid, "the process that forks daemons has ended"
        return Forked(words, pid, status)


_forks: Forks | None = None
_making = threading.Lock()


def run(words: list[str], log: IO[bytes]) -> Forked:
    """`nsqc WORDS`, with its output in a file."""
    global _forks
    with _making:
        if _forks is None:
            _forks = Forks()
    return _forks.start(words, log.fileno())


# ---------------------------------------------------------------------- the process that forks

def load() -> None:
    """Imports the modules of the servers."""
    import nsqc

    names = [*MODULES]
    for package in PACKAGES:
        names += [found.name for found in pkgutil.walk_packages([f"{nsqc.__path__[0]}/{package}"], f"nsqc.{package}.")]
    for name in names:
        __import__(name)


def ended(pid: int) -> int:
    """The exit code of an ended child, in subprocess's convention."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def serve(control: socket.socket) -> list[str]:
    """Forks until the client is gone. Returns only in a fork: the words of its command."""
    running: dict[int, tuple[int, int]] = {}    # by a descriptor of the process: its id and where its exit code goes
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor != control.fileno():
                poll.unregister(descriptor)
                os.close(descriptor)
                pid, status = running.pop(descriptor)
                with suppress(BrokenPipeError):
                    os.write(status, ended(pid).to_bytes(STATUS_BYTES, "big", signed=True))
                os.close(status)
                continue
            request, files, _, _ = socket.recv_fds(control, REQUEST_BYTES, 2)
            if not request:
                leave()
            log, status = files
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for other, (_, pipe) in running.items():
                    os.close(other)
                    os.close(pipe)
                control.close()
                os.close(status)
                words, folder, environment = json.loads(request.decode("utf-8", "surrogateescape"))
                os.dup2(log, 1)
                os.dup2(log, 2)
                os.close(log)
                os.chdir(folder)
                os.environ.clear()
                os.environ.update(environment)
                return words
            os.close(log)
            descriptor = os.pidfd_open(pid)
            running[descriptor] = pid, status
            poll.register(descriptor, select.POLLIN)
            control.send(str(pid).encode())


def leave() -> NoReturn:
    """Running daemons stay, as they would without it."""
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)    # Ctrl-C is for the tests
    load()
    gc.collect()
    gc.freeze()
    sys.argv[1:] = serve(socket.socket(fileno=int(sys.argv[1])))
    sys.argv[0] = str(ROOT / "nsqc" / "__main__.py")
    from nsqc.cli import main

    try:
        main()
    except SystemExit as error:
        if not isinstance(error.code, int | None):
            raise
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.code or 0)       # an interpreter that tidies up takes longer than most daemons here run
