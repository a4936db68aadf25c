"""HTTP calls to nodes: connections that are kept, bounded in number for each node and in total, with time limits."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct

from nsqc.log import Log
from nsqc.net.address import join_address
from nsqc.options.option import Kind, Option
from nsqc.options.rule_tables import BY_KEY, CHANNEL_FLAGS, DEAD_LETTER, DEFAULT, ChannelRule, json_value
from nsqc.peers.http import Answer, AnswerError, Dialer, Ended, HttpConnection, NotHttp, reason_of
from nsqc.wire.nodehosts import Address, NodeHosts, ip_of
from nsqc.wire.outside import Decoder, Json, JSONError
from nsqc.wire.stats import Name

# ====================================================================== shapes
# Answers of lookup servers and /info of nodes, as far as the admin server reads them; absent fields have defaults.

class Producer(Struct, gc=False):
    """A node in an answer of nsqlookupd; in /nodes with its topics and a flag for each."""

    remote_address: str = ""
    hostname: str = ""
    broadcast_address: str = ""
    tcp_port: int = 0
    http_port: int = 0
    version: str = ""
    topics: list[Name] | None = None
    tombstones: list[bool] | None = None
    authorised: bool = False    # the access file of an nsqc lookupd vouches for its address

    @property
    def http(self) -> str:
        """Where its HTTP API is."""
        return join_address(self.broadcast_address, self.http_port)

    @property
    def tcp(self) -> str:
        """Where its TCP port is."""
        return join_address(self.broadcast_address, self.tcp_port)


class TopicList(Struct, gc=False):
    """/topics."""

    topics: list[Name] | None = None


class ChannelList(Struct, gc=False):
    """/channels."""

    channels: list[Name] | None = None


class ProducerList(Struct, gc=False):
    """/nodes and /lookup."""

    producers: list[Producer] | None = None
    channels: list[Name] | None = None


class BucketInfo(Struct, gc=False):
    """How far a node's bucket is; see nsqc.httpd.app.BucketState."""

    epoch: int = 0
    lag_seconds: float = 0.0
    lag_bytes: int = 0
    checkpoint_time: int = 0
    owned_since: int = 0
    taken_from: str = ""
    last_error: str = ""
    fenced: str = ""


class Info(Struct, gc=False):
    """/info of an nsqd."""

    version: str = ""
    broadcast_address: str = ""
    hostname: str = ""
    http_port: int = 0
    tcp_port: int = 0
    start_time: int = 0
    bucket: BucketInfo | None = None


topic_list = Decoder(TopicList).decode
channel_list = Decoder(ChannelList).decode
producer_list = Decoder(ProducerList).decode
info = Decoder(Info).decode
encode = msgspec.json.Encoder().encode


# ====================================================================== pace
# Long work of the admin server, in slices between which others run.

SLICE_S = 0.004     # of a loop iteration


class Pace:
    """Gives the loop to others after a slice of time."""

    def __init__(self) -> None:
        self._until = time.monotonic() + SLICE_S
        self.spent = 0.0

    def over(self) -> bool:
        """Whether the slice is over."""
        return time.monotonic() > self._until

    async def rest(self) -> None:
        """Lets others run."""
        self.spent += SLICE_S
        await asyncio.sleep(0)
        self._until = time.monotonic() + SLICE_S


# ====================================================================== ruling
# Rules of topics and channels for the page: their keys, as they are declared, and where dead letters go.

def key_json(key: str, declared: Option) -> Json:
    """A key of a rule, for a form. choices: all values, of a key that has few."""
    words = "true|false" if declared.kind is Kind.BOOL else declared.kind.value
    choices = words.split("|") if "|" in words else []
    return {"key": key, "kind": "choice" if choices else declared.kind.value, "help": declared.help, "choices": choices,
            "least": declared.least, "most": declared.most}


DEFAULTS = {key: json_value(declared.kind, getattr(DEFAULT, key)) for key, declared in CHANNEL_FLAGS.items()}
KEYS = {scope.noun: [key_json(key, declared) for key, declared in scope.flags.items()] for scope in BY_KEY.values()}


