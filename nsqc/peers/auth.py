"""The auth servers: who may publish and subscribe to what.

A question tells a server the client's address, whether it uses TLS, the name in its certificate, and its secret. The
answer holds for a time and lists authorizations. Servers are tried one after the other, from a random one on; those
that have just failed come last.
"""

from __future__ import annotations

import asyncio
import base64
import random
import re
import ssl
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit

import msgspec

from nsqc.peers import http
from nsqc.peers.dial import Dialer, join_address, seconds
from nsqc.peers.patterns import Pattern, PatternError, compiled
from nsqc.peers.tasks import begin

AT_ONCE = 64  # questions under way
AT_ONCE_PER_ADDRESS = 16  # of them for clients of one address, so that it cannot keep the others waiting
MAX_SECRET = 65536  # bytes; no server is bothered with a longer one
MAX_HOPS = 10  # redirections followed, as Go's client does
AILING_S = 10.0  # how long a server that has failed comes last
LONGEST_TTL_S = 2**31  # longer ones hardly differ
PERMISSIONS = frozenset({"subscribe", "publish"})
REDIRECTS = (301, 302, 303, 307, 308)
PORTS = {"http": 80, "https": 443}
HOST = re.compile(r"[^\s/\\<>\"]+")
MISSPELT_URL = re.compile(r"https?:?/(?!/)|https?//", re.IGNORECASE)


class Who(NamedTuple):
    """A client as auth servers see it; address is HOST:PORT, for the log."""

    address: str
    remote_ip: str
    tls: bool
    common_name: str


class QueryError(Exception):
    """No server has given a good answer. down: none could be reached, so nobody has refused either."""

    def __init__(self, reason: str, down: bool):
        super().__init__(reason)
        self.down = down


class ServerDown(Exception):
    """A server that is reached, but out of order."""


class AuthorizationReply(msgspec.Struct, gc=False):
    """One authorization as a server writes it; null counts as left out."""

    topic: str | None = None
    channels: list[str] | None = None
    permissions: list[str] | None = None


class Reply(msgspec.Struct):
    """A server's answer."""

    ttl: int | None = None
    authorizations: list[AuthorizationReply] | None = None
    identity: str | None = None
    identity_url: str | None = None


class Rule(NamedTuple):
    """One authorization."""

    permissions: frozenset[str]
    topic: Pattern
    channels: tuple[Pattern, ...]

    def allows(self, permission: str, topic: str, channel: str) -> bool:
        return (permission in self.permissions and self.topic.matches(topic)
                and any(pattern.matches(channel) for pattern in self.channels))


class Grant(NamedTuple):
    """What a client may do, and for how many seconds from the answer on."""

    ttl_s: int
    identity: str
    identity_url: str
    rules: tuple[Rule, ...]

    def allows(self, topic: str, channel: str) -> bool:
        """Subscribing to the channel, or publishing where channel is empty; as the original, a channel's expression
        must then match the empty name, too."""
        permission = "subscribe" if channel else "publish"
        return any(rule.allows(permission, topic, channel) for rule in self.rules)


class Server(NamedTuple):
    """Where to ask. login is "user:password" or empty."""

    tls: bool
    host: str
    address: str
    target: str
    login: str

    @property
    def name(self) -> str:
        """For the log, without login and query."""
        return f"{'https' if self.tls else 'http'}://{self.host}{self.target.partition('?')[0]}"


