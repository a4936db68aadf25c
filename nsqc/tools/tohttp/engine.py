"""Sends a feed to HTTP servers: each message is a request, and finished when that succeeds."""

from __future__ import annotations

import random
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from nsqc.client.options import Options
from nsqc.client.peers import Backoff
from nsqc.tools.cluster import Cluster
from nsqc.tools.feed import Feed, check_topics
from nsqc.tools.running import Stop
from nsqc.tools.tohttp.sender import Outcome, Request, Sender, Url, read_url

if TYPE_CHECKING:
    from nsqc.tools.feed import Delivery


# ====================================================================== engine

TICK_SECONDS = 0.5
PAUSE = Backoff(1.0, 120.0)
OUT = Backoff(5.0, 900.0)       # how long a failing server is avoided while others work
STREAK = 3                      # consecutive failures, over all servers, that trigger a pause
CLOSE_SECONDS = 30.0
REPORT_SECONDS = 5.0            # between two lines about the same server


class Settings(NamedTuple):
    """The job; times in seconds. headers override content_type and user_agent. mode: round-robin, least-busy or all.
    requeue_delay: times the attempts, at most max_requeue_delay; max_attempts: after which a message is dropped, 0:
    never. pause: after STREAK consecutive failures, up to 0 s: none; has_jitter: a random part of it. wait: for topics
    that do not exist yet."""

    topics: tuple[str, ...]
    channel: str
    urls: tuple[str, ...]
    is_get: bool
    headers: Sequence[tuple[str, str]]
    content_type: str
    user_agent: str
    mode: str
    at_once: int
    max_in_flight: int
    sample: float
    connect_timeout: float
    request_timeout: float
    requeue_delay: float
    max_requeue_delay: float
    max_attempts: int
    pause: Backoff
    has_jitter: bool
    tls: ssl.SSLContext
    wait: bool


class Server:
    """A URL, and its record."""

    def __init__(self, url: Url):
        self.url = url
        self.busy = 0               # requests
        self.failures = 0           # consecutive
        self.out_until = 0.0
        self.reported = 0.0


class Job:
    """A message being sent. left: servers that still have to get it, in mode all."""

    __slots__ = ("attempts", "body", "delivery", "left", "server")

    def __init__(self, delivery: Delivery, body: bytes, attempts: int, left: list[Server]):
        self.delivery, self.body, self.attempts, self.left = delivery, body, attempts, left
        self.server: Server | None = None


