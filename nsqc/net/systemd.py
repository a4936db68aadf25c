"""Listening sockets inherited from a service manager: sd_listen_fds(3), three environment variables."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, MutableMapping

from nsqc.process.machine import EnvironmentVariableError, is_ours, number

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