def dead_topic(topic: str, rules: Mapping[str, object]) -> str:
    """Where a channel's dead letters go, by those of its rules that differ from the defaults; empty: it has none."""
    if not rules.get("max_attempts") and DEAD_LETTER not in rules.values():
        return ""
    named = rules.get("dead_letter")
    return ChannelRule(dead_letter=named if isinstance(named, str) else "").dead_topic(topic.encode()).decode()


def set_rules(rules: Mapping[str, object]) -> Json:
    """The values of a channel's rule that differ from the defaults."""
    return {key: value for key, value in rules.items() if key in DEFAULTS and value != DEFAULTS[key]}


# ====================================================================== trust
# The nodes that may be given the secret, and the addresses that may be connected to: anyone who reaches the TCP port
# of a lookup server may announce any address.
#
# The operator's own addresses are trusted, and those that --node-addresses covers. So are those for which a lookup
# server's access file vouches: its answer is as trustworthy as the connection to it.

MOST_GONE = 1000        # addresses of each lookup server


class _Announced(NamedTuple):
    """What a lookup server says of an address."""

    authorised: bool
    source: str         # the host that announced it


class Trust:
    """Of one fleet. Addresses are HOST:PORT."""

    def __init__(self, named: Iterable[str], hosts: NodeHosts | None = None) -> None:
        """named: by the operator. hosts: of --node-addresses."""
        self._named = self._asked = frozenset(named)
        self._hosts = hosts or NodeHosts(())
        self._announced: dict[str, dict[str, _Announced]] = {}      # by lookup server and address

    def ask(self, lookupds: Iterable[str]) -> None:
        """Lookup servers that PUT /config names, in place of others: they may be asked, and are not trusted."""
        self._asked = frozenset(lookupds)
        self._announced.clear()

    def heard(self, lookupd: str, producers: Iterable[Producer], all_nodes: bool) -> None:
        """An answer of a lookup server. all_nodes: it lists all of its nodes."""
        found: dict[str, _Announced] = {}
        for each in producers:
            known, authorised = found.get(each.http), each.authorised and self.is_trusted(lookupd)
            # A stranger may announce the address of a node, too.
            if known is None or (authorised and not known.authorised):
                found[each.http] = _Announced(authorised, _host(each.remote_address))
        heard = self._announced.setdefault(lookupd, {})
        if all_nodes:
            # Nodes no longer announced are polled for a while, without credentials.
            gone = [(address, each._replace(authorised=False)) for address, each in heard.items()
                    if address not in found]
            heard.clear()
            heard.update(gone[-MOST_GONE:])
        heard.update(found)

    def is_known(self, address: str) -> bool:
        """Whether the operator or a lookup server has named an address."""
        return address in self._named or any(address in heard for heard in self._announced.values())

    def is_trusted(self, address: str) -> bool:
        """Whether a node may be given the secret."""
        return address in self._named or self._hosts.cover(_host(address)) or any(
            heard[address].authorised for heard in self._announced.values() if address in heard)

    def withheld(self, address: str) -> str:
        """Why the node got no secret, and the remedy."""
        return (f"--node-auth-secret is not sent to {address}: a lookup server lists it, but anyone may announce an "
                f"address there. Permit it by --node-addresses={_host(address)}, or by [nodes] in the access file of "
                "nsqc lookupd")

    def why_unreachable(self, address: str, ip: str) -> str:
        """Why no connection to an endpoint of the node may be made; empty: it may. Addresses of this machine and its
        links reach services that the network cannot, so the announcement must come from there."""
        found = ip_of(ip)
        if found is None or not (found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast
                                 ) or address in self._asked or self.is_trusted(address):
            return ""
        if any(_reaches(found, heard[address].source, lookupd)
               for lookupd, heard in self._announced.items() if address in heard):
            return ""
        return (f"{ip} is an address of this machine or link, and was not announced from there. If it is right, permit "
                f"it by --node-addresses={_host(address)}")


