"""`nsqc peek`: shows messages that are queued, in flight or deferred, without affecting them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nsqc.options.option import Kind, Option
from nsqc.tools import running
from nsqc.tools.declare import (
    EXIT_FAILED,
    HTTP_NODES,
    JSON,
    TOPIC,
    Argument,
    NoName,
    Tool,
    ToolError,
    UsageError,
    Values,
)
from nsqc.wire.outside import Json

if TYPE_CHECKING:
    from nsqc.tools.cluster import Node, NodeHttp

WORDS = "nsqc peek"
PAGE = 1000
MOST_CALLS = 100_000     # of one node
STATES = ("queued", "in_flight", "deferred")


def run(values: Values) -> int:
    """`nsqc peek`."""
    from nsqc.tools.acting import Acting

    acting = Acting(values, WORDS)
    topic, channel = values.text("TOPIC"), values.text("CHANNEL")
    if values.text("state") != "queued" and not channel:
        raise UsageError("--state needs a CHANNEL: all messages of a topic itself are queued", WORDS)
    nodes = acting.channels(topic, channel) if channel else acting.holders(topic)
    arguments = {"topic": topic, "state": values.text("state"), "body": values.text("body"),
                 "max_bytes": str(values.number("max-bytes")), **({"channel": channel} if channel else {})}
    left = values.number("count") or 2**62

    def look(api: NodeHttp, node: Node) -> int:
        nonlocal left
        for message in messages(api, "/channel/peek" if channel else "/topic/peek", arguments, left):
            left -= 1
            show(node, message, values.flag("json"), len(nodes) > 1)
        return left

    acting.cluster.each(nodes, look, acting.warn)
    return acting.code


def messages(api: NodeHttp, path: str, arguments: dict[str, str], most: int) -> Iterator[dict[str, Json]]:
    """The messages of one node, page by page. Raises Unreachable, ToolError."""
    from nsqc.tools.cluster import BadStatus

    cursor: str | None = ""
    for _ in range(MOST_CALLS):
        if most <= 0 or cursor is None:
            return
        page_arguments = {**arguments, "max_messages": str(min(most, PAGE)), **({"from": cursor} if cursor else {})}
        try:
            page = api.get(path, page_arguments)
        except BadStatus as error:
            raise refused(api, error, arguments) from None
        # A position that does not advance would loop forever.
        if (not isinstance(page, dict) or not isinstance(page.get("messages"), list)
                or not all(map(is_message, page["messages"])) or page.get("next", 0) == cursor
                or not isinstance(page.get("next", 0), str | None)):
            raise ToolError(f"{api.address}: does not answer as nsqc does")
        yield from page["messages"]
        most -= len(page["messages"])
        cursor = page["next"]
    raise ToolError(f"{api.address}: has not come to an end after {MOST_CALLS} calls")


def is_message(message: object) -> bool:
    """Whether it has the fields that every nsqc reports for a message."""
    return (isinstance(message, dict) and all(isinstance(message.get(name), str) for name in ("id", "state"))
            and all(isinstance(message.get(name, 0), int) for name in ("timestamp", "due", "delay_ms"))
            and message.keys() >= {"timestamp", "attempts", "size"}
            and ("delivered" not in message or "due" in message)
            and isinstance(message.get("body_base64", ""), str)
            and (not (origin := message.get("origin")) or (isinstance(origin, dict)
                 and all(isinstance(origin.get(name), str) for name in ("topic", "channel", "reason"))))
            and (not (client := message.get("client")) or (isinstance(client, dict)
                 and all(isinstance(client.get(name), str) for name in ("client_id", "remote_address")))))


def refused(api: NodeHttp, error: ToolError, arguments: dict[str, str]) -> ToolError:
    """Explains a refusal."""
    message = getattr(error, "message", "")
    if message in ("TOPIC_NOT_FOUND", "CHANNEL_NOT_FOUND"):
        kind = message.partition("_")[0].lower()
        return NoName(kind, arguments[kind])
    if message == "NOT_FOUND":
        return ToolError(f"{api.address}: is an nsqd, which cannot show messages without delivering them", EXIT_FAILED)
    return error


def show(node: Node, message: dict[str, Json], as_json: bool, with_node: bool) -> None:
    """Prints a message on one line."""
    if as_json:
        running.as_json({"node": node.http, **message})
        return
    parts = [f"{node.http} " if with_node else "", message["id"], "  ", running.moment(message["timestamp"]),
             f"  {message['state']}  attempts {message['attempts']}"]
    if "offset" in message:
        parts.append(f"  offset {message['offset']}")
    if "delivered" in message:
        client = message.get("client")
        parts.append(f"  to {client['client_id'] + ' ' + client['remote_address'] if client else 'a client that left'}"
                     f" until {running.moment(message['due'])}")
    elif "due" in message:
        parts.append(f"  due {running.moment(message['due'])}")
    if "delay_ms" in message:
        parts.append(f"  delay {message['delay_ms']} ms")
    if origin := message.get("origin"):
        parts.append(f"  from {origin['topic']}/{origin['channel']} {origin['reason']}")
    parts.append(f"  {message['size']} B  {body(message)}")
    running.line("".join(parts).rstrip())


def body(message: dict[str, Json]) -> str:
    """A body as one line of text."""
    if "body_json" in message:
        import json

        text = json.dumps(message["body_json"], ensure_ascii=False)
    elif "body" in message:
        text = message["body"]
    elif "body_base64" in message:
        text = repr(base64.b64decode(message["body_base64"]))[2:-1]
    else:
        return ""
    return f"{text}..." if message.get("truncated") else text if isinstance(text, str) else str(text)


TOOL = Tool(
    ("peek",), "Show messages of a topic or channel without delivering them.", run,
    options=(
        Option("state", "messages of a channel to show", Kind.TEXT, "queued", choices=STATES),
        Option("count", "maximum number of messages; 0: all", Kind.INT, 10, least=0, short="n"),
        Option("body", "format of bodies; json: as JSON if they are JSON", Kind.TEXT, "text",
               choices=("text", "json", "base64", "none")),
        Option("max-bytes", "maximum size of each body; longer ones are cut", Kind.SIZE, 65536, least=0, most=1 << 20),
        JSON._replace(help="a line of JSON per message"), *HTTP_NODES),
    arguments=(TOPIC, Argument("CHANNEL", "the channel; default: messages queued in the topic itself", Kind.CHANNEL,
                               False)),
    text="""Delivery is unaffected: attempts, order and timeouts stay the same. Several nodes are shown one after
         another. The nodes have to be nsqc's: nsqd cannot show messages without delivering them.""",
    examples=(
        ("nsqc peek orders billing", "the next ten messages of a channel"),
        ("nsqc peek orders billing --state in_flight --body none -n 0",
         "all messages held by consumers, with their timeouts"),
        ("nsqc peek orders billing -n 0 --body json --json | jq .body_json.customer", "for a script")))
