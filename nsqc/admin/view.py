"""nsqc's own API, which the page uses: the calls that read. docs/admin.md documents each."""

from __future__ import annotations

import asyncio
import contextvars
import re
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import msgspec
from msgspec import Struct

from nsqc import __version__
from nsqc.access.needs import ADMIN, PUBLISH, READ, STATS
from nsqc.admin import upstream
from nsqc.admin.changes import Changes, Ledger, subject
from nsqc.admin.fleet import (
    ChannelRow,
    Fleet,
    Found,
    Known,
    Moment,
    NodeRow,
    TopicRow,
    Totals,
    together,
    topics_in,
    version_key,
)
from nsqc.admin.history import HOUR, NODE, RANGES, History, Key, Series, p99_of_buckets
from nsqc.admin.patterns import finder
from nsqc.admin.poller import ALL_STATS, Poller
from nsqc.admin.rights import (
    SESSION,
    People,
    Rights,
    Sessions,
    Views,
    check_token,
    concerns_for,
    cookie_of,
    new_token,
    rights_of,
    token_in,
)
from nsqc.admin.upstream import KEYS, LOOKUP_TOPICS, Ask, Pace, UpstreamError, set_rules, target
from nsqc.httpd.reply import ApiError, Handler, Reply, Request, Route, read_arguments, v1
from nsqc.log import Log
from nsqc.wire import stats as nsqstats
from nsqc.wire.codecs import CODECS
from nsqc.wire.outside import Decoder, Json
from nsqc.wire.parser import is_valid_name
from nsqc.wire.stats import ChannelStats, ClientStats, Latency, TopicStats, percentiles_of

if TYPE_CHECKING:
    from nsqc.admin.history import Prometheus


# ====================================================================== classic
# nsqadmin's JSON: sums over nodes, with its keys in its order.

OF_CLIENT = ("remote_address", "version", "client_id", "hostname", "user_agent", "connect_ts", "connected",
             "in_flight_count", "ready_count", "finish_count", "requeue_count", "message_count", "sample_rate",
             *CODECS, "authed", "auth_identity", "auth_identity_url", "tls", "tls_cipher_suite",
             "tls_version", "tls_negotiated_protocol", "tls_negotiated_protocol_is_mutual")
SUMMED = ("depth", "memory_depth", "backend_depth", "in_flight_count", "deferred_count", "requeue_count",
          "timeout_count", "message_count", "client_count")
OF_TOPIC = ("depth", "memory_depth", "backend_depth", "message_count")


def latency_of(latency: Latency | None, topic: str, channel: str, host: str) -> Json:
    """End-to-end latencies of one node."""
    count = 0 if latency is None else latency.count
    percentiles = [{**each, "min": each.get("value", 0), "max": each.get("value", 0),
                    "average": each.get("value", 0), "count": count} for each in percentiles_of(latency)]
    return {"count": count, "percentiles": percentiles or None, "topic": topic, "channel": channel, "host": host}


def add_latency(total: Json, more: Json) -> None:
    """Adds those of another node: averages by count, and the extremes."""
    if more["percentiles"]:
        known = {each["quantile"]: each for each in total["percentiles"] or ()}
        for each in more["percentiles"]:
            there = known.get(each["quantile"])
            if there is None:
                known[each["quantile"]] = dict(each)
                continue
            count = there["count"] + each["count"]
            if count:
                there["average"] = (there["average"] * there["count"] + each["average"] * each["count"]) / count
            there["min"], there["max"] = min(there["min"], each["min"]), max(there["max"], each["max"])
            there["value"], there["count"] = there["max"], count
        total["percentiles"] = list(known.values())
    total["count"] += more["count"]


def fields(stats: Struct, keys: Iterable[str]) -> Json:
    """Fields and properties by name."""
    return {key: getattr(stats, key) for key in keys}


def client_json(client: ClientStats, node: str) -> Json:
    """A consumer."""
    return {"node": node, **fields(client, OF_CLIENT)}


