"""The page of a single daemon, below /ui: the same page and the same API over this one node, without a socket between.

A call goes to the daemon's own handlers, with the token and the connection of the viewer: so it is permitted, refused
and recorded as if the viewer had made it. Nothing runs without a viewer.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
from collections.abc import Awaitable, Callable
from typing import Any, cast

from nsqc.access.needs import OPEN_OWN, Need
from nsqc.admin import api
from nsqc.admin.api import PAGES, Page, TreeRouter
from nsqc.admin.fleet import Fleet
from nsqc.admin.poller import Poller
from nsqc.admin.rights import People
from nsqc.admin.upstream import Ask, Trust, UpstreamError
from nsqc.admin.view import View
from nsqc.httpd.reply import ApiError, Pieces, Reply, Request, Route, refusal
from nsqc.httpd.routing import Table
from nsqc.httpd.site import Resolve, Site
from nsqc.net.address import join_address
from nsqc.peers.http import Answer

INTERVAL_S = 5.0
UNWATCHED_S = 60.0      # after this time without a request, polling stops

_asking: contextvars.ContextVar[Request | None] = contextvars.ContextVar("asking", default=None)


class LocalNodes:
    """Calls of the daemon's own handlers."""

    def __init__(self, site: Site, resolve: Resolve) -> None:
        self._site, self._resolve = site, resolve

    async def ask(self, address: str, ask: Ask) -> Answer:
        """See nsqc.admin.fleet.AskNode."""
        request = Request(ask.method.encode(), ask.target.encode(), length=len(ask.body))
        request.accept = ask.accept.encode()
        request.body = ask.body
        route = self._resolve(request)
        asking = _asking.get()
        if asking is not None:
            request.authorization, request.remote, request.caller = asking.authorization, asking.remote, asking.caller
            route = self._site.gate.admit(route, request, asking.caller)
        request.route = route
        try:
            reply = await route.call(self._site, request)
        except ApiError as error:
            reply = route.error(error.status, error.text)
        except OSError as error:
            reply = route.error(503, refusal(error.errno or errno.EIO))
        return Answer(reply.status, headers_of(reply), await self._body_of(reply, ask.most))

    async def _body_of(self, reply: Reply, most: int) -> bytes:
        """The whole body, or its beginning. Raises UpstreamError."""
        stream = reply.stream
        if stream is None:
            return b"".join([reply.body, *reply.parts])
        if isinstance(stream, Pieces):
            stream.chunked = False
        parts: list[bytes] = []
        size = 0
        # The stream needs no transport: its parts are gathered here.
        nowhere = cast("asyncio.Transport", None)
        while stream.left and not (most and size >= most):
            try:
                part = await self._site.readers.send(stream, nowhere, True)
            except OSError as error:
                raise UpstreamError(f"the answer cannot be read: {error}") from None
            parts.append(part)
            size += len(part)
        return b"".join(parts)


def headers_of(reply: Reply) -> dict[str, str]:
    """The headers that an answer adds, names in lower case."""
    lines = [line.partition(":") for line in reply.extra.split("\r\n") if line]
    return {name.lower(): value.strip() for name, _, value in lines}


class Mount:
    """The page, as long as the daemon runs."""

    def __init__(self, site: Site, resolve: Resolve, prefix: str, looking: Need, name: str, port: int) -> None:
        """looking: the grant of viewers. name, port: of the daemon's HTTP API, as others reach it. Raises OSError."""
        self._loop = asyncio.get_running_loop()
        itself = (join_address(name, port),)
        fleet = Fleet(LocalNodes(site, resolve).ask, site.log, (), itself, Trust(itself))
        self._poller = Poller(self._loop, fleet, site.log, INTERVAL_S)
        self._page = Page("", prefix)
        self._seen = 0.0
        self._timer: asyncio.TimerHandle | None = None
        view = View(fleet, self._poller, People(), site.log, mode="node", base=prefix + "/",
                    notify=lambda *about, **more: None)
        table, trees = api.routes(view, looking, self._watched)
        # With an access file the page has a form to sign in.
        seen = looking if site.gate.permits is None else OPEN_OWN
        index = Route(lambda site, request: self._page.index(request), seen, logged=False)
        file = Route(lambda site, request: self._page.file(request), Need(), logged=False)
        merged: Table = {**table, b"GET": {**table[b"GET"], **dict.fromkeys(PAGES, index)}}
        self.resolve = TreeRouter(merged, {
            **trees, (b"GET", b"/topics/", 1): index, (b"GET", b"/topics/", 2): index, (b"GET", b"/nodes/", 1): index,
            (b"GET", b"/static/", 1): file, (b"GET", b"/static/", 2): file}, prefix, view.sessions).resolve

    def _watched(self, call: Callable[[Request], Awaitable[object]]) -> Callable[[Request], Awaitable[object]]:
        """Makes a call for a viewer, and keeps the poller running."""

        async def watched(request: Request) -> object:
            self._seen = self._loop.time()
            if not self._poller.runs:
                self._poller.start()
                self._timer = self._loop.call_later(UNWATCHED_S, self._check)
            token = _asking.set(request)
            try:
                return await call(request)
            finally:
                _asking.reset(token)

        return watched

    def _check(self) -> None:
        left = self._seen + UNWATCHED_S - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check)
        else:
            self._poller.stop()

    def close(self) -> None:
        """The daemon stops."""
        if self._timer is not None:
            self._timer.cancel()
        self._poller.stop()


# Any: the site of a daemon, which has more than this room knows
def mount(site: Any, resolve: Resolve, prefix: str, looking: Need) -> Mount:
    """The page of a daemon."""
    options = site.settings.now
    port = next((server.port for server in site.servers if server.name == "HTTP"), 0)
    return Mount(site, resolve, prefix, looking, options.broadcast_address, max(port, 0))


