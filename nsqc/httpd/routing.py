"""From a request to its route, and handlers whose modules are imported at their first request: for all programs."""

from __future__ import annotations

import asyncio
import posixpath
import re
import threading
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from msgspec import UNSET, Struct, UnsetType

from nsqc.access.needs import OPEN, OPEN_OWN, Need
from nsqc.httpd.reply import JSON, ApiError, Handler, Reply, Request, Route, encoded, fixed, plain, redirect, v1_error

if TYPE_CHECKING:
    from nsqc.httpd.site import Resolve

# ====================================================================== first
# Handlers whose modules are imported at their first request, since many programs never get one.
#
# An import takes milliseconds, or longer on a slow disk. So a thread imports the module while the loop continues, and
# the request is answered afterwards. It is not a pool thread: those may be waiting for a disk that hangs.

_loaded: dict[str, ModuleType] = {}


def at_first(module: str, name: str) -> Handler:
    """The handler of this name in a module of this package, or in a module with a full name."""
    module = module if "." in module else f"nsqc.httpd.{module}"

    def handler(site: object, request: Request) -> object:
        there = _loaded.get(module)
        if there is None:
            return _import_and_call(module, name, site, request)
        call: Handler = getattr(there, name)
        return call(site, request)

    return handler


async def _import_and_call(module: str, name: str, site: object, request: Request) -> object:
    there = _loaded[module] = await imported(module)
    call: Handler = getattr(there, name)
    data = call(site, request)
    return await data if hasattr(data, "__await__") else data


async def imported(module: str) -> ModuleType:
    """A module, imported by a thread if the system gives one."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[ModuleType] = loop.create_future()

    def settle(there: ModuleType | None, error: Exception | None) -> None:
        if done.done():
            return
        if there is not None:
            done.set_result(there)
        else:
            done.set_exception(error or ImportError(module))

    def work() -> None:
        there, failure = None, None
        try:
            there = import_module(module)
        except Exception as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, there, failure)
        except RuntimeError:
            return  # the loop has ended meanwhile

    try:
        threading.Thread(target=work, name=f"import {module}", daemon=True).start()
    except RuntimeError:
        work()
    return await done


# ====================================================================== routing
# From method and path to a route, by the rules of the router in NSQ's daemons, and the kinds of routes.
#
# A path matches exactly; `/config/:opt` matches any last part. Other paths may be redirected (an extra or missing
# slash, different case, `//` or dots); else the answer is a 405 with the methods of the path, or a 404.

# Quotes a path; urllib.parse, which has such a function, takes milliseconds to import.
_UNSAFE = re.compile(rb"[^A-Za-z0-9_.\-~/:@!$&'()*+,;=]")

Table = dict[bytes, dict[bytes, Route]]  # by method and path


def plain_route(handler: Handler, need: Need) -> Route:
    """A call that answers with plain text."""
    return Route(handler, need, reply=_plain_reply, error=_plain_error)


def plain_answer(handler: Handler, need: Need) -> Route:
    """A page that is not logged; its errors are plain text."""
    return Route(handler, need, error=lambda status, text: plain(text, status), logged=False)


def probe_route(handler: Handler, need: Need) -> Route:
    """A call that supervisors repeat all the time: not logged."""
    return Route(handler, need, reply=_plain_reply, error=_plain_error, logged=False)


def _plain_reply(data: object) -> Reply:
    # nsqd's handlers that return nothing fail where plain text is expected; so do these, with the same words.
    if data is None:
        raise ApiError(500, "INTERNAL_ERROR")
    return plain(str(data))


def _plain_error(status: int, text: str) -> Reply:
    # A failure of the handler machinery is JSON even here.
    return v1_error(status, text) if text == "INTERNAL_ERROR" else plain(text, status)


def livez(site: object, request: Request) -> str:
    """/livez, for supervisors. OK: the loop runs. A full disk or a drain is no reason to kill the process."""
    return "OK"


class Readiness(Struct, frozen=True, gc=False):
    """The answer of /readyz. details: problems for an operator, though clients may come; omitted if there are none."""

    ready: bool
    reasons: list[str]
    details: list[str] | UnsetType = UNSET


def readiness(reasons: list[str], details: list[str] | None = None) -> Reply:
    """200, or 503 and the reasons."""
    return Reply(503 if reasons else 200, encoded(Readiness(not reasons, reasons, details or UNSET)), JSON)


class Router:
    """The routes of one API."""

    def __init__(self, routes: Table, free_routes: Table) -> None:
        """free_routes: wildcard routes, by the path before the wildcard."""
        self._routes = routes
        self._free_routes = free_routes

    def resolve(self, request: Request) -> Route:
        """The route of a request; without a match, one that answers with the redirection or the error."""
        method, path = request.method, request.path
        if method == b"OPTIONS" and request.url == b"*":
            return fixed(Reply(200))
        route = self._match(method, path, request)
        if route is not None:
            return route
        if method in self._routes and path != b"/":
            target = self._similar(method, path)
            if target is not None:
                return fixed(_redirect(request, target))
        allowed = self._allow(path, method)
        if method == b"OPTIONS" and allowed:
            return fixed(Reply(200, extra=allowed))
        if allowed:
            return Route(_method_not_allowed, OPEN, error=lambda status, text: v1_error(status, text, allowed))
        return Route(_not_found, OPEN)

    def _match(self, method: bytes, path: bytes, request: Request | None = None) -> Route | None:
        """The route of exactly this path; sets the request's parameter."""
        route = self._routes.get(method, {}).get(path)
        if route is not None:
            return route
        folder, slash, last = path.rpartition(b"/")
        route = self._free_routes.get(method, {}).get(folder + slash)
        if route is None or not last:
            return None
        if request is not None:
            request.param = last.decode("latin-1")
        return route

    def _similar(self, method: bytes, path: bytes) -> bytes | None:
        """The path that was probably meant: with or without a final slash, or cleaned and in the route's own case."""
        other = path[:-1] if path.endswith(b"/") else path + b"/"
        if self._match(method, other) is not None:
            return other
        clean = posixpath.normpath(b"/" + path.lstrip(b"/"))
        for candidate in (clean, clean + b"/"):
            for known in self._routes[method]:
                if known.lower() == candidate.lower():
                    return known
        folder, slash, last = clean.rpartition(b"/")
        for known in self._free_routes.get(method, {}):
            if known == (folder + slash).lower() and last:
                return known + last
        return None

    def _allow(self, path: bytes, method: bytes) -> str:
        """The Allow header for a path with routes for other methods; empty if there are none."""
        methods = {known.decode() for known in self._routes if known != method and self._match(known, path) is not None}
        return f"Allow: {', '.join(sorted(methods | {'OPTIONS'}))}\r\n" if methods else ""


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % ord(match[0])


