"""The routes of the daemon's API."""

from __future__ import annotations

from nsqc.httpd import admin, probes, publish, statistics, views
from nsqc.httpd.app import App
from nsqc.httpd.request import Handler, Request, Route
from nsqc.httpd.routing import Router, Table, debug_route, plain_answer, plain_route, probe_route
from nsqc.options.declared import Options


def _max_msg_size(options: Options) -> int:
    return options.message_limit


def _max_body_size(options: Options) -> int:
    return options.max_body_size


def _call(handler: Handler) -> Route:
    return Route(handler, reads_body=True)


# Calls that many daemons never get are imported when the first of them comes.


def _show_log(app: App, request: Request) -> object:
    from nsqc.httpd import logs

    return logs.show(app, request)


def _read_log(app: App, request: Request) -> object:
    from nsqc.httpd import logs

    return logs.read(app, request)


def _peek_topic(app: App, request: Request) -> object:
    from nsqc.httpd import peek

    return peek.topic(app, request)


def _peek_channel(app: App, request: Request) -> object:
    from nsqc.httpd import peek

    return peek.channel(app, request)


def _seek(app: App, request: Request) -> object:
    from nsqc.httpd import cursors

    return cursors.seek(app, request)


def _get_rules(app: App, request: Request) -> object:
    from nsqc.httpd import rules

    return rules.get_rules(app, request)


def _put_rules(app: App, request: Request) -> object:
    from nsqc.httpd import rules

    return rules.put_rules(app, request)


def _readyz(app: App, request: Request) -> object:
    from nsqc.httpd import ready

    return ready.readyz(app, request)


def _drain(name: str) -> Handler:
    """A function of drain.py."""

    def handler(app: App, request: Request) -> object:
        from nsqc.httpd import drain

        call: Handler = getattr(drain, name)
        return call(app, request)

    return handler


def _longest_rules(options: Options) -> int:
    from nsqc.httpd import rules

    return rules.MOST_BODY


def _heap(app: App, request: Request) -> object:
    from nsqc.httpd import heap

    return heap.heap(app, request)


def _metrics(app: App, request: Request) -> object:
    from nsqc.httpd import metrics

    return metrics.metrics(app, request)


def _page(name: str) -> Handler:
    """A function of debug.py."""

    def handler(app: App, request: Request) -> object:
        from nsqc.httpd import debug

        page: Handler = getattr(debug, name)
        return page(app, request)

    return handler


_PUB = Route(publish.counted(publish.pub), logged=False, body_limit=_max_msg_size, reads_body=True)
_MPUB = Route(publish.counted(publish.mpub), logged=False, body_limit=_max_body_size, reads_body=True)

ROUTES: Table = {
    b"GET": {
        b"/ping": plain_route(views.ping),
        b"/livez": probe_route(probes.livez),
        b"/readyz": probe_route(_readyz),
        b"/info": Route(views.info),
        b"/stats": _call(statistics.stats),
        b"/drain": Route(_drain("get")),
        b"/metrics": plain_answer(_metrics),
        b"/topic/log": Route(_show_log),
        b"/topic/read": Route(_read_log),
        b"/topic/peek": Route(_peek_topic),
        b"/channel/peek": Route(_peek_channel),
        b"/topic/rules": _call(_get_rules),
        b"/debug/pprof/": debug_route(_page("index")),
        b"/debug/pprof/cmdline": debug_route(_page("cmdline")),
        b"/debug/pprof/profile": debug_route(_page("profile")),
        b"/debug/pprof/heap": debug_route(_heap),
        b"/debug/pprof/goroutine": debug_route(_page("stacks")),
        b"/debug/pprof/threadcreate": debug_route(_page("threads")),
        b"/debug/slow": debug_route(_page("slow")),
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
        b"/drain": _call(_drain("post")),
        b"/debug/freememory": plain_route(_page("free_memory")),
    },
    b"DELETE": {
        b"/drain": _call(_drain("delete")),
    },
    b"PUT": {
        b"/topic/rules": Route(_put_rules, body_limit=_longest_rules, reads_body=True),
        b"/debug/setblockrate": plain_route(_page("set_block_rate")),
    },
}
# Routes that end in a wildcard, by the path before it.
FREE_ROUTES: Table = {
    b"GET": {b"/config/": Route(views.get_config)},
    b"PUT": {b"/config/": Route(views.put_config, body_limit=_max_msg_size, reads_body=True)},
}

resolve = Router(ROUTES, FREE_ROUTES).resolve
