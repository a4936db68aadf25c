"""nsqadmin's API, for scripts. Answers, words and the order of checks are nsqadmin's."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from html import escape
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar
from urllib.parse import quote

import msgspec

from nsqc.access.needs import ADMIN, GRANTS, NODE, NOTHING, OPEN, OPEN_OWN, PUBLISH, READ, STATS, Need, need
from nsqc.admin.actions import Actions
from nsqc.admin.changes import Changes, Notifier, Result, failures, notification
from nsqc.admin.fleet import NSQD, AllFailed, Fleet, Known, topics_in, version_key, warning
from nsqc.admin.messages import Messages
from nsqc.admin.rights import People, Sessions, check_token, rights_of
from nsqc.admin.upstream import Ask, Pace, Producer, UpstreamError, encode, target
from nsqc.admin.upstream import channel_list as decode_channels
from nsqc.admin.view import VARY, View, coding_of, node_json, packed, summed_channel, summed_topic, topic_json
from nsqc.httpd.gate import Gate
from nsqc.httpd.reply import HTML, JSON, ApiError, Handler, Reply, Request, Route, fixed, plain, read_arguments, v1
from nsqc.httpd.routing import Router, Table, livez, plain_answer, plain_route, probe_route
from nsqc.httpd.site import Resolve, Site
from nsqc.log import LEVELS, Log
from nsqc.log.formats import mask_address
from nsqc.loop.slow import SlowLoop
from nsqc.net.address import split_address
from nsqc.net.listener import Listeners
from nsqc.net.url import parse_server
from nsqc.options.servers import ADMIN_SERVER, AdminOptions
from nsqc.peers.http import Answer, AnswerError, Dialer, ask, request
from nsqc.wire.gojson import GoJSONError, decode_strings
from nsqc.wire.outside import Decoder, Json, JSONError
from nsqc.wire.parser import is_valid_name

# ====================================================================== static
# The files of the page, read once and compressed once. Their path has their hash, so browsers keep them for good.

FOLDER = Path(__file__).parent / "page"
TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".html": HTML,
         ".svg": "image/svg+xml"}
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
          "base-uri 'self'; form-action 'none'; frame-ancestors 'none'")
GUARDS = (f"Content-Security-Policy: {POLICY}\r\nReferrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n"
          "Cross-Origin-Opener-Policy: same-origin\r\n")
FOR_GOOD = "Cache-Control: public, max-age=31536000, immutable\r\n"
EACH_TIME = "Cache-Control: no-cache\r\n"
INDEX = "index.html"


class File(NamedTuple):
    """A file, as it is and compressed."""

    kind: str
    plain: bytes
    packed: bytes


class Page:
    """All files. Raises OSError."""

    def __init__(self, folder: str = "", base: str = "") -> None:
        """folder: in place of those inside nsqc; base: path before that of the page, without a slash at its end."""
        self._base = base
        self._fresh = Path(folder) if folder else None      # read for each request
        self._files = read(self._fresh or FOLDER)
        digest = hashlib.blake2b(digest_size=8)
        for name, file in sorted(self._files.items()):
            digest.update(name.encode() + file.plain)
        self._key = digest.hexdigest()
        self._index = self._made_index()

    def _made_index(self) -> File:
        text = self._files[INDEX].plain.decode()
        text = text.replace("{base}", escape(self._base + "/")).replace("{files}", f"static/{self._key}/")
        plain = text.encode()
        return File(HTML, plain, gzip.compress(plain, 9, mtime=0))

    def index(self, request: Request) -> Reply:
        """The page. It says where its files are."""
        if self._fresh is not None:
            self.__init__(str(self._fresh), self._base)  # type: ignore[misc]
        return served(request, self._index, EACH_TIME)

    def file(self, request: Request) -> Reply:
        """A file: HASH/NAME, or NAME alone."""
        key, slash, name = request.param.rpartition("/")
        file = self._files.get(name)
        if file is None or name == INDEX or (slash and key != self._key):
            raise ApiError(404, "NOT_FOUND")
        return served(request, file, FOR_GOOD if slash else EACH_TIME)


def read(folder: Path) -> dict[str, File]:
    """All files of a folder by name. Raises OSError."""
    return {path.name: File(TYPES[path.suffix], data := path.read_bytes(), gzip.compress(data, 9, mtime=0))
            for path in sorted(folder.iterdir()) if path.suffix in TYPES}


def served(request: Request, file: File, caching: str) -> Reply:
    """A file for a browser."""
    packed = bool(coding_of(request, ("gzip",)))
    extra = GUARDS + caching + VARY + ("Content-Encoding: gzip\r\n" if packed else "")
    return Reply(200, file.packed if packed else file.plain, file.kind, extra=extra)


# ====================================================================== site
# The state that the handlers of the admin server work on.

MOST_BODY = 1024 * 1024     # bytes of a request's body


class AdminSite(Site):
    """Shared by all HTTP connections of an admin server."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop, options: AdminOptions, fleet: Fleet, page: Page,
                 people: People, notifier: Notifier | None, log: Log, threads: Executor, resolve: Resolve,
                 listeners: Listeners, slow: SlowLoop, gate: Gate) -> None:
        super().__init__(log=log, resolve=resolve, threads=threads,
                         header_timeout=options.http_header_timeout, slow=slow, gate=gate)
        self.loop = loop
        self.options = options
        self.fleet = fleet
        self.changes = Changes(fleet)
        self.page = page
        self.people = people
        self.listeners = listeners
        self._notifier = notifier

    def notify(self, action: str, request: Request, *, topic: str, channel: str = "", node: str = "") -> None:
        """Tells the endpoint of a change."""
        if self._notifier is not None:
            self._notifier.send(notification(action, request, self.people.user_of(request), self.options.prefix,
                                             topic=topic, channel=channel, node=node))


