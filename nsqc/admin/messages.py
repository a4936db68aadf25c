"""Messages for the page: queued, in flight, deferred, and the history of a log; publishes one of them again."""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable

import msgspec

from nsqc.access.needs import ADMIN, PUBLISH, READ
from nsqc.admin.changes import for_people, places, send
from nsqc.admin.fleet import NSQD
from nsqc.admin.rights import meter, rights_of
from nsqc.admin.upstream import Ask, UpstreamError, target, word_of
from nsqc.admin.view import Arguments, View, json_of, listed
from nsqc.httpd.reply import ApiError, Request, read_arguments
from nsqc.peers.http import Answer
from nsqc.wire.outside import Decoder, Json, JSONError
from nsqc.wire.parser import is_valid_name

STATES = ("queued", "in_flight", "deferred", "history")
MOST_MESSAGES = 200
BODY_BYTES = 64 * 1024
PAGE_BYTES = 1024 * 1024
# A search looks at so much at most, in one call.
SEARCHED = 10_000
SEARCHED_BYTES = 32 * 1024 * 1024
SEARCH_S = 3.0
LONGEST_WAIT_MS = 20_000
LINES = "application/x-ndjson"
_line = Decoder(dict[str, object]).decode


class _Publish(msgspec.Struct):
    """The body of a publish."""

    topic: str = ""
    node: str = ""
    body: str = ""
    body_base64: str = ""
    confirm: str = ""


_publish = Decoder(_Publish).decode


class Messages:
    """The calls."""

    def __init__(self, view: View) -> None:
        self._view = view

    async def page(self, request: Request) -> Json:
        """A page of messages of one node; with search= those that have a text in them, of a bounded window."""
        view = self._view
        view.people.check_extended(request)
        arguments = Arguments(read_arguments(view.log, request))
        state = arguments.text("state", "queued")
        if state not in STATES:
            raise ApiError(400, f"INVALID_ARG_STATE - one of {', '.join(STATES)}")
        topic = arguments.name("topic")
        channel = "" if state == "history" else arguments.name("channel", needed=False)
        rights_of(request).require(READ, topic, channel)
        node = arguments.text("node")
        if node not in (await view.moment()).nodes:
            raise ApiError(404, "NODE_NOT_FOUND")
        source = _History(view, node, topic, arguments) if state == "history" else _Queue(
            view, node, topic, channel, state, arguments)
        text = arguments.text("search")
        limit = arguments.number("limit", 50, MOST_MESSAGES, 1)
        page = await (_search(source, text, limit) if text else source.page(limit))
        rights = rights_of(request)
        for message in page["messages"]:
            if isinstance(origin := message.get("origin"), dict):
                message["may_redrive"] = rights.may(PUBLISH, str(origin.get("topic", "")))
        may_change = view.people.may_change(request) and rights.may(ADMIN, topic)
        return {"node": node, "state": state, "may_change": may_change, **page}

    async def publish(self, request: Request) -> Json:
        """Publishes a message to a topic of a node."""
        view = self._view
        view.people.check_extended(request)
        try:
            asked = _publish(request.body)
            body = b64decode(asked.body_base64, validate=True) if asked.body_base64 else asked.body.encode()
        except (JSONError, NotBase64, ValueError) as error:
            raise ApiError(400, f"INVALID_BODY - {error}") from None
        if not is_valid_name(asked.topic.encode()):
            raise ApiError(400, "INVALID_TOPIC")
        rights_of(request).require(PUBLISH, asked.topic)
        if asked.confirm != asked.topic:
            raise ApiError(400, "NOT_CONFIRMED - confirm must be the name of the topic")
        moment = await view.moment()
        if asked.node not in moment.nodes:
            raise ApiError(404, "NODE_NOT_FOUND")
        if request.may_create is not None and (reason := request.may_create(asked.topic, moment.topics.__contains__)):
            raise ApiError(429, f"QUOTA - {reason}")
        if view.mode != "node":     # a daemon's own handler counts it
            await meter(request, len(body))
        ask = Ask("POST", target("/pub", topic=asked.topic), body)
        results = for_people(await send(view.fleet, places(NSQD, [asked.node]), ask))
        request.param = f"publish {len(body)} bytes to {asked.topic} on {asked.node}"
        view.ledger.add(request.user, request.remote, "publish", asked.topic, asked.topic, results)
        view.poller.hurry()
        return {"results": results}


