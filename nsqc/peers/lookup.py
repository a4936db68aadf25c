"""All nsqlookupds of a daemon: keeps the configured ones connected, and registers every topic and channel."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypedDict, cast

import msgspec

from nsqc import NSQD_VERSION
from nsqc.broker.broker import CHANNEL_CREATED, CHANNEL_DELETED, TOPIC_CREATED, TOPIC_DELETED, Broker
from nsqc.broker.channel import Channel
from nsqc.broker.topic import Topic
from nsqc.log import Log
from nsqc.net.address import join_address, split_address
from nsqc.options.declared import Options, Settings
from nsqc.peers.http import Caller, Dialer, reason_of, seconds, spawn
from nsqc.wire.outside import MOST_BYTES, PROBE, Answer, Decoder, JSONError, Service, probed, recognized, wrong_port

# ====================================================================== node
# The description of this daemon for its peers.

class NodeInfo(TypedDict):
    """The host and ports it listens on: -1 for a unix socket, 0 without a listener."""

    hostname: str
    tcp_port: int
    http_port: int


# ====================================================================== probe
# Identifies the service at an address whose answer is unexpected.

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


# ====================================================================== lookup connection
# The connection to an nsqlookupd: commands out, replies in.
#
# Bytes: the magic, then commands that end with a newline; IDENTIFY has a body after its 4-byte length. Replies come in
# the order of the commands, each a 4-byte length and its bytes: OK, an error that begins with E_, or JSON for
# IDENTIFY.

MAGIC = b"  V1"
MAX_REPLY = 64 * 1024  # bytes
FIRST_BYTES = 64


class ConnectionEnded(Exception):
    """The connection is no longer usable."""


class LookupConnection(Caller):
    """One connection. on_lost() is called when it has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[], None]):
        self.end = ""               # why it ended; empty: still open
        self.first = b""            # first received bytes, which identify the service
        self._loop = loop
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._unparsed = bytearray()
        self._replies: list[bytes] = []
        self._missing = 0           # outstanding replies
        self._answered: asyncio.Future[list[bytes]] | None = None

    async def ask(self, commands: list[bytes], limit_s: float) -> list[bytes]:
        """Sends commands; returns their replies. Raises TimeoutError or ConnectionEnded, after which it is unusable."""
        if self.end:
            raise ConnectionEnded(self.end)
        assert self._transport is not None, "nobody asks before it is connected"
        self._missing, self._replies = len(commands), []
        self._answered = self._loop.create_future()
        self._transport.write(b"".join(commands))
        try:
            async with asyncio.timeout(limit_s):
                return await self._answered
        finally:
            self._missing = 0

    def close(self) -> None:
        """Closes; immediately if the other side does not read."""
        if self._transport is not None and self._transport.get_write_buffer_size() == 0:
            self._transport.close()
        else:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------ called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(MAGIC)

    def data_received(self, data: bytes) -> None:
        if len(self.first) < FIRST_BYTES:
            self.first += data[:FIRST_BYTES]
        self._unparsed += data
        at, end = 0, len(self._unparsed)
        while end - at >= 4:
            # Read as unsigned, so a negative length is refused as too large.
            size = int.from_bytes(self._unparsed[at:at + 4], "big")
            if size > MAX_REPLY:
                self._fail(f"reply of {size} bytes is larger than {MAX_REPLY}")
                return
            if end - at - 4 < size:
                break
            if not self._accept(bytes(self._unparsed[at + 4:at + 4 + size])):
                return
            at += 4 + size
        del self._unparsed[:at]

    def _accept(self, reply: bytes) -> bool:
        if self._missing == 0:
            self._fail("a reply without a command")
            return False
        self._replies.append(reply)
        self._missing -= 1
        if self._missing == 0 and self._answered is not None and not self._answered.done():
            self._answered.set_result(self._replies)
        return True

    def _fail(self, reason: str) -> None:
        self.end = reason
        self._unparsed.clear()
        self.abort()
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(ConnectionEnded(reason))
            # Marks it as retrieved: the caller may have given up.
            self._answered.exception()
        self._on_lost()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.end:
            self._fail(f"connection closed{f' - {error}' if error else ''}")


# ====================================================================== lookup peer
# One nsqlookupd: keeps the connection, registers all topics and channels, then every change, and pings.

