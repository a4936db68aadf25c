"""Auth servers: they grant clients the right to publish and subscribe.

A query has the client's address, whether it uses TLS, its certificate's common name, and its secret. Servers are
tried in order, starting with a random one; recently failed servers come last.
"""

from __future__ import annotations

import asyncio
import base64
import random
import ssl
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlencode, urljoin

import msgspec

from nsqc.log import Log
from nsqc.net.url import Server, parse_server
from nsqc.options.declared import Options, Settings
from nsqc.peers import http
from nsqc.peers.http import Dialer, seconds
from nsqc.peers.patterns import Pattern, PatternError, compiled
from nsqc.wire.outside import Decoder, JSONError

# ====================================================================== grants
# A client's permissions by an auth server: its answer, checked and with its expressions compiled.

LONGEST_TTL_S = 2**31  # longer ones make no practical difference
PERMISSIONS = frozenset({"subscribe", "publish"})


class AuthorizationReply(msgspec.Struct, gc=False):
    """One authorization as a server writes it; null counts as absent."""

    topic: str | None = None
    channels: list[str] | None = None
    permissions: list[str] | None = None


class Reply(msgspec.Struct):
    """A server's answer."""

    ttl: int | None = None
    authorizations: list[AuthorizationReply] | None = None
    identity: str | None = None
    identity_url: str | None = None


Decoder(Reply)  # so that no two threads are the first to use the types
_decode = Decoder(object).decode


class Rule(NamedTuple):
    """One authorization."""

    permissions: frozenset[str]
    topic: Pattern
    channels: tuple[Pattern, ...]

    def allows(self, permission: str, topic: str, channel: str) -> bool:
        return (permission in self.permissions and self.topic.matches(topic)
                and any(pattern.matches(channel) for pattern in self.channels))


class Grant(NamedTuple):
    """A client's permissions, valid for ttl_s seconds after the answer."""

    ttl_s: int
    identity: str
    identity_url: str
    rules: tuple[Rule, ...]

    def allows(self, topic: str, channel: str) -> bool:
        """Subscribing to the channel, or publishing if channel is empty. As in nsqd, one of the channel expressions
        must then match the empty name."""
        permission = "subscribe" if channel else "publish"
        return any(rule.allows(permission, topic, channel) for rule in self.rules)


def interpret(body: bytes, anchored: bool) -> Grant:
    """Parses a server's answer. Raises ValueError."""
    reply = msgspec.convert(fold_keys(_decode(body)), Reply)
    rules = tuple(rule_of(authorization, anchored) for authorization in reply.authorizations or ())
    ttl_s = reply.ttl or 0
    if ttl_s <= 0:
        raise ValueError(f"invalid TTL {ttl_s} (must be >0)")
    return Grant(min(ttl_s, LONGEST_TTL_S), reply.identity or "", reply.identity_url or "", rules)


def fold_keys(value: object) -> object:
    """An answer with the keys of its fields in lower case: nsqd's JSON decoder ignores their case.

    Converts only the two levels of Reply, without recursion: unknown fields may be nested to any depth.
    """
    answer = lower_keys(value)
    if isinstance(answer, dict) and isinstance(answer.get("authorizations"), list):
        answer["authorizations"] = [lower_keys(item) for item in answer["authorizations"]]
    return answer


def lower_keys(value: object) -> object:
    """An object with its own keys in lower case; any other value unchanged."""
    return {key.lower(): item for key, item in value.items()} if isinstance(value, dict) else value


def rule_of(authorization: AuthorizationReply, anchored: bool) -> Rule:
    """Checks an authorization. Raises ValueError."""
    permissions = frozenset(authorization.permissions or ())
    for unknown in sorted(permissions - PERMISSIONS):
        raise ValueError(f"unknown permission {unknown}")
    return Rule(permissions, pattern_of("topic", authorization.topic or "", anchored),
                tuple(pattern_of("channel", text, anchored) for text in authorization.channels or ()))


def pattern_of(what: str, text: str, anchored: bool) -> Pattern:
    """Compiles an expression; `what` goes into the error. Raises ValueError."""
    try:
        return compiled(text, anchored)
    except PatternError as error:
        raise ValueError(f"unable to compile {what} {text!r} {error}") from None


