"""The service manager: what it is told, and the sockets it hands over. Nothing here does anything without one.

What is said and how: sd_notify(3), sd_listen_fds(3). It is a datagram of lines, and three variables.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Mapping, MutableMapping
from typing import Any

FIRST = 3  # the descriptor of the first socket handed over
NAMES = ("tcp", "http", "https")
SEND_S = 1.0  # how long a manager that does not read may hold us up
LISTEN = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class HandoverError(Exception):
    """The manager's variables or sockets cannot be used; the text is one line for the operator."""


class Manager:
    """Who started this process, as far as it wants to know how it goes."""

    def __init__(self, log: Any, environ: Mapping[str, str] = os.environ):
        """Raises HandoverError."""
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
            log.warn("SYSTEMD: NOTIFY_SOCKET=%s is no unix socket and is passed over", address)

    @property
    def listens(self) -> bool:
        """Whether somebody wants to know."""
        return self._socket is not None

    def ready(self, status: str) -> None:
        """Clients are served, or a reload has ended. status: a line for `systemctl status`."""
        self._tell("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Until the next ready()."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=Reading the configuration")

    def stopping(self) -> None:
        """The process is on its way out."""
        self._tell("STOPPING=1", "STATUS=Writing everything to disk")

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on the manager hears from the loop, as often as it asked for twice over."""
        if self._ping_s:
            self._tell("WATCHDOG=1")
            self._timer = loop.call_later(self._ping_s, self.watch, loop)

    def close(self) -> None:
        """Says nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tell(self, *lines: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            self._log.warn("SYSTEMD: %s could not be told - %s", lines[0], error)


def _watchdog_s(environ: Mapping[str, str]) -> float:
    """Seconds after which the manager takes silence for a fault; 0: never."""
    if not is_ours(environ.get("WATCHDOG_PID", str(os.getpid()))):
        return 0.0
    return _number(environ, "WATCHDOG_USEC") / 1e6


def inherited(environ: MutableMapping[str, str] = os.environ) -> dict[str, socket.socket]:
    """The listening sockets handed over, by name; the variables are taken away, for they are for one process.

    Raises HandoverError for a socket without a name of ours, a name given twice, or what is no listening socket.
    """
    given = {name: environ.pop(name, "") for name in LISTEN}
    if not is_ours(given["LISTEN_PID"]):
        return {}
    count = _number(given, "LISTEN_FDS")
    names = given["LISTEN_FDNAMES"].split(":") if given["LISTEN_FDNAMES"] else []
    found: dict[str, socket.socket] = {}
    for place in range(count):
        name = names[place] if place < len(names) else ""
        if name not in NAMES:
            raise HandoverError(f"inherited socket {FIRST + place} is named {name!r}, not one of {', '.join(NAMES)} "
                                "(FileDescriptorName= in its unit)")
        if name in found:
            raise HandoverError(f"two inherited sockets are named {name}")
        found[name] = _take(FIRST + place, name)
    return found


def _take(descriptor: int, name: str) -> socket.socket:
    try:
        sock = socket.socket(fileno=descriptor)
        fits = (sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and sock.type == socket.SOCK_STREAM
                and sock.family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX))
    except OSError as error:
        raise HandoverError(f"inherited {name} socket {descriptor} - {error.strerror}") from None
    if not fits:
        raise HandoverError(f"inherited {name} socket {descriptor} is no listening stream socket")
    sock.set_inheritable(False)
    sock.setblocking(False)
    return sock


def is_ours(pid: str) -> bool:
    """Whether a process number means this process.

    The executable of one file unpacks itself and runs the daemon as its child: the manager knows the parent.
    """
    return pid == str(os.getpid()) or (is_unpacked() and pid == str(os.getppid()))


def is_unpacked() -> bool:
    """Whether this process is the second one of the executable of one file."""
    folder = getattr(sys, "_MEIPASS", "")
    return os.path.basename(folder).startswith("_MEI")


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name) or "0"
    if not text.isdecimal():
        raise HandoverError(f"{name}={text} is no number")
    return int(text)
