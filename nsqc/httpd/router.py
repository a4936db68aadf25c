"""From method and path to a route, by the rules of nsqd's router.

A path matches exactly; `/config/:opt` matches any last part. Other paths may be redirected (a slash too many or too
few, other case, `//` or dots); else the answer is a 405 that lists the methods of the path, or a 404.
"""

from __future__ import annotations

import posixpath
from typing import NoReturn

from nsqc.httpd import admin, debug, publish, rules, statistics, views
from nsqc.httpd.app import App
from nsqc.httpd.reply import ApiError, Reply, plain, redirect, v1_error
from nsqc.httpd.request import Handler, Request, Route, fixed
from nsqc.options.declared import Options


def _plain_reply(data: object) -> Reply:
    # Handlers of nsqd that return nothing fail where plain text is expected; so do these, with the same words.
    if data is None:
        raise ApiError(500, "INTERNAL_ERROR")
    return plain(str(data))


def _plain_error(status: int, text: str) -> Reply:
    # A failure in the handler's own machinery is JSON even here.
    return v1_error(status, text) if text == "INTERNAL_ERROR" else plain(text, status)


def _max_msg_size(options: Options) -> int:
    return options.message_limit


def _max_body_size(options: Options) -> int:
    return options.max_body_size


def _call(handler: Handler) -> Route:
    return Route(handler, reads_body=True)


def _plain(handler: Handler) -> Route:
    return Route(handler, reply=_plain_reply, error=_plain_error)


def _debug(handler: Handler) -> Route:
    return Route(handler, error=lambda status, text: plain(text, status), logged=False)


# Calls for logs are imported when the first of them comes: many daemons have none.


def _show_log(app: App, request: Request) -> object:
    from nsqc.httpd import logs

    return logs.show(app, request)


def _read_log(app: App, request: Request) -> object:
    from nsqc.httpd import logs

    return logs.read(app, request)


def _seek(app: App, request: Request) -> object:
    from nsqc.httpd import cursors

    return cursors.seek(app, request)


_PUB = Route(publish.pub, logged=False, body_limit=_max_msg_size, reads_body=True)
_MPUB = Route(publish.mpub, logged=False, body_limit=_max_body_size, reads_body=True)

ROUTES: dict[bytes, dict[bytes, Route]] = {
    b"GET": {
        b"/ping": _plain(views.ping),
        b"/info": Route(views.info),
        b"/stats": _call(statistics.stats),
        b"/topic/log": Route(_show_log),
        b"/topic/read": Route(_read_log),
        b"/topic/rules": _call(rules.get_rules),
        b"/debug/pprof/": _debug(debug.index),
        b"/debug/pprof/cmdline": _debug(debug.cmdline),
        b"/debug/pprof/profile": _debug(debug.profile),
        b"/debug/pprof/heap": _debug(debug.heap),
        b"/debug/pprof/goroutine": _debug(debug.stacks),
        b"/debug/pprof/threadcreate": _debug(debug.threads),
    },
    b"POST": {
        b"/pub": _PUB,
        b"/mpub": _MPUB,
        b"/topic/create": Route(admin.create_topic),
        b"/topic/delete": _call(admin.delete_topic),
        b"/topic/empty": _call(admin.empty_topic),
        b"/topic/pause": _call(admin.pause_topic),
        b"/topic/unpause": _call(admin.unpause_topic),
        b"/channel/create": _call(admin.create_channel),
        b"/channel/delete": _call(admin.delete_channel),
        b"/channel/empty": _call(admin.empty_channel),
        b"/channel/pause": _call(admin.pause_channel),
        b"/channel/unpause": _call(admin.unpause_channel),
        b"/channel/seek": _call(_seek),
        b"/debug/freememory": _plain(debug.free_memory),
    },
    b"PUT": {
        b"/topic/rules": Route(rules.put_rules, body_limit=lambda options: rules.MOST_BODY, reads_body=True),
        b"/debug/setblockrate": _plain(debug.set_block_rate),
    },
}
# Routes that end in a wildcard, by the path before it.
FREE_ROUTES: dict[bytes, dict[bytes, Route]] = {
    b"GET": {b"/config/": Route(views.get_config)},
    b"PUT": {b"/config/": Route(views.put_config, body_limit=_max_msg_size, reads_body=True)},
}


def resolve(request: Request) -> Route:
    """The route of a request; if none matches, one that answers the redirection or the error."""
    method, path = request.method, request.path
    if method == b"OPTIONS" and request.url == b"*":
        return fixed(Reply(200))
    route = _match(method, path, request)
    if route is not None:
        return route
    if method in ROUTES and path != b"/":
        target = _similar(method, path)
        if target is not None:
            return fixed(_redirect(request, target))
    allowed = _allow(path, method)
    if method == b"OPTIONS" and allowed:
        return fixed(Reply(200, extra=allowed))
    if allowed:
        return Route(_method_not_allowed, error=lambda status, text: v1_error(status, text, allowed))
    return Route(_not_found)


def _match(method: bytes, path: bytes, request: Request | None = None) -> Route | None:
    """The route of exactly this path; sets the request's parameter."""
    route = ROUTES.get(method, {}).get(path)
    if route is not None:
        return route
    folder, slash, last = path.rpartition(b"/")
    route = FREE_ROUTES.get(method, {}).get(folder + slash)
    if route is None or not last:
        return None
    if request is not None:
        request.param = last.decode("latin-1")
    return route


def _similar(method: bytes, path: bytes) -> bytes | None:
    """The path that was probably meant: with or without a slash at the end, or cleaned and in the route's own case."""
    other = path[:-1] if path.endswith(b"/") else path + b"/"
    if _match(method, other) is not None:
        return other
    clean = posixpath.normpath(b"/" + path.lstrip(b"/"))
    for candidate in (clean, clean + b"/"):
        for known in ROUTES[method]:
            if known.lower() == candidate.lower():
                return known
    folder, slash, last = clean.rpartition(b"/")
    for known in FREE_ROUTES.get(method, {}):
        if known == (folder + slash).lower() and last:
            return known + last
    return None


def _redirect(request: Request, path: bytes) -> Reply:
    from urllib.parse import quote  # here: redirections are rare

    get = request.method == b"GET"
    query = b"?" + request.query if b"?" in request.url else b""
    location = quote(path, safe="/:@!$&'()*+,;=~") + query.decode("latin-1")
    return redirect(301 if get else 307, location, with_body=get)


def _allow(path: bytes, method: bytes) -> str:
    """The Allow header for a path that has routes under other methods; empty if it has none."""
    methods = {known.decode() for known in ROUTES if known != method and _match(known, path) is not None}
    return f"Allow: {', '.join(sorted(methods | {'OPTIONS'}))}\r\n" if methods else ""


def _method_not_allowed(app: App, request: Request) -> NoReturn:
    raise ApiError(405, "METHOD_NOT_ALLOWED")


def _not_found(app: App, request: Request) -> NoReturn:
    raise ApiError(404, "NOT_FOUND")
