"""The paths of a daemon below /ui. Their module is imported at the first request: many daemons never get one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from nsqc.access.needs import GRANTS, NOTHING, OPEN_OWN, Need
from nsqc.httpd.reply import ApiError, Request, Route
from nsqc.httpd.routing import imported
from nsqc.httpd.site import Resolve, Site

if TYPE_CHECKING:
    from nsqc.admin.local import Mount

PREFIX = "/ui"
LOOKING = Need(GRANTS, NOTHING, own=True, local=True)
_MOST_BODY = 1024 * 1024


class Mounted:
    """A router for these paths and the daemon's others."""

    def __init__(self, resolve: Resolve) -> None:
        """resolve: for the other paths."""
        self._prefix, self._below = PREFIX.encode(), f"{PREFIX}/".encode()
        self._others = resolve
        self._mount: Mount | None = None
        self._first = Route(self._answer_first, LOOKING, logged=False, body_limit=_MOST_BODY, reads_body=True)

    def resolve(self, request: Request) -> Route:
        """The route of a request."""
        path = request.path
        if path != self._prefix and not path.startswith(self._below):
            return self._others(request)
        if self._mount is not None:
            return self._mount.resolve(request)
        # The route of a GET is admitted once it is known.
        return self._first._replace(need=OPEN_OWN) if request.method == b"GET" else self._first

    def close(self) -> None:
        """The server is stopping."""
        if self._mount is not None:
            self._mount.close()

    # Any: the site of a daemon, which has more than this room knows
    async def _answer_first(self, site: Any, request: Request) -> object:
        module = await imported("nsqc.admin.local")
        if self._mount is None:
            make: Callable[[Site, Resolve], Mount] = module.mount
            self._mount = make(site, self._others)
        route = request.route = site.gate.admit(self._mount.resolve(request), request, request.caller)
        try:
            return await route.call(site, request)
        except ApiError as error:
            return route.error(error.status, error.text)
