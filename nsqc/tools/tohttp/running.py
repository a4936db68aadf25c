"""One run of `nsqc to-http` or nsq_to_http."""

from __future__ import annotations

from collections.abc import Callable

from nsqc.client.options import Options
from nsqc.tools.cluster import Cluster
from nsqc.tools.feed import Feed, check_topics
from nsqc.tools.stopping import Stop
from nsqc.tools.tohttp.engine import Engine, Settings
from nsqc.tools.tohttp.sender import Sender
from nsqc.tools.tohttp.url import Url, read_url


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
