"""The routes of the admin server, and the grants that each needs."""

from __future__ import annotations

from nsqc.access.needs import ADMIN, NODE, NOTHING, OPEN, OPEN_OWN, STATS, Need, need
from nsqc.admin import api, config, graphite, own
from nsqc.admin.packing import packed
from nsqc.admin.router import TreeRouter
from nsqc.admin.site import MOST_BODY, AdminSite
from nsqc.admin.view import View
from nsqc.httpd import probes
from nsqc.httpd.reply import Reply, plain, v1
from nsqc.httpd.request import Handler, Request, Route
from nsqc.httpd.routing import Table, plain_answer, plain_route, probe_route

PAGES = (b"/", b"/topics", b"/nodes", b"/counter", b"/lookup", b"/messages", b"/changes")
Trees = dict[tuple[bytes, bytes, int], Route]


def index(site: AdminSite, request: Request) -> Reply:
    """The page."""
    return site.page.index(request)


def static(site: AdminSite, request: Request) -> Reply:
    """A file of it."""
    return site.page.file(request)


def _read(handler: Handler, of: str = NODE) -> Route:
    return packed(Route(handler, need(STATS, of)))


def _change(handler: Handler) -> Route:
    # Which topics and channels a grant covers, the handler checks: it knows their names.
    return packed(Route(handler, need(ADMIN, NOTHING), reads_body=True, body_limit=MOST_BODY))


def _config(handler: Handler, grant: str) -> Route:
    return Route(handler, need(grant), reads_body=grant == ADMIN, reply=_as_is,
                 body_limit=MOST_BODY if grant == ADMIN else None)


def _as_is(data: object) -> Reply:
    """Text as text/plain, everything else as JSON."""
    return plain(data) if isinstance(data, str) else v1(data)


_INDEX = Route(index, OPEN_OWN, logged=False)
_FILE = plain_answer(static, Need())

ROUTES: Table = {
    b"GET": {
        **dict.fromkeys(PAGES, _INDEX),
        b"/ping": plain_route(api.ping, OPEN),
        b"/livez": probe_route(probes.livez, OPEN_OWN),
        b"/api/topics": _read(api.topics, NOTHING),
        b"/api/nodes": _read(api.nodes),
        b"/api/counter": _read(api.counter),
        b"/api/graphite": _read(graphite.rate),
        b"/render": Route(graphite.render, need(STATS)),
    },
    b"POST": {
        b"/api/topics": _change(api.create),
    },
}
TREES: Trees = {
    (b"GET", b"/topics/", 1): _INDEX,
    (b"GET", b"/topics/", 2): _INDEX,
    (b"GET", b"/nodes/", 1): _INDEX,
    (b"GET", b"/static/", 1): _FILE,
    (b"GET", b"/static/", 2): _FILE,
    (b"GET", b"/api/topics/", 1): _read(api.topic, NOTHING),
    (b"GET", b"/api/topics/", 2): _read(api.channel, NOTHING),
    (b"POST", b"/api/topics/", 1): _change(api.act),
    (b"POST", b"/api/topics/", 2): _change(api.act),
    (b"DELETE", b"/api/topics/", 1): _change(api.delete),
    (b"DELETE", b"/api/topics/", 2): _change(api.delete),
    (b"GET", b"/api/nodes/", 1): _read(api.node),
    (b"DELETE", b"/api/nodes/", 1): _change(api.tombstone),
    (b"GET", b"/config/", 1): _config(config.get, STATS),
    (b"PUT", b"/config/", 1): _config(config.put, ADMIN),
}


def router(view: View, prefix: str) -> TreeRouter:
    """The routes of an admin server, below a prefix."""
    table, trees = own.routes(view)
    merged = {method: {**ROUTES.get(method, {}), **table.get(method, {})} for method in (*ROUTES, *table)}
    return TreeRouter(merged, {**TREES, **trees}, prefix)
