"""/debug/pprof/heap of the daemon."""

from __future__ import annotations

from nsqc.broker import stats
from nsqc.httpd.app import App
from nsqc.httpd.debug import heap_page, total
from nsqc.httpd.reply import Reply, Request


async def heap(app: App, request: Request) -> Reply:
    """Memory, contents of the broker, live objects."""
    memory = app.memory.read()
    lines = [f"{name} {getattr(memory, name)}" for name in memory.__struct_fields__]
    topics = list(app.broker.topics.values())
    lines += [
        f"topics {len(topics)}",
        f"channels {await total(len(topic.channels) for topic in topics)}",
        f"sessions {await total(1 for _ in list(app.sessions()))}",
        f"http_connections {sum(len(server.connections) for server in app.servers)}",
    ]
    lines += [f"alive {name} {value}" for name, value in stats.counts().items()]
    return await heap_page(app, request, lines)
