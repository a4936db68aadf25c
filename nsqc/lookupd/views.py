"""Lookups: /ping, /info, /lookup, /topics, /channels, /nodes, /debug.

Keys and their order are nsqlookupd's; as there, a star as the topic stands for all topics.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from time import monotonic_ns, time_ns

import msgspec
from msgspec import UNSET

from nsqc import NSQD_VERSION
from nsqc.access.needs import ADMIN, CHANNEL, GRANTS, KNOWN, OPEN, OPEN_OWN, PART, STATS, TOPIC, Need, local, need, own
from nsqc.httpd import debug
from nsqc.httpd.reply import JSON, ApiError, Handler, Reply, Request, Route
from nsqc.httpd.routing import Router, Table, at_first, livez, plain_answer, plain_route, probe_route, readiness
from nsqc.lookupd.registry import A_TOPIC, ALL, Parts, Peer, Registration, Registry
from nsqc.lookupd.site import LookupSite
from nsqc.net.listener import not_accepting
from nsqc.wire.parser import is_valid_name

# ====================================================================== views

# Go's text for a time that was never set.
NEVER = -6795364578871345152

FEW = 10_000    # names, joined in less than a millisecond

_encode = msgspec.json.Encoder().encode


def ping(site: LookupSite, request: Request) -> str:
    """OK."""
    return "OK"


def readyz(site: LookupSite, request: Request) -> Reply:
    """200, or 503 and the reasons: whether nodes and clients can connect."""
    refusing = not_accepting(site.hub.limits, site.listeners)
    return readiness((["stopping"] if site.hub.closing else []) + ([] if refusing is None else [refusing]))


def info(site: LookupSite, request: Request) -> dict[str, str]:
    """The version."""
    return {"version": NSQD_VERSION}


def arguments(request: Request) -> dict[bytes, bytes]:
    """The query's arguments. Raises ApiError."""
    try:
        given = request.arguments()
    except ValueError:
        raise ApiError(400, "INVALID_REQUEST") from None
    if request.broken:
        raise ApiError(400, "INVALID_REQUEST")
    return given


def argument(given: dict[bytes, bytes], name: str) -> bytes:
    """One argument. Raises ApiError."""
    value = given.get(name.encode())
    if value is None:
        raise ApiError(400, f"MISSING_ARG_{name.upper()}")
    return value


def lookup(site: LookupSite, request: Request) -> Reply | Awaitable[Reply]:
    """The nodes that have a topic, and its channels."""
    topic = argument(arguments(request), "topic").decode("utf-8", "replace")
    found = site.registry.find_topics(topic)
    if not found:
        raise ApiError(404, "TOPIC_NOT_FOUND")
    if topic == ALL:
        return _lookup_all(site)
    channels = b",".join([channel.quoted for channel in site.registry.find_channels(topic)])
    producers = b",".join([peer.json for peer in site.registry.producers(found)])
    return Reply(200, b'{"channels":[%b],"producers":[' % channels, JSON, nsq=True, parts=[producers, b"]}"])


async def _lookup_all(site: LookupSite) -> Reply:
    async with site.surveys:
        await site.untaken.room()
        registry, parts = site.registry, Parts(site.share)
        await parts.items((channel.quoted for channel in registry.find_channels(ALL)), b'{"channels":[',
                          b'],"producers":[')
        first: dict[Peer, int] = {}
        for topic in registry.find_topics(ALL):
            await site.share.rest()
            for peer, marked in topic.producers.items():
                first.setdefault(peer, marked)
        await parts.items((peer.json for peer in registry.active(first) if not registry.is_tombstoned(first[peer])),
                          tail=b"]}")
        return parts.reply()


def topics(site: LookupSite, request: Request) -> Reply | Awaitable[Reply]:
    """The names of all topics."""
    return _names(site, b"topics", site.registry.find_topics(ALL))


def channels(site: LookupSite, request: Request) -> Reply | Awaitable[Reply]:
    """The names of a topic's channels."""
    topic = argument(arguments(request), "topic").decode("utf-8", "replace")
    return _names(site, b"channels", site.registry.find_channels(topic))


