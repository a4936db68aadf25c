"""Channels that a new topic already has on other daemons: nsqlookupd is queried before the topic delivers any message.

Without this, a consumer with its channel on every daemon would miss messages published here before it connects here.
"""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import msgspec

from nsqc.broker.broker import Broker
from nsqc.broker.refusals import LimitReached
from nsqc.broker.topic import Topic
from nsqc.log import Log
from nsqc.net.address import is_loopback
from nsqc.options.declared import Settings
from nsqc.peers import http
from nsqc.peers.http import Dialer, reason_of, seconds, spawn
from nsqc.peers.lookup import AUTHORITY_HINT, Lookup, LookupPeer
from nsqc.store.files import rest
from nsqc.wire.outside import Decoder
from nsqc.wire.parser import EPHEMERAL, is_valid_name

MAX_QUERIES = 32  # concurrent


class ChannelList(msgspec.Struct, frozen=True, gc=False):
    """The answer to /channels."""

    channels: list[str] | None = None


_decode = Decoder(ChannelList).decode


class ChannelLookup:
    """Starts new topics with the channels that nsqlookupds know for them. Implements the broker's starter.

    Messages published meanwhile wait in the topic. Every topic starts within http_client_request_timeout, regardless of
    the nsqlookupds; an unreachable nsqlookupd costs only the channels that it alone knows.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, dialer: Dialer, broker: Broker, settings: Settings,
                 lookup: Lookup, log: Log):
        self._loop = loop
        self._dialer = dialer
        self._broker = broker
        self._settings = settings
        self._lookup = lookup
        self._log = log
        self._closed = False
        self._warned: set[str] = set()      # addresses that have got the token in clear text
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_QUERIES)

    def start(self, topic: Topic) -> None:
        """Starts a new topic: at once without an nsqlookupd, otherwise after querying them."""
        if not self._lookup.peers:
            topic.start()
            return
        task = spawn(self._loop, self._prepare(topic), self._log)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancels all queries. Topics that have not started keep their messages, on disk across a restart."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _prepare(self, topic: Topic) -> None:
        try:
            await self._create(topic, await self._find(topic.name.decode()))
        except LimitReached as error:
            # Their consumers are refused here, too: no message is missed silently.
            self._log.warn("TOPIC(%s): channels that nsqlookupd knows are not created - %s", topic.name.decode(), error)
        except Exception as error:
            self._log.error("failed to create channels of topic %s - %s", topic.name.decode(), reason_of(error))
        finally:
            if self._waits(topic):
                topic.start()

    def _waits(self, topic: Topic) -> bool:
        """Whether a topic has yet to start: it exists, and no shutdown keeps its messages for the next run."""
        return not (self._closed or self._broker.closing) and self._broker.topics.get(topic.name) is topic

    async def _create(self, topic: Topic, channels: set[str]) -> None:
        """Creates channels in slices: an nsqlookupd may list a hundred thousand. Raises OSError, LimitReached."""
        self._broker.slicer.start()
        for channel in sorted(channels):
            await rest(self._broker.slicer)
            if not self._waits(topic):
                return
            if is_valid_name(channel.encode()) and not channel.endswith(EPHEMERAL):
                self._broker.get_channel(topic, channel.encode())

    async def _find(self, name: str) -> set[str]:
        """The union of the channels that the nsqlookupds know for a topic."""
        limit_s = seconds(self._settings.now.http_client_request_timeout)
        deadline = None if limit_s is None else self._loop.time() + limit_s
        peers = list(self._lookup.peers.values())
        channels: set[str] = set()
        await asyncio.gather(*(self._query(peer, name, channels, deadline) for peer in peers))
        if not any(peer.http_address for peer in peers):
            self._log.error("no available nsqlookupd to query for channels to pre-create for topic %s", name)
        return channels

    async def _query(self, peer: LookupPeer, topic: str, channels: set[str], deadline: float | None) -> None:
        """Adds the channels known to one nsqlookupd."""
        try:
            async with asyncio.timeout_at(deadline):
                # Right after the start its HTTP address is not known yet, but soon will be.
                await peer.attempted.wait()
                if peer.http_address:
                    async with self._slots:
                        channels.update(await self._channels(peer, topic))
        except Exception as error:
            self._log.warn("failed to query nsqlookupd %s for channels to pre-create for topic %s - %s", peer.address,
                           topic, reason_of(error, AUTHORITY_HINT))

    async def _channels(self, peer: LookupPeer, topic: str) -> list[str]:
        """The channels known to one nsqlookupd, which gets the token only if it asks for one."""
        answer = await self._ask(peer, topic)
        path = self._settings.now.lookupd_token_file
        if answer.status == 401 and path:
            answer = await self._ask(peer, topic, f"Authorization: Bearer {await asyncio.to_thread(token_in, path)}")
            self._warn_if_clear(peer)
        if answer.status != 200:
            shown = answer.body[:200].decode("utf-8", "backslashreplace")
            hint = "; --lookupd-token-file names a token for it" if answer.status == 401 and not path else ""
            raise http.AnswerError(f"got response {answer.status} {shown!r}{hint}")
        return _decode(answer.body).channels or []

    async def _ask(self, peer: LookupPeer, topic: str, *headers: str) -> http.Answer:
        address, target = peer.http_address, f"/channels?topic={quote(topic, safe='')}"
        scheme = "https" if peer.speaks_tls else "http"
        self._log.info("CI: querying nsqlookupd %s://%s%s", scheme, address, target)
        limit_s = seconds(self._settings.now.http_client_connect_timeout)
        data = http.request("GET", address, target, *headers)
        return await http.ask(self._loop, self._dialer, address, data, limit_s, await peer.tls())

    def _warn_if_clear(self, peer: LookupPeer) -> None:
        """Warns once of a token that was sent over the network without TLS."""
        if not peer.speaks_tls and not is_loopback(peer.http_address) and peer.address not in self._warned:
            self._warned.add(peer.address)
            self._log.warn("LOOKUPD(%s): the token of --lookupd-token-file is sent to %s in clear text. Use "
                           "--lookupd-tcp-address=tls://%s", peer.address, peer.http_address, peer.address)


def token_in(path: str) -> str:
    """The token in --lookupd-token-file. Raises OSError."""
    try:
        with open(path, encoding="latin-1") as file:
            return file.read(1 << 16).strip()
    except OSError as error:
        raise OSError(f"--lookupd-token-file: {path}: {error.strerror}") from None