# ====================================================================== auth

MAX_QUERIES = 64  # concurrent
MAX_QUERIES_PER_ADDRESS = 16  # of these for clients of one address, so one address cannot block the others
MOST_SERVERS = 100  # that are remembered to require TLS; reloads may name others
MAX_HOPS = 10  # redirections followed, as by Go's client
FAILED_S = 10.0  # how long a failed server comes last
REDIRECTS = (301, 302, 303, 307, 308)

Facts = dict[str, str | bytes]  # the fields of a query

_decode_object = Decoder(dict[str, object]).decode


class Client(NamedTuple):
    """A client, as seen by auth servers; address is HOST:PORT, for the log."""

    address: str
    remote_ip: str
    tls: bool
    common_name: str


class QueryError(Exception):
    """No server gave a usable answer. down: none was reachable, so none has refused either."""

    def __init__(self, reason: str, down: bool):
        super().__init__(reason)
        self.down = down


class ServerDown(Exception):
    """A server that is reachable but does not work."""


class AddressQueue:
    """One address's queries: free slots, and current number."""

    __slots__ = ("semaphore", "users")

    def __init__(self) -> None:
        self.semaphore = asyncio.Semaphore(MAX_QUERIES_PER_ADDRESS)
        self.users = 0


class AuthServers:
    """Queries the auth servers for the clients of a daemon."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, settings: Settings, log: Log):
        """Raises ValueError for a malformed address."""
        self._loop = loop
        self._workers = workers
        self._dialer = Dialer(loop)
        self._settings = settings
        self._log = log
        self._servers = [parse_server(text) for text in settings.now.auth_http_address]
        self._failed_until: dict[Server, float] = {}
        self._on_https: dict[Server, Server] = {}       # those that require TLS, which get no more secrets without it
        self._slots = asyncio.Semaphore(MAX_QUERIES)
        self._queues: dict[str, AddressQueue] = {}  # by address; only those in use
        self._asking: set[asyncio.Task[object] | None] = set()  # tasks that wait for an answer
        self._tls: asyncio.Future[ssl.SSLContext] | None = None

    async def ask(self, who: tuple[str, str, bool, str], secret: bytes) -> tuple[Grant | None, bool]:
        """The grant, or None and whether all servers are down. who: the fields of Client."""
        client, down = Client(*who), False
        task = asyncio.current_task()
        self._asking.add(task)
        try:
            async with self._slot_of(client.remote_ip), self._slots:
                return await self._query(client, secret), False
        except QueryError as error:
            down = error.down
            self._log.warn("PROTOCOL(V2): [%s] AUTH failed %s", client.address, error)
        except Exception as error:
            # A bug of the daemon, which must not leave the client waiting. The error's text may contain the secret.
            self._log.error("PROTOCOL(V2): [%s] AUTH failed %s", client.address, type(error).__name__)
        finally:
            self._asking.discard(task)
        return None, down

    async def close(self) -> None:
        """Cancels the tasks that wait for an answer."""
        tasks = [task for task in self._asking if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @asynccontextmanager
    async def _slot_of(self, remote_ip: str) -> AsyncIterator[None]:
        """Waits for permission to send one more query for the address."""
        queue = self._queues.setdefault(remote_ip, AddressQueue())
        queue.users += 1
        try:
            async with queue.semaphore:
                yield
        finally:
            queue.users -= 1
            if not queue.users:
                del self._queues[remote_ip]

    # ------------------------------------------------------------------ servers

    def _in_order(self) -> list[Server]:
        now = self._loop.time()
        start = random.randrange(len(self._servers))
        servers = self._servers[start:] + self._servers[:start]
        return sorted(servers, key=lambda server: self._failed_until.get(server, 0.0) > now)

    async def _query(self, client: Client, secret: bytes) -> Grant:
        """The first usable answer. Raises QueryError."""
        facts: Facts = {"common_name": client.common_name, "remote_ip": client.remote_ip, "secret": secret,
                        "tls": "true" if client.tls else "false"}
        reasons, down = [], True
        for server in self._in_order():
            try:
                async with asyncio.timeout(seconds(self._settings.now.http_client_request_timeout)):
                    body = await self._body(server, facts)
                    # On a worker, because a large answer takes a while to decode.
                    grant = await self._loop.run_in_executor(self._workers, interpret, body,
                                                             self._settings.now.auth_anchored)
                self._failed_until.pop(server, None)
                return grant
            except (OSError, http.AnswerError, ServerDown) as error:
                self._failed_until[server] = self._loop.time() + FAILED_S
                reason = http.reason_of(error, "give the authority of its certificate by --tls-root-ca-file")
            except ValueError as error:
                down = False
                reason = str(error)
            except Exception as error:
                # A bug of the daemon: the next server may still answer. The error's text may contain the secret.
                down = False
                reason = type(error).__name__
            reasons.append(f"failed to auth against {server.name} - {reason}")
        raise QueryError("; ".join(reasons), down)

    async def _body(self, server: Server, facts: Facts) -> bytes:
        """The body of a server's answer. Raises OSError, http.AnswerError, ServerDown; ValueError if it refuses."""
        post = self._settings.now.auth_http_request_method == "post"
        named, server = server, self._on_https.get(server, server)
        target = server if post else with_query(server, facts)
        connect_s = seconds(self._settings.now.http_client_connect_timeout)
        for _ in range(MAX_HOPS):
            tls = await self._tls_context() if target.tls else None
            request = request_for(target, facts if post else None)
            answer = await http.ask(self._loop, self._dialer, target.address, request, connect_s, tls)
            location = answer.headers.get("location")
            if answer.status in REDIRECTS and location:
                post = post and answer.status in (307, 308)
                target = redirected(target, location)
            elif answer.status == 403 and not target.tls:
                is_first = target.address == named.address
                target = on_https(target, answer.body)
                if is_first and len(self._on_https) < MOST_SERVERS:
                    self._on_https[named] = on_https(named, answer.body)
            elif answer.status >= 500:
                raise ServerDown(f"got response {answer.status}")
            elif answer.status != 200:
                raise ValueError(f"got response {answer.status}")
            else:
                return answer.body
        raise ValueError(f"stopped after {MAX_HOPS} redirects")

    async def _tls_context(self) -> ssl.SSLContext:
        """Created on first use, on a worker because it reads files."""
        if self._tls is None or (self._tls.done() and self._tls.exception() is not None):
            self._tls = self._loop.run_in_executor(self._workers, tls_context, self._settings.now)
        return await asyncio.shield(self._tls)


