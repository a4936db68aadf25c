"""The routes of the daemon's API, and the grants that each needs."""

from __future__ import annotations

from nsqc.access.needs import ADMIN, CHANNEL, KNOWN, OPEN, OPEN_OWN, PUBLISH, READ, STATS, TOPIC, Need, local, need, own
from nsqc.httpd import publish, views
from nsqc.httpd.app import MOST_RULES, MOST_TABLES, confirmed
from nsqc.httpd.reply import Handler, Route
from nsqc.httpd.routing import Router, Table, at_first, livez, plain_answer, plain_route, probe_route


def _call(handler: Handler, need: Need) -> Route:
    return Route(handler, need, reads_body=True)


def _change(room: str, name: str, need: Need, body_limit: int | None = None) -> Route:
    return Route(confirmed(at_first(room, name)), need, body_limit=body_limit, reads_body=True)


_PUB = Route(publish.counted(publish.pub), need(PUBLISH, TOPIC), logged=False, body_limit="message_limit",
             reads_body=True)
_MPUB = Route(publish.counted(publish.mpub), need(PUBLISH, TOPIC), logged=False, body_limit="max_body_size",
              reads_body=True)

ROUTES: Table = {
    b"GET": {
        b"/ping": plain_route(views.ping, OPEN),
        b"/livez": probe_route(livez, OPEN_OWN),
        b"/readyz": probe_route(at_first("views", "readyz"), OPEN_OWN),
        b"/info": Route(views.info, KNOWN),
        b"/stats": _call(views.stats, need(STATS, TOPIC)),
        b"/drain": Route(at_first("admin", "get_drain"), local(STATS)),
        b"/metrics": plain_answer(at_first("metrics", "metrics"), own(STATS)),
        b"/topic/log": Route(at_first("logs", "show"), Need((READ, STATS), TOPIC, own=True, local=True)),
        b"/topic/read": Route(at_first("logs", "read"), local(READ, TOPIC)),
        b"/topic/peek": Route(at_first("peek", "topic"), local(READ, TOPIC)),
        b"/channel/peek": Route(at_first("peek", "channel"), local(READ, CHANNEL)),
        b"/dead": Route(at_first("dead", "topics"), local(STATS)),
        b"/dead/list": Route(at_first("dead", "groups"), local(READ, TOPIC)),
        b"/dead/show": Route(at_first("dead", "show"), local(READ, TOPIC)),
        b"/rules": Route(at_first("rules", "get_all"), local(STATS)),
        b"/topic/rules": _call(at_first("rules", "get_rules"), Need((STATS, READ, ADMIN), TOPIC, own=True, local=True)),
        b"/channel/rules": _call(at_first("rules", "get_channel_rules"),
                                 Need((STATS, READ, ADMIN), CHANNEL, own=True, local=True)),
        b"/debug/pprof/": plain_answer(at_first("debug", "index"), need(ADMIN)),
        b"/debug/pprof/cmdline": plain_answer(at_first("debug", "cmdline"), need(ADMIN)),
        b"/debug/pprof/profile": plain_answer(at_first("debug", "profile"), need(ADMIN)),
        b"/debug/pprof/heap": plain_answer(at_first("debug", "heap"), need(ADMIN)),
        b"/debug/pprof/goroutine": plain_answer(at_first("debug", "stacks"), need(ADMIN)),
        b"/debug/pprof/threadcreate": plain_answer(at_first("debug", "threads"), need(ADMIN)),
        b"/debug/slow": plain_answer(at_first("debug", "slow"), local(ADMIN)),
    },
    b"POST": {
        b"/pub": _PUB,
        b"/mpub": _MPUB,
        b"/topic/create": Route(at_first("admin", "create_topic"), need(ADMIN, TOPIC)),
        b"/topic/delete": _change("admin", "delete_topic", need(ADMIN, TOPIC)),
        b"/topic/empty": _change("admin", "empty_topic", need(ADMIN, TOPIC)),
        b"/topic/pause": _change("admin", "pause_topic", need(ADMIN, TOPIC)),
        b"/topic/unpause": _change("admin", "unpause_topic", need(ADMIN, TOPIC)),
        b"/channel/create": _change("admin", "create_channel", need(ADMIN, CHANNEL)),
        b"/channel/delete": _change("admin", "delete_channel", need(ADMIN, CHANNEL)),
        b"/channel/empty": _change("admin", "empty_channel", need(ADMIN, CHANNEL)),
        b"/channel/pause": _change("admin", "pause_channel", need(ADMIN, CHANNEL)),
        b"/channel/unpause": _change("admin", "unpause_channel", need(ADMIN, CHANNEL)),
        b"/channel/disconnect": _call(at_first("admin", "disconnect"), local(ADMIN, CHANNEL)),
        b"/channel/seek": _change("logs", "seek", local(ADMIN, CHANNEL)),
        # To channels of any topic: of the whole node.
        b"/dead/redrive": _change("dead", "redrive", local(ADMIN)),
        b"/dead/drop": _change("dead", "drop", local(ADMIN, TOPIC)),
        # A client that may publish a message may cancel it.
        b"/message/cancel": _change("dead", "cancel", Need((PUBLISH, ADMIN), TOPIC, own=True)),
        b"/drain": _call(at_first("admin", "post_drain"), local(ADMIN)),
        b"/debug/freememory": plain_route(at_first("debug", "free_memory"), need(ADMIN)),
    },
    b"DELETE": {
        b"/topic/log": _change("logs", "delete", local(ADMIN, TOPIC)),
        b"/drain": _call(at_first("admin", "delete_drain"), local(ADMIN)),
    },
    b"PUT": {
        b"/rules": _change("rules", "put_all", local(ADMIN), MOST_TABLES),
        b"/topic/rules": _change("rules", "put_rules", local(ADMIN, TOPIC), MOST_RULES),
        b"/channel/rules": _change("rules", "put_channel_rules", local(ADMIN, CHANNEL), MOST_RULES),
        b"/debug/setblockrate": plain_route(at_first("debug", "set_block_rate"), need(ADMIN)),
    },
}
# Wildcard routes, by the path before the wildcard.
FREE_ROUTES: Table = {
    b"GET": {b"/config/": Route(views.get_config, need(STATS))},
    b"PUT": {b"/config/": Route(views.put_config, need(ADMIN), body_limit="message_limit", reads_body=True)},
}

resolve = Router(ROUTES, FREE_ROUTES).resolve
