"""nsqc's own API, which the page uses: the calls that read. docs/admin.md documents each."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from nsqc import __version__
from nsqc.access.needs import ADMIN, PUBLISH, READ, STATS
from nsqc.admin import shapes
from nsqc.admin.changes import Changes, subject
from nsqc.admin.classic import client_json
from nsqc.admin.fleet import Fleet, Found, together, topics_in
from nsqc.admin.history import NODE, Key, Series
from nsqc.admin.ledger import Ledger
from nsqc.admin.listing import (
    channel_row,
    cut,
    node_row,
    search,
    topic_row,
    topics_page,
    totals_json,
)
from nsqc.admin.model import Moment, NodeRow, TopicRow
from nsqc.admin.pace import Pace
from nsqc.admin.people import People, cookie_of, new_token, token_in
from nsqc.admin.poller import ALL_STATS, Poller
from nsqc.admin.rights import Rights, Views, concerns_for, rights_of
from nsqc.admin.ruling import KEYS, set_rules
from nsqc.admin.upstream import LOOKUP_TOPICS, Ask, UpstreamError, target
from nsqc.httpd.reply import ApiError, Reply, v1
from nsqc.httpd.request import Request, read_arguments
from nsqc.log import Log
from nsqc.wire import nsqstats
from nsqc.wire.names import is_valid_name
from nsqc.wire.outside import Decoder, Json
from nsqc.wire.stats import ChannelStats, TopicStats

if TYPE_CHECKING:
    from nsqc.admin.prometheus import Prometheus

FIRST_S = 6.0           # how long the first call waits for the first look
WATCHED_S = 60.0
MOST_FEEDERS = 200      # channels that are listed with the topic of their dead letters
json_of = Decoder(dict[str, object]).decode


class View:
    """The state that the calls work on. mode: lookupd, nsqd, or node on the page of a single daemon."""

    def __init__(self, fleet: Fleet, poller: Poller, people: People, log: Log, *, mode: str, base: str,
                 notify: Callable[..., None], prometheus: Prometheus | None = None) -> None:
        """base: path of the page, with a slash at its end. notify: as AdminSite.notify. prometheus: None: none is
        known."""
        self.fleet, self.poller, self.people, self.log = fleet, poller, people, log
        self.changes = Changes(fleet)
        self.mode, self.base, self.notify = mode, base, notify
        self.ledger = Ledger()
        self._views = Views()
        self._prometheus = prometheus
        self._stats: dict[str, tuple[float, list[NodeTopic]]] = {}

    async def moment(self) -> Moment:
        """The latest moment. Raises ApiError if nothing has been seen yet."""
        await self.poller.first(FIRST_S)
        moment = self.poller.moment
        if moment is None:
            raise ApiError(503, f"NOT_YET - {self.poller.error or 'the nodes have not answered yet'}")
        return moment

    async def seen(self, request: Request) -> tuple[Moment, Rights]:
        """The same as the user of a request sees it."""
        rights = rights_of(request)
        return await self._views.of(await self.moment(), rights), rights

    async def _series(self, key: Key) -> Series | None:
        """The last hour: of Prometheus, if it has it."""
        found = None if self._prometheus is None else await self._prometheus.series(key)
        return self.poller.history.series(key) if found is None else found

    # ------------------------------------------------------------------ calls

    async def session(self, request: Request) -> Reply:
        """The user, and the actions that the page may offer."""
        token = token_in(request) or new_token()
        people, rights = self.people, rights_of(request)
        reply = v1({"user": people.user_of(request),
                    "may_change": people.may_change(request) and rights.has(ADMIN),
                    "may_publish": people.may_change(request) and rights.has(PUBLISH),
                    "may_extend": people.may_extend(request) and rights.has(ADMIN, PUBLISH, READ),
                    "may_redrive": people.may_change(request) and people.may_extend(request) and rights.may(ADMIN),
                    "publishes_all": rights.may(PUBLISH),
                    "sees_all": rights.sees_all, "csrf": token, "mode": self.mode, "version": __version__,
                    "interval": round(self.poller.interval_s, 1), "time": round(time.time(), 3)})
        reply.extra += cookie_of(token, self.base, request.header("X-Forwarded-Proto") == "https")
        return reply

    async def overview(self, request: Request) -> Json:
        """Sums, the last hour, what needs attention, and the busiest topics."""
        moment, rights = await self.seen(request)
        poller, concerns = self.poller, concerns_for(self.poller.concerns, rights)
        busiest = topics_page(moment, poller.history, search="", by="came", descending=True, offset=0, limit=8)
        deepest = topics_page(moment, poller.history, search="", by="depth", descending=True, offset=0, limit=8)
        return {"at": round(moment.at, 3), "interval": round(poller.interval_s, 1), "error": poller.error,
                "totals": totals_json(moment.totals), "series": await self._series(()) if rights.sees_all else None,
                "attention": concerns.listed[:100], "attention_counts": concerns.counts,
                "busiest": busiest["topics"], "deepest": [row for row in deepest["topics"] if row["depth"]],
                "nodes": [node_row(node, poller.history) for node in in_order(moment)[:50]]}

    async def attention(self, request: Request) -> Json:
        """All that needs attention."""
        _, rights = await self.seen(request)
        concerns = concerns_for(self.poller.concerns, rights)
        return {"attention": concerns.listed, "counts": concerns.counts}

    async def topics(self, request: Request) -> Json:
        """A page of the list of topics."""
        moment, _ = await self.seen(request)
        arguments = Arguments(read_arguments(self.log, request))
        order = arguments.text("order", "asc")
        if order not in ("asc", "desc"):
            raise ApiError(400, "INVALID_ARG_ORDER - one of asc, desc")
        return topics_page(moment, self.poller.history, search=arguments.text("search"),
                           by=arguments.text("sort", "name"), descending=order == "desc",
                           offset=arguments.number("offset", 0, 10**9), limit=arguments.number("limit", 50, 500))

    async def search(self, request: Request) -> Json:
        """Names that have a text in them."""
        moment, _ = await self.seen(request)
        return {"found": await search(moment, Arguments(read_arguments(self.log, request)).text("q"))}

    async def topic(self, request: Request) -> Json:
        """A topic: sums, channels, nodes, the last hour, its log."""
        moment, rights = await self.seen(request)
        name = request.param
        rights.require(STATS, name)
        row = moment.topics.get(name)
        if row is None:
            raise ApiError(404, "TOPIC_NOT_FOUND")
        arguments = Arguments(read_arguments(self.log, request))
        history = self.poller.history
        channels = sorted(row.channels.values(), key=lambda each: each.name)
        offset, limit = arguments.number("offset", 0, 10**9), arguments.number("limit", 200, 500)
        stats = await self.stats(moment, name)
        nodes = [node_part(address, answer, name) for address, answer in stats.answers.items()]
        logs, rules = await asyncio.gather(self._logs(moment, name), self._rules(moment, name))
        ruled = {each["node"]: each.get("rules") for each in rules}
        return {"at": round(moment.at, 3), **topic_row(row), **self._may(request, rights, name),
                "dead_letters_of": [{"topic": each.topic, "channel": each.name, "dead_letters": each.dead_letters,
                                     "may_publish": rights.may(PUBLISH, each.topic)}
                                    for each in moment.feeders.get(name, [])[:MOST_FEEDERS]],
                "series": await self._series((name,)),
                "channel_rows": [channel_row(each, history) for each in cut(channels, offset, limit)],
                "node_rows": [part for part in nodes if part is not None],
                "errors": {address: str(error) for address, error in stats.errors.items()},
                "tombstones": [node for topic, node in self.poller.listed.tombstones if topic == name],
                "node_rules": rules, "logs": [{**log, "rules": ruled.get(log["node"]) or {}} for log in logs]}

    async def channel(self, request: Request) -> Json:
        """A channel: sums, nodes, consumers, and the messages that have been in flight for longest."""
        moment, rights = await self.seen(request)
        topic, _, name = request.param.partition("/")
        rights.require(STATS, topic)
        row = moment.topics.get(topic, TopicRow("")).channels.get(name)
        if row is None:
            raise ApiError(404, "CHANNEL_NOT_FOUND" if topic in moment.topics else "TOPIC_NOT_FOUND")
        self.poller.oldest_wanted[topic, name] = asyncio.get_running_loop().time() + WATCHED_S
        stats = await self.stats(moment, topic, name, clients=True)
        nodes, clients = [], []
        for address, answer in stats.answers.items():
            for each in answer.topics or ():
                for its in each.channels or ():
                    if (each.topic_name, its.channel_name) == (topic, name):
                        nodes.append(channel_part(address, its))
                        clients += [client_json(client, address) for client in its.clients or ()]
        may = self._may(request, rights, topic, name)
        held, logs, rules = await asyncio.gather(
            self._held(moment, topic, name) if may["may_read"] else nothing(), self._logs(moment, topic),
            self._rules(moment, topic, name))
        return {"at": round(moment.at, 3), **channel_row(row), **may, "series": await self._series((topic, name)),
                "node_rules": rules,
                "node_rows": nodes, "held": held,
                "consumers": sorted(clients, key=lambda each: (each["client_id"], each["remote_address"])),
                "positions": [{"node": log["node"], **position} for log in logs if "log" in log
                              for position in listed(log["log"].get("channels"))
                              if position.get("channel_name") == name],
                "errors": {address: str(error) for address, error in stats.errors.items()}}

    async def nodes(self, request: Request) -> Json:
        """All nodes."""
        moment, _ = await self.seen(request)
        return {"at": round(moment.at, 3),
                "nodes": [node_row(row, self.poller.history) for row in in_order(moment)]}

    async def node(self, request: Request) -> Json:
        """A node, with a page of its topics."""
        moment, rights = await self.seen(request)
        row = moment.nodes.get(request.param)
        if row is None:
            raise ApiError(404, "NODE_NOT_FOUND")
        arguments = Arguments(read_arguments(self.log, request))
        wanted = arguments.text("search").lower()
        topics: list[NodeTopic] = []
        if not row.error:
            try:
                known = await self._all_of(row.address)
            except UpstreamError as error:
                return {**node_row(row), "error": str(error), "total": 0, "topic_rows": [], "series": None}
            pace = Pace()
            for each in known:
                if wanted in each.name.lower() and rights.may(STATS, each.name):
                    topics.append(each)
                if pace.over():
                    await pace.rest()
        offset, limit = arguments.number("offset", 0, 10**9), arguments.number("limit", 50, 500)
        return {"at": round(moment.at, 3), **node_row(row), "may_change": rights.may(ADMIN),
                "series": self.poller.history.series((NODE, row.address)) if rights.sees_all else None,
                "total": len(topics), "offset": offset, "topic_rows": [
                    {**msgspec.to_builtins(each), "may_change": rights.may(ADMIN, each.name)}
                    for each in cut(topics, offset, limit)],
                "tombstones": [topic for topic, node in self.poller.listed.tombstones
                               if node == row.address and rights.may(STATS, topic)]}

    async def lookup(self, request: Request) -> Json:
        """Lookup servers, and topics that no node has."""
        moment = await self.moment()
        found = await self.fleet.ask_all(self.fleet.lookupds, LOOKUP_TOPICS, shapes.topic_list)
        names = {name for answer in found.answers.values() for name in answer.topics or ()}
        return {"lookupds": [{"address": address, "error": str(found.errors.get(address, "")),
                              "topics": len(answer.topics or ()) if (answer := found.answers.get(address)) else 0}
                             for address in self.fleet.lookupds],
                "without_nodes": sorted(names - moment.topics.keys())[:1000],
                "tombstones": [{"topic": topic, "node": node} for topic, node in self.poller.listed.tombstones]}

    async def rules(self, request: Request) -> Json:
        """The keys of rules, for forms."""
        return KEYS

    async def audit(self, request: Request) -> Json:
        """The latest changes that were made here."""
        rights = rights_of(request)
        return {"changes": self.ledger.newest(lambda topic: rights.may(STATS, topic))}

    def _may(self, request: Request, rights: Rights, topic: str, channel: str = "") -> dict[str, bool]:
        """The actions that the page may offer for a topic or a channel."""
        people = self.people
        return {"may_change": people.may_change(request) and rights.may(ADMIN, topic, channel),
                "may_read": people.may_extend(request) and rights.may(READ, topic, channel)}

    # ------------------------------------------------------------------ questions to nodes

    def having(self, moment: Moment, topic: str) -> list[NodeRow]:
        """The nodes that may have a topic: those that answer."""
        return [row for row in moment.nodes.values() if not row.error]

    async def stats(self, moment: Moment, topic: str, channel: str = "", clients: bool = False
                    ) -> Found[nsqstats.Stats]:
        """/stats of a topic, of all nodes."""
        ask = Ask("GET", target("/stats", format="json", topic=topic, channel=channel or None, include_mem="false",
                                include_clients="true" if clients else "false"))
        found = await self.fleet.ask_all([row.address for row in self.having(moment, topic)], ask, nsqstats.stats)
        return Found(dict(sorted(found.answers.items())), found.errors)

    async def _all_of(self, address: str) -> list[NodeTopic]:
        """All topics of a node; kept for a moment, as pages of them are asked for."""
        now = time.monotonic()
        known = self._stats.get(address)
        if known is None or now - known[0] > self.poller.interval_s / 2:
            # All users share it, so it is asked for no user; each is shown the topics of their grants.
            asked = asyncio.get_running_loop().create_task(self._topics_of(address), context=contextvars.Context())
            known = (now, await asked)
            self._stats = {address: known}      # of one node, and for a while: they may be large
            asyncio.get_running_loop().call_later(WATCHED_S, self._forget, known)
        return known[1]

    async def _topics_of(self, address: str) -> list[NodeTopic]:
        stats = await self.fleet.get(address, ALL_STATS, nsqstats.raw_stats)
        return [topic_part(each) async for each in topics_in(stats, Pace())]

    def _forget(self, known: tuple[float, list[NodeTopic]]) -> None:
        self._stats = {address: there for address, there in self._stats.items() if there is not known}

    async def _logs(self, moment: Moment, topic: str) -> list[Json]:
        """The logs of a topic, of nodes that are nsqc's; errors of nodes that do not show them."""

        async def one(address: str) -> Json:
            try:
                log = await self.fleet.get(address, Ask("GET", target("/topic/log", topic=topic)), json_of)
            except UpstreamError as error:
                if error.status in (400, 404):
                    return {}
                return {"node": address, "error": error.word or str(error)}
            return {"node": address, "log": log}

        found = await together([row.address for row in self.having(moment, topic) if row.nsqc], one)
        return [each for each in found.answers.values() if each]

    async def _rules(self, moment: Moment, topic: str, channel: str = "") -> list[Json]:
        """The rules of a topic or channel, of nodes that are nsqc's; errors of nodes that do not show them."""
        path, arguments = subject(topic, channel)
        ask = Ask("GET", target(f"/{path}/rules", **arguments))
        found = await self.fleet.ask_all([row.address for row in self.having(moment, topic) if row.nsqc], ask, json_of)
        return [{"node": address, "rules": rules, "set": set_rules(rules) if channel else {}}
                for address, rules in sorted(found.answers.items())] + [
            {"node": address, "error": error.word or str(error)} for address, error in sorted(found.errors.items())]

    async def _held(self, moment: Moment, topic: str, channel: str) -> list[Json]:
        """Messages in flight, of nodes that show them: the oldest delivery first."""
        ask = Ask("GET", target("/channel/peek", topic=topic, channel=channel, state="in_flight", body="none",
                                max_messages=50))
        found = await self.fleet.ask_all([row.address for row in self.having(moment, topic) if row.nsqc], ask, json_of)
        held = [{**message, "node": address} for address, page in found.answers.items()
                for message in listed(page.get("messages"))]
        return sorted(held, key=delivered_at)[:50]


