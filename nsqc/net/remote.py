"""Remote addresses as operators write them: HOST:PORT or [HOST]:PORT."""

from __future__ import annotations


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
