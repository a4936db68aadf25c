"""Reads a log-backed topic of one node by offset, over HTTP. Does not affect channels."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from nsqc.log.visible import visible_bytes, visible_json
from nsqc.options.places import BEGINNING, MOST, Place
from nsqc.store.log.block import MEDIA_TYPE, LogBlock
from nsqc.tools.errors import NoName, ToolError
from nsqc.tools.nodehttp import BadStatus, NodeHttp, Reply, Unreachable
from nsqc.wire.outside import Json, JSONError, decode

if TYPE_CHECKING:
    from nsqc.tools.cluster import Node

PIECE_BYTES = 1 << 20       # of frames per request
STATE = {"first_offset": int, "next_offset": int, "bytes": int, "segments": int, "damaged": int, "missing": int,
         "sync": str, "channels": list}
POSITION = {"channel_name": str, "position": int, "oldest_unfinished": int, "lag_messages": int, "in_flight": int,
            "deferred": int}


class Piece(NamedTuple):
    """Records with the offsets first to next - 1. damaged: the count of damaged records skipped before them. log_id:
    changes if the topic is deleted and created again."""

    first: int
    next: int
    damaged: int
    block: LogBlock
    log_id: str


class Removed(ToolError):
    """Retention has removed the offset. first: the first remaining one."""

    def __init__(self, place: str, offset: int, first: int):
        super().__init__(f"{place}: offset {offset} is gone: retention has removed everything before offset {first}")
        self.first = first


class Beyond(ToolError):
    """The log ends before the offset."""

    def __init__(self, place: str, offset: int, following: int):
        super().__init__(f"{place}: there is no offset {offset}: the next message gets offset {following}")


class LogReader:
    """offset: of the next record to read. api: of the node; its timeout must exceed the wait of read()."""

    def __init__(self, api: NodeHttp, topic: str, offset: int = 0):
        self.topic, self.offset = topic, offset
        self._api = api
        self.place = f"{api.address}: topic {topic!r}"

    def state(self, with_segments: bool = False) -> dict[str, Json]:
        """The answer of /topic/log. Raises Unreachable, NoName, ToolError."""
        more = {"segments": "true"} if with_segments else {}
        try:
            state = self._api.get("/topic/log", {"topic": self.topic, **more})
        except BadStatus as error:
            raise self._refused(error) from None
        if not has(state, STATE) or not all(has(channel, POSITION) for channel in state["channels"]):
            raise self._strange()
        return dict(state)

    def begin(self, place: Place) -> None:
        """Starts at a place, which must be within the log. Raises Unreachable, NoName, Removed, Beyond, ToolError."""
        self.offset = self.locate(place)
        if place.offset >= 0:
            state = self.state()
            if place.offset < state["first_offset"]:
                raise Removed(self.place, place.offset, state["first_offset"])
            if place.offset > state["next_offset"]:
                raise Beyond(self.place, place.offset, state["next_offset"])

    def locate(self, place: Place) -> int:
        """The offset of a place. Raises Unreachable, NoName, ToolError."""
        if place.offset >= 0:
            return place.offset
        if place.word:
            return int(self.state()["first_offset" if place.word == BEGINNING else "next_offset"])
        return self._read({"topic": self.topic, "time": place.time, "max_messages": 1, "max_bytes": 1}).first

    def read(self, most: int, wait_ms: int = 0) -> Piece:
        """The next records, up to `most`; an empty piece if none arrives within wait_ms. Raises Unreachable, NoName,
        Removed, Beyond, ToolError."""
        piece = self._read({"topic": self.topic, "offset": self.offset, "max_messages": max(min(most, MOST), 1),
                            "max_bytes": PIECE_BYTES, "wait_ms": wait_ms})
        self.offset = max(piece.next, self.offset)
        return piece

    def _read(self, arguments: dict[str, object]) -> Piece:
        try:
            reply = self._api.reply("GET", "/topic/read", arguments, accept=MEDIA_TYPE)
        except BadStatus as error:
            raise self._refused(error) from None
        first, following, count, damaged = (number_of(reply, name) for name in (
            "First-Offset", "Next-Offset", "Messages", "Damaged"))
        if min(first, following, count, damaged) < 0 or following - first != count or bool(count) != bool(reply.body):
            raise self._strange()
        return Piece(first, following, damaged, self._block(reply, first, following),
                     reply.headers.get("X-NSQ-Log-Id") or "")

    def _block(self, reply: Reply, first: int, following: int) -> LogBlock:
        """The records of an answer, checked."""
        if not reply.body:
            return LogBlock(b"", 0, 0, 0, 0, 0)
        try:
            salt = int(reply.headers.get("X-NSQ-Log-Salt") or "", 16)
            return LogBlock(reply.body, len(reply.body), salt, number_of(reply, "Log-Position"), first, following)
        except (ValueError, OverflowError):
            raise self._strange() from None

    def _refused(self, error: BadStatus) -> ToolError:
        """The error for a refusal."""
        if error.message == "TOPIC_NOT_FOUND":
            return NoName("topic", self.topic)
        if error.message.startswith("NO_LOG"):
            return ToolError(f"{self.place} is not log-backed, so it cannot be read by offset or time (nsqc topic "
                             f"rules {self.topic} --storage log stores it in a log)")
        if error.message == "OFFSET_GONE":
            return Removed(self.place, self.offset, number_of(error.reply, "First-Offset"))
        if error.message == "OFFSET_BEYOND_END":
            return Beyond(self.place, self.offset, number_of(error.reply, "Next-Offset"))
        if error.message == "NOT_FOUND":
            return ToolError(f"{self._api.address}: is an nsqd, which has no logs")
        return error

    def _strange(self) -> Unreachable:
        return Unreachable(f"{self._api.address}: does not answer as nsqc does")


def has(found: Json, kinds: dict[str, type]) -> bool:
    """Whether this is a JSON object with these keys and value types."""
    return isinstance(found, dict) and all(isinstance(found.get(name), kind) for name, kind in kinds.items())


def number_of(reply: Reply, name: str) -> int:
    """A number in an X-NSQ- header; -1 without one."""
    text = reply.headers.get(f"X-NSQ-{name}") or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1


# ---------------------------------------------------------------------- formats

# Formats up to N records of a piece, once; returns the text and their count.
Form: TypeAlias = Callable[[str, "Node", Piece, int], tuple[bytes, int]]


def as_lines(prefix: bool, is_terminal: bool) -> Form:
    """Bodies, each with a newline; prefix: the topic before each."""
    def text(topic: str, node: Node, piece: Piece, most: int) -> tuple[bytes, int]:
        found, count = piece.block.lines(most, f"{topic} | ".encode() if prefix else b"", b"\n")
        return visible_bytes(found) if is_terminal else found, count

    return text


def as_json(key: str, address: Callable[[Node], str]) -> Form:
    """An object for each record. key: of the node's address."""
    def text(topic: str, node: Node, piece: Piece, most: int) -> tuple[bytes, int]:
        lines = [json.dumps({
            "topic": topic, key: address(node), "offset": offset, "id": id_, "timestamp": time_ns, "attempts": 0,
            **body_of(body), **origin_of(origin)}, ensure_ascii=False)
            for offset, time_ns, id_, body, origin in islice(piece.block, most)]
        return visible_json("\n".join([*lines, ""])).encode(), len(lines)

    return text


def origin_of(origin: str | None) -> dict[str, Json]:
    """The field of where a dead letter comes from; none of another message."""
    if origin is None:
        return {}
    try:
        return {"origin": decode(origin)}
    except JSONError:
        return {}       # no daemon has written it


def body_of(body: bytes) -> dict[str, str]:
    """The field of a body in JSON: base64 if it is not UTF-8."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}
