"""`nsqc tail --from`: follows log-backed topics from a given place. One thread reads each topic of each node; the main
thread writes.
"""

from __future__ import annotations

import base64
import json
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from nsqc.client.errors import ClientError
from nsqc.client.peers import Backoff
from nsqc.log.formats import visible_bytes, visible_json
from nsqc.options.places import BEGINNING, END, MOST, Place
from nsqc.store.log.reading import MEDIA_TYPE, LogBlock
from nsqc.tools import running
from nsqc.tools.cluster import BadStatus, NodeHttp, Reply, Unreachable
from nsqc.tools.declare import NoName, ToolError
from nsqc.tools.running import PipeClosed
from nsqc.wire.outside import Json, JSONError, decode

if TYPE_CHECKING:
    from nsqc.tools.cluster import Cluster, Node
    from nsqc.tools.running import Stop


# ====================================================================== reading
# Reads a log-backed topic of one node by offset, over HTTP. Does not affect channels.

PIECE_BYTES = 1 << 20       # of frames per request
STATE = {"first_offset": int, "next_offset": int, "bytes": int, "local_bytes": int, "segments": int, "damaged": int,
         "missing": int, "sync": str, "channels": list}
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


# ====================================================================== logtail

WAIT_S = 30.0           # of a long poll
PIECES = 4              # read ahead of stdout
BACKOFF = Backoff(0.1, 15.0)
ABSENT = Backoff(1.0, 15.0)


class Arrived(NamedTuple):
    """Records read by a thread."""

    topic: str
    node: Node
    piece: Piece


class LogTail:
    """count: messages to print in total, 0: unlimited. warn is called for nodes that are lost or found again, and for
    unreadable messages."""

    def __init__(self, cluster: Cluster, place: Place, stop: Stop, form: Form, count: int,
                 warn: Callable[[str], None]):
        self._cluster, self._place, self._stop, self._form, self.warn = cluster, place, stop, form, warn
        self._left = count
        self._endless = count == 0
        # Where topics that do not exist yet begin: everything published from now on is new.
        self.later = Place(time=time.time_ns()) if place.word == END else place
        self._arrived: deque[Arrived] = deque()
        self._room = threading.BoundedSemaphore(PIECES)
        self._ended = threading.Event()
        self._fatal: Exception | None = None
        self._followed: set[tuple[str, Node]] = set()

    def start(self, topic: str, wait: bool) -> None:
        """Adds a topic; wait: it need not exist yet. Raises NoNode, NoName, ToolError."""
        nodes = self._cluster.nodes(topic)
        having = list(self._cluster.topic_stats(topic)) if nodes else []
        if not having and not wait:
            raise NoName("topic", topic, self._cluster.topic_names())
        if self._place.offset >= 0 and len(nodes) > 1:
            raise ToolError(f"an offset belongs to one node, but {len(nodes)} are selected: choose one by --nsqd")

        def offset_of(api: NodeHttp, _: Node) -> int:
            reader = LogReader(api, topic)
            reader.begin(self._place)
            return reader.offset

        offsets = self._cluster.each(having, offset_of, lambda _: None) if having else {}
        for node in nodes:      # including those that do not answer: their threads report that and retry
            self._follow(topic, node, offsets.get(node))
        if self._cluster.nsqlookupd:
            threading.Thread(target=self._find, args=(topic,), daemon=True).start()

    def run(self) -> None:
        """Runs until a signal or the last message. Raises PipeClosed, OSError, ToolError, ClientError."""
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        poll.register(running.STDOUT, 0)     # reports a closed reader
        try:
            while not self._stop and (self._endless or self._left):
                ready = dict(poll.poll())
                if running.STDOUT in ready:
                    raise PipeClosed
                self._stop.calm()
                if self._fatal is not None:
                    raise self._fatal
                self._write()
        finally:
            self._ended.set()

    def _write(self) -> None:
        while self._arrived and not self._stop and (self._endless or self._left):
            topic, node, piece = self._arrived.popleft()
            text, count = self._form(topic, node, piece, 2**62 if self._endless else self._left)
            running.write_bytes(text)
            self._left -= 0 if self._endless else count
            self._room.release()

    # ------------------------------------------------------------------ threads

    def _follow(self, topic: str, node: Node, offset: int | None) -> None:
        self._followed.add((topic, node))
        threading.Thread(target=Follower(self, topic, node, offset).run, daemon=True).start()

    def _find(self, topic: str) -> None:
        """nsqlookupd may list more nodes later."""
        while not self._ended.wait(self._cluster.poll_interval):
            with suppress(ToolError, ClientError):
                for node in self._cluster.nodes(topic):
                    if (topic, node) not in self._followed:
                        self._follow(topic, node, None)

    def put(self, arrived: Arrived) -> None:
        """Called by threads; blocks while PIECES are unwritten."""
        self._room.acquire()
        self._arrived.append(arrived)
        self._stop.wake()

    def fail(self, error: Exception) -> None:
        """Called by threads: ends the tool."""
        self._fatal = error
        self._stop.wake()

    def reader(self, topic: str, node: Node, offset: int) -> LogReader:
        """A reader with its own connection, whose timeout allows for long polls."""
        return LogReader(self._cluster.http(node, WAIT_S), topic, offset)

    def pause(self, seconds: float) -> bool:
        """Waits; whether to continue."""
        return not self._ended.wait(seconds)