PING = b"PING\n"
OK = b"OK"
PING_S = 15.0
# Between attempts to connect, seconds: doubled each time, never more than nsqd waits.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0
AUTHORITY_HINT = "give the authority of its certificate by --lookupd-root-ca-file"
TLS_SCHEME = "tls://"
NO_PORT = ("; it lists only nodes with an HTTP port: give --http-address; with --tls-required that port only names the"
           " HTTPS port")
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
        self.address = address              # as in the option
        self.place = address.removeprefix(TLS_SCHEME)       # HOST:PORT
        self.speaks_tls = self.place != address
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
        """The address of its HTTP API, or HTTPS if it speaks TLS; empty while unknown. A certificate is for the
        configured host."""
        info = self.info
        host = split_address(self.place)[0] if self.speaks_tls else "" if info is None else info.broadcast_address
        return "" if info is None or not host or not 0 < info.http_port < 65536 else join_address(host, info.http_port)

    async def tls(self) -> ssl.SSLContext | None:
        """The context for its connections: reads the authorities anew, on a thread. Raises OSError."""
        if not self.speaks_tls:
            return None
        path = self._settings.now.lookupd_root_ca_file
        try:
            return await asyncio.to_thread(ssl.create_default_context, cafile=path or None)
        except OSError as error:
            raise OSError(f"--lookupd-root-ca-file: {path}: {error.strerror or error}") from None

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
                # Any error: without this task registrations there would stop.
                if self._restarting:
                    self._restarting = False
                    continue
                self._log.error("LOOKUPD(%s): %s", self.address, reason_of(error, AUTHORITY_HINT))
            self.attempted.set()
            if self._loop.time() - start > PING_S:
                pause = FIRST_PAUSE_S
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _session(self) -> None:
        self._log.info("LOOKUP connecting to %s", self.address)
        limit_s = seconds(self._settings.now.http_client_connect_timeout)
        connection = await self._dialer.connect(lambda: LookupConnection(self._loop, self._wakeup.set), self.place,
                                                limit_s, await self.tls())
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
            more = NO_PORT if reply.endswith(b"missing fields") else ""
            raise ConnectionEnded(f"it answered {_text(reply[:200])!r} to IDENTIFY{more}") from None
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
                self._was_asked, self._found = True, await probe(self._loop, self._dialer, self.place)
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


# ====================================================================== lookup

_VERBS = {TOPIC_CREATED: b"REGISTER", CHANNEL_CREATED: b"REGISTER",
          TOPIC_DELETED: b"UNREGISTER", CHANNEL_DELETED: b"UNREGISTER"}


class Lookup:
    """The registration of a daemon with its nsqlookupds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dialer: Dialer, broker: Broker, settings: Settings,
                 info: NodeInfo, log: Log):
        self.peers: dict[str, LookupPeer] = {}
        self._loop = loop
        self._dialer = dialer
        self._broker = broker
        self._settings = settings
        self._info = info       # read at each IDENTIFY
        self._log = log
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing = False
        self._draining = False

    def update(self, options: Options) -> None:
        """Connects to new addresses and disconnects from removed ones. A listener of the settings."""
        if self._closing:
            return
        configured = options.lookupd_tcp_address
        for address in [known for known in self.peers if known not in configured]:
            self._log.info("LOOKUP(%s): removing peer", address)
            del self.peers[address]
            self._tasks.pop(address).cancel()
        for address in configured:
            if address not in self.peers:
                self._log.info("LOOKUP(%s): adding peer", address)
                peer = LookupPeer(address, self._loop, self._dialer, self._settings, self._log, self._identity,
                                  self._registrations)
                self.peers[address] = peer
                self._tasks[address] = spawn(self._loop, peer.run(), self._log)

    def on_event(self, event: str, topic: Topic, channel: Channel | None) -> None:
        """A listener of the broker."""
        if self.peers and not self._draining:
            command = _command(_VERBS[event], topic, channel)
            kind = "topic" if channel is None else "channel"
            for peer in self.peers.values():
                peer.notify(command, kind)

    def drain(self, draining: bool) -> None:
        """Whether the daemon is draining.

        An nsqlookupd forgets all registrations of a closed connection, at once and for any number of topics. The next
        connection registers none, so the node stays listed, without topics.
        """
        if draining == self._draining:
            return
        self._draining = draining
        for peer in self.peers.values():
            if draining:
                peer.restart()
            else:
                peer.register_again()

    async def close(self) -> None:
        """Closes all connections."""
        self._closing = True
        if self._tasks:
            self._log.info("LOOKUP: closing")
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    # ------------------------------------------------------------------ called by peers

    def _identity(self) -> bytes:
        options = self._settings.now
        return msgspec.json.encode({
            "broadcast_address": options.broadcast_address,
            "hostname": self._info["hostname"],
            # The port of a unix socket is -1 here and 0 in the protocol.
            "http_port": options.broadcast_http_port or max(0, self._info["http_port"]),
            "tcp_port": options.broadcast_tcp_port or max(0, self._info["tcp_port"]),
            "version": NSQD_VERSION,
            **options.topology,
        })

    def _registrations(self) -> Iterator[bytes]:
        """Registering a channel registers its topic, too. Topics and channels deleted meanwhile are skipped."""
        if self._draining:
            return
        for topic in list(self._broker.topics.values()):
            if not topic.exiting and not topic.channels:
                yield _command(b"REGISTER", topic, None)
            for channel in list(topic.channels.values()):
                if not topic.exiting and not channel.exiting:
                    yield _command(b"REGISTER", topic, channel)


def _command(verb: bytes, topic: Topic, channel: Channel | None) -> bytes:
    names = [topic.name] if channel is None else [topic.name, channel.name]
    return b" ".join([verb, *names]) + b"\n"
