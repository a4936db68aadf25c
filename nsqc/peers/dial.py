"""Outgoing connections: names are resolved on threads, and everything has a timeout."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import TypeVar, cast

from nsqc.net.remote import split_address

SocketAddress = tuple[str, int] | tuple[str, int, int, int]
Endpoint = tuple[int, SocketAddress]  # address family and socket address, as socket calls take them


class Caller(asyncio.Protocol):
    """An asyncio protocol that can be aborted at any time, connected or not."""

    def abort(self) -> None:
        """Closes the connection at once."""
        raise NotImplementedError


C = TypeVar("C", bound=Caller)


def seconds(nanoseconds: int) -> float | None:
    """Converts a timeout option for asyncio; 0 means no limit."""
    return nanoseconds / 1e9 or None


class Dialer:
    """Resolves names and connects, for all peers of a daemon.

    Names are resolved on daemon threads, which a shutdown does not wait for. Concurrent lookups of one name are
    merged, so a hanging resolver costs one thread per name.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop = loop
        self._lookups: dict[tuple[str, int, int], asyncio.Future[list[Endpoint]]] = {}

    async def resolve(self, address: str, kind: int) -> list[Endpoint]:
        """The endpoints of an address, at least one; kind is SOCK_STREAM or SOCK_DGRAM. Raises OSError, ValueError."""
        key = (*split_address(address), kind)
        with contextlib.suppress(socket.gaierror):
            return _endpoints(*key, socket.AI_NUMERICHOST)
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = self._loop.create_future()
            threading.Thread(target=self._look_up, args=(key, lookup), name="nsqc-resolver", daemon=True).start()
        # A caller that gives up must not cancel the lookup for the others.
        return await asyncio.shield(lookup)

    async def connect(self, make: Callable[[], C], address: str, limit_s: float | None,
                      tls: ssl.SSLContext | None = None, refuse: Callable[[str], str] | None = None) -> C:
        """Connects to the first endpoint that answers and, with tls, proves to be the address's host. refuse: returns
        the reason not to connect to an IP address, if there is one.

        Raises OSError (TimeoutError among them), ValueError.
        """
        name = split_address(address)[0] if tls else None
        deadline = None if limit_s is None else self._loop.time() + limit_s
        async with asyncio.timeout_at(deadline):
            endpoints = await self.resolve(address, socket.SOCK_STREAM)
        error: OSError | None = None
        if refuse is not None:
            reasons = [refuse(place[0]) for _, place in endpoints]
            endpoints = [endpoint for endpoint, reason in zip(endpoints, reasons, strict=True) if not reason]
            error = None if endpoints else OSError(reasons[0])
        for left in range(len(endpoints), 0, -1):
            # An endpoint that drops packets may use up its own share of the time, but not the others'.
            share = None if deadline is None else max(0.0, deadline - self._loop.time()) / left
            try:
                return await self._connect(make, endpoints[-left], share, tls, name)
            except OSError as failure:
                error = failure
        raise error or OSError(f"no address for {address}")

    async def _connect(self, make: Callable[[], C], endpoint: Endpoint, limit_s: float | None,
                       tls: ssl.SSLContext | None, name: str | None) -> C:
        family, address = endpoint
        protocol = make()
        try:
            async with asyncio.timeout(limit_s):
                await self._loop.create_connection(lambda: protocol, address[0], address[1], family=family, ssl=tls,
                                                   server_hostname=name)
        except BaseException:
            protocol.abort()
            raise
        return protocol

    # ------------------------------------------------------------------ names

    def _look_up(self, key: tuple[str, int, int], lookup: asyncio.Future[list[Endpoint]]) -> None:
        """Runs on a thread."""
        result: list[Endpoint] | Exception
        try:
            result = _endpoints(*key)
        except Exception as error:  # any error: unsettled, the name would never be resolved again
            result = error
        # The loop may be closed by now.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, key, lookup, result)

    def _settle(self, key: tuple[str, int, int], lookup: asyncio.Future[list[Endpoint]],
                result: list[Endpoint] | Exception) -> None:
        del self._lookups[key]
        if isinstance(result, list):
            lookup.set_result(result)
        else:
            lookup.set_exception(result)
            # Marks it as retrieved: the waiters may be gone.
            lookup.exception()


def _endpoints(host: str, port: int, kind: int, flags: int = 0) -> list[Endpoint]:
    # Only a Python without IPv6 has addresses of another shape.
    return [(family, cast("SocketAddress", address))
            for family, _, _, _, address in socket.getaddrinfo(host, port, type=kind, flags=flags)]
