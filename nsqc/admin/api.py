"""nsqadmin's API, for scripts. Answers, words and the order of checks are nsqadmin's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from nsqc.access.needs import ADMIN, STATS
from nsqc.admin.changes import Result, failures
from nsqc.admin.classic import node_json, summed_channel, summed_topic, topic_json
from nsqc.admin.fleet import NSQD, AllFailed, Fleet, Known, topics_in, version_key, warning
from nsqc.admin.pace import Pace
from nsqc.admin.rights import rights_of
from nsqc.admin.shapes import Producer, encode
from nsqc.admin.shapes import channel_list as decode_channels
from nsqc.admin.site import AdminSite
from nsqc.admin.upstream import Ask, UpstreamError, target
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request, read_arguments
from nsqc.wire.names import is_valid_name
from nsqc.wire.outside import Decoder, Json, JSONError

ACTIONS = ("pause", "unpause", "empty")


class _Created(msgspec.Struct):
    """The body of POST /api/topics."""

    topic: str = ""
    channel: str = ""


class _Action(msgspec.Struct):
    """The body of an action, and of a tombstone."""

    action: str = ""
    topic: str = ""


_created = Decoder(_Created).decode
_action = Decoder(_Action).decode

Handler = Callable[[AdminSite, Request], Awaitable[object]]


def reading(handler: Handler) -> Handler:
    """A handler whose questions may all fail."""

    async def wrapped(site: AdminSite, request: Request) -> object:
        try:
            return await handler(site, request)
        except AllFailed as error:
            site.log.error("failed to answer %s - %s", request.path.decode("latin-1"), error)
            raise ApiError(502, f"UPSTREAM_ERROR: {error}") from None

    return wrapped


def changing(handler: Handler) -> Handler:
    """The same for calls that change something."""
    inner = reading(handler)

    async def wrapped(site: AdminSite, request: Request) -> object:
        request.user = site.people.user_of(request)
        site.people.check_change(request)
        return await inner(site, request)

    return wrapped


def ping(site: AdminSite, request: Request) -> str:
    """Whether the admin server runs."""
    return "OK"


# ---------------------------------------------------------------------- reads

@reading
async def topics(site: AdminSite, request: Request) -> Json:
    """The names of all topics, or with inactive=true those without a producer, with their channels."""
    found = await site.fleet.topics()
    rights = rights_of(request)
    names = sorted({name for each in found.answers.values() for name in each if rights.may(STATS, name)})
    inactive = read_arguments(site.log, request).get(b"inactive") == b"true"
    if not inactive:
        return {"topics": names, "message": found.warning()}
    return {"topics": await _inactive(site.fleet, names), "message": found.warning()}


async def _inactive(fleet: Fleet, names: list[str]) -> dict[str, list[str] | None]:
    result: dict[str, list[str] | None] = {}
    if not fleet.has_lookupds:
        return result
    for name in names:
        producers, _ = await fleet.producers(name)
        if not producers:
            ask = Ask("GET", target("/channels", topic=name))
            found = await fleet.ask_all(fleet.lookupds, ask, decode_channels)
            result[name] = sorted({each for answer in found.answers.values() for each in answer.channels or ()}) or None
    return result


async def _parts(site: AdminSite, topic: str, channel: str, clients: bool) -> tuple[list[Json], list[str]]:
    """A topic as each node has it, and errors."""
    producers, errors = await site.fleet.producers(topic)
    stats = await site.fleet.stats(producers, topic, channel, clients)
    hosts = {each.http: each.hostname for each in producers}
    parts = [topic_json(each, address, hosts[address], clients) for address, answer in stats.answers.items()
             for each in answer.topics or () if each.topic_name == topic]
    return parts, [*map(str, errors.values()), *map(str, stats.errors.values())]


@reading
async def topic(site: AdminSite, request: Request) -> Json:
    """A topic over all nodes."""
    rights_of(request).require(STATS, request.param)
    parts, errors = await _parts(site, request.param, "", False)
    return {**summed_topic(parts, request.param), "message": warning(errors)}


@reading
async def channel(site: AdminSite, request: Request) -> Json:
    """A channel over all nodes, with clients. One that no node has is an empty answer, as nsqadmin's."""
    name, _, wanted = request.param.partition("/")
    rights_of(request).require(STATS, name)
    parts, errors = await _parts(site, name, wanted, True)
    channels = [each for part in parts for each in part["channels"] if each["channel_name"] == wanted]
    if not channels:
        return {"message": warning(errors)}
    return {**summed_channel(channels, name, wanted, True), "message": warning(errors)}


@reading
async def nodes(site: AdminSite, request: Request) -> Json:
    """All nodes."""
    known, errors = await site.fleet.known()
    newest = max((version_key(node.producer.version) for node in known), default=())
    return {"nodes": [node_json(node, newest) for node in known], "message": warning(errors.values())}


async def _node_named(site: AdminSite, address: str) -> tuple[Known, list[str]]:
    known, errors = await site.fleet.known()
    for node in known:
        if node.address == address:
            return node, [*map(str, errors.values())]
    raise ApiError(404, "NODE_NOT_FOUND")


