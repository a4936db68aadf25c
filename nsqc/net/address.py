"""Listening sockets for addresses in nsqd's form: `HOST:PORT`, or the path of a unix socket."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat

# ====================================================================== remote
# Remote addresses as operators write them: HOST:PORT or [HOST]:PORT.

def split_address(address: str) -> tuple[str, int]:
    """Host and port; an empty host means this machine. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon:
        raise ValueError(f"address {address}: missing port in address")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"address {address}: invalid port")
    if "/" in host or any(map(str.isspace, host)):
        raise ValueError(f"address {address}: invalid host")
    return host.removeprefix("[").removesuffix("]") or "localhost", int(port)


def join_address(host: str, port: int) -> str:
    """HOST:PORT, or [HOST]:PORT for an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ====================================================================== address

KEEPALIVE_S = 15  # of silence before a probe, and between probes
_WILDCARDS = ("", "0.0.0.0", "::")


def is_unix(address: str) -> bool:
    """Whether the address is a path rather than HOST:PORT."""
    return _split(address) is None


def bind(address: str) -> socket.socket:
    """Returns a bound socket that is not listening yet. Raises OSError or ValueError.

    The wildcard host means both address families if the system has them. A dead process's unix socket is replaced,
    a live one is not.
    """
    parts = _split(address)
    if parts is None:
        return _bind_unix(address)
    host, port = parts
    if host in _WILDCARDS and socket.has_dualstack_ipv6():
        return _bind_inet(socket.AF_INET6, ("::", port), dual=True)
    name = host or "0.0.0.0"
    # As bytes, ASCII names bypass the IDNA codec, whose large tables need not be loaded.
    family, _, _, _, address_info = socket.getaddrinfo(
        name.encode() if name.isascii() else name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return _bind_inet(family, address_info)


def prepare(sock: socket.socket) -> None:
    """Enables keep-alive probes at Go's intervals on a listening socket; on Linux its connections inherit them.

    Without them a client whose machine or network has gone would stay connected forever.
    """
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        sock.setsockopt(socket.IPPROTO_TCP, option, KEEPALIVE_S)


def address_text(sock: socket.socket) -> str:
    """A bound socket's address: HOST:PORT, [HOST]:PORT or the path."""
    return peer_text(sock.getsockname())


def peer_text(name: object) -> str:
    """Formats an address returned by socket calls; an unnamed unix client is @."""
    if isinstance(name, tuple):
        host, port = name[:2]
        if host.startswith("::ffff:") and "." in host:
            host = host[7:]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(name, bytes):
        name = name.decode("utf-8", "backslashreplace")
    return str(name) if name else "@"


def is_loopback(address: str) -> bool:
    """Whether an address, a client's or a listener's HOST:PORT, is reachable only from this machine."""
    host = address.rpartition(":")[0].strip("[]") if address.count(":") == 1 or address.startswith("[") else address
    return host.startswith("127.") or host in ("::1", "localhost")


def port_of(sock: socket.socket) -> int:
    """A bound socket's port; -1 for a unix socket."""
    name = sock.getsockname()
    return int(name[1]) if isinstance(name, tuple) else -1


def remove(sock: socket.socket, path: str) -> None:
    """Removes a unix socket's file before its listener closes."""
    with contextlib.suppress(OSError):
        if sock.getsockname() == path:
            os.unlink(path)


def _split(address: str) -> tuple[str, int] | None:
    """Host and port; None: a path. Raises ValueError: the port is invalid or missing."""
    host, colon, port = address.rpartition(":")
    if _is_host(address):
        # Most likely not meant as a file name; write ./localhost for one.
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
    """Whether this is only a host or only a port."""
    bare = address.removeprefix("[").removesuffix("]")
    if bare == "localhost" or bare.isdecimal():
        return True
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, ValueError):
            socket.inet_pton(family, bare)
            return True
    return False


def _bind_inet(family: int, address: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes],
               dual: bool = False) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        sock.bind(address)
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
    """Whether no process listens on a socket file."""
    if not stat.S_ISSOCK(os.stat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # Non-blocking: a live server with a full backlog must not block the daemon.
        probe.setblocking(False)
        return probe.connect_ex(path) == errno.ECONNREFUSED
