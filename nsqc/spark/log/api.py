"""The calls of nsqd's HTTP API that read a log. Knows no Spark."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import quote

from nsqc.spark.log.calls import Calls
from nsqc.spark.log.errors import DataLoss
from nsqc.spark.log.ranges import LogSegment
from nsqc.spark.options import NodeOptions
from nsqc.store.log.block import FRAME_MORE, FRAME_MOST, LogBlock

LEAST_BYTES = 64 << 10      # of a body that must arrive within a timeout
MOST = 2**63 - 1    # of offsets and times


class State(NamedTuple):
    """The contents of a topic's log. Offsets, nanoseconds since 1970 (None: no message), bytes of frames."""

    first: int
    next: int
    last_time: int | None
    bytes: int
    segments: tuple[LogSegment, ...]    # in order
    id: str = ""        # of the log; empty: nothing was published yet
    # Its folder on the node's machine, and the key that identifies it; empty: unknown.
    folder: str = ""
    folder_key: str = ""

    @property
    def possible(self) -> bool:
        """Whether the segments are contiguous between first and next: otherwise a plan would miss or duplicate
        messages."""
        bounds = [0, self.first, *(offset for segment in self.segments for offset in segment[:2]), self.next, MOST]
        begin = self.segments[0].first if self.segments else self.next
        return (begin == self.first and all(one <= other for one, other in pairwise(bounds))
                and all(0 <= segment.bytes <= MOST and 0 <= segment.salt < 2**64 for segment in self.segments))


class Piece(NamedTuple):
    """Records read: offsets of the first and after the last, the number of damaged ones before the first, and
    the number requested."""

    first: int
    next: int
    damaged: int
    block: LogBlock


