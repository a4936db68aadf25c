"""Outgoing connections: HOST:PORT as operators write it, names resolved on threads, everything within a time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

# Family and socket address, as the socket calls take them.
Place = tuple[int, tuple[Any, ...]]


class Caller(Protocol):
    """An asyncio protocol that can be given up at any time, connected or not."""

    def abort(self) -> None:
        """Closes the connection at once."""


C = TypeVar("C", bound=Caller)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or [HOST]:PORT; no host is this machine. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if not colon:
        raise ValueError(f"address {address}: missing port in address")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"address {address}: invalid port")
    if "/" in host or any(map(str.isspace, host)):
        raise ValueError(f"address {address}: invalid host")
    return host.removeprefix("[").removesuffix("]") or "localhost", int(port)


def join_address(host: str, port: int) -> str:
    """HOST:PORT, or [HOST]:PORT for an address with colons."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def seconds(nanoseconds: int) -> float | None:
    """A time-out option as asyncio takes it; 0 stands for no limit."""
    return nanoseconds / 1e9 or None


class Dialer:
    """Resolves and connects. One for all peers of a daemon.

    Names are resolved on threads of their own that a stop does not wait for. A name that is being resolved is not asked
    for again, so a resolver that hangs costs a thread for each name, however often the name is needed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._asked: dict[tuple[str, int, int], asyncio.Future[list[Place]]] = {}

    async def resolve(self, address: str, kind: int) -> list[Place]:
        """Where the address lies, at least one place; kind is SOCK_STREAM or SOCK_DGRAM. Raises OSError, ValueError."""
        key = (*split_address(address), kind)
        with contextlib.suppress(socket.gaierror):
            return _places(*key, socket.AI_NUMERICHOST)
        asked = self._asked.get(key)
        if asked is None:
            asked = self._asked[key] = self._loop.create_future()
            threading.Thread(target=self._ask, args=(key, asked), name="nsqc-resolver", daemon=True).start()
        # Whoever gives up leaves the question to those who ask next.
        return await asyncio.shield(asked)

    async def connect(self, make: Callable[[], C], address: str, limit_s: float | None,
                      tls: ssl.SSLContext | None = None) -> C:
        """A connected protocol: the first place of the address that answers, and with tls proves to be its host.

        Raises OSError (TimeoutError among them), ValueError.
        """
        name = split_address(address)[0] if tls else None
        deadline = None if limit_s is None else self._loop.time() + limit_s
        async with asyncio.timeout_at(deadline):
            places = await self.resolve(address, socket.SOCK_STREAM)
        error: OSError | None = None
        for left in range(len(places), 0, -1):
            family, where = places[-left]
            # A place that swallows packets may use up its share of the time, not that of the others.
            share = None if deadline is None else max(0.0, deadline - self._loop.time()) / left
            try:
                return await self._connect(make, family, where, share, tls, name)
            except OSError as failed:
                error = failed
        raise error or OSError(f"no address for {address}")

    async def _connect(self, make: Callable[[], C], family: int, where: tuple[Any, ...], limit_s: float | None,
                       tls: ssl.SSLContext | None, name: str | None) -> C:
        protocol = make()
        try:
            async with asyncio.timeout(limit_s):
                await self._loop.create_connection(lambda: protocol, where[0], where[1], family=family, ssl=tls,
                                                   server_hostname=name)
        except BaseException:
            protocol.abort()
            raise
        return protocol

    # ------------------------------------------------------------------ names

    def _ask(self, key: tuple[str, int, int], asked: asyncio.Future[list[Place]]) -> None:
        """Runs on a thread."""
        try:
            outcome: Any = _places(*key)
        except (OSError, UnicodeError) as error:
            outcome = error
        # The loop may have ended meanwhile.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._answer, key, asked, outcome)

    def _answer(self, key: tuple[str, int, int], asked: asyncio.Future[list[Place]], outcome: Any) -> None:
        del self._asked[key]
        if isinstance(outcome, list):
            asked.set_result(outcome)
        else:
            asked.set_exception(outcome)
            # Perhaps nobody waits any more.
            asked.exception()


def _places(host: str, port: int, kind: int, flags: int = 0) -> list[Place]:
    return [(family, where) for family, _, _, _, where in socket.getaddrinfo(host, port, type=kind, flags=flags)]