def channel_json(channel: ChannelStats, topic: str, node: str, hostname: str, clients: bool) -> Json:
    """A channel of one node."""
    listed = [client_json(each, node) for each in channel.clients or ()] if clients else None
    return {"node": node, "hostname": hostname, "topic_name": topic, "channel_name": channel.channel_name,
            **fields(channel, SUMMED), "client_count": channel.consumers, "nodes": None, "clients": listed,
            "paused": channel.paused,
            "e2e_processing_latency": latency_of(channel.e2e_processing_latency, topic, channel.channel_name, node)}


def topic_json(topic: TopicStats, node: str, hostname: str, clients: bool = False) -> Json:
    """A topic of one node."""
    name = topic.topic_name
    return {"node": node, "hostname": hostname, "topic_name": name, **fields(topic, OF_TOPIC), "nodes": None,
            "channels": [channel_json(each, name, node, hostname, clients) for each in topic.channels or ()],
            "paused": topic.paused,
            "e2e_processing_latency": latency_of(topic.e2e_processing_latency, name, "", node)}


def summed_channel(parts: Iterable[Json], topic: str, name: str, with_nodes: bool) -> Json:
    """A channel over all nodes. with_nodes: with its parts and their clients."""
    total: Json = {"node": "*", "hostname": "", "topic_name": topic, "channel_name": name,
                   **dict.fromkeys(SUMMED, 0),
                   "nodes": [] if with_nodes else None, "clients": [] if with_nodes else None, "paused": False,
                   "e2e_processing_latency": latency_of(None, topic, name, "*")}
    for part in parts:
        for key in SUMMED:
            total[key] += part[key]
        total["paused"] = total["paused"] or part["paused"]
        add_latency(total["e2e_processing_latency"], part["e2e_processing_latency"])
        if with_nodes:
            total["nodes"].append(part)
            total["clients"] += part["clients"] or []
    return total


def summed_topic(parts: list[Json], name: str) -> Json:
    """A topic over all nodes, with its parts. nsqadmin's first part shares its channels with the sum, by mistake."""
    channels: dict[str, list[Json]] = {}
    for part in parts:
        for channel in part["channels"]:
            channels.setdefault(channel["channel_name"], []).append(channel)
    total: Json = {"node": "*", "hostname": "", "topic_name": name, **dict.fromkeys(OF_TOPIC, 0), "nodes": parts,
                   "channels": [summed_channel(its, name, channel, False) for channel, its in sorted(channels.items())],
                   "paused": any(part["paused"] for part in parts),
                   "e2e_processing_latency": latency_of(None, name, "", "*")}
    for part in parts:
        for key in OF_TOPIC:
            total[key] += part[key]
        add_latency(total["e2e_processing_latency"], part["e2e_processing_latency"])
    return total


def node_json(node: Known, newest: tuple[int, ...]) -> Json:
    """A node of the list."""
    producer = node.producer
    remotes = node.remote_addresses
    return {"remote_addresses": remotes, "remote_address": producer.remote_address, "hostname": producer.hostname,
            "broadcast_address": producer.broadcast_address, "tcp_port": producer.tcp_port,
            "http_port": producer.http_port, "version": producer.version,
            "topics": [{"topic": name, "tombstoned": mark} for name, mark in sorted(node.topics.items())],
            "out_of_date": version_key(producer.version) < newest}


# ====================================================================== listing
# Lists for the page: sorted, searched and cut here, so that the page never has more than it shows.

T = TypeVar("T")
MOST_ROWS = 500
MOST_FOUND = 30
NS_PER_MS = 1e6

BY: dict[str, Callable[[TopicRow], str | float]] = {
    "name": lambda row: row.name, "came": lambda row: row.came, "went": lambda row: row.went,
    "depth": lambda row: row.total_depth, "in_flight": lambda row: row.in_flight, "messages": lambda row: row.messages,
    "channels": lambda row: len(row.channels), "clients": lambda row: row.clients, "nodes": lambda row: row.nodes,
    "oldest": lambda row: -row.oldest if row.oldest else -1e18, "deferred": lambda row: row.deferred,
}