class _Queue:
    """Messages that wait, are in flight or deferred."""

    def __init__(self, view: View, node: str, topic: str, channel: str, state: str, arguments: Arguments) -> None:
        self._view, self._node = view, node
        self._topic, self._channel, self._state = topic, channel, state
        self._from = arguments.text("from")

    async def page(self, limit: int) -> Json:
        """The next page; it moves on."""
        path = "/channel/peek" if self._channel else "/topic/peek"
        more: dict[str, object] = {"from": self._from} if self._from else {}
        ask = Ask("GET", target(path, topic=self._topic, channel=self._channel or None, state=self._state,
                                max_messages=limit, max_bytes=BODY_BYTES, **more))
        answer = await asked(self._view, self._node, ask)
        if answer.status != 200:
            raise refused(answer)
        page = _decoded(answer, json_of)
        following = page.get("next")
        self._from = following if isinstance(following, str) else "" if following is None else str(following)
        return {"messages": listed(page.get("messages")), "count": page.get("count"), "next": following}

    @property
    def at_end(self) -> bool:
        """Whether there is no further page."""
        return not self._from


class _History:
    """Records of a log."""

    def __init__(self, view: View, node: str, topic: str, arguments: Arguments) -> None:
        self._view, self._node, self._topic = view, node, topic
        self._offset: str | None = arguments.text("offset") or None
        self._time: str | None = arguments.text("time") or None
        self._wait_ms = arguments.number("wait_ms", 0, LONGEST_WAIT_MS)
        self.at_end = False

    async def page(self, limit: int) -> Json:
        """The next page; it moves on."""
        ask = Ask("GET", target("/topic/read", topic=self._topic, offset=self._offset, time=self._time,
                                max_messages=limit, max_bytes=PAGE_BYTES, wait_ms=self._wait_ms or None),
                  accept=LINES, timeout_s=self._wait_ms / 1000)
        answer = await asked(self._view, self._node, ask)
        if answer.status != 200:
            raise refused(answer)
        messages = [shortened(_decoded(answer._replace(body=line), _line))
                    for line in answer.body.split(b"\n") if line]
        following = answer.headers.get("x-nsq-next-offset", "")
        self.at_end = not messages
        self._offset, self._time, self._wait_ms = following, None, 0
        return {"messages": messages, "count": None, "next": following,
                "damaged": answer.headers.get("x-nsq-damaged", "0"),
                "first": answer.headers.get("x-nsq-first-offset", "")}


async def _search(source: _Queue | _History, text: str, limit: int) -> Json:
    """The messages with a text, up to a limit, of a bounded window."""
    until = time.monotonic() + SEARCH_S
    found: list[Json] = []
    scanned = size = 0
    following: object = None
    while True:
        page = await source.page(MOST_MESSAGES)
        for message in page["messages"]:
            scanned += 1
            body = text_of(message)
            size += len(body)
            if text in body:
                found.append(message)
        following = page["next"]
        over = scanned >= SEARCHED or size >= SEARCHED_BYTES or time.monotonic() > until or len(found) >= limit
        if source.at_end or over:
            break
    return {"messages": found[:MOST_MESSAGES], "scanned": scanned, "next": None if source.at_end else following,
            "count": None}


def text_of(message: Json) -> str:
    """A body as text; bytes that are none are replaced."""
    body = message.get("body")
    if isinstance(body, str):
        return body
    coded = message.get("body_base64")
    if not isinstance(coded, str):
        return ""
    try:
        return b64decode(coded).decode("utf-8", "replace")
    except (NotBase64, ValueError):
        return ""


def shortened(message: Json) -> Json:
    """A record of a log, with its size; a long body is cut, as /channel/peek cuts it."""
    body, coded = message.get("body"), message.get("body_base64")
    if isinstance(body, str):
        data = body.encode("utf-8", "surrogatepass")
    elif isinstance(coded, str):
        try:
            data = b64decode(coded)
        except (NotBase64, ValueError):
            data = b""
    else:
        data = b""
    message["size"] = len(data)
    if len(data) > BODY_BYTES:
        message.pop("body", None)
        message["body_base64"] = b64encode(data[:BODY_BYTES]).decode()
        message["truncated"] = True
    return message


async def asked(view: View, node: str, ask: Ask) -> Answer:
    """An answer of a node. Raises ApiError if there is none."""
    try:
        return await view.fleet.answer(node, ask)
    except UpstreamError as error:
        raise ApiError(502, f"UPSTREAM_ERROR - {error}") from None


def refused(answer: Answer) -> ApiError:
    """A node's refusal, for the page."""
    status = answer.status if answer.status in (400, 401, 403, 404, 410, 416, 429) else 502
    return ApiError(status, word_of(answer.body) or f"UPSTREAM_ERROR - status {answer.status}")


def _decoded(answer: Answer, decode: Callable[[bytes], Json]) -> Json:
    try:
        return decode(answer.body)
    except JSONError as error:
        raise ApiError(502, f"UPSTREAM_ERROR - the node's answer cannot be read: {error}") from None
