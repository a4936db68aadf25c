"""The routes of the daemon's API."""

from __future__ import annotations

from nsqc.httpd import admin, probes, publish, statistics, views
from nsqc.httpd.app import MOST_RULES
from nsqc.httpd.first import at_first
from nsqc.httpd.request import Handler, Route
from nsqc.httpd.routing import Router, Table, debug_route, plain_answer, plain_route, probe_route
from nsqc.options.declared import Options


def _max_msg_size(options: Options) -> int:
    return options.message_limit


def _max_body_size(options: Options) -> int:
    return options.max_body_size


def _call(handler: Handler) -> Route:
    return Route(handler, reads_body=True)


def _longest_rules(options: Options) -> int:
    return MOST_RULES


_PUB = Route(publish.counted(publish.pub), logged=False, body_limit=_max_msg_size, reads_body=True,
             from_pages=True)
_MPUB = Route(publish.counted(publish.mpub), logged=False, body_limit=_max_body_size, reads_body=True,
              from_pages=True)

ROUTES: Table = {
    b"GET": {
        b"/ping": plain_route(views.ping),
        b"/livez": probe_route(probes.livez),
        b"/readyz": probe_route(at_first("ready", "readyz")),
        b"/info": Route(views.info),
        b"/stats": _call(statistics.stats),
        b"/drain": Route(at_first("drain", "get")),
        b"/metrics": plain_answer(at_first("metrics", "metrics")),
        b"/topic/log": Route(at_first("logs", "show")),
        b"/topic/read": Route(at_first("logs", "read")),
        b"/topic/peek": Route(at_first("peek", "topic")),
        b"/channel/peek": Route(at_first("peek", "channel")),
        b"/topic/rules": _call(at_first("rules", "get_rules")),
        b"/debug/pprof/": debug_route(at_first("debug", "index")),
        b"/debug/pprof/cmdline": debug_route(at_first("debug", "cmdline")),
        b"/debug/pprof/profile": debug_route(at_first("debug", "profile")),
        b"/debug/pprof/heap": debug_route(at_first("heap", "heap")),
        b"/debug/pprof/goroutine": debug_route(at_first("debug", "stacks")),
        b"/debug/pprof/threadcreate": debug_route(at_first("debug", "threads")),
        b"/debug/slow": debug_route(at_first("debug", "slow")),
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
        b"/channel/seek": _call(at_first("cursors", "seek")),
        b"/drain": _call(at_first("drain", "post")),
        b"/debug/freememory": plain_route(at_first("debug", "free_memory")),
    },
    b"DELETE": {
        b"/drain": _call(at_first("drain", "delete")),
    },
    b"PUT": {
        b"/topic/rules": Route(at_first("rules", "put_rules"), body_limit=_longest_rules, reads_body=True),
        b"/debug/setblockrate": plain_route(at_first("debug", "set_block_rate")),
    },
}
# Routes that end in a wildcard, by the path before it.
FREE_ROUTES: Table = {
    b"GET": {b"/config/": Route(views.get_config)},
    b"PUT": {b"/config/": Route(views.put_config, body_limit=_max_msg_size, reads_body=True)},
}

resolve = Router(ROUTES, FREE_ROUTES).resolve
