"""Addresses of nsqd: HOST:PORT, or the path of a unix socket."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable

from nsqc.client.errors import BadAddress

HOST = re.compile(r"[^\s,;/@\[\]:]+")


def split_address(address: str, usual: int = 4150) -> tuple[str, int]:
    """Host and port of HOST:PORT or [IPv6]:PORT. usual: the port in an error. Raises BadAddress."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not (colon and is_host(host) and port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise BadAddress(f"{address!r} is not HOST:PORT{hint(address, usual)}")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """HOST:PORT or [IPv6]:PORT."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def checked_address(address: str, port: int = 4150) -> str:
    """The address, if it is HOST:PORT or a unix socket's path. port: the default one, for errors. Raises BadAddress,
    TypeError."""
    if not isinstance(address, str):
        raise TypeError(f"an address is HOST:PORT, a str, not {type(address).__name__}")
    if not is_path(address):
        split_address(address, port)
    return address


def checked_addresses(addresses: str | Iterable[str]) -> list[str]:
    """One address or several, as a list. Raises BadAddress, TypeError."""
    return [checked_address(address) for address in ([addresses] if isinstance(addresses, str) else addresses)]


def is_path(address: str) -> bool:
    """Whether an address is a unix socket's path: HOST:PORT has no slash."""
    return "/" in address and "://" not in address and "\0" not in address


def is_host(host: str) -> bool:
    """Whether a text can be a host name or address; only IPv6 addresses have colons."""
    if ":" not in host:
        return HOST.fullmatch(host) is not None
    try:
        socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        return False
    return True


def hint(address: str, usual: int) -> str:
    """The likely mistake in a bad address."""
    if "://" in address:
        return ": omit the scheme"
    if "," in address:
        return ": pass several addresses as a list"
    if ":" not in address:
        return f": its port is missing, such as {address or 'localhost'}:{usual}"
    return ""
