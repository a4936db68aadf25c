"""Paths below a prefix that a module of another room serves, imported at its first request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from nsqc.access.needs import GRANTS, NOTHING, Need
from nsqc.httpd.first import imported
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request, Route
from nsqc.httpd.site import Resolve, Site

_FIRST = Need(GRANTS, NOTHING, own=True, local=True)
_MOST_BODY = 1024 * 1024


class Mount(Protocol):
    """Serves the paths below the prefix."""

    resolve: Resolve

    def close(self) -> None:
        """The server is stopping."""


class Mounted:
    """A router with a late imported part. module: has mount(site, resolve), which returns a Mount."""

    def __init__(self, prefix: bytes, module: str, resolve: Resolve) -> None:
        self._prefix, self._below = prefix, prefix + b"/"
        self._module, self._others = module, resolve
        self._mount: Mount | None = None
        self._first = Route(self._answer_first, _FIRST, logged=False, body_limit=_MOST_BODY, reads_body=True)

    def resolve(self, request: Request) -> Route:
        """The route of a request."""
        path = request.path
        if path != self._prefix and not path.startswith(self._below):
            return self._others(request)
        return self._first if self._mount is None else self._mount.resolve(request)

    def close(self) -> None:
        """The server is stopping."""
        if self._mount is not None:
            self._mount.close()

    # Any: a site of any program
    async def _answer_first(self, site: Any, request: Request) -> object:
        module = await imported(self._module)
        if self._mount is None:
            make: Callable[[Site, Resolve], Mount] = module.mount
            self._mount = make(site, self._others)
        route = request.route = site.gate.admit(self._mount.resolve(request), request, request.caller)
        try:
            return await route.call(site, request)
        except ApiError as error:
            return route.error(error.status, error.text)
