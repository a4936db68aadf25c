"""Servers and tools forked from a process that has imported their modules: they start in a fifth of the processor time.
The tests start thousands, and the imports are the same each time.

They run `python -m nsqc COMMAND` from its first line on, each in its own process. Tests of the start itself use the
command (conformance, tests/commands, tests/packaging, all with an environment or preexec of their own).
"""

from __future__ import annotations

import atexit
import gc
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).parent.parent.parent
# The modules that each kind imports, and the packages of which it imports all.
MODULES = {"servers": ("nsqc.cli", "nsqc.commands.start", "nsqc.options.servers", "nsqc.daemon"),
           "tools": ("nsqc.cli", "nsqc.commands.app", "nsqc.commands.log", "nsqc.commands.tools", "nsqc.commands.typed")}
PACKAGES = {"servers": ("admin", "broker", "httpd", "log", "lookupd", "loop", "metrics", "net", "options", "peers", "process", "store", "tcp",
                        "wire"),
            "tools": ("client", "tools")}
REQUEST_BYTES = 1 << 20
STATUS_BYTES = 4


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

    def __init__(self, kind: str) -> None:
        self.lock = threading.Lock()    # an answer belongs to the preceding request
        self.control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self.control.setsockopt(socket.SOL_SOCKET, buffer, REQUEST_BYTES)
            other.setsockopt(socket.SOL_SOCKET, buffer, REQUEST_BYTES)
        with other:
            self.process = subprocess.Popen([sys.executable, "-m", __spec__.name, kind, str(other.fileno())], cwd=ROOT,
                                            stdin=subprocess.DEVNULL, pass_fds=[other.fileno()])

    def start(self, words: list[str], stdin: int, stdout: int, stderr: int, folder: str, environment: dict[str, str]) -> Forked:
        """`nsqc WORDS` with these descriptors, in a folder."""
        status, other = os.pipe()
        try:
            request = json.dumps([words, folder, environment]).encode("utf-8", "surrogateescape")
            with self.lock:
                socket.send_fds(self.control, [request], [stdin, stdout, stderr, other])
                pid = int(self.control.recv(REQUEST_BYTES) or 0)
        finally:
            os.close(other)
        assert pid, f"the process that forks has ended, and cannot run {words}"
        return Forked(words, pid, status)


_forks: dict[str, Forks] = {}
_making = threading.Lock()


def forks(kind: str) -> Forks:
    """The process that forks a kind."""
    with _making:
        if kind not in _forks:
            _forks[kind] = Forks(kind)
    return _forks[kind]


def run(words: list[str], log: IO[bytes]) -> Forked:
    """The server `nsqc WORDS`, with its output in a file."""
    with open(os.devnull, "rb") as nothing:
        return forks("servers").start(words, nothing.fileno(), log.fileno(), log.fileno(), os.getcwd(), dict(os.environ))


def start_tool(words: list[str], stdout: int, stderr: int, folder: Path, environment: dict[str, str]) -> Forked:
    """The tool `nsqc WORDS`, with nothing to read."""
    with open(os.devnull, "rb") as nothing:
        return forks("tools").start(words, nothing.fileno(), stdout, stderr, str(folder), environment)


def run_tool(words: list[str], data: bytes, folder: Path, environment: dict[str, str],
             seconds: float) -> subprocess.CompletedProcess[bytes]:
    """The tool `nsqc WORDS` to its end, with this input. Raises subprocess.TimeoutExpired."""
    def feed(to: int) -> None:
        with suppress(BrokenPipeError), open(to, "wb") as file:
            file.write(data)

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        stdin, to = os.pipe()
        try:
            process = forks("tools").start(words, stdin, out.fileno(), err.fileno(), str(folder), environment)
        finally:
            os.close(stdin)
        feeder = threading.Thread(target=feed, args=(to,))
        feeder.start()
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
            feeder.join()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


# ---------------------------------------------------------------------- the process that forks

def load(kind: str) -> None:
    """Imports the modules of a kind."""
    import nsqc

    names = [*MODULES[kind]]
    for package in PACKAGES[kind]:
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
            request, files, _, _ = socket.recv_fds(control, REQUEST_BYTES, 4)
            if not request:
                leave()
            *standard, status = files
            pid = os.fork()
            if pid == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                for other, (_, pipe) in running.items():
                    os.close(other)
                    os.close(pipe)
                control.close()
                os.close(status)
                words, folder, environment = json.loads(request.decode("utf-8", "surrogateescape"))
                for number, descriptor in enumerate(standard):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                os.chdir(folder)
                sys.path.insert(0, folder)
                os.environ.clear()
                os.environ.update(environment)
                if "PYTHONUNBUFFERED" in environment:
                    sys.stdout, sys.stderr = unbuffered(1, "strict"), unbuffered(2, "backslashreplace")
                return words
            for descriptor in standard:
                os.close(descriptor)
            descriptor = os.pidfd_open(pid)
            running[descriptor] = pid, status
            poll.register(descriptor, select.POLLIN)
            control.send(str(pid).encode())


def unbuffered(descriptor: int, errors: str) -> io.TextIOWrapper:
    """A standard file as Python makes it with PYTHONUNBUFFERED."""
    return io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False), "utf-8", errors, write_through=True)


def leave() -> NoReturn:
    """Running daemons stay, as they would without it."""
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)    # Ctrl-C is for the tests
    load(sys.argv[1])
    gc.collect()
    gc.freeze()
    sys.argv[1:] = serve(socket.socket(fileno=int(sys.argv[2])))
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
