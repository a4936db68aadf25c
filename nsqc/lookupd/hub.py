"""Shared by all nodes' connections: the registry, limits, deadlines, and this server's description."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from nsqc import NSQD_VERSION
from nsqc.log import Log
from nsqc.lookupd.commands import names
from nsqc.lookupd.registry import Peer, Registry
from nsqc.loop.share import Share
from nsqc.net.limits import ConnectionLimits
from nsqc.options.lookupd import LookupdOptions

if TYPE_CHECKING:
    from nsqc.access.audit import Audit
    from nsqc.access.keeper import Access
    from nsqc.lookupd.connection import Connection

SWEEP_S = 1.0       # how often incomplete commands are checked
STEP = 32           # registrations removed between two clock reads
LINGER_S = 1.0      # how long a shutdown waits for nodes to read their last replies


class Hub:
    """Created once; connections come and go."""

    def __init__(self, loop: asyncio.AbstractEventLoop, registry: Registry, share: Share, limits: ConnectionLimits,
                 options: LookupdOptions, log: Log) -> None:
        self.loop = loop
        self.registry = registry
        self.share = share
        self.limits = limits
        self.log = log
        self.identity = b""                         # the answer to IDENTIFY
        self.connections: set[Connection] = set()
        self.unfinished: set[Connection] = set()    # with a deadline
        self.closing = False
        self.access: Access | None = None           # the access file; None: every node may announce everything
        self.audit: Audit | None = None
        self._broadcast_address = options.broadcast_address
        self._patience_s = options.handshake_timeout / 1e9
        self._sweep: asyncio.TimerHandle | None = None

    def introduce(self, hostname: str, tcp_port: int, http_port: int) -> None:
        """Sets the answer to IDENTIFY; the ports are known once both listen."""
        self.identity = msgspec.json.encode({
            "broadcast_address": self._broadcast_address, "hostname": hostname, "http_port": http_port,
            "tcp_port": tcp_port, "version": NSQD_VERSION})

    # ------------------------------------------------------------------ access rules

    def judge(self, peer: Peer, host: str) -> None:
        """Decides whether the access file permits to list a node, and vouches for its address."""
        if self.access is None:
            return
        rules, announced = self.access.rules, peer.info.broadcast_address
        listed = rules.may_be_listed(host, announced)
        if peer.listed and not listed:
            self.log.warn("client(%s) may not announce address %s, see [nodes] of the access file", peer.id, announced)
        peer.judge(listed, rules.is_authorised(host, announced))

    def may_register(self, peer: Peer, host: str, words: list[bytes]) -> bool:
        """Whether a node may announce the topic of REGISTER. If not, the node is answered as usual, since an error
        would make it reconnect and register everything again and again. Raises CommandError."""
        if self.access is None:
            return True
        topic, channel = names(words)
        if self.access.rules.may_announce(host, peer.info.broadcast_address, topic):
            return True
        self.log.warn("client(%s) may not announce topic %s, see [nodes] of the access file", peer.id, topic)
        if self.audit is not None:
            self.audit.record("", peer.id, "REGISTER", f"{topic}/{channel}" if channel else topic, "FORBIDDEN")
        return False

    def has_room(self, peer: Peer, words: list[bytes]) -> bool:
        """Whether REGISTER adds no topic or channel beyond the limit. Otherwise, the node is answered as usual, as
        above. Raises CommandError."""
        topic, channel = names(words)
        if self.registry.has_room(topic, channel):
            return True
        self.log.warn("client(%s) registers nothing new: --max-registrations %d reached", peer.id, self.registry.most)
        return False

    def withdraw(self, peer: Peer, host: str) -> None:
        """Removes registrations that a node may no longer announce, in slices."""
        access = self.access
        if access is None:
            return
        self.judge(peer, host)
        announced = peer.info.broadcast_address
        left = [one for one in peer.registrations if one is not self.registry.clients]

        def step() -> bool:
            while left:
                if self.share.over():
                    return True
                for one in left[-STEP:]:
                    if not access.rules.may_announce(host, announced, one.key) and self.registry.remove(one, peer):
                        self.log.info("DB: client(%s) UNREGISTER category:%s key:%s subkey:%s", peer.id, one.category,
                                      one.key, one.subkey)
                        self.registry.forget_if_left(one)
                del left[-STEP:]
            return False

        self.share.add(step)

    # ------------------------------------------------------------------ disconnects

    def leave(self, peer: Peer) -> None:
        """Removes everything that a node has registered: from the answers at once, the rest in slices."""
        self.registry.leave(peer)
        step = self._departure(peer)
        if step():
            self.share.add(step)

    def _departure(self, peer: Peer) -> Callable[[], bool]:
        share, log, left = self.share, self.log, peer.registrations

        def step() -> bool:
            while left:
                if share.over():
                    return True
                for _ in range(min(STEP, len(left))):
                    registration, _ = left.popitem()
                    registration.producers.pop(peer, None)
                    log.info("DB: client(%s) UNREGISTER category:%s key:%s subkey:%s", peer.id, registration.category,
                             registration.key, registration.subkey)
            return False

        return step

    # ------------------------------------------------------------------ deadlines

    def watch(self, connection: Connection) -> float:
        """A command has started and is incomplete; returns its deadline in loop time."""
        self.unfinished.add(connection)
        if self._sweep is None:
            self._sweep = self.loop.call_later(self._interval(), self._check)
        return self.loop.time() + self._patience_s

    def _interval(self) -> float:
        return min(SWEEP_S, self._patience_s / 4)

    def _check(self) -> None:
        now = self.loop.time()
        for connection in [one for one in self.unfinished if one.due < now]:
            connection.expire()
        self._sweep = self.loop.call_later(self._interval(), self._check) if self.unfinished else None

    # ------------------------------------------------------------------ shutdown

    async def close(self) -> None:
        """Closes all connections after their last replies."""
        self.closing = True
        if self._sweep is not None:
            self._sweep.cancel()
        for connection in list(self.connections):
            connection.close()
        end = self.loop.time() + LINGER_S
        while self.connections and self.loop.time() < end:
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.abort()
