"""Which nodes there are, and questions to many of them at once: an error of one never hides the answers of others."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Generic, NamedTuple, TypeVar

from nsqc.admin import shapes
from nsqc.admin.pace import Pace
from nsqc.admin.shapes import Info, Producer, ProducerList
from nsqc.admin.trust import Trust
from nsqc.admin.upstream import LONGEST, LOOKUP_NODES, LOOKUP_TOPICS, Ask, UpstreamError, checked, target
from nsqc.log import Log
from nsqc.peers.http import Answer
from nsqc.wire import nsqstats
from nsqc.wire.nsqstats import Names, RawStats, Stats
from nsqc.wire.outside import JSONError
from nsqc.wire.stats import TopicStats

LOOKUPD, NSQD = "nsqlookupd", "nsqd"
T = TypeVar("T")
AskNode = Callable[[str, Ask], Awaitable[Answer]]     # by address; any answer. Raises UpstreamError if there is none
LONG_BODY = 1024 * 1024     # bytes
_NUMBERS = re.compile(r"\d+")


class AllFailed(Exception):
    """None of the servers that were asked has answered."""

    def __init__(self, kind: str, errors: Iterable[object]) -> None:
        super().__init__(f"failed to query any {kind}: " + "\n".join(map(str, errors)))


class Found(NamedTuple, Generic[T]):
    """The answers of servers, by address, and the errors of the others, by address."""

    answers: dict[str, T]
    errors: dict[str, UpstreamError]

    def usable(self, kind: str) -> Found[T]:
        """Itself. Raises AllFailed if no server has answered."""
        if not self.answers:
            raise AllFailed(kind, self.errors.values())
        return self

    def warning(self) -> str:
        """For a result that lacks something; empty if it lacks nothing."""
        return warning(self.errors.values())


class Known(NamedTuple):
    """A node. remote_addresses: LOOKUPD/REMOTE for each lookup server that lists it; topics: with their tombstones, of
    any of those; None: nsqlookupd is not asked."""

    producer: Producer
    remote_addresses: list[str] | None
    topics: dict[str, bool]

    @property
    def address(self) -> str:
        """Of its HTTP API."""
        return self.producer.http


def warning(errors: Iterable[object]) -> str:
    """nsqadmin's words for errors beside a usable answer."""
    text = "\n".join(map(str, errors))
    return f"WARNING: {text}" if text else ""


