"""/api/graphite and /render: numbers and pictures of Graphite, for pages made for nsqadmin."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import quote

import msgspec

from nsqc.admin.site import AdminSite
from nsqc.httpd.reply import JSON, ApiError, Reply
from nsqc.httpd.request import Request, read_arguments
from nsqc.net.url import parse_server
from nsqc.peers.dial import Dialer
from nsqc.peers.http import Answer, AnswerError, ask, request
from nsqc.wire.outside import Decoder, JSONError

KINDS = ((b"\x89PNG", "image/png"), (b"[", JSON), (b"{", JSON))
SAFE = "!$&'()*+,-./:;=?@_~%"


class _Series(msgspec.Struct):
    """One series of an answer."""

    datapoints: list[tuple[float | None, float]] = []


_series = Decoder(list[_Series]).decode


async def rate(site: AdminSite, asked: Request) -> dict[str, str]:
    """The latest rate of a series, a second."""
    arguments = read_arguments(site.log, asked)
    if arguments.get(b"metric") != b"rate":
        raise ApiError(400, "INVALID_ARG_METRIC")
    series = arguments.get(b"target", b"").decode("utf-8", "replace")
    if not series:
        raise ApiError(400, "INVALID_ARG_TARGET")
    try:
        answer = await _ask(site, f"/render?from=-120sec&until=-60sec&format=json&target={quote(series, safe='')}")
        points = [value for each in _series(answer.body) for value, _ in each.datapoints if value is not None]
    except (OSError, ValueError, AnswerError, JSONError) as error:
        site.log.error("failed to query Graphite - %s", error)
        raise ApiError(500, "INTERNAL_ERROR") from None
    per_s = (points[0] if points else -1.0) / (site.options.statsd_interval / 1e9)
    return {"rate": f"{per_s:.2f}" if per_s >= 0 else "N/A"}


async def render(site: AdminSite, asked: Request) -> Reply:
    """Passes on Graphite's answer, with --proxy-graphite."""
    if not site.options.proxy_graphite or not site.options.graphite_url:
        raise ApiError(404, "NOT_FOUND")
    query = quote(asked.query.decode("latin-1"), safe=SAFE)
    try:
        answer = await _ask(site, f"/render?{query}")
    except (OSError, ValueError, AnswerError) as error:
        site.log.error("failed to query Graphite - %s", error)
        raise ApiError(502, "UPSTREAM_ERROR: Graphite does not answer") from None
    # By its first bytes, not by its own header: nothing that a browser would run.
    kind = next((kind for start, kind in KINDS if answer.body.startswith(start)), "application/octet-stream")
    return Reply(200, answer.body, kind)


async def _ask(site: AdminSite, target: str) -> Answer:
    """Raises OSError, ValueError, AnswerError."""
    if not site.options.graphite_url:
        raise ValueError("--graphite-url is not set")
    server = parse_server(site.options.graphite_url)
    loop = asyncio.get_running_loop()
    limit = site.options.http_client_request_timeout / 1e9
    data = request("GET", server.host, server.target.rstrip("/") + target)
    async with asyncio.timeout(limit):
        return await ask(loop, Dialer(loop), server.address, data, limit, ssl.create_default_context() if server.tls
                         else None)
