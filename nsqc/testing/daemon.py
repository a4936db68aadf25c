"""A real daemon on Unix sockets in a private folder, so tests need no ports."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nsqc.client.http import UnixConnection
from nsqc.wire.outside import decode

START_SECONDS = 60.0        # usually a fraction of a second; a busy machine may need longer
STOP_SECONDS = 30.0
POLL_SECONDS = 0.005


class NotStarted(RuntimeError):
    """The daemon exited at once, or does not listen; the text has the end of its log."""


class Daemon:
    """flags: those of nsqd, and of nsqc serve. address: for clients; http: of the HTTP API; both are paths of sockets.
    log: the file with its log lines. Use it as a context manager, or call close()."""

    def __init__(self, *flags: str) -> None:
        # Not in pytest's folders: a socket path is limited to 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="nsqc-"))
        self.address, self.http = str(self.folder / "tcp.sock"), str(self.folder / "http.sock")
        self.log = self.folder / "log"
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    # ------------------------------------------------------------------ the process

    def start(self) -> None:
        """Starts it unless it runs, with the messages of a stopped one. Raises NotStarted."""
        if self._process is not None and self._process.poll() is None:
            return
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "nsqc", "serve", f"--tcp-address={self.address}",
                   f"--http-address={self.http}", f"--data-path={data}", *self._flags]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not (self._listens(self.address) and self._listens(self.http)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                lines = self.log.read_text(errors="replace").splitlines()[-5:]
                raise NotStarted("the daemon did not start:\n" + "\n".join(lines))
            time.sleep(POLL_SECONDS)

    @staticmethod
    def _listens(path: str) -> bool:
        with socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(path)
            except OSError:
                return False
            return True

    def stop(self) -> None:
        """Stops it gracefully, with all messages written."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(STOP_SECONDS)

    def restart(self) -> None:
        """stop(), then start()."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kills it, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Kills it and removes its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ contents

    def stats(self, topic: str) -> dict[str, Any]:     # Any: JSON
        """A topic's part of /stats; empty if the topic does not exist."""
        connection = UnixConnection(self.http, STOP_SECONDS)
        try:
            connection.request("GET", "/stats?format=json")
            topics = decode(connection.getresponse().read())["topics"]
        finally:
            connection.close()
        return next((found for found in topics or () if found["topic_name"] == topic), {})

    def channel(self, topic: str, channel: str) -> dict[str, Any]:      # Any: JSON
        """A channel's part of /stats; empty if the channel does not exist."""
        channels = self.stats(topic).get("channels") or ()
        return next((found for found in channels if found["channel_name"] == channel), {})

    def wait_until_done(self, topic: str, channel: str, timeout: float = 10.0) -> None:
        """Waits until every message of a channel is finished. Raises TimeoutError."""
        def is_done() -> bool:
            found = self.channel(topic, channel)
            return bool(found) and not (found["depth"] or found["in_flight_count"] or found["deferred_count"])
        wait_until(is_done, f"channel {topic}/{channel} to be done", timeout)


def wait_until(condition: Callable[[], object], what: str, timeout: float) -> None:
    """Polls until condition() is true. Raises TimeoutError."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:g} s for {what}")
        time.sleep(POLL_SECONDS)