class LogApi(Calls):
    """The calls that read logs."""

    def __init__(self, address: str, options: NodeOptions) -> None:
        super().__init__(address, options)
        self._asked = ("", "", 0, 0, 0)                 # topic, id, offset, messages, bytes: of ask()

    # ------------------------------------------------------------------ calls

    def tcp_port(self) -> int | None:
        """The node's own TCP port."""
        port = self._json("/info", "").get("tcp_port")
        return port if isinstance(port, int) else None

    def process(self) -> tuple[object, ...]:
        """Identifies the node's process: host name, ports, and start time."""
        answer = self._json("/info", "")
        return tuple(answer.get(key) for key in ("hostname", "tcp_port", "http_port", "start_time"))

    def topics(self) -> list[str]:
        """All topics of the node that are not ephemeral."""
        answer = self._json("/stats?format=json&include_clients=false&include_mem=false", "")
        try:
            names = [topic["topic_name"] for topic in answer["topics"] or ()]
            return [name for name in names if not name.endswith("#ephemeral")]
        except (KeyError, TypeError, AttributeError):
            raise self._bad("/stats", "no topics") from None

    def state(self, topic: str) -> State:
        """The current contents of a topic's log."""
        state = self._log(topic)[0]
        if not state.possible:
            raise self._bad("/topic/log", f"offsets {state.first} to {state.next} in segments that do not fit")
        return state

    # Any: JSON
    def _log(self, topic: str) -> tuple[State, dict[str, Any]]:
        """The same, unchecked, and the answer itself."""
        answer = self._json(f"/topic/log?topic={quote(topic, safe='')}&segments=true", topic)
        try:
            segments = tuple(LogSegment(int(first), int(end), int(size), int(salt, 16))
                             for first, end, size, salt in answer["segment_list"])
            last = answer["last_time"]
            return State(int(answer["first_offset"]), int(answer["next_offset"]), None if last is None else int(last),
                         int(answer["bytes"]), segments, *(str(answer.get(name) or "") for name in (
                             "id", "folder", "folder_key"))), answer
        except (KeyError, TypeError, ValueError, OverflowError):
            raise self._bad("/topic/log", "not the state of a log") from None

    def offset_at(self, topic: str, time_ns: int) -> int:
        """The first message published at a time or later; the end, if there is none."""
        answer = self._open(f"/topic/read?topic={quote(topic, safe='')}&time={min(max(time_ns, 0), MOST)}"
                            "&max_messages=1&max_bytes=1")
        return self._head(answer, topic, len(self._body(answer)))[0]

    def time_of(self, topic: str, offset: int) -> int | None:
        """Publish time of the first message from an offset on, in ns; None: none."""
        answer = self._open(f"/topic/read?topic={quote(topic, safe='')}&offset={offset}&max_messages=1&max_bytes=1")
        if answer.status in (410, 416):
            self._body(answer)
            return None
        body = self._body(answer)
        first, following, _ = self._head(answer, topic, len(body))
        try:
            block = LogBlock(body, len(body), *_place(answer), first, following)
        except (ValueError, OverflowError) as error:
            raise self._bad("/topic/read", str(error)) from None
        return next((time_ns for _, time_ns, *_ in block), None)

    def ask(self, topic: str, log_id: str, offset: int, max_messages: int, max_bytes: int) -> None:
        """Requests records of the log with this id, or of any; the next call must be finish(). The node works
        meanwhile."""
        self._asked = (topic, log_id, offset, max_messages, max_bytes)
        try:
            self._send(f"/topic/read?topic={quote(topic, safe='')}&offset={offset}&max_messages={max_messages}"
                       f"&max_bytes={max_bytes}")
        except (OSError, http.client.HTTPException) as error:
            raise self._lost_connection(error) from None

    def finish(self, into: bytearray) -> Piece:
        """Records of one segment, from the offset requested by ask(). Their frames are in `into`, or in their own
        memory if one is larger. Raises DataLoss if the offset has been removed, or is after the end, or the log is
        another one."""
        topic, log_id, offset, max_messages, max_bytes = self._asked
        try:
            answer = self._answer()
        except OSError as error:        # first: an answer that never came is both
            raise self._lost_connection(error) from None
        except http.client.HTTPException as error:
            raise self._not_http(error) from None
        if answer.status in (410, 416):
            raise self._lost(answer, topic, offset)
        if answer.status != 200:
            self._refused(answer, topic)
        if log_id and answer.headers.get("X-NSQ-Log-Id", log_id) != log_id:
            self.close()
            raise DataLoss(f"topic {topic} at {self.address} was deleted and created again")
        length = answer.length
        if length is None or length > max(max_bytes, FRAME_MOST, self._options.maxMsgSize + FRAME_MORE):
            raise self._bad("/topic/read", f"{length} bytes, but {max_bytes} were requested (maxMsgSize="
                                           f"{self._options.maxMsgSize} bounds a message)")
        if length > len(into):
            into = bytearray(length)
        first, following, damaged = self._head(answer, topic, length)
        if first < offset or following - first > max_messages:
            raise self._bad("/topic/read", f"offsets {first} to {following}, {max_messages} from {offset} on were "
                                           "asked for")
        # After a gap or damage, an answer may have more than requested.
        end = max(first, min(following, offset + max_messages))
        return Piece(first, following, damaged, self._arriving(answer, into, length, first, end))

    # ------------------------------------------------------------------ answers

    def _head(self, answer: http.client.HTTPResponse, topic: str, length: int) -> tuple[int, int, int]:
        """First and next offset and damaged records of an answer with this many bytes of records."""
        if answer.status != 200:
            self._refused(answer, topic)
        try:
            first, following, count, damaged = (int(answer.headers[f"X-NSQ-{name}"])
                                                for name in ("First-Offset", "Next-Offset", "Messages", "Damaged"))
        except (TypeError, ValueError):
            raise self._bad("/topic/read", "not the records of a log") from None
        if (not 0 <= first <= following <= MOST or count != following - first or damaged < 0
                or bool(count) != bool(length)):
            raise self._bad("/topic/read", f"{count} records from {first} to {following} in {length} bytes")
        return first, following, damaged

    def _arriving(self, answer: http.client.HTTPResponse, into: bytearray, length: int, first: int, end: int
                  ) -> LogBlock:
        """The records of an answer whose body is still unread."""
        try:
            block = LogBlock(into, None, *_place(answer), first, end)
            self._fill(answer, memoryview(into)[:length], block.more)
            block.complete(length)
        except (ValueError, OverflowError) as error:
            raise self._bad("/topic/read", str(error)) from None
        if block.largest > self._options.maxMsgSize:
            raise self._bad("/topic/read", f"a message of {block.largest} bytes (maxMsgSize={self._options.maxMsgSize} "
                                           "bounds a message)")
        return block

    def _lost(self, answer: http.client.HTTPResponse, topic: str, offset: int) -> DataLoss:
        header = "First" if answer.status == 410 else "Next"
        text = answer.headers.get(f"X-NSQ-{header}-Offset") or ""
        self._message(answer)
        # An offset that is not lost after all would be requested again at once, forever.
        known = int(text) if len(text) < 20 and text.isascii() and text.isdecimal() else offset
        if not (known > offset if answer.status == 410 else known < offset):
            raise self._bad("/topic/read", f"status {answer.status} for offset {offset}, with X-NSQ-{header}-Offset "
                                           f"{text or 'missing'}")
        if answer.status == 410:
            return DataLoss(f"topic {topic} at {self.address} begins at offset {text}: retention has removed "
                            f"{known - offset} messages from {offset} on", known)
        return DataLoss(f"topic {topic} at {self.address} ends at offset {text}, but {offset} was requested: it was "
                        "deleted and created again, or its files were replaced")

    def _fill(self, answer: http.client.HTTPResponse, room: memoryview, arrived: Callable[[int], None]) -> None:
        """Reads a body; arrived: called with the number of bytes so far. The socket's timeout applies to single reads:
        a node that sends very slowly would never trigger it."""
        at = before = 0
        since, timeout = time.monotonic(), self._options.timeout
        try:
            while at < len(room):
                got = answer.fp.readinto1(room[at:])
                if not got:
                    raise EOFError(f"{at} of {len(room)} bytes")
                at += got
                arrived(at)
                if (now := time.monotonic()) - since > timeout:
                    if at - before < LEAST_BYTES and at < len(room):
                        raise TimeoutError(f"{at - before} bytes in {now - since:.1f} s")
                    since, before = now, at
            answer.length = 0
            answer.read()       # reads nothing; the connection can be reused
        except (OSError, EOFError, http.client.HTTPException) as error:
            raise self._lost_connection(error) from None


def _place(answer: http.client.HTTPResponse) -> tuple[int, int]:
    """Salt and position of the frames in an answer; 0 without any. Raises ValueError."""
    try:
        return int(answer.headers.get("X-NSQ-Log-Salt", "0"), 16), int(answer.headers.get("X-NSQ-Log-Position", "0"))
    except ValueError:
        raise ValueError("not the frames of a log") from None