def rate(value: float) -> float | None:
    """A rate for JSON; null: not known yet."""
    return None if value < 0 else float(f"{value:.4g}")


def known(value: float) -> float | None:
    """A number for JSON; null: unknown."""
    return None if value < 0 else value


def milliseconds(nanoseconds: float) -> float | None:
    """A latency for JSON; null: none is measured."""
    return float(f"{nanoseconds / NS_PER_MS:.4g}") if nanoseconds > 0 else None


def latency(measured_ns: float, bucket_ns: float = -1.0) -> Json:
    """A 99th percentile, and its source: percentiles of nsqd, or buckets of a histogram, of which it is the upper
    bound. null: not measured."""
    if measured_ns >= 0 or bucket_ns < 0:
        return {"p99_ms": milliseconds(measured_ns), "p99_from": "percentiles" if measured_ns >= 0 else None}
    return {"p99_ms": milliseconds(bucket_ns), "p99_from": "buckets"}


def since(unix: float) -> float | None:
    """A time for JSON; null: there is none."""
    return round(unix, 3) if unix else None


def totals_json(total: Totals) -> Json:
    """Sums over the fleet."""
    return {"topics": total.topics, "channels": total.channels, "clients": total.clients, "depth": total.depth,
            "in_flight": total.in_flight, "deferred": total.deferred, "came": rate(total.came),
            "went": rate(total.went), "oldest": since(total.oldest), **latency(total.latency_ns, total.bucket_ns),
            "nodes": total.nodes, "answering": total.answering}


def topic_row(row: TopicRow, history: History | None = None) -> Json:
    """A line of the list of topics."""
    data: Json = {"name": row.name, "came": rate(row.came), "went": rate(row.went), "depth": row.total_depth,
            "waiting": row.depth, "backend": row.backend, "in_flight": row.in_flight, "deferred": row.deferred,
            "messages": row.messages, "bytes": row.bytes, "channels": len(row.channels), "clients": row.clients,
            "nodes": row.nodes, "stale": row.stale, "paused": row.paused, "damaged": row.damaged,
            "oldest": since(row.oldest),
            "publish_ids": known(row.publish_ids), "deduplicated": row.deduplicated,
            "forgotten_ids": row.forgotten_ids, **latency(row.latency_ns)}
    if history is not None:
        data["spark"] = history.spark((row.name,))
    return data


def channel_row(row: ChannelRow, history: History | None = None) -> Json:
    """A line of a list of channels."""
    data: Json = {
        "topic": row.topic, "name": row.name, "came": rate(row.came), "went": rate(row.went), "depth": row.depth,
        "backend": row.backend, "in_flight": row.in_flight, "deferred": row.deferred, "messages": row.messages,
        "requeues": row.requeues, "timeouts": row.timeouts, "requeued": rate(row.requeued),
        "timed_out": rate(row.timed_out), "clients": row.clients, "nodes": row.nodes, "stale": row.stale,
        "paused": row.paused,
        "oldest": since(row.oldest), **latency(row.latency_ns), "still_since": since(row.still_since),
        "rules": row.rules or {}, "dead_topic": row.dead_topic, "dead_letters": row.dead_letters}
    if history is not None:
        data["spark"] = history.spark((row.topic, row.name), "depth")
    return data


def node_row(row: NodeRow, history: History | None = None) -> Json:
    """A line of the list of nodes."""
    data: Json = {
        "address": row.address, "tcp": row.tcp, "hostname": row.hostname, "version": row.version, "nsqc": row.nsqc,
        "listed": row.listed, "error": row.error, "missing_since": since(row.missing_since),
        "seen_at": since(row.seen_at), "health": row.health,
        "start_time": row.start_time or None, "topics": known(row.topics), "channels": known(row.channels),
        "clients": known(row.clients), "depth": known(row.depth), "in_flight": known(row.in_flight),
        "messages": known(row.messages),
        "came": rate(row.came), "went": rate(row.went), "answer_ms": known(round(row.answer_ms, 1)),
        "disk_free": known(row.disk_free), "disk_size": known(row.disk_size), "memory": known(row.memory),
        "cpu": known(row.cpu), "draining": row.draining, "drift": row.drift, "connections": known(row.connections),
        "bucket": {key: row.bucket.get(key) for key in ("epoch", "lag_seconds", "lag_bytes")} if row.bucket else None,
        **latency(-1.0, p99_of_buckets([row.recent_times]))}
    if history is not None:
        data["spark"] = history.spark(("/", row.address))
    return data