def _names(site: LookupSite, title: bytes, found: list[Registration]) -> Reply | Awaitable[Reply]:
    """Immediately if they are few: nodes wait for the channels of a new topic."""
    if len(found) <= FEW:
        names = b",".join([one.quoted for one in found])
        return Reply(200, b'{"%b":[%b]}' % (title, names), JSON, nsq=True)
    return _many_names(site, title, found)


async def _many_names(site: LookupSite, title: bytes, found: list[Registration]) -> Reply:
    async with site.surveys:
        await site.untaken.room()
        parts = Parts(site.share)
        await parts.items((one.quoted for one in found), b'{"%b":[' % title, b"]}")
        return parts.reply()


async def nodes(site: LookupSite, request: Request) -> Reply:
    """All nodes with their topics, and whether each is tombstoned."""
    async with site.surveys:
        await site.untaken.room()
        registry, parts = site.registry, Parts(site.share)
        await parts.items((_node(registry, peer) for peer in registry.active(registry.clients.producers)
                           if peer.listed and not peer.gone), b'{"producers":[', b"]}")
        return parts.reply()


def _node(registry: Registry, peer: Peer) -> bytes:
    own = [one for one in peer.registrations if one.category is A_TOPIC]
    if peer.tombstones:
        marks = b",".join([b"true" if registry.is_tombstoned(one.producers[peer]) else b"false" for one in own])
    else:
        marks = b",".join([b"false"] * len(own))
    names = b",".join([one.quoted for one in own])
    return b'%b,"tombstones":[%b],"topics":[%b]}' % (peer.json[:-1], marks, names)


async def debug_page(site: LookupSite, request: Request) -> Reply:
    """Every registration that has a node, active or not."""
    async with site.surveys:
        await site.untaken.room()
        parts = Parts(site.share)
        parts.add(b"{")
        first = True
        for registration in site.registry.all():
            peers = [peer for peer in registration.producers if not peer.gone]
            if peers:
                name = _encode(f"{registration.category}:{registration.key}:{registration.subkey}")
                await parts.items(_entries(registration, peers), (b"" if first else b",") + name + b":[", b"]")
                first = False
            await site.share.rest()
        parts.add(b"}")
        return parts.reply()


def _entries(registration: Registration, peers: list[Peer]) -> Iterator[bytes]:
    since_boot = time_ns() - monotonic_ns()
    for peer in peers:
        marked = registration.producers.get(peer)
        if marked is None:
            continue
        info = peer.info
        entry = {
            "broadcast_address": info.broadcast_address, "hostname": info.hostname, "http_port": info.http_port,
            "id": peer.id, "last_update": peer.seen + since_boot, "tcp_port": info.tcp_port,
            "tombstoned": marked != 0, "tombstoned_at": marked + since_boot if marked else NEVER,
            "topology_region": info.topology_region, "topology_zone": info.topology_zone, "version": info.version}
        yield _encode({name: value for name, value in entry.items() if value is not UNSET})


# ====================================================================== admin
# Calls that change the registry: create and delete topics and channels, tombstone nodes.

def create_topic(site: LookupSite, request: Request) -> None:
    """Adds a topic."""
    name = _valid(arguments(request), "topic")
    _need_room(site, name)
    site.log.info("DB: adding topic(%s)", name)
    site.registry.add_topic(name)


def create_channel(site: LookupSite, request: Request) -> None:
    """Adds a channel and its topic."""
    given = arguments(request)
    topic, channel = _valid(given, "topic"), _valid(given, "channel")
    _need_room(site, topic, channel)
    site.log.info("DB: adding channel(%s) in topic(%s)", channel, topic)
    site.registry.add_channel(topic, channel)
    site.log.info("DB: adding topic(%s)", topic)
    site.registry.add_topic(topic)


def delete_topic(site: LookupSite, request: Request) -> Awaitable[None]:
    """Removes a topic and its channels, until a node registers them again."""
    return _delete_topic(site, argument(arguments(request), "topic").decode("utf-8", "replace"))


