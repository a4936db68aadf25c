"""A server under measurement: any daemon; a side, which takes nsqd's flags."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from perf.programs import ROOT
from tests.support.ports import free_port

START_SECONDS = 180     # only a defect takes that long; a busy machine starts RabbitMQ in more than a minute
STOP_SECONDS = 60
PAGE = os.sysconf("SC_PAGESIZE")


class ServerError(Exception):
    """A server does not start or answers with an error."""


@dataclass(frozen=True)
class Side:
    """One column of the table: the command, and whether it keeps messages."""

    name: str
    command: tuple[str, ...]
    queues: bool = True  # False: the floor
    forwards: bool = True  # whether a PUB reaches a subscriber; not with another floor


class Daemon:
    """A running server with a folder of its own; use it in a with statement.

    start_s: seconds from start to the first answer. Subclasses say in `answers` what that is.
    """

    def __init__(self, folder: Path, command: list[str], environment: dict[str, str] | None = None):
        """Starts it. folder: removed by close(). environment: variables in addition to those of this process."""
        self.folder = folder
        self._command = command
        self._environment = {**os.environ, **(environment or {})}
        self.start_s = self._start()

    def _start(self) -> float:
        began = time.perf_counter()
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=self._environment)
        while not self.answers():
            if self.process.poll() is not None or time.perf_counter() - began > START_SECONDS:
                text = (self.folder / "log").read_text(errors="replace")[-400:]
                self.close()
                raise ServerError(f"{' '.join(self._command)} does not start: {text}")
            time.sleep(0.002)
        return time.perf_counter() - began

    def answers(self) -> bool:
        """Whether it is ready for clients."""
        raise NotImplementedError

    def restart(self) -> float:
        """Stops it and starts it with the same data path; returns seconds up to the first answer. Raises
        ServerError."""
        self._stop()
        self.start_s = self._start()
        return self.start_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def processes(self) -> list[int]:
        """The server's process and its children: a one-file executable runs in a child of its loader."""
        pids = [self.process.pid]
        for pid in pids:
            with contextlib.suppress(OSError):
                pids += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return pids

    def cpu_s(self) -> float:
        """CPU time used so far, all threads, user and system, in seconds."""
        # The kernel's CPU clock of another process: its number derives from the process id (clock_getcpuclockid(3)).
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in self.processes())

    def resident(self) -> int:
        """Resident memory, bytes."""
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE for pid in self.processes())

    def _stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """Stops it and removes its files."""
        self._stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Server(Daemon):
    """A running side, with free ports and a data path.

    files: files in the data path before the start, by name. environment: variables in addition to those of this
    process; {data} in a value is the data path.
    """

    def __init__(self, side: Side, *flags: str, files: dict[str, bytes] | None = None,
                 environment: dict[str, str] | None = None):
        folder = Path(tempfile.mkdtemp(prefix="nsqc-load-"))
        data = folder / "data"
        data.mkdir()
        for name, content in (files or {}).items():
            (data / name).write_bytes(content)
        self.tcp, self.http = free_port(), free_port()
        super().__init__(folder, [*side.command, f"--tcp-address=127.0.0.1:{self.tcp}",
                                  f"--http-address=127.0.0.1:{self.http}", f"--data-path={data}", *flags],
                         {name: value.replace("{data}", str(data)) for name, value in (environment or {}).items()})

    def answers(self) -> bool:
        with contextlib.suppress(OSError):
            return self._call("GET", "/ping", 1)[0] == 200
        return False

    def _call(self, method: str, path: str, seconds: float) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=seconds)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def post(self, path: str) -> None:
        """An HTTP call that must succeed. Raises ServerError."""
        status, body = self._call("POST", path, 60)
        if status != 200:
            raise ServerError(f"{path}: {status} {body!r}")

    def channel(self, topic: str, *channels: str) -> None:
        """Creates a topic and its channels."""
        self.post(f"/topic/create?topic={topic}")
        for channel in channels:
            self.post(f"/channel/create?topic={topic}&channel={channel}")

    def get_stats(self, topic: str) -> dict[str, Any]:      # Any: JSON
        """Statistics of a topic. Raises ServerError."""
        status, body = self._call("GET", f"/stats?format=json&include_clients=false&topic={topic}", 60)
        if status != 200:
            raise ServerError(f"/stats: {status} {body!r}")
        return json.loads(body)["topics"][0]
