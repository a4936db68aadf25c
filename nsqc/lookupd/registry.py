"""All registrations: the nodes of every topic and channel, and the topics and channels of every node.

The cost of any operation on one node or topic depends on that node or topic alone, not on the number of others. A
disconnected node disappears from every answer at once; its registrations are removed in small steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import monotonic_ns

from msgspec import UNSET, Struct, UnsetType
from msgspec.json import Encoder
from msgspec.structs import replace

from nsqc.httpd.reply import JSON, Reply
from nsqc.loop.slow import Share

# ====================================================================== lists
# JSON lists and objects of any length, built in small steps and sent in parts.

AT_ONCE = 64                # items between two clock reads
PART_BYTES = 64 * 1024


class Parts:
    """Collects an answer."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._parts: list[bytes] = []
        self._open: list[bytes] = []
        self._size = 0

    def add(self, text: bytes) -> None:
        """Appends text."""
        self._open.append(text)
        self._size += len(text)
        if self._size >= PART_BYTES:
            self._close()

    async def items(self, items: Iterable[bytes], head: bytes = b"", tail: bytes = b"") -> None:
        """Items with commas between them, each built on demand, after a head and before a tail."""
        self.add(head)
        waiting: list[bytes] = []
        first = True
        for item in items:
            waiting.append(item)
            if len(waiting) == AT_ONCE:
                self.add(b",".join(waiting) if first else b"," + b",".join(waiting))
                first = False
                waiting.clear()
                await self._share.rest()
        if waiting:
            self.add(b",".join(waiting) if first else b"," + b",".join(waiting))
        self.add(tail)

    def reply(self) -> Reply:
        """The answer."""
        self._close()
        return Reply(200, b"", JSON, nsq=True, parts=self._parts)

    def _close(self) -> None:
        self._parts.append(b"".join(self._open))
        self._open.clear()
        self._size = 0


# ====================================================================== registry

CLIENT, A_TOPIC, CHANNEL = "client", "topic", "channel"
ALL = "*"       # as the name of a topic in lookups
EPHEMERAL = "#ephemeral"

_encode = Encoder().encode


class PeerInfo(Struct, frozen=True, gc=False):
    """A node's description of itself, as listed by /lookup: keys and their order are nsqlookupd's. Zone and region are
    listed as in nsqlookupd's source after 1.3.0."""

    remote_address: str
    hostname: str
    broadcast_address: str
    tcp_port: int
    http_port: int
    version: str
    topology_zone: str | UnsetType = UNSET
    topology_region: str | UnsetType = UNSET
    # nsqc's own: the access file vouches for the address.
    authorised: bool | UnsetType = UNSET


class Registration:
    """A topic, a channel of a topic, or all nodes (CLIENT). It may exist without any node."""

    __slots__ = ("category", "key", "producers", "quoted", "subkey")

    def __init__(self, category: str, key: str = "", subkey: str = "") -> None:
        self.category = category
        self.key = key                              # topic
        self.subkey = subkey                        # channel
        self.quoted = _encode(subkey or key)        # its name as JSON in answers
        # Nodes, and when each was tombstoned: monotonic nanoseconds, 0 for never.
        self.producers: dict[Peer, int] = {}


class Peer:
    """A node, from its IDENTIFY to the end of its connection."""

    __slots__ = ("gone", "http_name", "id", "info", "json", "listed", "registrations", "seen", "tombstones")

    def __init__(self, info: PeerInfo) -> None:
        self.id = info.remote_address
        self.info = info
        self.json = _encode(info)
        self.http_name = f"{info.broadcast_address}:{info.http_port}"   # its name in tombstones
        self.seen = monotonic_ns()                  # of IDENTIFY or the last PING
        self.gone = False                           # its connection has ended
        self.listed = True                          # the access file permits it
        self.tombstones = 0                         # upper bound of its tombstoned topics
        # A dict for its order and its size, half of a set's.
        self.registrations: dict[Registration, None] = {}

    def judge(self, listed: bool, authorised: bool) -> None:
        """Applies the access file."""
        self.listed = listed
        self.json = _encode(replace(self.info, authorised=authorised or UNSET))