# ====================================================================== api

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

AdminHandler = Callable[[AdminSite, Request], Awaitable[object]]


def reading(handler: AdminHandler) -> AdminHandler:
    """A handler whose questions may all fail."""

    async def wrapped(site: AdminSite, request: Request) -> object:
        try:
            return await handler(site, request)
        except AllFailed as error:
            site.log.error("failed to answer %s - %s", request.path.decode("latin-1"), error)
            raise ApiError(502, f"UPSTREAM_ERROR: {error}") from None

    return wrapped


def changing(handler: AdminHandler) -> AdminHandler:
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

T = TypeVar("T")


def _body(request: Request, decode: Callable[[bytes], T], word: str = "") -> T:
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


# ====================================================================== own
# The routes of nsqc's own API, for the admin server and for the page of a single daemon.

Trees = dict[tuple[bytes, bytes, int], Route]
Call = Callable[[Request], Awaitable[object]]
Wrap = Callable[[Call], Call]
API = b"/api/v1/"


def _same(call: Call) -> Call:
    return call


def routes(view: View, looking: Need | None = None, wrap: Wrap = _same) -> tuple[Table, Trees]:
    """looking: the need of calls whose own calls to nodes are checked for the user, and recorded; None: no such check
    is made. wrap: a decorator of each call. The calls themselves check which topics and channels a grant covers
    (nsqc.admin.rights)."""
    actions, messages = Actions(view), Messages(view)
    local = looking is not None

    def read(call: Call, *grants: str, of: str = NOTHING) -> Route:
        return packed(Route(_handler(wrap(call)), Need(grants or GRANTS, of, own=True, local=local), logged=False))

    def change(call: Call, *grants: str) -> Route:
        return packed(Route(_handler(wrap(_changing(view, call))), looking or Need(grants, NOTHING, own=True),
                            reads_body=True, body_limit=MOST_BODY))

    table: Table = {
        b"GET": {
            API + b"session": read(view.session),
            API + b"overview": read(view.overview),
            API + b"attention": read(view.attention),
            API + b"topics": read(view.topics),
            API + b"search": read(view.search),
            API + b"nodes": read(view.nodes),
            API + b"lookup": read(view.lookup, STATS, of=NODE),
            API + b"rules": read(view.rules),
            API + b"audit": read(view.audit, READ, ADMIN),
            API + b"messages": read(messages.page, READ),
        },
        b"POST": {
            API + b"signin": read(view.sign_in),
            API + b"signout": Route(_handler(wrap(view.sign_out)), OPEN_OWN, logged=False),
            API + b"actions": change(actions.act, ADMIN),
            API + b"publish": change(messages.publish, ADMIN, PUBLISH),
        },
    }
    trees: Trees = {
        (b"GET", API + b"topics/", 1): read(view.topic),
        (b"GET", API + b"topics/", 2): read(view.channel),
        (b"GET", API + b"nodes/", 1): read(view.node),
    }
    return table, trees


