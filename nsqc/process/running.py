"""A server's process while it runs: its event loop from the first iteration to the last, the service manager that is
notified, and SIGHUP.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, MutableMapping
from typing import TypeAlias

import uvloop

from nsqc.log import Log
from nsqc.loop.slow import SlowLoop
from nsqc.process.machine import EnvironmentVariableError, is_ours, number
from nsqc.process.uncaught import Uncaught

# ====================================================================== running
# Runs a server's process: its event loop from the first iteration to the last.

# Startup, main loop and shutdown of a server; returns the exit code.
Serve: TypeAlias = Callable[[asyncio.AbstractEventLoop, SlowLoop], Coroutine[None, None, int]]
SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def run(name: str, log: Log, serve: Serve) -> int:
    """Runs a server until it stops. Returns its exit code, 1 if it fails."""
    # Modules are never freed: keep them out of the first collection, which may run when clients are already connected.
    gc.disable()
    gc.freeze()
    uncaught = Uncaught(log)
    uncaught.install()
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(uncaught.in_loop)
    slow = SlowLoop(loop, log)
    try:
        return loop.run_until_complete(serve(loop, slow))
    except Exception as error:
        uncaught.report(f"the {name} fails", error)
        return 1
    finally:
        # The loop removes its handlers; from here to the end of the process no signal may change the exit code.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        slow.close()
        loop.close()


# ====================================================================== notify
# Notifies a service manager: sd_notify(3), datagrams of lines. Does nothing without a manager.

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


# ====================================================================== terminal
# The terminal that the daemon was started in, and its end.

NAME = "/dev/tty"  # this process's controlling terminal
JUST_S = 5.0  # a SIGHUP this soon after the terminal closed is caused by that


class Terminal:
    """Knows whether the terminal has just closed; there may be no terminal at all.

    SIGHUP means either a closed terminal or a request to read files again, without saying which. For a daemon in the
    background of a terminal closed long ago it means the latter.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._closed_at: float | None = None
        self._terminal = -1
        self._epoll: select.epoll | None = None
        with contextlib.suppress(OSError):
            self._terminal = os.open(NAME, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._epoll = select.epoll()
            # Its end is always reported; input does not matter.
            self._epoll.register(self._terminal, 0)
            loop.add_reader(self._epoll.fileno(), self._ended)

    def has_just_closed(self) -> bool:
        """Whether the terminal closed in the last few seconds."""
        if self._epoll is not None and self._epoll.poll(0):
            self._ended()
        return self._closed_at is not None and self._loop.time() - self._closed_at < JUST_S

    def close(self) -> None:
        """Stops watching."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1

    def _ended(self) -> None:
        self._closed_at = self._loop.time()
        self.close()


# ====================================================================== hangup
# SIGHUP.

class Hangup:
    """Handles SIGHUP: defers it until begin(), which makes up for an earlier signal, and ignores it after end().

    Under nohup SIGHUP is ignored from the start, and stays ignored unless it means reading files again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._action: Callable[[], None] | None = None
        self._terminal: Terminal | None = None
        self._missed = False
        self._nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        loop.add_signal_handler(signal.SIGHUP, self._received)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])

    def begin(self, stop: Callable[[], None], reload: Callable[[], None] | None) -> None:
        """From now on a signal reads files again, or stops the server if its terminal has just closed. Without a
        reload, as there are no such files, it stops the server, but not under nohup."""
        if reload is None:
            self._action = None if self._nohup else stop
        else:
            # Under nohup the server survives its terminal.
            terminal = self._terminal = None if self._nohup else Terminal(self._loop)
            self._action = lambda: stop() if terminal and terminal.has_just_closed() else reload()
        if self._missed:
            self._received()

    def end(self) -> None:
        """Ignores the signal from now on."""
        self._action = None
        if self._terminal is not None:
            self._terminal.close()

    def _received(self) -> None:
        self._missed = True
        if self._action is not None:
            self._action()


# ====================================================================== inherited
# Listening sockets inherited from a service manager: sd_listen_fds(3), three environment variables.

FIRST = 3  # the first inherited descriptor
NAMES = ("tcp", "http", "https")  # of the daemon's
LOOKUPD_NAMES = ("tcp", "http")  # of the lookup server's
ADMIN_NAMES = ("http",)  # of the admin server's
VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")


class InheritError(Exception):
    """The variables or the sockets cannot be used; the text is one line for the operator."""


def inherited(environ: MutableMapping[str, str] = os.environ, known: Collection[str] = NAMES
              ) -> dict[str, socket.socket]:
    """Inherited listening sockets by name. Removes the variables: they are meant for one process.

    known: the allowed names. Raises InheritError for a missing or duplicate name, or a descriptor that is not a
    listening socket.
    """
    variables = {name: environ.pop(name, "") for name in VARIABLES}
    if not is_ours(variables["LISTEN_PID"]):
        return {}
    try:
        count = number(variables, "LISTEN_FDS")
    except EnvironmentVariableError as error:
        raise InheritError(str(error)) from None
    names = variables["LISTEN_FDNAMES"].split(":") if variables["LISTEN_FDNAMES"] else []
    sockets: dict[str, socket.socket] = {}
    for index in range(count):
        name = names[index] if index < len(names) else ""
        if name not in known:
            raise InheritError(f"inherited socket {FIRST + index} is named {name!r}, not one of {', '.join(known)} "
                               "(FileDescriptorName= in its unit)")
        if name in sockets:
            raise InheritError(f"two inherited sockets are named {name}")
        sockets[name] = _socket(FIRST + index, name)
    return sockets


def _socket(descriptor: int, name: str) -> socket.socket:
    try:
        sock = socket.socket(fileno=descriptor)
        fits = (sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and sock.type == socket.SOCK_STREAM
                and sock.family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX))
    except OSError as error:
        raise InheritError(f"inherited {name} socket {descriptor} - {error.strerror}") from None
    if not fits:
        raise InheritError(f"inherited {name} socket {descriptor} is not a listening stream socket")
    sock.set_inheritable(False)
    sock.setblocking(False)
    return sock
