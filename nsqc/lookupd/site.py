"""What the handlers of the lookup server's HTTP API work on."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from nsqc.httpd.known import NoPublishes
from nsqc.httpd.site import Resolve, Site
from nsqc.log import Log
from nsqc.lookupd.hub import Hub
from nsqc.lookupd.registry import Registry
from nsqc.lookupd.turns import Turns
from nsqc.loop.slow import SlowLoop
from nsqc.net.listener import Listeners


class LookupSite(Site):
    """Shared by all its HTTP connections."""

    def __init__(self, *, hub: Hub, log: Log, header_timeout: int, threads: Executor, resolve: Resolve,
                 listeners: Listeners, slow: SlowLoop) -> None:
        super().__init__(log=log, resolve=resolve, publishes=NoPublishes(), header_timeout=header_timeout,
                         threads=threads, slow=slow)
        self.hub = hub
        self.listeners = listeners
        self.registry: Registry = hub.registry
        # Apart from the nodes' turns: lists get on while a storm of registrations goes on.
        self.turns = Turns(hub.loop)
        # Held by an answer that takes more than one loop iteration: one at a time is in the making.
        self.surveys = asyncio.Lock()