def _handler(call: Call) -> Callable[[object, Request], object]:
    return lambda site, request: call(request)


def _changing(view: View, call: Call) -> Call:
    """A call that changes something, for permitted users, from this page or from a program."""

    async def checked(request: Request) -> object:
        request.user = view.people.user_of(request)
        check_token(request)
        view.people.check_change(request)
        return await call(request)

    return checked


# ====================================================================== graphite
# /api/graphite and /render: numbers and pictures of Graphite, for pages made for nsqadmin.

KINDS = ((b"\x89PNG", "image/png"), (b"[", JSON), (b"{", JSON))
SAFE = "!$&'()*+,-./:;=?@_~%"


class _Series(msgspec.Struct):
    """One series of an answer."""

    datapoints: list[tuple[float | None, float]] = []


_series = Decoder(list[_Series]).decode


async def rate(site: AdminSite, asked: Request) -> dict[str, str]:
    """The latest rate of a series, a second."""
    arguments = read_arguments(site.log, asked)
    if arguments.get(b"metric") != b"rate":
        raise ApiError(400, "INVALID_ARG_METRIC")
    series = arguments.get(b"target", b"").decode("utf-8", "replace")
    if not series:
        raise ApiError(400, "INVALID_ARG_TARGET")
    try:
        answer = await _ask(site, f"/render?from=-120sec&until=-60sec&format=json&target={quote(series, safe='')}")
        points = [value for each in _series(answer.body) for value, _ in each.datapoints if value is not None]
    except (OSError, ValueError, AnswerError, JSONError) as error:
        site.log.error("failed to query Graphite - %s", error)
        raise ApiError(500, "INTERNAL_ERROR") from None
    per_s = (points[0] if points else -1.0) / (site.options.statsd_interval / 1e9)
    return {"rate": f"{per_s:.2f}" if per_s >= 0 else "N/A"}


async def render(site: AdminSite, asked: Request) -> Reply:
    """Passes on Graphite's answer, with --proxy-graphite."""
    if not site.options.proxy_graphite or not site.options.graphite_url:
        raise ApiError(404, "NOT_FOUND")
    query = quote(asked.query.decode("latin-1"), safe=SAFE)
    try:
        answer = await _ask(site, f"/render?{query}")
    except (OSError, ValueError, AnswerError) as error:
        site.log.error("failed to query Graphite - %s", error)
        raise ApiError(502, "UPSTREAM_ERROR: Graphite does not answer") from None
    # By its first bytes, not by its own header: nothing that a browser would run.
    kind = next((kind for start, kind in KINDS if answer.body.startswith(start)), "application/octet-stream")
    return Reply(200, answer.body, kind)


async def _ask(site: AdminSite, target: str) -> Answer:
    """Raises OSError, ValueError, AnswerError."""
    if not site.options.graphite_url:
        raise ValueError("--graphite-url is not set")
    server = parse_server(site.options.graphite_url)
    loop = asyncio.get_running_loop()
    limit = site.options.http_client_request_timeout / 1e9
    data = request("GET", server.host, server.target.rstrip("/") + target)
    async with asyncio.timeout(limit):
        return await ask(loop, Dialer(loop), server.address, data, limit, ssl.create_default_context() if server.tls
                         else None)


