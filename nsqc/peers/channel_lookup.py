"""Channels of a new topic that other daemons have already: nsqlookupd is asked for them before a message passes.

Otherwise a consumer that has its channel on every daemon would miss what is published here before it comes here, too.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import msgspec

from nsqc.peers import http
from nsqc.peers.dial import Dialer, seconds
from nsqc.peers.lookup import Lookupds
from nsqc.peers.lookup_peer import LookupPeer
from nsqc.peers.tasks import begin
from nsqc.wire.names import EPHEMERAL, is_valid_name

AT_ONCE = 32  # questions under way


class ChannelList(msgspec.Struct, frozen=True, gc=False):
    """The answer to /channels."""

    channels: list[str] | None = None


class ChannelFinder:
    """Starts new topics, each with the channels that are known for it. The broker's starter.

    What is published meanwhile waits in the topic. Every topic starts within http_client_request_timeout, whatever the
    nsqlookupds do; those that cannot be asked cost their channels, not the others'.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, dialer: Dialer, broker: Any, settings: Any, lookupds: Lookupds,
                 log: Any):
        self._loop = loop
        self._dialer = dialer
        self._broker = broker
        self._settings = settings
        self._lookupds = lookupds
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(AT_ONCE)

    def start(self, topic: Any) -> None:
        """Starts a new topic, now where there is nobody to ask, else later."""
        if not self._lookupds.peers:
            topic.start()
            return
        task = begin(self._loop, self._prepare(topic), self._log)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Asks no more. Topics that have not started keep their messages, on disk over a stop."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _prepare(self, topic: Any) -> None:
        name = topic.name.decode()
        limit_s = seconds(self._settings.now.http_client_request_timeout)
        deadline = None if limit_s is None else self._loop.time() + limit_s
        peers = list(self._lookupds.peers.values())
        found: set[str] = set()
        await asyncio.gather(*(self._ask(peer, name, found, deadline) for peer in peers))
        if not any(peer.http_address for peer in peers):
            self._log.error("no available nsqlookupd to query for channels to pre-create for topic %s", name)
        if self._broker.topics.get(topic.name) is not topic or self._broker.closing:
            return
        try:
            for channel in sorted(found):
                if is_valid_name(channel.encode()) and not channel.endswith(EPHEMERAL):
                    topic.get_channel(channel.encode())
        except OSError as error:
            self._log.error("failed to create channels of topic %s - %s", name, error)
        finally:
            topic.start()

    async def _ask(self, peer: LookupPeer, topic: str, found: set[str], deadline: float | None) -> None:
        """Adds what one nsqlookupd knows."""
        try:
            async with asyncio.timeout_at(deadline):
                # Right after the start, it is worth to wait for what it says of itself.
                await peer.tried.wait()
                if peer.http_address:
                    async with self._turns:
                        found.update(await self._channels(peer.http_address, topic))
        except (OSError, ValueError, http.AnswerError, msgspec.MsgspecError) as error:
            self._log.warn("failed to query nsqlookupd %s for channels to pre-create for topic %s - %s", peer.address,
                           topic, str(error) or "timed out")

    async def _channels(self, address: str, topic: str) -> list[str]:
        target = f"/channels?topic={quote(topic, safe='')}"
        self._log.info("CI: querying nsqlookupd http://%s%s", address, target)
        limit_s = seconds(self._settings.now.http_client_connect_timeout)
        status, body = await http.get(self._loop, self._dialer, address, target, limit_s)
        if status != 200:
            raise http.AnswerError(f"got response {status} {body[:200].decode('utf-8', 'backslashreplace')!r}")
        return msgspec.json.decode(body, type=ChannelList).channels or []
