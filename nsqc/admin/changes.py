"""Changes nodes and lookup servers: each change is sent to every server concerned, and each has a result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

from msgspec import Struct

from nsqc.admin import shapes
from nsqc.admin.fleet import LOOKUPD, NSQD, Fleet
from nsqc.admin.upstream import Ask, UpstreamError, checked, target

UNCERTAIN = "no answer: it may or may not have been carried out"


class Result(Struct, frozen=True, gc=False):
    """The result of a change on one server. status: of its answer; 0: there was none."""

    target: str
    kind: str
    ok: bool
    status: int
    message: str
    milliseconds: float


class Place(Struct, frozen=True, gc=False):
    """A server that a change is for."""

    kind: str
    address: str


def places(kind: str, addresses: Iterable[str]) -> list[Place]:
    """Servers of one kind."""
    return [Place(kind, address) for address in dict.fromkeys(addresses)]


def subject(topic: str, channel: str) -> tuple[str, dict[str, object]]:
    """The first part of a call's path, and its arguments."""
    return ("channel", {"topic": topic, "channel": channel}) if channel else ("topic", {"topic": topic})


async def send(fleet: Fleet, where: Sequence[Place], ask: Ask) -> list[Result]:
    """One call to all servers at once."""
    return [*await asyncio.gather(*(_send(fleet, place, ask) for place in where))]


async def _send(fleet: Fleet, place: Place, ask: Ask) -> Result:
    began = time.monotonic()

    def result(ok: bool, status: int, message: str) -> Result:
        return Result(place.address, place.kind, ok, status, message, round((time.monotonic() - began) * 1000, 1))

    try:
        answer = await fleet.answer(place.address, ask)
    except UpstreamError as error:
        text = str(error)
        refused = "connection refused" in text or "dial tcp" in text
        return result(False, 0, text if refused else f"{text} ({UNCERTAIN})")
    try:
        checked(answer)
    except UpstreamError as error:
        return result(False, answer.status, str(error))
    return result(True, answer.status, "")


def failures(results: Iterable[Result]) -> list[str]:
    """The texts of failures, as nsqadmin words them."""
    return [result.message.removesuffix(f" ({UNCERTAIN})") for result in results if not result.ok]


class Changes:
    """Changes of topics and channels over a fleet. nodes: addresses of the nsqd that a change is for."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def create(self, topic: str, channel: str, nodes: Sequence[str]) -> list[Result]:
        """On lookup servers, so that nodes learn of it; and on nodes."""
        results = await self._post(places(LOOKUPD, self._fleet.lookupds), "topic/create", topic=topic)
        if channel:
            results += await self._post(places(LOOKUPD, self._fleet.lookupds), "channel/create", topic=topic,
                                        channel=channel)
        results += await self._post(places(NSQD, nodes), "topic/create", topic=topic)
        if channel:
            results += await self._post(places(NSQD, nodes), "channel/create", topic=topic, channel=channel)
        return results

    async def delete(self, topic: str, channel: str, nodes: Sequence[str]) -> list[Result]:
        """Deletes on lookup servers first: otherwise nodes would learn of the name and create it again."""
        kind, arguments = subject(topic, channel)
        results = await self._post(places(LOOKUPD, self._fleet.lookupds), f"{kind}/delete", **arguments)
        return results + await self._post(places(NSQD, nodes), f"{kind}/delete", **arguments)

    async def act(self, action: str, topic: str, channel: str, nodes: Sequence[str]) -> list[Result]:
        """pause, unpause or empty."""
        kind, arguments = subject(topic, channel)
        return await self._post(places(NSQD, nodes), f"{kind}/{action}", **arguments)

    async def tombstone(self, topic: str, node: str) -> list[Result]:
        """Hides a topic of a node from clients, then deletes it there. The node is asked first whether it is there, as
        nsqadmin does."""
        results = await self._post(places(LOOKUPD, self._fleet.lookupds), "topic/tombstone", topic=topic, node=node)
        try:
            await self._fleet.get(node, Ask("GET", "/info"), shapes.info)
        except UpstreamError as error:
            return [*results, Result(node, NSQD, False, error.status, str(error), 0.0)]
        return results + await self._post(places(NSQD, [node]), "topic/delete", topic=topic)

    async def _post(self, where: Sequence[Place], path: str, **arguments: object) -> list[Result]:
        return await send(self._fleet, where, Ask("POST", target(f"/{path}", **arguments)))
