"""The routes of nsqc's own API, for the admin server and for the page of a single daemon."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nsqc.access.needs import ADMIN, GRANTS, NODE, NOTHING, PUBLISH, READ, STATS, Need
from nsqc.admin.actions import Actions
from nsqc.admin.messages import Messages
from nsqc.admin.packing import packed
from nsqc.admin.people import check_token
from nsqc.admin.site import MOST_BODY
from nsqc.admin.view import View
from nsqc.httpd.request import Request, Route
from nsqc.httpd.routing import Table

Trees = dict[tuple[bytes, bytes, int], Route]
Call = Callable[[Request], Awaitable[object]]
Wrap = Callable[[Call], Call]
API = b"/api/v1/"


def _same(call: Call) -> Call:
    return call


def routes(view: View, looking: Need | None = None, wrap: Wrap = _same) -> tuple[Table, Trees]:
    """looking: the need of calls whose own calls to nodes are checked for the user, and recorded; None: no such check
    is made. wrap: a decorator of each call. The calls themselves check which topics and channels a grant covers
    (nsqc.admin.rights)."""
    actions, messages = Actions(view), Messages(view)
    local = looking is not None

    def read(call: Call, *grants: str, of: str = NOTHING) -> Route:
        return packed(Route(_handler(wrap(call)), Need(grants or GRANTS, of, own=True, local=local), logged=False))

    def change(call: Call, *grants: str) -> Route:
        return packed(Route(_handler(wrap(_changing(view, call))), looking or Need(grants, NOTHING, own=True),
                            reads_body=True, body_limit=MOST_BODY))

    table: Table = {
        b"GET": {
            API + b"session": read(view.session),
            API + b"overview": read(view.overview),
            API + b"attention": read(view.attention),
            API + b"topics": read(view.topics),
            API + b"search": read(view.search),
            API + b"nodes": read(view.nodes),
            API + b"lookup": read(view.lookup, STATS, of=NODE),
            API + b"rules": read(view.rules),
            API + b"audit": read(view.audit, READ, ADMIN),
            API + b"messages": read(messages.page, READ),
        },
        b"POST": {
            API + b"actions": change(actions.act, ADMIN),
            API + b"publish": change(messages.publish, ADMIN, PUBLISH),
        },
    }
    trees: Trees = {
        (b"GET", API + b"topics/", 1): read(view.topic),
        (b"GET", API + b"topics/", 2): read(view.channel),
        (b"GET", API + b"nodes/", 1): read(view.node),
    }
    return table, trees


def _handler(call: Call) -> Callable[[Any, Request], object]:      # Any: a site of any program
    return lambda site, request: call(request)


def _changing(view: View, call: Call) -> Call:
    """A call that changes something, for permitted users, from this page or from a program."""

    async def checked(request: Request) -> object:
        request.user = view.people.user_of(request)
        check_token(request)
        view.people.check_change(request)
        return await call(request)

    return checked