class Engine:
    """urls: the destinations; head: builds a request from its URL and body. say gets lines about servers and dropped
    messages; answered the URL and the seconds of each answer."""

    def __init__(self, feed: Feed, stop: Stop, settings: Settings, urls: Iterable[Url],
                 head: Callable[[Url, bytes], bytes], sender: Sender, say: Callable[[str], None],
                 answered: Callable[[str, float], None] | None):
        self._feed, self._stop, self._settings, self._sender, self._say = feed, stop, settings, sender, say
        self._head, self._answered = head, answered
        self._servers = [Server(url) for url in urls]
        self._turn = 0
        self._waiting: deque[Job] = deque()
        self._running = 0
        self._streak = self._pauses = 0
        self._resume = 0.0          # end of a pause
        self.sent = self.failed = self.skipped = self.dropped = 0

    def run(self) -> None:
        """Runs until a signal. Raises ClientError, ToolError."""
        while not self._stop:
            for delivery in self._feed.receive(TICK_SECONDS):
                self._take(delivery)
            self._settle()
            self._mind_pause()
            self._start()
        self._feed.limit(0)
        while self._waiting:
            self._feed.requeue(self._waiting.popleft().delivery)
        end = time.monotonic() + CLOSE_SECONDS
        while self._running and time.monotonic() < end:
            for delivery in self._feed.receive(TICK_SECONDS):
                self._feed.requeue(delivery)
            self._settle()

    def _take(self, delivery: Delivery) -> None:
        """Splits a batch into single messages."""
        batch, ids = delivery.batch, bytes(delivery.ids)
        bodies, offsets = bytes(batch.bodies), memoryview(batch.offsets).cast("B").cast("i")
        attempts = memoryview(batch.attempts).cast("B").cast("i")
        parts = self._feed.parts(delivery, [ids[row * 16:row * 16 + 16] for row in range(batch.count)])
        for row, part in enumerate(parts):
            if self._settings.sample < 1 and random.random() > self._settings.sample:
                self.skipped += 1
                self._feed.finish(part)
                continue
            if 0 < self._settings.max_attempts < attempts[row]:
                self.dropped += 1
                self._say(f"message {part.ids.decode() if isinstance(part.ids, bytes) else ''} dropped after "
                          f"{attempts[row] - 1} attempts")
                self._feed.finish(part)
                continue
            left = list(self._servers) if self._settings.mode == "all" else []
            self._waiting.append(Job(part, bodies[offsets[row]:offsets[row + 1]], attempts[row], left))

    def _start(self) -> None:
        requests: list[Request] = []
        while self._waiting and self._running < self._settings.at_once and time.monotonic() >= self._resume:
            job = self._waiting.popleft()
            if not self._feed.is_live(job.delivery):
                continue
            self._running += 1
            requests.append(self._request(job))
        self._sender.send(requests)

    def _request(self, job: Job) -> Request:
        server = job.left[0] if job.left else self._choose()
        server.busy += 1
        job.server = server
        body = b"" if self._settings.is_get else job.body
        return Request(job, server.url, self._head(server.url, job.body), body)

    def _choose(self) -> Server:
        """The server for the next message: a working one, if any."""
        now, count = time.monotonic(), len(self._servers)
        order = [self._servers[at % count] for at in range(self._turn, self._turn + count)]
        ready = [server for server in order if server.out_until <= now]
        if not ready:
            chosen = min(order, key=lambda server: server.out_until)
        elif self._settings.mode == "least-busy":
            chosen = min(ready, key=lambda server: server.busy)
        else:
            chosen = ready[0]
        self._turn = (self._servers.index(chosen) + 1) % count
        return chosen

    # ------------------------------------------------------------------ outcomes

    def _settle(self) -> None:
        again: list[Request] = []
        for outcome in self._sender.outcomes():
            job = outcome.token
            assert isinstance(job, Job) and job.server is not None
            job.server.busy -= 1
            if self._answered is not None:
                self._answered(outcome.url.text, outcome.seconds)
            if not self._is_success(outcome):
                self._running -= 1
                self._fail(job, job.server, outcome)
                continue
            job.server.failures, job.server.out_until = 0, 0.0
            self._streak = 0
            del job.left[:1]
            if job.left:
                again.append(self._request(job))
                continue
            self._running -= 1
            self.sent += 1
            self._feed.finish(job.delivery)
            if self._pauses:
                self._pauses = 0
                self._feed.limit(None)
        self._sender.send(again)

    def _is_success(self, outcome: Outcome) -> bool:
        return outcome.status == 200 if self._settings.is_get else 200 <= outcome.status < 300

    def _fail(self, job: Job, server: Server, outcome: Outcome) -> None:
        self.failed += 1
        now = time.monotonic()
        server.failures += 1
        server.out_until = now + OUT.pause(server.failures) if len(self._servers) > 1 else 0.0
        if now - server.reported >= REPORT_SECONDS:
            server.reported = now
            what = f"status {outcome.status}" if outcome.status else outcome.error
            self._say(f"{server.url.text}: {what}; the message will be retried")
        delay = min(self._settings.requeue_delay * max(job.attempts, 1), self._settings.max_requeue_delay)
        self._feed.requeue(job.delivery, round(delay * 1000))
        self._streak += 1
        if self._streak >= STREAK and now >= self._resume and self._settings.pause.longest > 0:
            self._pauses += 1
            pause = self._settings.pause.pause(self._pauses)
            self._resume = now + (random.uniform(0, pause) if self._settings.has_jitter else pause)
            self._feed.limit(0)
            # Requests not started are requeued at once: another consumer may succeed.
            while self._waiting:
                self._feed.requeue(self._waiting.popleft().delivery)

    def _mind_pause(self) -> None:
        """After a pause one message tests whether a server is back."""
        if self._pauses and time.monotonic() >= self._resume:
            self._feed.limit(1)


# ====================================================================== running
# One run of `nsqc to-http` or nsq_to_http.

def head_writer(settings: Settings) -> Callable[[Url, bytes], bytes]:
    """Builds the head of a request from its URL and the message."""
    given = {name.lower(): f"{name}: {value}" for name, value in settings.headers}
    fixed = {"user-agent": f"User-Agent: {settings.user_agent}"}
    if not settings.is_get:
        fixed["content-type"] = f"Content-Type: {settings.content_type}"
    lines = [*(fixed | given).values()]

    def head(url: Url, body: bytes) -> bytes:
        own = [] if "host" in given else [f"Host: {url.authority}"]
        if url.authorization and "authorization" not in given:
            own.append(url.authorization)
        if settings.is_get:
            return "\r\n".join([f"GET {url.with_body(body)} HTTP/1.1", *own, *lines, "", ""]).encode()
        length = f"Content-Length: {len(body)}"
        return "\r\n".join([f"POST {url.target} HTTP/1.1", *own, *lines, length, "", ""]).encode()

    return head


def send(cluster: Cluster, settings: Settings, say: Callable[[str], None],
         answered: Callable[[str, float], None] | None = None, insists: bool = True) -> int:
    """Returns the exit code. insists: see Feed. Raises ClientError, ToolError."""
    urls = [read_url(text) for text in settings.urls]
    options = Options("to-http", (), cluster.timeout, cluster.connection_options())
    if not settings.wait:
        check_topics(cluster, settings.topics)
    with Stop() as stop, Feed(cluster, settings.topics, settings.channel, settings.max_in_flight, options, stop,
                              say, insists=insists) as feed:
        feed.start()
        sender = Sender(settings.connect_timeout, settings.request_timeout, settings.tls, stop.wake)
        try:
            Engine(feed, stop, settings, urls, head_writer(settings), sender, say, answered).run()
        finally:
            sender.close()
        return stop.code(terminated=0)
