"""The routes of the lookup server's API."""

from __future__ import annotations

from nsqc.httpd import debug, probes
from nsqc.httpd.first import at_first
from nsqc.httpd.request import Handler, Route
from nsqc.httpd.routing import Router, Table, debug_route, plain_answer, plain_route, probe_route
from nsqc.lookupd import admin, pages, views


def _call(handler: Handler) -> Route:
    """A call with arguments reads the whole request, though it ignores the body."""
    return Route(handler, reads_body=True)


ROUTES: Table = {
    b"GET": {
        b"/ping": plain_route(views.ping),
        b"/livez": probe_route(probes.livez),
        b"/readyz": probe_route(views.readyz),
        b"/info": Route(views.info),
        b"/lookup": _call(views.lookup),
        b"/topics": Route(views.topics),
        b"/channels": _call(views.channels),
        b"/nodes": Route(views.nodes),
        b"/metrics": plain_answer(at_first("nsqc.lookupd.metrics", "metrics")),
        b"/debug": Route(views.debug),
        b"/debug/pprof": debug_route(pages.index),
        b"/debug/pprof/cmdline": debug_route(debug.cmdline),
        b"/debug/pprof/profile": debug_route(debug.profile),
        b"/debug/pprof/heap": debug_route(pages.heap),
        b"/debug/pprof/goroutine": debug_route(debug.stacks),
        b"/debug/pprof/threadcreate": debug_route(debug.threads),
        b"/debug/slow": debug_route(debug.slow),
    },
    b"POST": {
        b"/topic/create": _call(admin.create_topic),
        b"/topic/delete": _call(admin.delete_topic),
        b"/topic/tombstone": _call(admin.tombstone),
        b"/channel/create": _call(admin.create_channel),
        b"/channel/delete": _call(admin.delete_channel),
    },
}

PATHS = [path.decode() for table in ROUTES.values() for path in table if not path.startswith(b"/debug/")]
resolve = Router(ROUTES, {}).resolve
