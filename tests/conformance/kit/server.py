"""The server under test."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from kit.base import HOST, START_WAIT_S, STILL_STARTING, STOP_WAIT_S, BadScenario, Failure, NotReady, Options
from kit.names import Names
from kit.tls import Certificates
from kit.web import http_call
from kit.wire import connect


class Ports:
    """Hands out free ports below the ephemeral range, each one once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        first = 20000 + os.getpid() * 97 % 9000
        self.numbers = itertools.chain(range(first, 32000), range(20000, first))

    def take(self) -> int:
        with self.lock:
            for port in self.numbers:
                with socket.socket() as probe, contextlib.suppress(OSError):
                    probe.bind((HOST, port))
                    return port
        raise BadScenario("no free ports are left")


PORTS = Ports()
CERTIFICATES = Certificates()


class Server:
    """One server process at a time on one data path, known by its pid."""

    def __init__(self, options: Options, folder: Path, names: Names):
        self.command, self.names, self.patience = options.command, names, options.patience
        self.forked = options.forked
        self.data = folder / "data"
        self.data.mkdir()
        self.log = folder / "server.log"
        self.process: subprocess.Popen[bytes] | None = None
        names.values["data"] = str(self.data)
        self._new_ports()

    def _new_ports(self) -> None:
        for name in ("tcp_port", "http_port", "https_port"):
            self.names.values[name] = str(PORTS.take())

    def arguments(self, flags: Iterable[str]) -> list[str]:
        given = [self.names.expand(f) for f in flags]
        values = self.names.values
        standard = {
            "--tcp-address": f"{HOST}:{values['tcp_port']}",
            "--http-address": f"{HOST}:{values['http_port']}",
            "--data-path": str(self.data),
        }
        missing = {k: v for k, v in standard.items()
                   if not any(f.split("=")[0] == k for f in given)}
        return [f"{k}={v}" for k, v in missing.items()] + given

    def target(self, kind: str) -> str:
        if kind == "https":
            return f"{HOST}:{self.names.values['https_port']}"
        prefix = f"--{kind}-address="
        return next(a[len(prefix) :] for a in self.running_with if a.startswith(prefix))

    def spawn(self, flags: Iterable[str]) -> None:
        self.running_with = self.arguments(flags)
        with self.log.open("ab") as log:
            self.process = self._forked(log) if self.forked else subprocess.Popen(
                self.command + self.running_with, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True)

    def _forked(self, log: IO[bytes]) -> Any:
        """Starts through the process that forks servers for tests; runs what `python -m nsqc` would."""
        from tests.support.forks import run

        return run(self.command[self.command.index("nsqc") + 1:] + self.running_with, log)

    def start(self, flags: Iterable[str]) -> None:
        for _ in range(3):
            self.spawn(flags)
            try:
                return self._until_ready()
            except NotReady:
                if not self._port_was_taken():
                    raise
            self._new_ports()
        raise NotReady("ports were taken three times in a row")

    def _until_ready(self) -> None:
        deadline = time.monotonic() + START_WAIT_S * self.patience
        while time.monotonic() < deadline:
            with contextlib.suppress(*STILL_STARTING):
                self._ping()
                if self.process.poll() is None:
                    return
            if self.process.poll() is not None:
                raise NotReady(f"the server left with exit code {self.process.returncode}")
            time.sleep(0.005)
        raise NotReady("the server did not answer /ping in time")

    def _ping(self) -> None:
        try:
            http_call(self.target("http"), "GET /ping", timeout=3)
            connect(self.target("tcp")).close()
        except http.client.HTTPException as odd:
            raise NotReady(f"/ping was not answered in HTTP: {odd!r}") from None
        except STILL_STARTING:
            raise
        except OSError as odd:
            raise NotReady(f"/ping was not answered: {odd!r}") from None

    def _port_was_taken(self) -> bool:
        """Another process may take a port between our probe and the server's bind."""
        said = self.log.read_text(errors="replace").lower()
        return self.process.poll() is not None and "address already in use" in said

    def wait(self) -> int:
        try:
            code = self.process.wait(STOP_WAIT_S * self.patience)
        except subprocess.TimeoutExpired:
            raise Failure("the server did not leave in time") from None
        self._sweep()
        return code

    def _sweep(self) -> None:
        """Kill the remaining processes of the group that our process leads: its helpers."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.wait()

    def finish(self) -> None:
        """End the process in any state: SIGTERM first, then SIGKILL."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(3)
        self._sweep()
        self.process.wait()

    def run_to_exit(self, arguments: list[str]) -> tuple[int, str]:
        """Run the command once more, to see how it ends."""
        try:
            done = subprocess.run(self.command + arguments, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=START_WAIT_S * self.patience)
        except subprocess.TimeoutExpired:
            raise Failure("the second process did not leave") from None
        return done.returncode, done.stdout.decode(errors="replace")