async def _delete_topic(site: LookupSite, topic: str) -> None:
    for channel in site.registry.find_channels(topic):
        site.log.info("DB: removing channel(%s) from topic(%s)", channel.subkey, topic)
        site.registry.forget(channel)
        await site.share.rest()
    for known in site.registry.find_topics(topic):
        site.log.info("DB: removing topic(%s)", topic)
        site.registry.forget(known)
        await site.share.rest()


def delete_channel(site: LookupSite, request: Request) -> None:
    """Removes a channel, until a node registers it again."""
    given = arguments(request)
    topic, channel = _valid(given, "topic"), _valid(given, "channel")
    known = site.registry.channels.get(topic, {}).get(channel)
    if known is None:
        raise ApiError(404, "CHANNEL_NOT_FOUND")
    site.log.info("DB: removing channel(%s) from topic(%s)", channel, topic)
    site.registry.forget(known)


def tombstone(site: LookupSite, request: Request) -> None:
    """Hides a node from lookups of a topic for a while, before the node drops the topic."""
    given = arguments(request)
    topic = argument(given, "topic").decode("utf-8", "replace")
    node = argument(given, "node").decode("utf-8", "replace")
    site.log.info("DB: setting tombstone for producer@%s of topic(%s)", node, topic)
    site.registry.tombstone(site.registry.find_topics(topic), node)


def _need_room(site: LookupSite, topic: str, channel: str = "") -> None:
    if not site.registry.has_room(topic, channel):
        raise ApiError(403, f"TOO_MANY_REGISTRATIONS - --max-registrations is {site.registry.most}")


def _valid(given: dict[bytes, bytes], name: str) -> str:
    """A required name argument. Raises ApiError."""
    value = argument(given, name)
    if not is_valid_name(value):
        raise ApiError(400, f"INVALID_ARG_{name.upper()}")
    return value.decode()


# ====================================================================== router
# The routes of the lookup server's API, and the permissions that each requires.

_FINDING = Need(GRANTS, PART)      # clients with any grant for a topic, or a channel of it, may look up its nodes


def _call(handler: Handler, needed: Need) -> Route:
    """A call with arguments reads the whole request, though it ignores the body."""
    return Route(handler, needed, reads_body=True)


ROUTES: Table = {
    b"GET": {
        b"/ping": plain_route(ping, OPEN),
        b"/livez": probe_route(livez, OPEN_OWN),
        b"/readyz": probe_route(readyz, OPEN_OWN),
        b"/info": Route(info, KNOWN),
        b"/lookup": _call(lookup, _FINDING),
        b"/topics": Route(topics, need(STATS)),
        b"/channels": _call(channels, _FINDING),
        b"/nodes": Route(nodes, need(STATS)),
        b"/metrics": plain_answer(at_first("nsqc.lookupd.metrics", "metrics"), own(STATS)),
        b"/debug": Route(debug_page, need(STATS)),
        b"/debug/pprof": plain_answer(debug.index, need(ADMIN)),
        b"/debug/pprof/cmdline": plain_answer(debug.cmdline, need(ADMIN)),
        b"/debug/pprof/profile": plain_answer(debug.profile, need(ADMIN)),
        b"/debug/pprof/heap": plain_answer(debug.heap, need(ADMIN)),
        b"/debug/pprof/goroutine": plain_answer(debug.stacks, need(ADMIN)),
        b"/debug/pprof/threadcreate": plain_answer(debug.threads, need(ADMIN)),
        b"/debug/slow": plain_answer(debug.slow, local(ADMIN)),
    },
    b"POST": {
        b"/topic/create": _call(create_topic, need(ADMIN, TOPIC)),
        b"/topic/delete": _call(delete_topic, need(ADMIN, TOPIC)),
        b"/topic/tombstone": _call(tombstone, need(ADMIN, TOPIC)),
        b"/channel/create": _call(create_channel, need(ADMIN, CHANNEL)),
        b"/channel/delete": _call(delete_channel, need(ADMIN, CHANNEL)),
    },
}

PATHS = [path.decode() for table in ROUTES.values() for path in table if not path.startswith(b"/debug/")]
resolve = Router(ROUTES, {}).resolve
