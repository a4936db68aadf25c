"""All nsqlookupds of a daemon: keeps the configured ones connected, and registers every topic and channel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from nsqc import NSQD_VERSION
from nsqc.broker.broker import CHANNEL_CREATED, CHANNEL_DELETED, TOPIC_CREATED, TOPIC_DELETED, Broker
from nsqc.broker.channel import Channel
from nsqc.broker.topic import Topic
from nsqc.log import Log
from nsqc.options.declared import Options, Settings
from nsqc.peers.dial import Dialer
from nsqc.peers.lookup_peer import LookupPeer
from nsqc.peers.node import NodeInfo
from nsqc.peers.tasks import spawn

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
