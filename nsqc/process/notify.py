"""Notifies a service manager: sd_notify(3), datagrams of lines. Does nothing without a manager."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Mapping

from nsqc.log import Log
from nsqc.process.environment import is_ours, number

SEND_S = 1.0  # longest time that a manager that does not read may block the daemon


class ServiceManager:
    """The service manager of this process, if it wants notifications."""

    def __init__(self, log: Log, environ: Mapping[str, str] = os.environ):
        """Raises EnvironmentVariableError."""
        self._log = log
        self._socket: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ping_s = _watchdog_s(environ) / 2
        address = environ.get("NOTIFY_SOCKET", "")
        if address[:1] in ("/", "@"):
            # @ stands for the zero byte of Linux's abstract names.
            self._address = "\0" + address[1:] if address[0] == "@" else address
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.settimeout(SEND_S)
        elif address:
            log.warn("SYSTEMD: NOTIFY_SOCKET=%s is not a unix socket and is ignored", address)

    @property
    def listens(self) -> bool:
        """Whether a service manager wants notifications."""
        return self._socket is not None

    def ready(self, status: str) -> None:
        """The daemon serves clients, or a reload has ended. status: a line for `systemctl status`."""
        self._notify("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """A reload has started; ready() ends it."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}",
                     "STATUS=Reading the configuration")

    def status(self, status: str) -> None:
        """Sends a line for `systemctl status` only."""
        self._notify(f"STATUS={status}")

    def stopping(self, status: str) -> None:
        """The process is shutting down."""
        self._notify("STOPPING=1", f"STATUS={status}")

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Feeds the manager's watchdog from the loop, at twice the required rate."""
        if self._ping_s:
            self._notify("WATCHDOG=1")
            self._timer = loop.call_later(self._ping_s, self.watch, loop)

    def close(self) -> None:
        """Stops sending."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _notify(self, *lines: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            self._log.warn("SYSTEMD: cannot send %s - %s", lines[0], error)


def _watchdog_s(environ: Mapping[str, str]) -> float:
    """Seconds of silence after which the manager assumes a failure; 0: no watchdog."""
    if not is_ours(environ.get("WATCHDOG_PID", str(os.getpid()))):
        return 0.0
    return number(environ, "WATCHDOG_USEC") / 1e6