# ====================================================================== config
# /config/OPTION: nsqadmin's options while it runs.

LOOKUPDS = "nsqlookupd_http_addresses"
SECRET = ("node_auth_secret",)


def get(site: AdminSite, request: Request) -> object:
    """One option by its key in the config file."""
    _check(site, request)
    return _value(site, request.param)


def put(site: AdminSite, request: Request) -> object:
    """Changes log_level or nsqlookupd_http_addresses; returns the new value."""
    _check(site, request)
    if site.options.read_only:
        raise ApiError(403, "READ_ONLY")
    if not request.body or max(request.length, len(request.body)) > MOST_BODY:
        raise ApiError(413, "INVALID_VALUE")
    if request.param == "log_level":
        level = LEVELS.get(request.body.decode("latin-1").strip().lower())
        if level is None:
            raise ApiError(400, "INVALID_VALUE")
        site.log.level = level
    elif request.param == LOOKUPDS:
        site.fleet.use_lookupds(_addresses(request.body))
    else:
        raise ApiError(400, "INVALID_OPTION")
    return _value(site, request.param)


def _check(site: AdminSite, request: Request) -> None:
    network = site.options.allow_config_from_cidr
    host = request.caller.who[1]
    if network and host:
        address = ipaddress.ip_address(host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        if (mapped or address) not in ipaddress.ip_network(network, strict=False):
            raise ApiError(403, "FORBIDDEN")


def _value(site: AdminSite, key: str) -> object:
    if key == "log_level":
        return site.log.level
    if key == LOOKUPDS:
        return [mask_address(address) for address in site.fleet.lookupds]
    name = ADMIN_SERVER.keys.get(key)
    if name is None or name in SECRET:
        raise ApiError(400, "INVALID_OPTION")
    value = site.options.value(name)
    if isinstance(value, tuple):
        return [mask_address(str(item)) for item in value]
    return mask_address(value) if isinstance(value, str) else value


def _addresses(body: bytes) -> tuple[str, ...]:
    try:
        addresses = tuple(decode_strings(body))
        for address in addresses:
            split_address(address)
    except (GoJSONError, ValueError):
        raise ApiError(400, "INVALID_VALUE") from None
    return addresses


# ====================================================================== router
# From path to handler: paths whose last parts are names, below a prefix.

class TreeRouter(Router):
    """Routes by whole paths, and trees by (path before the names, number of names). The names are the request's param,
    joined by slashes."""

    def __init__(self, routes: Table, trees: dict[tuple[bytes, bytes, int], Route], prefix: str,
                 sessions: Sessions) -> None:
        """trees: by (method, path before, number); prefix: of every path, without a slash at its end."""
        super().__init__(routes, {})
        self._sessions = sessions
        self._index = routes[b"GET"].get(b"/")
        self._trees = trees
        self._prefix = prefix.encode()
        self._methods = {*routes, *(method for method, _, _ in trees)}

    def resolve(self, request: Request) -> Route:
        """See Router. A path outside of the prefix is unknown."""
        self._sessions.apply(request)
        prefix = self._prefix
        if not prefix:
            return super().resolve(request)
        if request.path == prefix:
            location = prefix.decode() + "/"
            return fixed(Reply(301, extra=f"Location: {location}\r\n"))
        if not request.path.startswith(prefix + b"/"):
            return Route(_unknown, OPEN)
        request.path = request.path[len(prefix):]
        return super().resolve(request)

    def _match(self, method: bytes, path: bytes, request: Request | None = None) -> Route | None:
        route = self._routes.get(method, {}).get(path)
        if route is not None:
            return route
        parts = path.split(b"/")
        for count in range(1, min(3, len(parts) - 1)):
            names = parts[-count:]
            route = self._trees.get((method, b"/".join(parts[:-count]) + b"/", count))
            if route is not None and all(names):
                if request is not None:
                    request.param = b"/".join(names).decode("latin-1")
                return route
        if request is None or not _wants_page(request) or self._similar(method, path) is not None:
            return None
        return self._index

    def _allow(self, path: bytes, method: bytes) -> str:
        known = {each.decode() for each in self._methods if each != method and self._match(each, path) is not None}
        return f"Allow: {', '.join(sorted(known | {'OPTIONS'}))}\r\n" if known else ""

    def _similar(self, method: bytes, path: bytes) -> bytes | None:
        """A slash too many at the end, as nsqadmin's router has it."""
        bare = path.rstrip(b"/")
        return self._prefix + bare if bare != path and bare and self._match(method, bare) is not None else None


def _wants_page(request: Request) -> bool:
    """Whether a browser opens an address: an unknown one gets the page, which says so."""
    return (request.method == b"GET" and "text/html" in request.header("Accept")
            and not request.path.startswith((b"/api/", b"/static/", b"/config/")))


def _unknown(site: object, request: Request) -> NoReturn:
    raise ApiError(404, "NOT_FOUND")


# ====================================================================== routes
# The routes of the admin server, and the grants that each needs.

PAGES = (b"/", b"/topics", b"/nodes", b"/counter", b"/lookup", b"/messages", b"/changes")


def index(site: AdminSite, request: Request) -> Reply:
    """The page."""
    return site.page.index(request)


def static(site: AdminSite, request: Request) -> Reply:
    """A file of it."""
    return site.page.file(request)


def _read(handler: Handler, of: str = NODE) -> Route:
    return packed(Route(handler, need(STATS, of)))


def _change(handler: Handler) -> Route:
    # Which topics and channels a grant covers, the handler checks: it knows their names.
    return packed(Route(handler, need(ADMIN, NOTHING), reads_body=True, body_limit=MOST_BODY))


def _config(handler: Handler, grant: str) -> Route:
    return Route(handler, need(grant), reads_body=grant == ADMIN, reply=_as_is,
                 body_limit=MOST_BODY if grant == ADMIN else None)


def _as_is(data: object) -> Reply:
    """Text as text/plain, everything else as JSON."""
    return plain(data) if isinstance(data, str) else v1(data)


_INDEX = Route(index, OPEN_OWN, logged=False)
_FILE = plain_answer(static, Need())

ROUTES: Table = {
    b"GET": {
        **dict.fromkeys(PAGES, _INDEX),
        b"/ping": plain_route(ping, OPEN),
        b"/livez": probe_route(livez, OPEN_OWN),
        b"/api/topics": _read(topics, NOTHING),
        b"/api/nodes": _read(nodes),
        b"/api/counter": _read(counter),
        b"/api/graphite": _read(rate),
        b"/render": Route(render, need(STATS)),
    },
    b"POST": {
        b"/api/topics": _change(create),
    },
}
TREES: Trees = {
    (b"GET", b"/topics/", 1): _INDEX,
    (b"GET", b"/topics/", 2): _INDEX,
    (b"GET", b"/nodes/", 1): _INDEX,
    (b"GET", b"/static/", 1): _FILE,
    (b"GET", b"/static/", 2): _FILE,
    (b"GET", b"/api/topics/", 1): _read(topic, NOTHING),
    (b"GET", b"/api/topics/", 2): _read(channel, NOTHING),
    (b"POST", b"/api/topics/", 1): _change(act),
    (b"POST", b"/api/topics/", 2): _change(act),
    (b"DELETE", b"/api/topics/", 1): _change(delete),
    (b"DELETE", b"/api/topics/", 2): _change(delete),
    (b"GET", b"/api/nodes/", 1): _read(node),
    (b"DELETE", b"/api/nodes/", 1): _change(tombstone),
    (b"GET", b"/config/", 1): _config(get, STATS),
    (b"PUT", b"/config/", 1): _config(put, ADMIN),
}


def router(view: View, prefix: str) -> TreeRouter:
    """The routes of an admin server, below a prefix."""
    table, trees = routes(view)
    merged = {method: {**ROUTES.get(method, {}), **table.get(method, {})} for method in (*ROUTES, *table)}
    return TreeRouter(merged, {**TREES, **trees}, prefix, view.sessions)