def _host(address: str) -> str:
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


def _reaches(found: Address, source: str, lookupd: str) -> bool:
    """Whether a node at source means this machine, or its link, by an address that only these have."""
    its = ip_of(source)
    if found.is_loopback:
        return _is_own(source) and (its is None or not its.is_loopback or _is_own(_host(lookupd)))
    return found.is_link_local and its is not None and its.is_link_local


def _is_own(host: str) -> bool:
    """Whether a host is this machine: only its own addresses can be bound."""
    address = ip_of(host)
    if address is None:
        return host.lower() in ("localhost", socket.gethostname().lower())
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


# ====================================================================== upstream

LONGEST = 256 * 1024 * 1024         # bytes of an answer about all topics: /stats of 100,000 is a fifth of it
MOST_OF_STRANGERS = 64 * 1024 * 1024    # bytes of an answer of a node that only a lookup server names
MOST_ANSWER = 32 * 1024 * 1024      # bytes of any other answer
PER_NODE = 4                        # calls to one node at once
AT_ONCE = 32                        # calls to all nodes at once
IDLE_S = 30.0                       # an idle connection is closed after this time
IDLE_PER_NODE = 2
MOST_ADDRESSES = 10_000     # whose HTTPS port is known; others are looked up again
SHOWN = 2000                        # characters of an answer that are quoted in an error
_quoted = msgspec.json.Encoder().encode


class UpstreamError(Exception):
    """A node did not answer, or not as it should. The text is in the words of Go's http package, as nsqadmin's."""

    def __init__(self, text: str, status: int = 0, word: str = "", told: str = "") -> None:
        super().__init__(text)
        self.status = status    # of the node's answer; 0: there was none
        self.word = word        # the node's word for the reason, such as TOPIC_NOT_FOUND
        self.told = told or text    # for people

    @property
    def short(self) -> str:
        """The node's word, or the text for people."""
        return self.word or self.told


class Ask(NamedTuple):
    """A call of a node's HTTP API. most: bytes of the answer after which it is cut and the connection closed."""

    method: str
    target: str
    body: bytes = b""
    accept: str = "application/vnd.nsq; version=1.0"
    most: int = 0
    timeout_s: float = 0.0      # beyond the usual limit, for long polls
    limit: int = MOST_ANSWER    # bytes; a longer answer is an error


INFO = Ask("GET", "/info", limit=64 * 1024)
LOOKUP_NODES, LOOKUP_TOPICS = (Ask("GET", path, limit=LONGEST) for path in ("/nodes", "/topics"))


class _Refusal(msgspec.Struct):
    """The body of an error."""

    message: object = ""
    https_port: object = 0


_refusal = Decoder(_Refusal)


def word_of(body: bytes) -> str:
    """The word for the reason in an error answer; empty if it has none."""
    try:
        found = _refusal.decode(body).message
    except JSONError:
        return ""
    return found if isinstance(found, str) else ""


def checked(answer: Answer) -> bytes:
    """The body of a 200. Raises UpstreamError for anything else, as nsqadmin words it."""
    if answer.status == 200:
        return answer.body
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = ""
    text = _quoted(answer.body[:SHOWN].decode("utf-8", "replace")).decode()
    raise UpstreamError(f"got response {answer.status} {phrase} {text}", answer.status, word_of(answer.body))


def target(path: str, **arguments: object) -> str:
    """A path with a query; arguments that are None are left out."""
    query = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in arguments.items() if value is not None)
    return f"{path}?{query}" if query else path


