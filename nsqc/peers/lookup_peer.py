"""One nsqlookupd: kept connected, told what there is and what changes, pinged.

Bytes: the magic, then commands that end with a newline; IDENTIFY has a body behind its 4-byte length. Every command is
answered in its turn by a 4-byte length and that many bytes: OK, an error that begins with E_, or, for IDENTIFY, JSON.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec

from nsqc.peers.dial import Dialer, join_address, seconds

MAGIC = b"  V1"
PING = b"PING\n"
OK = b"OK"
PING_S = 15.0
# Between attempts to connect, seconds: doubled each time, never more than the original waits.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0
MAX_REPLY = 64 * 1024  # bytes
AT_ONCE = 64  # commands sent before their replies are waited for
MAX_WAITING = 100_000  # changes; a lookupd that falls further behind begins anew


class TalkError(Exception):
    """The conversation cannot go on."""


class PeerInfo(msgspec.Struct, frozen=True, gc=False):
    """What an nsqlookupd tells of itself."""

    tcp_port: int = 0
    http_port: int = 0
    version: str = ""
    broadcast_address: str = ""


class Conversation(asyncio.Protocol):
    """One connection: commands out, as many replies in. on_lost() is called when it has ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[], None]):
        self.over = ""              # why it has ended
        self._loop = loop
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._kept = bytearray()
        self._replies: list[bytes] = []
        self._wanted = 0
        self._answered: asyncio.Future[list[bytes]] | None = None

    async def ask(self, commands: list[bytes], limit_s: float) -> list[bytes]:
        """Sends commands; their replies. Raises TimeoutError, TalkError, after which the conversation is over."""
        if self.over:
            raise TalkError(self.over)
        self._wanted, self._replies = len(commands), []
        self._answered = self._loop.create_future()
        self._transport.write(b"".join(commands))
        try:
            async with asyncio.timeout(limit_s):
                return await self._answered
        finally:
            self._wanted = 0

    def close(self) -> None:
        """Closes; at once if the other side does not read."""
        if self._transport is not None and self._transport.get_write_buffer_size() == 0:
            self._transport.close()
        else:
            self.abort()

    def abort(self) -> None:
        """Closes at once."""
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------ from the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(MAGIC)

    def data_received(self, data: bytes) -> None:
        self._kept += data
        at, end = 0, len(self._kept)
        while end - at >= 4:
            # A negative length is a very large one.
            size = int.from_bytes(self._kept[at:at + 4], "big")
            if size > MAX_REPLY:
                self._fail(f"reply of {size} bytes is larger than {MAX_REPLY}")
                return
            if end - at - 4 < size:
                break
            if not self._take(bytes(self._kept[at + 4:at + 4 + size])):
                return
            at += 4 + size
        del self._kept[:at]

    def _take(self, reply: bytes) -> bool:
        if self._wanted == 0:
            self._fail("a reply that nobody has asked for")
            return False
        self._replies.append(reply)
        self._wanted -= 1
        if self._wanted == 0 and not self._answered.done():
            self._answered.set_result(self._replies)
        return True

    def _fail(self, reason: str) -> None:
        self.over = reason
        self._kept.clear()
        self._transport.abort()
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(TalkError(reason))
            # Whoever asked may have given up.
            self._answered.exception()
        self._on_lost()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over:
            self._fail(f"connection closed{f' - {error}' if error else ''}")


