"""Changes nodes and lookup servers: each change is sent to every server concerned, and each has a result."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypedDict

from msgspec import Struct
from msgspec.structs import replace

from nsqc.admin import upstream
from nsqc.admin.fleet import LOOKUPD, NSQD, Fleet
from nsqc.admin.rights import basic_user
from nsqc.admin.upstream import Ask, UpstreamError, checked, encode, target
from nsqc.httpd.reply import Request
from nsqc.log import Log
from nsqc.net.url import parse_server
from nsqc.peers.http import AnswerError, Dialer, ask, reason_of, request, spawn

# ====================================================================== changes

UNCERTAIN = "no answer: it may or may not have been carried out"


class Result(Struct, frozen=True, gc=False, omit_defaults=True):
    """The result of a change on one server. status: of its answer; 0: there was none. told: the message for people, if
    it has other words than nsqadmin's."""

    target: str
    kind: str
    ok: bool
    status: int
    message: str
    milliseconds: float
    told: str = ""


def for_people(results: Iterable[Result]) -> list[Result]:
    """The results with messages for people."""
    return [replace(each, message=each.told or each.message, told="") for each in results]


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

    def result(ok: bool, status: int, message: str, told: str = "") -> Result:
        return Result(place.address, place.kind, ok, status, message, round((time.monotonic() - began) * 1000, 1), told)

    try:
        answer = await fleet.answer(place.address, ask)
    except UpstreamError as error:
        refused = "connection refused" in str(error) or "dial tcp" in str(error)
        text, told = (words if refused else f"{words} ({UNCERTAIN})" for words in (str(error), error.told))
        return result(False, 0, text, told)
    try:
        checked(answer)
    except UpstreamError as error:
        return result(False, answer.status, str(error), error.short)
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
            await self._fleet.get(node, Ask("GET", "/info"), upstream.info)
        except UpstreamError as error:
            return [*results, Result(node, NSQD, False, error.status, str(error), 0.0, error.short)]
        return results + await self._post(places(NSQD, [node]), "topic/delete", topic=topic)

    async def _post(self, where: Sequence[Place], path: str, **arguments: object) -> list[Result]:
        return await send(self._fleet, where, Ask("POST", target(f"/{path}", **arguments)))


# ====================================================================== ledger
# The latest changes, for the page. The audit log has all of them.

KEPT = 200


class Entry(TypedDict):
    """A change."""

    time: float
    user: str
    address: str
    action: str
    target: str
    results: list[Result]


class Ledger:
    """The latest changes."""

    def __init__(self) -> None:
        self._entries: deque[tuple[str, Entry]] = deque(maxlen=KEPT)

    def add(self, user: str, address: str, action: str, target: str, topic: str, results: Sequence[Result]) -> None:
        """One more. topic: that it is about; empty: it is about a node."""
        self._entries.append((topic, {"time": round(time.time(), 3), "user": user, "address": address, "action": action,
                                      "target": target, "results": list(results)[:64]}))

    def newest(self, sees: Callable[[str], bool]) -> list[Entry]:
        """The newest first. sees: whether the user sees a topic, or everything."""
        return [entry for topic, entry in reversed(self._entries) if sees(topic)]


# ====================================================================== notify
# Notifications of changes: each is POSTed to an endpoint, one after the other. A failure is only logged.

MOST_WAITING = 1000
LIMIT_S = 10.0


class Notifier:
    """Sends to one endpoint."""

    def __init__(self, loop: asyncio.AbstractEventLoop, endpoint: str, connect_s: float, log: Log) -> None:
        """endpoint: a URL. Raises ValueError."""
        self._server = parse_server(endpoint)
        self._loop = loop
        self._dialer = Dialer(loop)
        self._connect_s = connect_s
        self._log = log
        self._waiting: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None

    def send(self, data: dict[str, object]) -> None:
        """Adds a notification."""
        if len(self._waiting) >= MOST_WAITING:
            self._log.error("failed to POST notification - %d wait already", len(self._waiting))
            return
        self._waiting.append(encode(data))
        if self._task is None or self._task.done():
            self._task = spawn(self._loop, self._run(), self._log)

    async def close(self) -> None:
        """Waits a moment for those that wait."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=1.0)
            self._task.cancel()

    async def _run(self) -> None:
        while self._waiting:
            try:
                await self._post(self._waiting.popleft())
            except (OSError, ValueError, AnswerError) as error:
                self._log.error("failed to POST notification - %s", reason_of(error))

    async def _post(self, body: bytes) -> None:
        server = self._server
        data = request("POST", server.host, server.target, "Content-Type: application/json", body=body)
        context = ssl.create_default_context() if server.tls else None
        async with asyncio.timeout(LIMIT_S):
            await ask(self._loop, self._dialer, server.address, data, self._connect_s, context)


def notification(action: str, request: Request, user: str, prefix: str, *, topic: str, channel: str = "",
                 node: str = "") -> dict[str, object]:
    """A notification as nsqadmin's. user: as named by the proxy in front, used if HTTP Basic names none."""
    scheme = "https" if request.header("X-Scheme") == "https" else "http"
    host = (request.host or b"").decode("latin-1")
    parts: dict[str, object] = {
        "action": action, "topic": topic, "channel": channel, "node": node, "timestamp": int(time.time()),
        "user": basic_user(request) or user, "remote_ip": request.remote, "user_agent": request.header("User-Agent"),
        "url": f"{scheme}://{host}{prefix}{request.path.decode('latin-1')}", "via": socket.gethostname()}
    return {key: value for key, value in parts.items() if value or key not in ("channel", "node", "user")}