async def topics_page(moment: Moment, history: History, *, search: str, by: str, descending: bool, offset: int,
                      limit: int) -> Json:
    """A page of the list of topics. Raises ApiError."""
    if by not in BY:
        raise ApiError(400, f"INVALID_ARG_SORT - one of {', '.join(BY)}")
    rows = moment.orders.get((by, descending))
    if rows is None:
        rows = sorted(moment.topics.values(), key=lambda row: row.name)
        if by != "name" or descending:
            rows.sort(key=BY[by], reverse=descending)
        moment.orders[by, descending] = rows
    if search:
        fits, found, pace = fitting(search), list[TopicRow](), Pace()
        for row in rows:
            if fits(row.name):
                found.append(row)
            if pace.over():
                await pace.rest()
        rows = found
    return {"total": len(rows), "offset": offset, "at": round(moment.at, 3),
            "topics": [topic_row(row, history) for row in cut(rows, offset, limit)]}


def fitting(text: str) -> Callable[[str], bool]:
    """See nsqc.admin.patterns.finder. Raises ApiError."""
    try:
        return finder(text)
    except ValueError as error:
        raise ApiError(400, f"INVALID_ARG_SEARCH - {error}") from None


def cut(rows: Sequence[T], offset: int, limit: int) -> Sequence[T]:
    """A page."""
    return rows[offset:offset + min(limit, MOST_ROWS)]


async def search(moment: Moment, text: str) -> list[Json]:
    """Topics, channels and nodes whose names have a text in them, or fit a regular expression: those that begin with
    the text first."""
    wanted, fits = text.lower(), fitting(text)
    pace = Pace()
    found: list[tuple[int, int, int, str, Json]] = []

    def add(first: int, kind: int, name: str, data: Json) -> None:
        found.append((first, kind, len(name), name, data))
        if len(found) > 20 * MOST_FOUND:
            found[:] = best(found)

    for node in moment.nodes.values():
        name = f"{node.address} {node.hostname}"
        if fits(name):
            add(not name.lower().startswith(wanted), 1, name,
                {"kind": "node", "node": node.address, "hint": node.hostname})
    for row in moment.topics.values():
        if fits(row.name):
            add(not row.name.lower().startswith(wanted), 0, row.name, {"kind": "topic", "topic": row.name})
        if pace.over():
            await pace.rest()
    if len(found) < MOST_FOUND or "/" in wanted:
        for row in moment.topics.values():
            if not fits(row.name):
                for name in row.channels:
                    whole = f"{row.name}/{name}"
                    if fits(whole):
                        add(not name.lower().startswith(wanted), 2, whole,
                            {"kind": "channel", "topic": row.name, "channel": name})
            if pace.over():
                await pace.rest()
    return [data for *_, data in best(found)]


def best(found: list[tuple[int, int, int, str, Json]]) -> list[tuple[int, int, int, str, Json]]:
    """Those that come first."""
    return sorted(found, key=lambda each: each[:4])[:MOST_FOUND]


# ====================================================================== packing
# Answers that are compressed for clients that take it, as nsqadmin does.

LEAST = 1024            # bytes that are worth it
ON_A_THREAD = 64 * 1024
NONE = re.compile(r"q=0(\.0*)?")     # the weight of a coding that is refused
VARY = "Vary: Accept-Encoding\r\n"


def packed(route: Route) -> Route:
    """A route whose answers are compressed."""

    def handler(site: object, request: Request) -> object:
        data = route.handler(site, request)
        if hasattr(data, "__await__"):
            return _awaited(route, request, cast("Awaitable[object]", data))
        return _pack(request, route.reply_for(data))

    wrapped: Handler = handler
    return route._replace(handler=wrapped)


