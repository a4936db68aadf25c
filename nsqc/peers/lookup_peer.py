"""One nsqlookupd: keeps the connection, registers all topics and channels, then every change, and pings."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from nsqc.log import Log
from nsqc.net.remote import join_address
from nsqc.options.declared import Settings
from nsqc.peers.dial import Dialer, seconds
from nsqc.peers.lookup_connection import ConnectionEnded, LookupConnection
from nsqc.peers.probe import probe
from nsqc.peers.tasks import reason_of
from nsqc.wire.answers import Answer, Service, recognized, wrong_port
from nsqc.wire.outside import Decoder, JSONError

PING = b"PING\n"
OK = b"OK"
PING_S = 15.0
# Between attempts to connect, seconds: doubled each time, never more than nsqd waits.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0
BATCH = 64  # commands sent before their replies are awaited
MAX_PENDING = 100_000  # changes; an nsqlookupd that lags more is registered with from scratch


class PeerInfo(msgspec.Struct, frozen=True, gc=False):
    """An nsqlookupd's answer to IDENTIFY."""

    tcp_port: int = 0
    http_port: int = 0
    version: str = ""
    broadcast_address: str = ""


_decode = Decoder(PeerInfo).decode


class LookupPeer:
    """The registration at one address, over any number of connections. run() is its one task.

    identity() builds the body of IDENTIFY. registrations() yields the commands that register everything, each built on
    demand: this keeps them in order with the changes sent meanwhile.
    """

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop, dialer: Dialer, settings: Settings, log: Log,
                 identity: Callable[[], bytes], registrations: Callable[[], Iterator[bytes]]):
        self.address = address
        self.info: PeerInfo | None = None   # the latest; kept between connections
        self.attempted = asyncio.Event()    # the first attempt to connect has succeeded or failed
        self._loop = loop
        self._dialer = dialer
        self._settings = settings
        self._log = log
        self._identity = identity
        self._registrations = registrations
        self._wakeup = asyncio.Event()      # a change is pending, or the connection has ended
        self._pending: deque[bytes] = deque()
        self._unregistered: Iterator[bytes] = iter(())  # the rest of registrations()
        self._follows = False               # changes are sent
        self._connection: LookupConnection | None = None
        self._was_asked = False             # probed since an nsqlookupd last answered
        self._found: Answer | None = None   # by the probe
        self._restarting = False            # the connection is closed on purpose, and reopened at once

    @property
    def http_address(self) -> str:
        """The address of its HTTP API; empty while unknown."""
        info = self.info
        if info is None or not info.broadcast_address or not 0 < info.http_port < 65536:
            return ""
        return join_address(info.broadcast_address, info.http_port)

    def notify(self, command: bytes, kind: str) -> None:
        """Sends a change. Not needed while disconnected: the next connection registers everything."""
        if not self._follows:
            return
        self._log.info("LOOKUPD(%s): %s %s", self.address, kind, _text(command))
        if len(self._pending) >= MAX_PENDING:
            self._follows = False
            self._pending.clear()
        else:
            self._pending.append(command)
        self._wakeup.set()

    def register_again(self) -> None:
        """Registers everything again, over the same connection."""
        if self._follows:
            self._unregistered = self._registrations()
            self._wakeup.set()

    def restart(self) -> None:
        """Closes the connection, and with it all registrations; the next one registers the topics then current."""
        self._unregistered = iter(())
        if self._connection is not None:
            self._restarting = True
            self._connection.abort()

    async def run(self) -> None:
        """Connects and registers, again after every disconnect, until cancelled."""
        pause = FIRST_PAUSE_S
        while True:
            start = self._loop.time()
            try:
                await self._session()
            except Exception as error:
                # Any error: without this task nothing would be registered there any more.
                if self._restarting:
                    self._restarting = False
                    continue
                self._log.error("LOOKUPD(%s): %s", self.address, reason_of(error))
            self.attempted.set()
            if self._loop.time() - start > PING_S:
                pause = FIRST_PAUSE_S
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _session(self) -> None:
        self._log.info("LOOKUP connecting to %s", self.address)
        limit_s = seconds(self._settings.now.http_client_connect_timeout)
        connection = await self._dialer.connect(lambda: LookupConnection(self._loop, self._wakeup.set), self.address,
                                                limit_s)
        self._connection = connection
        try:
            await self._identify(connection)
            self._unregistered = self._registrations()
            self._follows = True
            self.attempted.set()
            await self._register(connection)
        finally:
            self._connection = None
            self._follows = False
            self._pending.clear()
            self._unregistered = iter(())
            connection.close()

    async def _identify(self, connection: LookupConnection) -> None:
        body = self._identity()
        try:
            [reply] = await connection.ask([b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body], self._reply_limit_s())
            self.info = _decode(reply)
        except JSONError:
            await self._explain(connection)
            raise ConnectionEnded(f"it answered {_text(reply[:200])!r} to IDENTIFY") from None
        except ConnectionEnded:
            await self._explain(connection)
            raise
        self._was_asked = False
        self._log.info("LOOKUPD(%s): peer info %s", self.address, self.info)
        if not self.http_address:
            self._log.error("LOOKUPD(%s): no broadcast address, or no HTTP port", self.address)

    async def _explain(self, connection: LookupConnection) -> None:
        """Raises ConnectionEnded if another service listens at the address. Probes it once until an nsqlookupd
        answers."""
        self.attempted.set()    # new topics do not wait for the probe
        found = recognized(connection.first)
        if found is None or found.service is Service.HTTP:
            if not self._was_asked:
                self._was_asked, self._found = True, await probe(self._loop, self._dialer, self.address)
            found = self._found or found
        if found is not None and found.service is not Service.LOOKUPD_TCP:
            raise ConnectionEnded(wrong_port(found, Service.LOOKUPD_TCP))

    async def _register(self, connection: LookupConnection) -> None:
        """Registers everything, then sends changes and pings, until the connection ends."""
        ping_due = self._loop.time() + PING_S
        while self._follows:
            self._pending.extend(islice(self._unregistered, max(0, BATCH - len(self._pending))))
            if not self._pending:
                await self._wait_for_change(ping_due)
            self._wakeup.clear()
            if self._loop.time() >= ping_due:
                self._log.debug("LOOKUPD(%s): sending heartbeat", self.address)
                ping_due = self._loop.time() + PING_S
                commands = [PING]
            else:
                commands = [self._pending.popleft() for _ in range(min(BATCH, len(self._pending)))]
            # If the connection has ended, ask() raises the reason, also without commands.
            if commands or connection.end:
                self._log_errors(commands, await connection.ask(commands, self._reply_limit_s()))
        raise ConnectionEnded(f"it lags by more than {MAX_PENDING} changes")

    async def _wait_for_change(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._wakeup.wait()
        except TimeoutError:
            return

    def _log_errors(self, commands: list[bytes], replies: list[bytes]) -> None:
        for command, reply in zip(commands, replies, strict=True):
            if reply != OK:
                self._log.error("LOOKUPD(%s): %s - %s", self.address, _text(command), _text(reply[:200]))

    def _reply_limit_s(self) -> float:
        """Timeout for replies, seconds: the next commands must not wait longer than a ping may."""
        return min(seconds(self._settings.now.http_client_request_timeout) or PING_S, PING_S)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").strip()
