"""Listening sockets for addresses as nsqd takes them: `HOST:PORT`, or else the path of a unix socket."""

import contextlib
import errno
import os
import socket
import stat
from typing import Any

KEEPALIVE_S = 15  # after that much silence, and from one probe to the next
_WILDCARDS = ("", "0.0.0.0", "::")


def is_unix(address: str) -> bool:
    """Whether the address is a path rather than HOST:PORT."""
    return _split(address) is None


def bind(address: str) -> socket.socket:
    """A socket bound to the address, not yet listening; OSError or ValueError says why not.

    The wildcard host takes both address families where the system has them. A unix socket that a dead process left
    behind is replaced, a live one is not.
    """
    parts = _split(address)
    if parts is None:
        return _bind_unix(address)
    host, port = parts
    if host in _WILDCARDS and socket.has_dualstack_ipv6():
        return _bind_inet(socket.AF_INET6, ("::", port), dual=True)
    name = host or "0.0.0.0"
    # As bytes, plain names pass by the codec for international ones, whose tables would be read for nothing.
    family, _, _, _, where = socket.getaddrinfo(
        name.encode() if name.isascii() else name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return _bind_inet(family, where)


def prepare(sock: socket.socket) -> None:
    """Has the clients of a listening socket probed while they are silent, at Go's pace: they inherit it on Linux.

    Otherwise one whose machine or network has gone would stay for ever.
    """
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        sock.setsockopt(socket.IPPROTO_TCP, option, KEEPALIVE_S)


def address_text(sock: Any) -> str:
    """Where a bound socket listens: HOST:PORT, [HOST]:PORT or the path."""
    return peer_text(sock.getsockname())


def peer_text(name: Any) -> str:
    """The text of an address as the socket calls return it; an unnamed unix client is @."""
    if isinstance(name, tuple):
        host, port = name[:2]
        if host.startswith("::ffff:") and "." in host:
            host = host[7:]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(name, bytes):
        name = name.decode("utf-8", "backslashreplace")
    return name or "@"


def port_of(sock: Any) -> int:
    """The port a socket is bound to; -1 for a unix socket."""
    name = sock.getsockname()
    return name[1] if isinstance(name, tuple) else -1


def remove(sock: Any, path: str) -> None:
    """Takes a unix socket's file away when its listener is about to close."""
    with contextlib.suppress(OSError):
        if sock.getsockname() == path:
            os.unlink(path)


def _split(address: str) -> tuple[str, int] | None:
    """Host and port; None: a path. ValueError: a port that is none, or no port."""
    host, colon, port = address.rpartition(":")
    if _is_host(address):
        # Nobody means a file of that name; ./localhost is one.
        raise ValueError(f"address {address}: missing port in address")
    if not colon or "/" in address:
        return None
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"address {address}: invalid port")
    return host, int(port)


def _is_host(address: str) -> bool:
    """Whether this names a host, or a port, and nothing else."""
    bare = address.removeprefix("[").removesuffix("]")
    if bare == "localhost" or bare.isdecimal():
        return True
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, bare)
            return True
    return False


def _bind_inet(family: int, where: Any, dual: bool = False) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        sock.bind(where)
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _bind_unix(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            sock.bind(path)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not _is_left_over(path):
                raise
            os.unlink(path)
            sock.bind(path)
    except BaseException:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _is_left_over(path: str) -> bool:
    """Whether a socket file has nobody who listens."""
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # Non-blocking: a live server with a full backlog must not hold us.
        probe.setblocking(False)
        return probe.connect_ex(path) == errno.ECONNREFUSED
