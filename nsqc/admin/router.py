"""From path to handler: paths whose last parts are names, below a prefix."""

from __future__ import annotations

from typing import NoReturn

from nsqc.access.needs import OPEN
from nsqc.httpd.reply import ApiError, Reply
from nsqc.httpd.request import Request, Route, fixed
from nsqc.httpd.routing import Router, Table


class TreeRouter(Router):
    """Routes by whole paths, and trees by (path before the names, number of names). The names are the request's param,
    joined by slashes."""

    def __init__(self, routes: Table, trees: dict[tuple[bytes, bytes, int], Route], prefix: str = "") -> None:
        """trees: by (method, path before, number); prefix: of every path, without a slash at its end."""
        super().__init__(routes, {})
        self._trees = trees
        self._prefix = prefix.encode()
        self._methods = {*routes, *(method for method, _, _ in trees)}

    def resolve(self, request: Request) -> Route:
        """See Router. A path outside of the prefix is unknown."""
        prefix = self._prefix
        if not prefix:
            return super().resolve(request)
        if request.path == prefix:
            location = prefix.decode() + "/"
            return fixed(Reply(301, extra=f"Location: {location}\r\n"))
        if not request.path.startswith(prefix + b"/"):
            return Route(_unknown, OPEN)
        request.path = request.path[len(prefix):]
        return super().resolve(request)

    def _match(self, method: bytes, path: bytes, request: Request | None = None) -> Route | None:
        route = self._routes.get(method, {}).get(path)
        if route is not None:
            return route
        parts = path.split(b"/")
        for count in range(1, min(3, len(parts) - 1)):
            names = parts[-count:]
            route = self._trees.get((method, b"/".join(parts[:-count]) + b"/", count))
            if route is not None and all(names):
                if request is not None:
                    request.param = b"/".join(names).decode("latin-1")
                return route
        return None

    def _allow(self, path: bytes, method: bytes) -> str:
        known = {each.decode() for each in self._methods if each != method and self._match(each, path) is not None}
        return f"Allow: {', '.join(sorted(known | {'OPTIONS'}))}\r\n" if known else ""

    def _similar(self, method: bytes, path: bytes) -> bytes | None:
        """A slash too many at the end, as nsqadmin's router has it."""
        bare = path.rstrip(b"/")
        return self._prefix + bare if bare != path and bare and self._match(method, bare) is not None else None


def _unknown(site: object, request: Request) -> NoReturn:
    raise ApiError(404, "NOT_FOUND")