def _redirect(request: Request, path: bytes) -> Reply:
    get = request.method == b"GET"
    query = b"?" + request.query if b"?" in request.url else b""
    location = _UNSAFE.sub(_escaped, path).decode() + query.decode("latin-1")
    return redirect(301 if get else 307, location, with_body=get)


def _method_not_allowed(app: object, request: Request) -> NoReturn:
    raise ApiError(405, "METHOD_NOT_ALLOWED")


def _not_found(app: object, request: Request) -> NoReturn:
    raise ApiError(404, "NOT_FOUND")


# ====================================================================== mounted
# Paths below a prefix, whose module is imported at the first request: many programs never get one.

_MOST_FIRST_BODY = 1024 * 1024     # of the request that imports the module


class Mount(Protocol):
    """What serves such paths."""

    resolve: Resolve

    def close(self) -> None:
        """The server is stopping."""


class Mounted:
    """A router for these paths and the program's others."""

    def __init__(self, prefix: str, module: str, needed: Need, resolve: Resolve) -> None:
        """module: its mount(site, resolve, prefix, needed) returns the Mount. resolve: for the other paths."""
        self._prefix, self._module, self._needed, self._others = prefix, module, needed, resolve
        self._path, self._below = prefix.encode(), f"{prefix}/".encode()
        self._mount: Mount | None = None
        self._first = Route(self._answer_first, needed, logged=False, body_limit=_MOST_FIRST_BODY, reads_body=True)

    def resolve(self, request: Request) -> Route:
        """The route of a request."""
        path = request.path
        if path != self._path and not path.startswith(self._below):
            return self._others(request)
        if self._mount is not None:
            return self._mount.resolve(request)
        # The route of a GET is admitted once it is known.
        return self._first._replace(need=OPEN_OWN) if request.method == b"GET" else self._first

    def close(self) -> None:
        """The server is stopping."""
        if self._mount is not None:
            self._mount.close()

    # Any: a site of any program
    async def _answer_first(self, site: Any, request: Request) -> object:
        module = await imported(self._module)
        if self._mount is None:
            # Any: as above
            make: Callable[[Any, Resolve, str, Need], Mount] = module.mount
            self._mount = make(site, self._others, self._prefix, self._needed)
        route = request.route = site.gate.admit(self._mount.resolve(request), request, request.caller)
        try:
            return await route.call(site, request)
        except ApiError as error:
            return route.error(error.status, error.text)