class LookupPeer:
    """The lasting relation to one address. run() is its one task.

    identify() makes the body of IDENTIFY; everything() gives the commands that register all there is, each as of the
    moment it is taken: so they stand in order with the changes that are told meanwhile.
    """

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop, dialer: Dialer, settings: Any, log: Any,
                 identify: Callable[[], bytes], everything: Callable[[], Iterator[bytes]]):
        self.address = address
        self.info: PeerInfo | None = None   # as told last, also while there is no connection
        self.tried = asyncio.Event()        # the first attempt has come to an end, whichever
        self._loop = loop
        self._dialer = dialer
        self._settings = settings
        self._log = log
        self._identify = identify
        self._everything = everything
        self._news = asyncio.Event()
        self._waiting: deque[bytes] = deque()
        self._rest: Iterator[bytes] = iter(())  # of everything
        self._attentive = False             # it knows all there was, and is told what changes

    @property
    def http_address(self) -> str:
        """Where its HTTP API is; empty while that is unknown."""
        info = self.info
        if info is None or not info.broadcast_address or not 0 < info.http_port < 65536:
            return ""
        return join_address(info.broadcast_address, info.http_port)

    def tell(self, command: bytes, kind: str) -> None:
        """Passes a change on; while there is no connection that is not needed, the next one begins with everything."""
        if not self._attentive:
            return
        self._log.info("LOOKUPD(%s): %s %s", self.address, kind, _text(command))
        if len(self._waiting) >= MAX_WAITING:
            self._attentive = False
            self._waiting.clear()
        else:
            self._waiting.append(command)
        self._news.set()

    async def run(self) -> None:
        """Connects, talks, and begins anew after every end, until it is cancelled."""
        pause = FIRST_PAUSE_S
        while True:
            began = self._loop.time()
            try:
                await self._session()
            except (OSError, ValueError, TalkError) as error:
                self._log.error("LOOKUPD(%s): %s", self.address, str(error) or "timed out")
            self.tried.set()
            if self._loop.time() - began > PING_S:
                pause = FIRST_PAUSE_S
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_S)

    async def _session(self) -> None:
        self._log.info("LOOKUP connecting to %s", self.address)
        limit_s = seconds(self._settings.now.http_client_connect_timeout)
        talk = await self._dialer.connect(lambda: Conversation(self._loop, self._news.set), self.address, limit_s)
        try:
            await self._introduce(talk)
            self._rest = self._everything()
            self._attentive = True
            self.tried.set()
            await self._attend(talk)
        finally:
            self._attentive = False
            self._waiting.clear()
            self._rest = iter(())
            talk.close()

    async def _introduce(self, talk: Conversation) -> None:
        body = self._identify()
        [reply] = await talk.ask([b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body], self._patience())
        try:
            self.info = msgspec.json.decode(reply, type=PeerInfo)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise TalkError(f"it answered {_text(reply[:200])!r} to IDENTIFY") from None
        self._log.info("LOOKUPD(%s): peer info %s", self.address, self.info)
        if not self.http_address:
            self._log.error("LOOKUPD(%s): no broadcast address, or no HTTP port", self.address)

    async def _attend(self, talk: Conversation) -> None:
        ping_due = self._loop.time() + PING_S
        while self._attentive:
            self._waiting.extend(islice(self._rest, max(0, AT_ONCE - len(self._waiting))))
            if not self._waiting:
                await self._wait_for_news(ping_due)
            self._news.clear()
            if self._loop.time() >= ping_due:
                self._log.debug("LOOKUPD(%s): sending heartbeat", self.address)
                ping_due = self._loop.time() + PING_S
                commands = [PING]
            else:
                commands = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
            # With nothing to ask it still says why the conversation is over.
            if commands or talk.over:
                self._judge(commands, await talk.ask(commands, self._patience()))
        raise TalkError(f"more than {MAX_WAITING} changes wait for it")

    async def _wait_for_news(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return

    def _judge(self, commands: list[bytes], replies: list[bytes]) -> None:
        for command, reply in zip(commands, replies, strict=True):
            if reply != OK:
                self._log.error("LOOKUPD(%s): %s - %s", self.address, _text(command), _text(reply[:200]))

    def _patience(self) -> float:
        """How long replies may take, seconds: what is asked next must not wait for them."""
        return min(seconds(self._settings.now.http_client_request_timeout) or PING_S, PING_S)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").strip()