def parse_server(text: str) -> Server:
    """A server by HOST:PORT or URL. Raises ValueError."""
    try:
        url = urlsplit(text if "://" in text else f"http://{text}/auth")
        good = (url.port != 0 and url.scheme in PORTS and HOST.fullmatch(url.hostname or "")
                and not MISSPELT_URL.match(text))
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"{text!r} is neither HOST:PORT nor an http or https URL")
    target = quote(url.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{url.query}" if url.query else "")
    login = url.netloc.rpartition("@")[0]
    port = PORTS[url.scheme] if url.port is None else url.port
    return Server(url.scheme == "https", url.netloc.rpartition("@")[2], join_address(url.hostname, port), target,
                  unquote(login))


class Turns:
    """The questions of one address: how many may be under way, and how many there are."""

    __slots__ = ("semaphore", "users")

    def __init__(self) -> None:
        self.semaphore = asyncio.Semaphore(AT_ONCE_PER_ADDRESS)
        self.users = 0


class Authority:
    """Asks the auth servers for the clients of a daemon."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, settings: Any, log: Any):
        """Raises ValueError for an address that is none."""
        self._loop = loop
        self._workers = workers
        self._dialer = Dialer(loop)
        self._settings = settings
        self._log = log
        self._servers = [parse_server(text) for text in settings.now.auth_http_address]
        self._ailing: dict[Server, float] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._turns_of: dict[str, Turns] = {}  # by address; only those that have questions
        self._tasks: set[asyncio.Task[None]] = set()
        self._tls: asyncio.Future[ssl.SSLContext] | None = None

    def ask(self, who: tuple[str, str, bool, str], secret: bytes,
            answered: Callable[[Grant | None, bool], None]) -> asyncio.Task[None]:
        """Has answered(grant, False) called later, or answered(None, down); not if the task returned is cancelled.

        who: the fields of Who.
        """
        task = begin(self._loop, self._ask(Who(*who), secret, answered), self._log)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Asks no more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, who: Who, secret: bytes, answered: Callable[[Grant | None, bool], None]) -> None:
        grant, down = None, False
        try:
            async with self._address_turn(who.remote_ip), self._turns:
                grant = await self._query(who, secret)
        except QueryError as error:
            down = error.down
            self._log.warn("PROTOCOL(V2): [%s] AUTH failed %s", who.address, error)
        except Exception as error:
            # A fault of this program; the client must not wait for ever. Its text might tell the secret.
            self._log.error("PROTOCOL(V2): [%s] AUTH failed %s", who.address, type(error).__name__)
        answered(grant, down)

    @asynccontextmanager
    async def _address_turn(self, remote_ip: str) -> AsyncIterator[None]:
        """Waits until the address may ask one more question."""
        turns = self._turns_of.setdefault(remote_ip, Turns())
        turns.users += 1
        try:
            async with turns.semaphore:
                yield
        finally:
            turns.users -= 1
            if not turns.users:
                del self._turns_of[remote_ip]

    # ------------------------------------------------------------------ servers

    def _in_order(self) -> list[Server]:
        now = self._loop.time()
        start = random.randrange(len(self._servers))
        servers = self._servers[start:] + self._servers[:start]
        return sorted(servers, key=lambda server: self._ailing.get(server, 0.0) > now)

    async def _query(self, who: Who, secret: bytes) -> Grant:
        """The first good answer. Raises QueryError."""
        if len(secret) > MAX_SECRET:
            raise QueryError(f"secret too long {len(secret)} > {MAX_SECRET}", False)
        facts = {"common_name": who.common_name, "remote_ip": who.remote_ip, "secret": secret,
                 "tls": "true" if who.tls else "false"}
        reasons, down = [], True
        for server in self._in_order():
            try:
                async with asyncio.timeout(seconds(self._settings.now.http_client_request_timeout)):
                    body = await self._body(server, facts)
                    # Large answers take a while.
                    grant = await self._loop.run_in_executor(self._workers, interpret, body,
                                                             self._settings.now.auth_anchored)
                self._ailing.pop(server, None)
                return grant
            except (OSError, http.AnswerError, ServerDown) as error:
                self._ailing[server] = self._loop.time() + AILING_S
                reason = "timed out" if isinstance(error, TimeoutError) else str(error)
            except ValueError as error:
                down = False
                reason = str(error)
            reasons.append(f"failed to auth against {server.name} - {reason}")
        raise QueryError("; ".join(reasons), down)

    async def _body(self, server: Server, facts: dict[str, Any]) -> bytes:
        """What a server answers. Raises OSError, http.AnswerError, ServerDown; ValueError where it refuses."""
        post = self._settings.now.auth_http_request_method == "post"
        here = server if post else with_query(server, facts)
        connect_s = seconds(self._settings.now.http_client_connect_timeout)
        for _ in range(MAX_HOPS):
            tls = await self._tls_context() if here.tls else None
            answer = await http.ask(self._loop, self._dialer, here.address, request_for(here, facts if post else None),
                                    connect_s, tls)
            if answer.status in REDIRECTS and answer.location:
                post = post and answer.status in (307, 308)
                here = redirected(here, answer.location)
            elif answer.status == 403 and not here.tls:
                here = on_https(here, answer.body)
            elif answer.status >= 500:
                raise ServerDown(f"got response {answer.status}")
            elif answer.status != 200:
                raise ValueError(f"got response {answer.status}")
            else:
                return answer.body
        raise ValueError(f"stopped after {MAX_HOPS} redirects")

    async def _tls_context(self) -> ssl.SSLContext:
        """Made on a worker when it is first needed, for it reads files."""
        if self._tls is None or (self._tls.done() and self._tls.exception() is not None):
            self._tls = self._loop.run_in_executor(self._workers, tls_context, self._settings.now)
        return await asyncio.shield(self._tls)


def with_query(server: Server, facts: dict[str, Any]) -> Server:
    """A server whose target carries the facts, in the order of their names."""
    return server._replace(target=server.target + ("&" if "?" in server.target else "?") + urlencode(facts))


def request_for(server: Server, posted: dict[str, Any] | None) -> bytes:
    """The request; posted facts are a JSON object of lists, as the original has them."""
    headers = []
    if server.login:
        headers.append("Authorization: Basic " + base64.b64encode(server.login.encode()).decode())
    if posted is None:
        return http.request("GET", server.host, server.target, *headers)
    body = msgspec.json.encode({
        name: [value.decode("utf-8", "replace") if isinstance(value, bytes) else value]
        for name, value in posted.items()})
    return http.request("POST", server.host, server.target, "Content-Type: application/json", *headers, body=body)


def redirected(server: Server, location: str) -> Server:
    """Where a redirection leads; the login stays with its host. Raises ValueError."""
    scheme = "https" if server.tls else "http"
    target = parse_server(urljoin(f"{scheme}://{server.host}{server.target}", location))
    return target._replace(login=target.login or (server.login if target.host == server.host else ""))


def on_https(server: Server, body: bytes) -> Server:
    """Where a server that wants TLS is to be asked: it answers 403 and {"https_port": N}. Raises ValueError."""
    try:
        port = msgspec.json.decode(body, type=dict[str, Any]).get("https_port")
    except msgspec.MsgspecError:
        port = None
    if not isinstance(port, int) or not 0 < port < 65536:
        raise ValueError("got response 403")
    host = server.address.rpartition(":")[0]
    return server._replace(tls=True, host=f"{host}:{port}", address=f"{host}:{port}")


def tls_context(options: Any) -> ssl.SSLContext:
    """For https servers: the authorities are those of --tls-root-ca-file, or the system's. Raises OSError."""
    context = ssl.create_default_context(cafile=options.tls_root_ca_file or None)
    context.minimum_version = ssl.TLSVersion(options.tls_min_version)
    return context


def interpret(body: bytes, anchored: bool) -> Grant:
    """A server's answer, checked. Raises ValueError."""
    reply = msgspec.convert(fold_keys(msgspec.json.decode(body)), Reply)
    rules = tuple(rule_of(one, anchored) for one in reply.authorizations or ())
    ttl_s = reply.ttl or 0
    if ttl_s <= 0:
        raise ValueError(f"invalid TTL {ttl_s} (must be >0)")
    return Grant(min(ttl_s, LONGEST_TTL_S), reply.identity or "", reply.identity_url or "", rules)


def fold_keys(value: Any) -> Any:
    """Keys in small letters: the original's JSON reader does not tell them apart."""
    if isinstance(value, dict):
        return {key.lower(): fold_keys(one) for key, one in value.items()}
    return [fold_keys(one) for one in value] if isinstance(value, list) else value


def rule_of(reply: AuthorizationReply, anchored: bool) -> Rule:
    permissions = frozenset(reply.permissions or ())
    for unknown in sorted(permissions - PERMISSIONS):
        raise ValueError(f"unknown permission {unknown}")
    return Rule(permissions, pattern_of("topic", reply.topic or "", anchored),
                tuple(pattern_of("channel", text, anchored) for text in reply.channels or ()))


def pattern_of(what: str, text: str, anchored: bool) -> Pattern:
    try:
        return compiled(text, anchored)
    except PatternError as error:
        raise ValueError(f"unable to compile {what} {text!r} {error}") from None
