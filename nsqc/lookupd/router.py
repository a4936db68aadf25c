"""The routes of the lookup server's API, and the permissions that each requires."""

from __future__ import annotations

from nsqc.access.needs import ADMIN, CHANNEL, GRANTS, KNOWN, OPEN, OPEN_OWN, PART, STATS, TOPIC, Need, local, need, own
from nsqc.httpd import debug, probes
from nsqc.httpd.first import at_first
from nsqc.httpd.request import Handler, Route
from nsqc.httpd.routing import Router, Table, plain_answer, plain_route, probe_route
from nsqc.lookupd import admin, pages, views

_FINDING = Need(GRANTS, PART)      # clients with any grant for a topic, or a channel of it, may look up its nodes


def _call(handler: Handler, needed: Need) -> Route:
    """A call with arguments reads the whole request, though it ignores the body."""
    return Route(handler, needed, reads_body=True)


ROUTES: Table = {
    b"GET": {
        b"/ping": plain_route(views.ping, OPEN),
        b"/livez": probe_route(probes.livez, OPEN_OWN),
        b"/readyz": probe_route(views.readyz, OPEN_OWN),
        b"/info": Route(views.info, KNOWN),
        b"/lookup": _call(views.lookup, _FINDING),
        b"/topics": Route(views.topics, need(STATS)),
        b"/channels": _call(views.channels, _FINDING),
        b"/nodes": Route(views.nodes, need(STATS)),
        b"/metrics": plain_answer(at_first("nsqc.lookupd.metrics", "metrics"), own(STATS)),
        b"/debug": Route(views.debug, need(STATS)),
        b"/debug/pprof": plain_answer(pages.index, need(ADMIN)),
        b"/debug/pprof/cmdline": plain_answer(debug.cmdline, need(ADMIN)),
        b"/debug/pprof/profile": plain_answer(debug.profile, need(ADMIN)),
        b"/debug/pprof/heap": plain_answer(pages.heap, need(ADMIN)),
        b"/debug/pprof/goroutine": plain_answer(debug.stacks, need(ADMIN)),
        b"/debug/pprof/threadcreate": plain_answer(debug.threads, need(ADMIN)),
        b"/debug/slow": plain_answer(debug.slow, local(ADMIN)),
    },
    b"POST": {
        b"/topic/create": _call(admin.create_topic, need(ADMIN, TOPIC)),
        b"/topic/delete": _call(admin.delete_topic, need(ADMIN, TOPIC)),
        b"/topic/tombstone": _call(admin.tombstone, need(ADMIN, TOPIC)),
        b"/channel/create": _call(admin.create_channel, need(ADMIN, CHANNEL)),
        b"/channel/delete": _call(admin.delete_channel, need(ADMIN, CHANNEL)),
    },
}

PATHS = [path.decode() for table in ROUTES.values() for path in table if not path.startswith(b"/debug/")]
resolve = Router(ROUTES, {}).resolve