def with_query(server: Server, facts: Facts) -> Server:
    """A server whose target carries the facts, in the order of their names."""
    return server._replace(target=server.target + ("&" if "?" in server.target else "?") + urlencode(facts))


def request_for(server: Server, posted: Facts | None) -> bytes:
    """The request; POST sends the facts as a JSON object of lists, as nsqd does."""
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
    """The target of a redirect; the login is sent to the same host only, and nothing from https to http. Raises
    ValueError."""
    scheme = "https" if server.tls else "http"
    target = parse_server(urljoin(f"{scheme}://{server.host}{server.target}", location))
    if server.tls and not target.tls:
        raise ValueError(f"redirects from https to {target.name}")
    return target._replace(login=target.login or (server.login if target.host == server.host else ""))


def on_https(server: Server, body: bytes) -> Server:
    """The HTTPS side of a server that requires TLS: it answers 403 and {"https_port": N}. Raises ValueError."""
    try:
        port = _decode_object(body).get("https_port")
    except JSONError:
        port = None
    if not isinstance(port, int) or not 0 < port < 65536:
        raise ValueError("got response 403")
    host = server.address.rpartition(":")[0]
    return server._replace(tls=True, host=f"{host}:{port}", address=f"{host}:{port}")


def tls_context(options: Options) -> ssl.SSLContext:
    """For https servers: trusts the authorities of --tls-root-ca-file, or the system's. Raises OSError."""
    context = ssl.create_default_context(cafile=options.tls_root_ca_file or None)
    context.minimum_version = ssl.TLSVersion(options.tls_min_version)
    return context
