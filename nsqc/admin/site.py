"""The state that the handlers of the admin server work on."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from nsqc.admin.changes import Changes
from nsqc.admin.fleet import Fleet
from nsqc.admin.notify import Notifier, notification
from nsqc.admin.people import People
from nsqc.admin.static import Page
from nsqc.httpd.gate import Gate
from nsqc.httpd.request import Request
from nsqc.httpd.site import Resolve, Site
from nsqc.log import Log
from nsqc.loop.slow import SlowLoop
from nsqc.net.listener import Listeners
from nsqc.options.admin import AdminOptions

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