class Registry:
    """All registrations by category and name."""

    def __init__(self, inactive_after: int, tombstone_lifetime: int, most: int = 0) -> None:
        """Times in nanoseconds. most: topics and channels; 0: no limit."""
        self.most = most
        self.count = 0          # topics and channels
        self._inactive_after = inactive_after
        self._tombstone_lifetime = tombstone_lifetime
        self.clients = Registration(CLIENT)
        self.topics: dict[str, Registration] = {}
        self.channels: dict[str, dict[str, Registration]] = {}      # by topic and name; no empty ones

    # ------------------------------------------------------------------ topics and channels

    def has_room(self, topic: str, channel: str) -> bool:
        """Whether these may be added; known ones always."""
        if not self.most or self.count + 2 <= self.most:
            return True
        return topic in self.topics and (not channel or channel in self.channels.get(topic, {}))

    def add_topic(self, topic: str) -> Registration:
        """The topic, added if missing."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = Registration(A_TOPIC, topic)
            self.count += 1
        return found

    def add_channel(self, topic: str, channel: str) -> Registration:
        """The channel, added if missing; does not add its topic."""
        channels = self.channels.get(topic)
        if channels is None:
            channels = self.channels[topic] = {}
        found = channels.get(channel)
        if found is None:
            found = channels[channel] = Registration(CHANNEL, topic, channel)
            self.count += 1
        return found

    def find_topics(self, topic: str) -> list[Registration]:
        """The topic if it exists; all topics for ALL."""
        if topic == ALL:
            return list(self.topics.values())
        found = self.topics.get(topic)
        return [] if found is None else [found]

    def find_channels(self, topic: str) -> list[Registration]:
        """The channels of a topic; those of all topics for ALL."""
        if topic == ALL:
            return [channel for channels in self.channels.values() for channel in channels.values()]
        return list(self.channels.get(topic, {}).values())

    def forget(self, registration: Registration) -> None:
        """Removes a topic or channel, regardless of its nodes. Removing a missing one has no effect."""
        if registration.category == A_TOPIC:
            if self.topics.get(registration.key) is registration:
                del self.topics[registration.key]
                self.count -= 1
        else:
            channels = self.channels.get(registration.key, {})
            if channels.get(registration.subkey) is registration:
                del channels[registration.subkey]
                self.count -= 1
                if not channels:
                    del self.channels[registration.key]
        for peer in registration.producers:
            peer.registrations.pop(registration, None)
        registration.producers = {}

    # ------------------------------------------------------------------ nodes

    def add(self, registration: Registration, peer: Peer) -> bool:
        """Registers a node; False: already registered, a tombstone stays."""
        if peer in registration.producers:
            return False
        registration.producers[peer] = 0
        peer.registrations[registration] = None
        return True

    def remove(self, registration: Registration | None, peer: Peer) -> bool:
        """Removes a registration; False: none existed. The topic or channel stays."""
        if registration is None or registration.producers.pop(peer, None) is None:
            return False
        peer.registrations.pop(registration, None)
        return True

    def forget_if_left(self, registration: Registration | None) -> None:
        """Removes an ephemeral topic or channel once no node has it registered."""
        if registration is None or not (registration.subkey or registration.key).endswith(EPHEMERAL):
            return
        if all(peer.gone for peer in registration.producers):
            self.forget(registration)

    def leave(self, peer: Peer) -> None:
        """A node has disconnected: answers stop listing it. The caller removes its registrations."""
        peer.gone = True

    # ------------------------------------------------------------------ listing

    def active(self, producers: Iterable[Peer]) -> list[Peer]:
        """Connected nodes that were seen recently."""
        since = monotonic_ns() - self._inactive_after
        return [peer for peer in producers if peer.seen >= since and not peer.gone]

    def producers(self, registrations: list[Registration]) -> list[Peer]:
        """The nodes to look up: active, without a tombstone, each once."""
        if len(registrations) == 1:
            producers = registrations[0].producers
            found = self.active(producers)
            if any(producers.values()):
                found = [peer for peer in found if not self.is_tombstoned(producers[peer])]
            return found
        first: dict[Peer, int] = {}
        for registration in registrations:
            for peer, marked in registration.producers.items():
                first.setdefault(peer, marked)
        return [peer for peer in self.active(first) if not self.is_tombstoned(first[peer])]

    def is_tombstoned(self, marked: int) -> bool:
        """Whether a tombstone of that time is still in effect."""
        return marked != 0 and monotonic_ns() - marked < self._tombstone_lifetime

    def tombstone(self, registrations: list[Registration], node: str) -> None:
        """Hides the node from lookups of these topics for a while; node: BROADCAST_ADDRESS:HTTP_PORT."""
        now = monotonic_ns()
        for registration in registrations:
            for peer in registration.producers:
                if peer.http_name == node:
                    registration.producers[peer] = now
                    peer.tombstones += 1

    def all(self) -> Iterator[Registration]:
        """Snapshot of all registrations."""
        yield self.clients
        yield from list(self.topics.values())
        for channels in list(self.channels.values()):
            yield from list(channels.values())
