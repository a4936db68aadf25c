"""State shared by the handlers of the lookup server's HTTP API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from concurrent.futures import Executor

from nsqc.httpd.gate import Gate
from nsqc.httpd.reply import Request, Route
from nsqc.httpd.site import Resolve, Site
from nsqc.log import Log
from nsqc.lookupd.connection import Hub
from nsqc.lookupd.registry import Registry
from nsqc.loop.slow import LISTS_S, Share, SlowLoop
from nsqc.metrics.durations import Durations
from nsqc.net.listener import Listeners

OTHER = "other"     # paths that are not routes


class LookupSite(Site):
    """Shared by all HTTP connections of the server."""

    def __init__(self, *, hub: Hub, log: Log, header_timeout: int, threads: Executor, resolve: Resolve,
                 listeners: Listeners, slow: SlowLoop, routes: Iterable[str], lags: Durations,
                 gate: Gate) -> None:
        """routes: paths whose requests are counted separately."""
        super().__init__(log=log, resolve=self._counted, header_timeout=header_timeout,
                         threads=threads, slow=slow, gate=gate)
        self.hub = hub
        self.listeners = listeners
        self.registry: Registry = hub.registry
        self.share = Share(LISTS_S, "lists")
        # Held by an answer that takes more than one loop iteration: only one is built at a time.
        self.surveys = asyncio.Lock()
        # For metrics.
        self.threads = threads
        self.start_time = time.time()       # unix seconds
        self.lags = lags                    # of the loop
        self.requests = dict.fromkeys([*routes, OTHER], 0)      # by path
        self._resolve = resolve

    def contents(self) -> dict[str, int]:
        """See Site: registrations and connections."""
        registry = self.registry
        return {"topics": len(registry.topics), "topics_with_channels": len(registry.channels),
                "nodes": len(registry.clients.producers), "connections": len(self.hub.connections),
                **super().contents()}

    def _counted(self, request: Request) -> Route:
        path = request.path.decode("latin-1")
        self.requests[path if path in self.requests else OTHER] += 1
        return self._resolve(request)