class Follower:
    """Follows one topic of one node, on its own thread. offset: None if the topic or node does not exist yet."""

    def __init__(self, tail: LogTail, topic: str, node: Node, offset: int | None):
        self._tail, self._topic, self._node = tail, topic, node
        self._reader = tail.reader(topic, node, offset or 0)
        self._place = tail.later if offset is None else None    # not resolved yet
        self._log_id = ""
        self._failures = self._absences = 0

    def run(self) -> None:
        """Runs until the end of the tool."""
        going = True
        while going:
            try:
                going = self._step()
            except Exception as error:      # must end the tool, not only this thread
                self._tail.fail(error)
                return

    def _step(self) -> bool:
        """Reads once; whether to continue. Raises ToolError for permanent failures."""
        reader = self._reader
        try:
            if self._place is not None:
                reader.begin(self._place)
                self._place = None
            piece = reader.read(2**62, round(WAIT_S * 1000))
        except Unreachable as error:
            if not self._failures:
                self._tail.warn(f"{error}; retrying")
            self._failures += 1
            return self._tail.pause(BACKOFF.pause(self._failures))
        except NoName:
            # Not created yet, or deleted.
            self._absences += 1
            if self._log_id:
                self._again("was deleted")
            elif self._place is None:
                self._place = Place(BEGINNING)
            return self._tail.pause(ABSENT.pause(self._absences))
        except Removed as error:
            self._tail.warn(f"{error}; continuing there")
            reader.offset = error.first
            return True
        except Beyond:
            if not self._log_id:
                raise
            return self._again("was deleted and created again")
        self._answered()
        if self._log_id and piece.log_id not in ("", self._log_id):
            return self._again("was deleted and created again")
        self._log_id = piece.log_id or self._log_id
        if piece.damaged:
            self._tail.warn(f"{reader.place}: {piece.damaged} damaged messages before offset {piece.first} skipped")
        if piece.next > piece.first:
            self._tail.put(Arrived(self._topic, self._node, piece))
        return True

    def _answered(self) -> None:
        if self._failures:
            self._tail.warn(f"{self._node.http}: connected again")
        self._failures = self._absences = 0

    def _again(self, what: str) -> bool:
        """Restarts at the beginning of the new log."""
        self._tail.warn(f"{self._reader.place} {what}; continuing at its beginning")
        self._log_id, self._place = "", Place(BEGINNING)
        return True