@reading
async def node(site: AdminSite, request: Request) -> Json:
    """A node with its topics."""
    found, errors = await _node_named(site, request.param)
    stats = await site.fleet.raw_stats([found.producer], clients=True)
    listed, messages, clients = [], 0, 0
    pace = Pace()
    async for each in topics_in(stats.answers[found.address], pace):
        messages += each.message_count
        clients += sum(len(its.clients or ()) for its in each.channels or ())
        # Encoded one by one: all of them at once would take the loop too long.
        listed.append(msgspec.Raw(encode(topic_json(each, found.address, found.producer.hostname, True))))
    return {"node": found.address, "topics": listed, "total_messages": messages, "total_clients": clients,
            "message": warning(errors)}


@reading
async def counter(site: AdminSite, request: Request) -> Json:
    """How many messages each channel of each node has received."""
    known, errors = await site.fleet.known()
    stats = await site.fleet.raw_stats([node.producer for node in known])
    counts: list[bytes] = []
    pace = Pace()
    for address, answer in stats.answers.items():
        async for each in topics_in(answer, pace):
            for its in each.channels or ():
                count = {"node": address, "topic_name": each.topic_name, "channel_name": its.channel_name,
                         "message_count": its.message_count}
                counts.append(encode(f"{each.topic_name}:{its.channel_name}:{address}") + b":" + encode(count))
    return {"stats": msgspec.Raw(b"{%b}" % b",".join(counts)),
            "message": warning([*errors.values(), *stats.errors.values()])}


# ---------------------------------------------------------------------- changes

def _body(request: Request, decode: Callable[[bytes], Any], word: str = "") -> Any:     # Any: one of the structs
    """The decoded body. An error is the decoder's text, or a word."""
    if not request.body.strip():
        raise ApiError(400, word or "EOF")
    try:
        return decode(request.body)
    except JSONError as error:
        raise ApiError(400, word or _as_go(request.body, str(error))) from None


def _as_go(body: bytes, text: str) -> str:
    """The words of Go's decoder for a body that is not JSON."""
    first = body.lstrip()[:1].decode("latin-1")
    if first and first not in '{["-0123456789tfn':
        return f"invalid character '{first}' looking for beginning of value"
    return text


def _named(name: str, word: str) -> str:
    if not is_valid_name(name.encode()):
        raise ApiError(400, word)
    return name


def _result(results: list[Result], errors: dict[str, UpstreamError] | None = None) -> Json:
    return {"message": warning([*map(str, (errors or {}).values()), *failures(results)])}


@changing
async def create(site: AdminSite, request: Request) -> Json:
    """Creates a topic, and a channel of it."""
    body = _body(request, _created)
    _named(body.topic, "INVALID_TOPIC")
    if body.channel:
        _named(body.channel, "INVALID_CHANNEL")
    rights_of(request).require(ADMIN, body.topic)
    request.param = f"{body.topic}/{body.channel}".rstrip("/")
    if site.fleet.has_lookupds:
        # Nodes take a new topic from a lookup server when it is first published to; channels go to those that have it.
        producers = await _producers_or_none(site.fleet, body.topic) if body.channel else []
        nodes = [each.http for each in producers]
    else:
        nodes = [*site.fleet.nsqds]
    results = await site.changes.create(body.topic, body.channel, nodes)
    site.notify("create_topic", request, topic=body.topic)
    if body.channel:
        site.notify("create_channel", request, topic=body.topic, channel=body.channel)
    return _result(results)


async def _producers_or_none(fleet: Fleet, topic: str) -> list[Producer]:
    try:
        return (await fleet.producers(topic))[0]
    except AllFailed:
        return []


@changing
async def delete(site: AdminSite, request: Request) -> Json:
    """Deletes a topic or a channel."""
    topic, _, channel = request.param.partition("/")
    rights_of(request).require(ADMIN, topic, channel)
    producers, errors = await site.fleet.producers(topic)
    if not producers and not site.fleet.has_lookupds:
        raise AllFailed(NSQD, ())
    results = await site.changes.delete(topic, channel, [each.http for each in producers])
    site.notify("delete_channel" if channel else "delete_topic", request, topic=topic, channel=channel)
    return _result(results, errors)


@changing
async def act(site: AdminSite, request: Request) -> Json:
    """Pauses, unpauses or empties a topic or a channel."""
    topic, _, channel = request.param.partition("/")
    rights_of(request).require(ADMIN, topic, channel)
    body = _body(request, _action)
    if body.action not in ACTIONS:
        raise ApiError(400, "INVALID_ACTION")
    request.param = f"{body.action} {request.param}"
    try:
        producers, errors = await site.fleet.producers(topic)
        results = await site.changes.act(body.action, topic, channel, [each.http for each in producers])
    finally:
        site.notify(f"{body.action}_{'channel' if channel else 'topic'}", request, topic=topic, channel=channel)
    if not producers:
        raise AllFailed(NSQD, ())
    return _result(results, errors)


@changing
async def tombstone(site: AdminSite, request: Request) -> Json:
    """Hides a topic of a node, and deletes it there."""
    node = request.param
    body = _body(request, _action, "INVALID_BODY")
    topic = _named(body.topic, "INVALID_TOPIC")
    rights_of(request).require(ADMIN, topic)
    if not await site.fleet.has_node(node):     # not any address that a user names
        raise ApiError(404, "NODE_NOT_FOUND")
    request.param = f"{topic} on {node}"
    results = await site.changes.tombstone(topic, node)
    if not results[-1].ok and not results[-1].status:
        raise ApiError(502, f"UPSTREAM_ERROR: {results[-1].message}")
    site.notify("tombstone_topic_producer", request, topic=topic, node=node)
    return _result(results)