class HttpNodes:
    """Nodes over HTTP. Addresses are HOST:PORT."""

    def __init__(self, loop: asyncio.AbstractEventLoop, log: Log, *, connect_s: float, request_s: float,
                 trust: Trust, tls: ssl.SSLContext | None = None, secret: str = "", https: Iterable[str] = ()) -> None:
        """trust: of nodes. tls: for nodes that want HTTPS; None: the system's authorities. secret: a token for access
        files, for trusted nodes alone, and over HTTPS for all nodes that have it. https: addresses that speak nothing
        else."""
        self._loop, self._log = loop, log
        self._dialer = Dialer(loop)
        self._connect_s, self._request_s = connect_s, request_s
        self._trust, self._tls, self._secret = trust, tls, secret
        self._all = asyncio.Semaphore(AT_ONCE)
        self._each: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()     # of calls in progress
        self._idle: dict[str, deque[_Connection]] = {}
        self._fixed = frozenset(https)
        self._https = {address: address for address in self._fixed}     # that want HTTPS, and where they have it
        self._warned: set[str] = set()          # addresses that got the secret in clear text

    async def ask(self, address: str, ask: Ask) -> Answer:
        """See nsqc.admin.fleet.AskNode."""
        each = self._each.get(address) or self._each.setdefault(address, asyncio.Semaphore(PER_NODE))
        async with each, self._all:
            over_http = address not in self._https      # others may learn of the port while this one is answered
            answer = await self._tried(address, ask)
            if over_http and answer.status == 403 and self._wants_https(address, answer):
                answer = await self._tried(address, ask)
        if answer.status == 401 and self._secret and not self._trust.is_trusted(address):
            word = word_of(answer.body)
            raise UpstreamError(f"{word}; {self._trust.withheld(address)}", answer.status, word)
        return answer

    def _wants_https(self, address: str, answer: Answer) -> bool:
        """Whether an answer over HTTP names a port for HTTPS, which is used from now on."""
        port = _https_port(answer)
        if port and address not in self._https:
            if len(self._https) >= MOST_ADDRESSES:
                del self._https[next(each for each in self._https if each not in self._fixed)]
            self._https[address] = f"{address.rpartition(':')[0]}:{port}"
            self._drop(address)     # these speak HTTP
        return bool(port)

    async def _tried(self, address: str, ask: Ask) -> Answer:
        """Makes a call. The node may have closed an idle connection, so a change gets a new one: otherwise it would be
        unknown whether it arrived. Reads are repeated."""
        secret = self._secret if self._trust.is_trusted(address) else ""
        try:
            async with asyncio.timeout(self._request_s + ask.timeout_s):
                kept = self._kept(address) if ask.method == "GET" else None
                if kept is not None:
                    with suppress(Ended):
                        return await self._exchange(kept, address, ask, secret)
                return await self._exchange(await self._dial(address, secret), address, ask, secret)
        except TimeoutError:
            raise UpstreamError(f'{_verb(ask)} "{self._url(address, ask)}": context deadline exceeded '
                                "(Client.Timeout exceeded while awaiting headers)",
                                told=f"no answer from {address} in {self._request_s + ask.timeout_s:g} s") from None
        except (OSError, ValueError, AnswerError) as error:
            text = _reason(address, error)
            raise UpstreamError(f'{_verb(ask)} "{self._url(address, ask)}": {text}',
                                told=f"cannot reach {address}: {text.rpartition('connect: ')[2]}") from None

    def _url(self, address: str, ask: Ask) -> str:
        return f"{'https' if address in self._https else 'http'}://{address}{ask.target}"

    def _kept(self, address: str) -> _Connection | None:
        """A connection that is open, of those kept."""
        idle = self._idle.get(address)
        while idle:
            connection = idle.pop()
            if connection.is_open and self._loop.time() - connection.since < IDLE_S:
                return connection
            connection.abort()
        return None

    async def _dial(self, address: str, secret: str) -> _Connection:
        """A new connection, on which the secret may be sent: without TLS, it first asks whether the node has HTTPS."""
        connection = await self._connect(address)
        if not secret or address in self._https:
            return connection
        try:
            answer = await connection.exchange(_request(address, INFO, ""), INFO.limit)
        except BaseException:
            connection.abort()
            raise
        # What stays on this machine needs no TLS, unless the node requires it.
        stays = answer.status != 403 and connection.is_local
        if connection.is_open and (stays or not self._wants_https(address, answer)):
            if not connection.is_local and address not in self._warned and len(self._warned) < MOST_ADDRESSES:
                self._warned.add(address)
                self._log.warn("--node-auth-secret is sent to %s in clear text: it has no HTTPS, see --tls-cert there",
                               address)
            return connection
        connection.abort()
        return await self._connect(address)

    async def _connect(self, address: str) -> _Connection:
        place = self._https.get(address, address)
        context = (self._tls or ssl.create_default_context()) if address in self._https else None
        connection = await self._dialer.connect(lambda: _Connection(self._loop), place, self._connect_s, context,
                                                lambda ip: self._trust.why_unreachable(address, ip))
        connection.place = place
        return connection

    async def _exchange(self, connection: _Connection, address: str, ask: Ask, secret: str) -> Answer:
        limit = ask.limit if self._trust.is_trusted(address) else min(ask.limit, MOST_OF_STRANGERS)
        try:
            answer = await connection.exchange(_request(address, ask, secret), limit, ask.most)
        except BaseException:
            connection.abort()
            raise
        idle = self._idle.get(address, deque())
        # One that speaks HTTP is of no use once the node is known to want HTTPS.
        is_usable = connection.is_open and connection.place == self._https.get(address, address)
        if is_usable and len(idle) < IDLE_PER_NODE:
            connection.since = self._loop.time()
            idle.append(connection)
            self._idle[address] = idle
            self._loop.call_later(IDLE_S, self._expire, address)
        else:
            connection.abort()
        return answer

    def _expire(self, address: str) -> None:
        """Closes connections that were idle for long: the node may be gone."""
        idle = self._idle.get(address, deque())
        while idle and self._loop.time() - idle[0].since >= IDLE_S:
            idle.popleft().abort()
        if not idle:
            self._idle.pop(address, None)

    def close(self) -> None:
        """Closes the connections that are kept."""
        for address in [*self._idle]:
            self._drop(address)

    def _drop(self, address: str) -> None:
        for connection in self._idle.pop(address, ()):
            connection.abort()