class Fleet:
    """The nodes that the options name."""

    def __init__(self, ask: AskNode, log: Log, lookupds: Sequence[str], nsqds: Sequence[str], trust: Trust) -> None:
        """trust: learns of the nodes that lookup servers list."""
        self._ask, self._trust = ask, trust
        self.lookupds = tuple(lookupds)
        self.nsqds = tuple(nsqds)
        self._log = log

    @property
    def has_lookupds(self) -> bool:
        """Whether nodes are found by lookup servers."""
        return bool(self.lookupds)

    def use_lookupds(self, addresses: Iterable[str]) -> None:
        """Replaces the lookup servers."""
        self.lookupds = tuple(addresses)
        self._trust.ask(self.lookupds)

    # ------------------------------------------------------------------ calls

    async def call(self, address: str, ask: Ask) -> bytes:
        """The body of a 200. Raises UpstreamError."""
        body = checked(await self.answer(address, ask))
        if len(body) > LONG_BODY:
            await asyncio.sleep(0)      # joining its parts took long enough: others run before it is decoded
        return body

    async def answer(self, address: str, ask: Ask) -> Answer:
        """Any answer. Raises UpstreamError."""
        self._log.debug("CI: querying http://%s%s", address, ask.target)
        return await self._ask(address, ask)

    async def get(self, address: str, ask: Ask, decode: Callable[[bytes], T]) -> T:
        """The same, decoded. Raises UpstreamError."""
        body = await self.call(address, ask)
        try:
            return decode(body)
        except JSONError as error:
            raise UpstreamError(f'Get "http://{address}{ask.target}": {error}') from None

    async def ask_all(self, addresses: Iterable[str], ask: Ask, decode: Callable[[bytes], T]) -> Found[T]:
        """Asks all of them."""
        return await together(addresses, lambda address: self.get(address, ask, decode))

    # ------------------------------------------------------------------ nodes

    async def listed(self, ask: Ask) -> Found[ProducerList]:
        """The nodes in the answers of lookup servers. ask: LOOKUP_NODES, or the nodes of a topic."""
        found = await self.ask_all(self.lookupds, ask, shapes.producer_list)
        for lookupd, answer in found.answers.items():
            self._trust.heard(lookupd, answer.producers or (), ask is LOOKUP_NODES)
        return found

    async def known(self) -> tuple[list[Known], dict[str, UpstreamError]]:
        """All nodes, sorted by host name, and the errors of servers that do not answer. Raises AllFailed."""
        if not self.lookupds:
            return await self._asked()
        found = (await self.listed(LOOKUP_NODES)).usable(LOOKUPD)
        merged: dict[str, Known] = {}
        for lookupd, answer in found.answers.items():
            for producer in answer.producers or ():
                node = merged.setdefault(producer.tcp, Known(producer, [], {}))
                if node.remote_addresses is not None:
                    node.remote_addresses.append(f"{lookupd}/{producer.remote_address}")
                marks = producer.tombstones or []
                for at, topic in enumerate(producer.topics or ()):
                    node.topics[topic] = node.topics.get(topic, False) or (at < len(marks) and marks[at])
        return sorted_nodes(merged.values()), found.errors

    async def has_node(self, address: str) -> bool:
        """Whether an address is a node's, or was one's lately. Raises AllFailed."""
        if not self._trust.is_known(address):
            await self.known()
        return self._trust.is_known(address)

    async def _asked(self) -> tuple[list[Known], dict[str, UpstreamError]]:
        stats = Ask("GET", target("/stats", format="json", include_clients="false"), limit=LONGEST)

        async def one(address: str) -> tuple[Info, Names]:
            info = await self.get(address, Ask("GET", "/info"), shapes.info)
            return info, await self.get(address, stats, nsqstats.names)

        found = (await together(self.nsqds, one)).usable(NSQD)
        return sorted_nodes(
            Known(of_info(info), None, {topic.topic_name: False for topic in its.topics or ()})
            for info, its in found.answers.values()), found.errors

    async def producers(self, topic: str) -> tuple[list[Producer], dict[str, UpstreamError]]:
        """The nodes that have a topic, and errors of others. Raises AllFailed."""
        if self.lookupds:
            found = (await self.listed(Ask("GET", target("/lookup", topic=topic)))).usable(LOOKUPD)
            merged = {producer.http: producer for answer in found.answers.values()
                      for producer in answer.producers or ()}
            return [*merged.values()], found.errors
        ask = Ask("GET", target("/stats", format="json", topic=topic, include_clients="false"))

        async def one(address: str) -> Producer | None:
            stats = await self.get(address, ask, nsqstats.stats)
            if not any(each.topic_name == topic for each in stats.topics or ()):
                return None
            return of_info(await self.get(address, Ask("GET", "/info"), shapes.info))

        asked = (await together(self.nsqds, one)).usable(NSQD)
        return [each for each in asked.answers.values() if each is not None], asked.errors

    async def stats(self, producers: Iterable[Producer], topic: str, channel: str = "",
                    clients: bool = False) -> Found[Stats]:
        """/stats of a topic, of nodes. Raises AllFailed."""
        ask = Ask("GET", target("/stats", format="json", topic=topic, channel=channel or None,
                                include_clients=None if clients else "false"))
        return (await self.ask_all([each.http for each in producers], ask, nsqstats.stats)).usable(NSQD)

    async def raw_stats(self, producers: Iterable[Producer], clients: bool = False) -> Found[RawStats]:
        """The same of all topics, for topics_in(). Raises AllFailed."""
        ask = Ask("GET", target("/stats", format="json", include_clients=None if clients else "false"), limit=LONGEST)
        return (await self.ask_all([each.http for each in producers], ask, nsqstats.raw_stats)).usable(NSQD)

    async def topics(self) -> Found[list[str]]:
        """The names of topics by lookup server, or by node. Raises AllFailed."""
        if self.lookupds:
            found = (await self.ask_all(self.lookupds, LOOKUP_TOPICS, shapes.topic_list)).usable(LOOKUPD)
            return Found({address: answer.topics or [] for address, answer in found.answers.items()}, found.errors)
        ask = Ask("GET", target("/stats", format="json", include_clients="false"), limit=LONGEST)
        stats = (await self.ask_all(self.nsqds, ask, nsqstats.names)).usable(NSQD)
        return Found({address: [topic.topic_name for topic in answer.topics or ()]
                      for address, answer in stats.answers.items()}, stats.errors)


async def topics_in(stats: RawStats, pace: Pace) -> AsyncIterator[TopicStats]:
    """The topics of an answer, decoded one by one; those that make no sense are left out."""
    for part in stats.parts():
        with suppress(JSONError):
            yield nsqstats.one_topic(part)
        if pace.over():
            await pace.rest()


async def together(addresses: Iterable[str], call: Callable[[str], Awaitable[T]]) -> Found[T]:
    """Calls for several addresses at the same time. call: a coroutine function that may raise UpstreamError."""
    names = list(dict.fromkeys(addresses))
    results = await asyncio.gather(*map(call, names), return_exceptions=True)
    found: Found[T] = Found({}, {})
    for name, result in zip(names, results, strict=True):
        if isinstance(result, UpstreamError):
            found.errors[name] = result
        elif isinstance(result, BaseException):
            raise result
        else:
            found.answers[name] = result
    return found


def of_info(info: Info) -> Producer:
    """A node by its own /info."""
    return Producer(hostname=info.hostname, broadcast_address=info.broadcast_address, tcp_port=info.tcp_port,
                    http_port=info.http_port, version=info.version)


def sorted_nodes(nodes: Iterable[Known]) -> list[Known]:
    """By host name."""
    return sorted(nodes, key=lambda node: (node.producer.hostname, node.producer.tcp))


def version_key(version: str) -> tuple[int, ...]:
    """A version as it compares."""
    return tuple(int(part) for part in _NUMBERS.findall(version)[:3])