async def _awaited(route: Route, request: Request, work: Awaitable[object]) -> Reply:
    reply = route.reply_for(await work)
    if len(reply.body) > ON_A_THREAD and coding_of(request):
        return await asyncio.to_thread(_pack, request, reply)
    return _pack(request, reply)


def _pack(request: Request, reply: Reply) -> Reply:
    coding = coding_of(request)
    if not coding or len(reply.body) < LEAST or reply.stream is not None or "Content-Encoding" in reply.extra:
        return reply
    # 31: the frame of gzip; 15: that of zlib, which HTTP calls deflate.
    worker = zlib.compressobj(1, zlib.DEFLATED, 31 if coding == "gzip" else -15)
    reply.body = worker.compress(reply.body) + worker.flush()
    reply.extra += f"Content-Encoding: {coding}\r\n{VARY}"
    return reply


def coding_of(request: Request, known: tuple[str, ...] = ("gzip", "deflate")) -> str:
    """The coding that a client names first, of those known; empty: none."""
    for part in request.header("Accept-Encoding").lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() in known and not NONE.fullmatch(weight.replace(" ", "")):
            return name.strip()
    return ""


# ====================================================================== view

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
        self.sessions = Sessions()
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

    async def _series(self, key: Key, request: Request) -> Series | None:
        """The requested range, from Prometheus if it has it, otherwise the last hour. Raises ApiError."""
        wanted = Arguments(read_arguments(self.log, request)).text("range", HOUR)
        if wanted not in RANGES:
            raise ApiError(400, f"INVALID_ARG_RANGE - one of {', '.join(RANGES)}")
        found = None if self._prometheus is None else await self._prometheus.series(key, RANGES[wanted])
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
                    "sees_all": rights.sees_all, "sees_any": rights.has(STATS), "grants": rights.listed,
                    "sign": self._sign(request, rights), "csrf": token, "mode": self.mode, "version": __version__,
                    "ranges": [] if self._prometheus is None else [*RANGES],
                    "interval": round(self.poller.interval_s, 1), "time": round(time.time(), 3)})
        reply.extra += cookie_of(request, self.base, token)
        return reply

    def _sign(self, request: Request, rights: Rights) -> str:
        """Whether the user may sign in or out; empty: neither."""
        if self.sessions.authorization_of(request) is not None:
            return "out"
        return "" if rights.is_known else "in"

    async def sign_in(self, request: Request) -> Reply:
        """Begins a session with the token of this request, which was checked before."""
        if request.subject is None or request.authorization is None or not rights_of(request).is_known:
            raise ApiError(401, "UNAUTHORIZED - Authorization must have a token of the access file")
        reply = v1({"user": request.user})
        reply.extra += cookie_of(request, self.base, self.sessions.open(request), SESSION)
        return reply

    async def sign_out(self, request: Request) -> Reply:
        """Ends the session."""
        check_token(request)
        self.sessions.close(request)
        reply = v1({})
        reply.extra += cookie_of(request, self.base, "", SESSION)
        return reply

    async def overview(self, request: Request) -> Json:
        """Sums, the last hour, what needs attention, and the busiest topics."""
        moment, rights = await self.seen(request)
        poller, concerns = self.poller, concerns_for(self.poller.concerns, rights)
        busiest = await topics_page(moment, poller.history, search="", by="came", descending=True, offset=0, limit=8)
        deepest = await topics_page(moment, poller.history, search="", by="depth", descending=True, offset=0, limit=8)
        series = await self._series((), request) if rights.sees_all else None
        return {"at": round(moment.at, 3), "interval": round(poller.interval_s, 1), "error": poller.error,
                "totals": totals_json(moment.totals), "series": series,
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
        return await topics_page(moment, self.poller.history, search=arguments.text("search"),
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
        nodes += [{**part, "seen_at": at} for address, at, each in await self._last_known(moment, name, stats)
                  if (part := node_part(address, nsqstats.Stats(topics=[each]), name)) is not None]
        logs, rules, letters = await asyncio.gather(
            self._logs(moment, name), self._rules(moment, name),
            self._letters(moment, request, rights, name if name in moment.feeders else ""))
        ruled = {each["node"]: each.get("rules") for each in rules}
        return {"at": round(moment.at, 3), **topic_row(row), **self._may(request, rights, name),
                "paused": sum(part["paused"] for part in nodes if part is not None),
                "dead_letters_of": [{"topic": each.topic, "channel": each.name, "dead_letters": each.dead_letters,
                                     "waiting": letters and letters.of(f"{each.topic}/{each.name}"),
                                     "may_publish": rights.may(PUBLISH, each.topic)}
                                    for each in moment.feeders.get(name, [])[:MOST_FEEDERS]],
                "series": await self._series((name,), request),
                "channel_rows": [channel_row(each, history) for each in cut(channels, offset, limit)],
                "node_rows": [part for part in nodes if part is not None],
                "errors": self._errors(moment, stats),
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
                        clients += [{**client_json(client, address), "idle_since": client.idle_since or None,
                                     "backs_off": client.backs_off} for client in its.clients or ()]
        nodes += [{**channel_part(address, its), "clients": 0, "seen_at": at}
                  for address, at, each in await self._last_known(moment, topic, stats)
                  for its in each.channels or () if its.channel_name == name]
        may = self._may(request, rights, topic, name)
        held, logs, rules, letters = await asyncio.gather(
            self._held(moment, topic, name) if may["may_read"] else nothing(), self._logs(moment, topic),
            self._rules(moment, topic, name), self._letters(moment, request, rights, row.dead_topic))
        return {"at": round(moment.at, 3), **channel_row(row), **may, "paused": sum(part["paused"] for part in nodes),
                "series": await self._series((topic, name), request),
                "node_rules": rules, "dead_waiting": letters and letters.of(f"{topic}/{name}"),
                "node_rows": nodes, "held": held,
                "consumers": sorted(clients, key=lambda each: (each["client_id"], each["remote_address"])),
                "positions": [{"node": log["node"], **position} for log in logs if "log" in log
                              for position in listed(log["log"].get("channels"))
                              if position.get("channel_name") == name],
                "errors": self._errors(moment, stats)}

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
        fits = fitting(arguments.text("search"))
        topics: list[NodeTopic] = []
        pace = Pace()
        known: list[NodeTopic] = []
        bucket = None
        shown = node_row(row)
        if not row.error:
            try:
                known = await self._all_of(row.address)
                if row.bucket:
                    bucket = (await self.fleet.get(row.address, upstream.INFO, upstream.info)).bucket
            except UpstreamError as error:
                shown["error"] = error.told
        kept = self.poller.kept.get(row.address)
        if shown["error"] and kept is not None:
            shown["seen_at"] = since(kept.at)
            known = [topic_part(each) async for each in topics_in(kept.answer, pace)]
        if known:
            for each in known:
                if fits(each.name) and rights.may(STATS, each.name):
                    topics.append(each)
                if pace.over():
                    await pace.rest()
        offset, limit = arguments.number("offset", 0, 10**9), arguments.number("limit", 50, 500)
        return {"at": round(moment.at, 3), **shown, "bucket": msgspec.to_builtins(bucket),
                "may_change": rights.may(ADMIN),
                "series": self.poller.history.series((NODE, row.address)) if rights.sees_all else None,
                "total": len(topics), "offset": offset, "topic_rows": [
                    {**msgspec.to_builtins(each), "may_change": rights.may(ADMIN, each.name)}
                    for each in cut(topics, offset, limit)],
                "tombstones": [topic for topic, node in self.poller.listed.tombstones
                               if node == row.address and rights.may(STATS, topic)]}

    async def lookup(self, request: Request) -> Json:
        """Lookup servers, and topics that no node has."""
        moment = await self.moment()
        found = await self.fleet.ask_all(self.fleet.lookupds, LOOKUP_TOPICS, upstream.topic_list)
        names = {name for answer in found.answers.values() for name in answer.topics or ()}
        # A topic of a node that does not answer has a node.
        missing = [row.address for row in moment.nodes.values() if row.error]
        return {"missing": missing,
                "lookupds": [{"address": address, "error": told(found.errors.get(address)),
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

    def _errors(self, moment: Moment, stats: Found[nsqstats.Stats]) -> Json:
        """Why nodes do not show their part."""
        return {**{row.address: row.error for row in moment.nodes.values() if row.error and row.seen_at},
                **{address: told(error) for address, error in stats.errors.items()}}

    def _may(self, request: Request, rights: Rights, topic: str, channel: str = "") -> dict[str, bool]:
        """The actions that the page may offer for a topic or a channel."""
        people = self.people
        return {"may_change": people.may_change(request) and rights.may(ADMIN, topic, channel),
                "may_publish": people.may_change(request) and people.may_extend(request) and rights.may(PUBLISH, topic),
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

    async def _last_known(self, moment: Moment, topic: str, stats: Found[nsqstats.Stats]
                          ) -> list[tuple[str, float, TopicStats]]:
        """A topic on nodes that did not answer the latest poll or do not answer now, as they had it: address, time,
        numbers."""
        found: list[tuple[str, float, TopicStats]] = []
        pace = Pace()
        for address, row in moment.nodes.items():
            kept = self.poller.kept.get(address)
            if kept is not None and (row.error or address in stats.errors):
                async for each in topics_in(kept.answer, pace):
                    if each.topic_name == topic:
                        found.append((address, round(kept.at, 3), each))
        return found

    async def _all_of(self, address: str) -> list[NodeTopic]:
        """All topics of a node; cached for a moment, since clients request pages of them."""
        now = time.monotonic()
        known = self._stats.get(address)
        if known is None or now - known[0] > self.poller.interval_s / 2:
            # All users share it, so no user's token is sent; each sees the topics of their grants.
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
                return {"node": address, "error": error.short}
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
            {"node": address, "error": error.short} for address, error in sorted(found.errors.items())]

    async def _letters(self, moment: Moment, request: Request, rights: Rights, topic: str) -> WaitingLetters | None:
        """The letters that wait in a dead-letter topic; None: it has no log, or the user may not read it."""
        if not topic or not (self.people.may_extend(request) and rights.may(READ, topic)):
            return None
        found = await self.fleet.ask_all([row.address for row in self.having(moment, topic) if row.nsqc],
                                         Ask("GET", target("/dead/list", topic=topic)), json_of)
        letters = WaitingLetters({}, any(page.get("next") is not None for page in found.answers.values()))
        for page in found.answers.values():
            for group in listed(page.get("groups")):
                origin, number = group.get("origin"), group.get("count")
                if isinstance(origin, str) and isinstance(number, int):
                    letters.counts[origin] = letters.counts.get(origin, 0) + number
        return letters if found.answers else None

    async def _held(self, moment: Moment, topic: str, channel: str) -> list[Json]:
        """Messages in flight, of nodes that show them: the oldest delivery first."""
        ask = Ask("GET", target("/channel/peek", topic=topic, channel=channel, state="in_flight", body="none",
                                max_messages=50))
        found = await self.fleet.ask_all([row.address for row in self.having(moment, topic) if row.nsqc], ask, json_of)
        held = [{**message, "node": address} for address, page in found.answers.items()
                for message in listed(page.get("messages"))]
        return sorted(held, key=delivered_at)[:50]


def told(error: UpstreamError | None) -> str:
    """An error for people; empty without one."""
    return "" if error is None else error.told


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


class WaitingLetters(NamedTuple):
    """How many dead letters wait, by TOPIC/CHANNEL of their origin. more: there are more than were counted."""

    counts: dict[str, int]
    more: bool

    def of(self, origin: str) -> Json:
        """Those of an origin."""
        return {"count": self.counts.get(origin, 0), "more": self.more}


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