async def nothing() -> list[Json]:
    """In place of an answer that the user may not see."""
    return []


def in_order(moment: Moment) -> list[NodeRow]:
    """All nodes, by host name."""
    return sorted(moment.nodes.values(), key=lambda row: (row.hostname, row.address))


def listed(value: object) -> list[Json]:
    """A list of objects in an answer."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def delivered_at(message: Json) -> int:
    """When a message in flight was delivered, in nanoseconds."""
    value = message.get("delivered")
    return value if isinstance(value, int) else 0


class Arguments:
    """The arguments of a call."""

    def __init__(self, given: dict[bytes, bytes]) -> None:
        self._given = given

    def text(self, name: str, default: str = "") -> str:
        """A text; the default, if it is missing."""
        return self._given.get(name.encode(), default.encode()).decode("utf-8", "replace")

    def number(self, name: str, default: int, most: int, least: int = 0) -> int:
        """A whole number within bounds. Raises ApiError."""
        text = self.text(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise ApiError(400, f"INVALID_ARG_{name.upper()} - a number from {least} to {most}")
        return int(text)

    def name(self, name: str, needed: bool = True) -> str:
        """The name of a topic or channel. Raises ApiError."""
        text = self.text(name)
        if not text and not needed:
            return ""
        if not is_valid_name(text.encode()):
            raise ApiError(400, f"INVALID_ARG_{name.upper()}")
        return text


class NodeTopic(msgspec.Struct, gc=False):
    """A topic on one node, as the page has it. depth: with its channels."""

    name: str
    waiting: int
    backend: int
    depth: int
    messages: int
    bytes: int
    in_flight: int
    clients: int
    channels: int
    paused: bool


def topic_part(topic: TopicStats) -> NodeTopic:
    """A topic on one node."""
    channels = topic.channels or []
    depth = topic.depth + sum(each.depth for each in channels)
    return NodeTopic(topic.topic_name, topic.depth, topic.backend_depth, depth, topic.message_count,
                     topic.message_bytes, sum(each.in_flight_count for each in channels),
                     sum(each.consumers for each in channels), len(channels), topic.paused)


def node_part(address: str, answer: nsqstats.Stats, topic: str) -> Json | None:
    """A topic as a node has it; None: it has none of that name."""
    for each in answer.topics or ():
        if each.topic_name == topic:
            return {"node": address, **msgspec.to_builtins(topic_part(each))}
    return None


def channel_part(address: str, channel: ChannelStats) -> Json:
    """A channel as a node has it."""
    return {"node": address, "depth": channel.depth, "backend": channel.backend_depth,
            "in_flight": channel.in_flight_count, "deferred": channel.deferred_count,
            "messages": channel.message_count, "requeues": channel.requeue_count, "timeouts": channel.timeout_count,
            "clients": channel.consumers, "paused": channel.paused}


Call = Callable[[View, Request], Awaitable[object]]
