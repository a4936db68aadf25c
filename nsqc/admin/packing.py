"""Answers that are compressed for clients that take it, as nsqadmin does."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Awaitable
from typing import Any, cast

from nsqc.httpd.reply import Reply
from nsqc.httpd.request import Handler, Request, Route

LEAST = 1024            # bytes that are worth it
ON_A_THREAD = 64 * 1024
NONE = re.compile(r"q=0(\.0*)?")     # the weight of a coding that is refused
VARY = "Vary: Accept-Encoding\r\n"


def packed(route: Route) -> Route:
    """A route whose answers are compressed."""

    # Any: a site of any program
    def handler(site: Any, request: Request) -> object:
        data = route.handler(site, request)
        if hasattr(data, "__await__"):
            return _awaited(route, request, cast("Awaitable[object]", data))
        return _pack(request, route.reply_for(data))

    wrapped: Handler = handler
    return route._replace(handler=wrapped)


async def _awaited(route: Route, request: Request, work: Awaitable[object]) -> Reply:
    reply = route.reply_for(await work)
    if len(reply.body) > ON_A_THREAD and coding_of(request):
        return await asyncio.to_thread(_pack, request, reply)
    return _pack(request, reply)


def _pack(request: Request, reply: Reply) -> Reply:
    coding = coding_of(request)
    if not coding or len(reply.body) < LEAST or reply.stream is not None or "Content-Encoding" in reply.extra:
        return reply
    # 31: the frame of gzip; 15: that of zlib, which HTTP calls deflate.
    worker = zlib.compressobj(1, zlib.DEFLATED, 31 if coding == "gzip" else -15)
    reply.body = worker.compress(reply.body) + worker.flush()
    reply.extra += f"Content-Encoding: {coding}\r\n{VARY}"
    return reply


def coding_of(request: Request, known: tuple[str, ...] = ("gzip", "deflate")) -> str:
    """The coding that a client names first, of those known; empty: none."""
    for part in request.header("Accept-Encoding").lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() in known and not NONE.fullmatch(weight.replace(" ", "")):
            return name.strip()
    return ""
