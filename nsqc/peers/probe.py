"""Identifies the service at an address whose answer is unexpected."""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

from nsqc.peers.dial import Caller, Dialer
from nsqc.wire.answers import MOST_BYTES, PROBE, Answer, Service, probed

LIMIT_S = 2.0       # for each of two connections


class _Asker(Caller):
    """Sends PROBE and collects the answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.received = bytearray()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.Transport | None = None

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(PROBE)

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) >= MOST_BYTES:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


async def probe(loop: asyncio.AbstractEventLoop, dialer: Dialer, address: str) -> Answer | None:
    """The service at HOST:PORT; None: unknown."""
    try:
        data = await _asked(loop, dialer, address, None)
        if data:
            return probed(data)
        # TLS servers may close a connection silently if it does not begin with a handshake.
        await _asked(loop, dialer, address, _any_certificate())
        return Answer(Service.TLS)
    except (OSError, ValueError):
        return None


async def _asked(loop: asyncio.AbstractEventLoop, dialer: Dialer, address: str, tls: ssl.SSLContext | None) -> bytes:
    """The answer to PROBE; empty if the connection ends without one. Raises OSError or ValueError if it cannot connect,
    TimeoutError if no answer arrives in time."""
    asker = await dialer.connect(lambda: _Asker(loop), address, LIMIT_S, tls)
    try:
        async with asyncio.timeout(LIMIT_S):
            await asker.ended
    except TimeoutError:
        if not asker.received:
            raise
    finally:
        asker.abort()
    return bytes(asker.received)


def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