class _Connection(HttpConnection):
    """A connection to a node."""

    place = ""          # the HOST:PORT that it was dialled by
    since = 0.0         # loop time since which it is idle

    @property
    def is_local(self) -> bool:
        """Whether it goes to a loopback address."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        ip = ip_of(peer[0]) if peer else None
        return ip is not None and ip.is_loopback


def _request(address: str, ask: Ask, secret: str) -> bytes:
    lines = [f"{ask.method} {ask.target} HTTP/1.1", f"Host: {address}", "User-Agent: nsqc-admin",
             f"Accept: {ask.accept}"]
    if secret:
        lines.append(f"Authorization: Bearer {secret}")
    if ask.body or ask.method != "GET":
        lines.append(f"Content-Length: {len(ask.body)}")
    if not all(line.isascii() and line.isprintable() for line in lines):
        raise ValueError("invalid character in host name or path")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + ask.body


def _https_port(answer: Answer) -> int:
    """The port of a node's HTTPS, if an answer names it: as nsqd's to clients that must use it, and nsqc's /info and
    refusals of clients without a token."""
    if b"https_port" not in answer.body:
        return 0
    try:
        port = _refusal.decode(answer.body).https_port
    except JSONError:
        return 0
    return port if isinstance(port, int) and 0 < port < 65536 else 0


def _verb(ask: Ask) -> str:
    return ask.method.capitalize()


def _reason(address: str, error: Exception) -> str:
    """As Go's net package has it."""
    if isinstance(error, ConnectionRefusedError):
        return f"dial tcp {address}: connect: connection refused"
    if isinstance(error, ssl.SSLCertVerificationError):
        return reason_of(error, "give its authority by --http-client-tls-root-ca-file")
    if isinstance(error, ssl.SSLError):
        return f"tls: {error.reason or error}"
    if isinstance(error, NotHttp):
        return "malformed HTTP response"
    if isinstance(error, Ended):
        return str(error.cause or "EOF")
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
