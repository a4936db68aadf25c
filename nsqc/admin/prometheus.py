"""The last hour from Prometheus, which also has the time before the admin server started."""

from __future__ import annotations

import asyncio
import math
import ssl
import time
from base64 import b64encode
from urllib.parse import urlencode

import msgspec

from nsqc.admin.history import FIELDS, NODE, SLOTS, STEP_S, Key, Series, rounded
from nsqc.log import Log
from nsqc.log.secrets import mask_address
from nsqc.net.url import parse_server
from nsqc.peers.dial import Dialer
from nsqc.peers.http import AnswerError, ask, request
from nsqc.peers.tasks import reason_of
from nsqc.wire.outside import Decoder, JSONError

LIMIT_S = 5.0
KEPT_S = 10.0           # an answer that is used again
MOST_KEPT = 64
OVER = "1m"             # time that rates are averaged over


class _Line(msgspec.Struct):
    """One series of an answer: unix seconds and numbers as text."""

    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct):
    """The data of an answer."""

    result: list[_Line] = []


class _Answer(msgspec.Struct):
    """/api/v1/query_range."""

    status: str = ""
    data: _Data = msgspec.field(default_factory=_Data)


_answer = Decoder(_Answer).decode
_quoted = msgspec.json.Encoder().encode


def queries(key: Key) -> dict[str, str]:
    """The expression of each field. Strings of PromQL have the escapes of JSON."""
    topic = f"topic={_quoted(key[0]).decode()}" if key and key[0] != NODE else ""
    channel = f"{topic},channel={_quoted(key[1]).decode()}" if topic and len(key) > 1 else ""
    if channel:
        return {"came": f"sum(rate(nsqc_channel_messages_total{{{channel}}}[{OVER}]))",
                "went": f"sum(rate(nsqc_channel_processing_latency_seconds_count{{{channel}}}[{OVER}]))",
                "depth": f"sum(nsqc_channel_depth{{{channel}}})",
                "in_flight": f"sum(nsqc_channel_in_flight{{{channel}}})"}
    return {"came": f"sum(rate(nsqc_topic_messages_total{{{topic}}}[{OVER}]))",
            "went": f"sum(rate(nsqc_channel_processing_latency_seconds_count{{{topic}}}[{OVER}])) or vector(0)",
            "depth": f"sum(nsqc_topic_depth{{{topic}}}) + (sum(nsqc_channel_depth{{{topic}}}) or vector(0))",
            "in_flight": f"sum(nsqc_channel_in_flight{{{topic}}}) or vector(0)"}


class Prometheus:
    """One server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, url: str, log: Log) -> None:
        """Raises ValueError for a URL that is none."""
        self._server = parse_server(url)
        self._shown = mask_address(url)
        self._tls = ssl.create_default_context() if self._server.tls else None
        self._loop, self._dialer, self._log = loop, Dialer(loop), log
        self._kept: dict[Key, tuple[float, Series]] = {}

    async def series(self, key: Key) -> Series | None:
        """The last hour; None: Prometheus does not have it, or does not answer."""
        now = self._loop.time()
        known = self._kept.get(key)
        if known is not None and now - known[0] < KEPT_S:
            return known[1]
        end = int(time.time()) // STEP_S * STEP_S
        start = end - (SLOTS - 1) * STEP_S
        asked = queries(key)
        try:
            columns = await asyncio.gather(*(self._ask(asked[name], start, end) for name in FIELDS))
        except (OSError, ValueError, AnswerError) as error:
            self._log.warn("failed to query %s - %s", self._shown, reason_of(error))
            return None
        if all(value is None for column in columns for value in column):
            return None
        if len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        made: Series = {"start": start, "step": STEP_S, "values": dict(zip(FIELDS, columns, strict=True))}
        self._kept[key] = (now, made)
        return made

    async def _ask(self, expression: str, start: int, end: int) -> list[float | None]:
        """A value for each slot. Raises OSError, ValueError, AnswerError."""
        server = self._server
        query = urlencode({"query": expression, "start": start, "end": end, "step": STEP_S})
        login = [f"Authorization: Basic {b64encode(server.login.encode()).decode()}"] if server.login else []
        target = f"{server.target.rstrip('/')}/api/v1/query_range?{query}"
        data = request("GET", server.host, target, *login)
        async with asyncio.timeout(LIMIT_S):
            answer = await ask(self._loop, self._dialer, server.address, data, LIMIT_S, self._tls)
        if answer.status != 200:
            raise AnswerError(f"status {answer.status}")
        try:
            lines = _answer(answer.body).data.result
        except JSONError as error:
            raise AnswerError(f"the answer cannot be read: {error}") from None
        column: list[float | None] = [None] * SLOTS
        for at, text in lines[0].values if lines else ():
            slot = round((at - start) / STEP_S)
            value = float(text)
            if 0 <= slot < SLOTS and math.isfinite(value):
                column[slot] = rounded(value)
        return column
