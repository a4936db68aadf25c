"""The server program of a connection, for any API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from time import monotonic
from typing import TYPE_CHECKING

from nsqc.httpd.gate import Gate
from nsqc.httpd.pipeline import Pipeline
from nsqc.httpd.reply import Dates, Readers
from nsqc.log import Log
from nsqc.loop.slow import REQUESTS_S, Share, SlowLoop
from nsqc.loop.uv import Unread
from nsqc.options.option import format_duration
from nsqc.wire.parser import is_valid_name

if TYPE_CHECKING:
    from nsqc.httpd.reply import Request, Route
    from nsqc.httpd.server import Server


# ====================================================================== known
# Recognises plain publishes, the hot path: `POST /pub?topic=NAME` with a body of known length, and nothing special.
#
# Has two caches: request targets, which the parser's callbacks look up, and whole heads byte by byte. A client that
# repeats a head needs no parser. All connections share both; with access rules each has its own permitted heads.

MOST_SHARED = 4096          # entries of each cache; a full one starts over
MOST_OWN = 64               # of the heads of one connection
MOST_HEAD_BYTES = 1024


Heads = dict[bytes, tuple[bytes, int]]      # from whole heads to topics and body lengths


def learn(heads: Heads, head: bytes, topic: bytes, length: int, most: int = MOST_SHARED) -> None:
    """Remembers the head of a plain publish, unless it ends in an unexpected way."""
    if len(head) <= MOST_HEAD_BYTES and head.endswith(b"\r\n\r\n"):
        if len(heads) >= most:
            heads.clear()
        heads[head] = topic, length


class KnownPublishes:
    """Targets and heads of earlier plain publishes."""

    __slots__ = ("heads", "targets")

    def __init__(self) -> None:
        self.targets: dict[bytes, bytes] = {}               # topics
        self.heads: Heads = {}

    def find_topic(self, target: bytes) -> bytes | None:
        """The topic, if a new request target is a plain publish; remembers it."""
        topic = plain_topic(target)
        if topic is not None:
            if len(self.targets) >= MOST_SHARED:
                self.targets.clear()
            self.targets[target] = topic
        return topic

    def forget_heads(self) -> None:
        """Call it when an option that affects publishes has changed."""
        self.heads.clear()


def plain_topic(target: bytes) -> bytes | None:
    """The topic of `/pub?topic=NAME` with a valid name without escapes; None: another target."""
    path, _, name = target.partition(b"?topic=")
    return name if path == b"/pub" and is_valid_name(name) else None


# ====================================================================== untaken
# Bounds the memory of answers that clients have requested but do not read, for the whole program.
#
# A client may read slowly, like a pager, while there is room. Without room, clients that have accepted nothing for
# longest are disconnected, and further long answers wait until they are gone.

MOST_BYTES = 64 * 1024 * 1024   # above this, disconnects clients that accept nothing
_AT_ONCE_BYTES = 2 * MOST_BYTES     # and above this, also those that have only just stopped
GRACE_S = 5.0                   # how long a client may accept nothing
_LOOK_S = 0.25                  # between two checks for room


class Untaken:
    """The pipelines of slow clients; those that have accepted nothing for longest come first."""

    def __init__(self) -> None:
        self._takers: dict[Pipeline, tuple[float, int]] = {}     # time of the last progress, and bytes
        self._bytes = 0

    def add(self, taker: Pipeline) -> None:
        """Notes that a client accepts nothing, or has just made progress; makes room if necessary."""
        self.discard(taker)
        self._note(taker, taker.untaken())
        if self.full:
            self._make_room(taker)

    def discard(self, taker: Pipeline) -> None:
        """Removes a client that has read everything, or is gone."""
        known = self._takers.pop(taker, None)
        if known is not None:
            self._bytes -= known[1]

    @property
    def full(self) -> bool:
        """Whether another long answer has to wait."""
        return self._bytes > MOST_BYTES

    async def room(self) -> None:
        """Waits until another long answer may be made."""
        while self.full:
            self._make_room(None)
            if self.full:
                await asyncio.sleep(_LOOK_S)

    def _note(self, taker: Pipeline, size: int) -> None:
        self._takers[taker] = monotonic(), size
        self._bytes += size

    def _make_room(self, latest: Pipeline | None) -> None:
        """Disconnects clients that have accepted nothing for too long, except latest, which needs the room."""
        now = monotonic()
        while self.full:
            taker, (since, size) = next(iter(self._takers.items()))
            if taker is latest or since >= now:
                return
            left = taker.untaken()
            if left < size:
                self.discard(taker)
                self._note(taker, left)
                continue
            if now - since < GRACE_S and (latest is None or self._bytes <= _AT_ONCE_BYTES):
                return
            self.discard(taker)
            taker.give_up()


# ====================================================================== site

# Threads that may read files for clients at once; a daemon's pool has more.
READERS = 2

Resolve = Callable[["Request"], "Route"]


class Site:
    """Shared by all HTTP listeners of a program. Programs add the objects for their handlers."""

    pipeline: type[Pipeline] = Pipeline
    max_msg_size = 0            # longest body of a plain publish, bytes; 0: /pub is an ordinary path
    https_port = 0              # for the answer to clients that must use it
    unread: Unread | None = None    # waiting clients, for which long work pauses; None: not observed

    def __init__(self, *, log: Log, resolve: Resolve, header_timeout: int, threads: Executor, slow: SlowLoop,
                 gate: Gate) -> None:
        self.log = log
        self.gate = gate
        self.slow = slow
        self.resolve = resolve
        self.publishes = KnownPublishes()
        self.header_timeout = header_timeout    # nanoseconds for a head, and for the first request
        self.profiling = False                  # /debug/pprof/profile is running
        self.readers = Readers(threads, READERS)
        self.servers: list[Server] = []
        self.dates = Dates()
        self.share = Share(REQUESTS_S, "requests")
        self.untaken = Untaken()

    def contents(self) -> dict[str, int]:
        """Numbers of the server for /debug/pprof/heap, by name."""
        return {"http_connections": sum(len(server.connections) for server in self.servers)}

    def body_limit(self, route: Route) -> int | None:
        """Most bytes of body for a route; None: no body."""
        return route.body_limit if isinstance(route.body_limit, int) else None

    def date(self) -> str:
        """The Date header, a whole line."""
        dates = self.dates
        if monotonic() >= dates.until:
            dates.refresh()
        return dates.line

    def log_request(self, request: Request, status: int) -> None:
        """NSQ's line for an answered request."""
        elapsed = format_duration(time.perf_counter_ns() - request.started)
        self.log.info("%d %s %s (%s) %s", status, request.method.decode("latin-1"), request.url.decode("latin-1"),
                      request.remote, elapsed)


class ServerState:
    """The state of one listener, for its connections."""

    __slots__ = ("closing", "loop", "tls", "tls_required")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, tls: bool, tls_required: bool) -> None:
        self.loop = loop
        self.tls = tls                      # connections are encrypted
        self.tls_required = tls_required    # every request is refused: clients should use TLS
        self.closing = False
