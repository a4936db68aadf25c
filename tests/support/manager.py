"""A service manager for tests: receives a daemon's notifications and passes sockets to it."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from tests.support.patience import WAIT_SECONDS

# Becomes the command, with the sockets from descriptor 3 on and the right LISTEN_PID, as after a manager's fork.
LAUNCH = """
import fcntl, os, sys

given, command = sys.argv[1].split(","), sys.argv[2:]
copies = [fcntl.fcntl(int(number), fcntl.F_DUPFD_CLOEXEC, 100) for number in given if number]
for number in given:
    if number:
        os.close(int(number))
for place, number in enumerate(copies):
    os.dup2(number, 3 + place)
os.environ.setdefault("LISTEN_PID", str(os.getpid()))
os.execvp(command[0], command)
"""
SERVE = (sys.executable, "-m", "nsqc", "serve")


class Manager:
    """Has a notify socket, at a path or, where the address begins with @, under an abstract name."""

    def __init__(self, address: str):
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address[0] == "@" else address)

    def hear(self, seconds: float = WAIT_SECONDS) -> dict[str, str]:
        """The variables of the next notification. Raises TimeoutError."""
        self.socket.settimeout(seconds)
        return dict(line.split("=", 1) for line in self.socket.recv(1 << 16).decode().split("\n"))

    def hear_until(self, name: str) -> list[dict[str, str]]:
        """Notifications up to the first with that variable."""
        notifications = [self.hear()]
        while name not in notifications[-1]:
            notifications.append(self.hear())
        return notifications

    def close(self) -> None:
        self.socket.close()
        if self.address[0] != "@":
            Path(self.address).unlink()


def handed(sockets: list[socket.socket], names: str, command: tuple[str, ...] = SERVE, **variables: str) -> dict:
    """Arguments for the fixture `daemon`, to which the sockets are passed; names are separated by colons."""
    numbers = [sock.fileno() for sock in sockets]
    env = {**os.environ, "LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": names, **variables}
    return {"command": (sys.executable, "-c", LAUNCH, ",".join(map(str, numbers)), *command),
            "pass_fds": numbers, "env": env}


def listening() -> socket.socket:
    """A socket that listens on a free port of this machine."""
    return socket.create_server(("127.0.0.1", 0), backlog=1024)
