"""What a path does: its handler, and the form of its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nsqc.httpd.app import App
from nsqc.httpd.reply import Reply, v1, v1_error
from nsqc.httpd.request import Request
from nsqc.options.declared import Options

# Returns data that Route.reply makes a Reply, a Reply, or an awaitable of either; raises ApiError to refuse.
Handler = Callable[[App, Request], object]


class Route(NamedTuple):
    """One call of the API."""

    handler: Handler
    reply: Callable[[object], Reply] = v1                           # makes data a Reply
    error: Callable[[int, str], Reply] = v1_error                   # makes an ApiError a Reply
    logged: bool = True                                             # each request is logged
    body_limit: Callable[[Options], int] | None = None              # bytes of body to keep; None: 0
    reads_body: bool = False                                        # answers Expect: 100-continue


def fixed(reply: Reply) -> Route:
    """A route that always gives this answer."""
    return Route(lambda app, request: reply, logged=False)
