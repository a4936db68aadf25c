"""The calls of nsqd's HTTP API that read a log. Knows no Spark."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from nsqc.client.address import split_address
from nsqc.client.http import answered_by, authorization, https_port_of
from nsqc.client.lookup import reason_of_tls
from nsqc.client.tls import tls
from nsqc.spark.log.ranges import LogSegment
from nsqc.spark.mistakes import in_options, right_port, secret_hint
from nsqc.spark.options import NodeOptions
from nsqc.store.log.reading import FRAME_MORE, FRAME_MOST, MEDIA_TYPE, LogBlock
from nsqc.wire.outside import JSONError, Service, decode

# ====================================================================== errors
# Errors between Spark and the logs of nsqd. Each text names node and topic.

class LogError(RuntimeError):
    """A log cannot be read."""


class Unreachable(LogError):
    """A node does not answer, or the connection breaks: retrying may help."""


class BadAnswer(LogError):
    """A node's answer is neither records nor the state of a log."""


class NoTopic(LogError):
    """A node does not have the topic."""


class NoLog(LogError):
    """The topic is stored in memory."""


class DataLoss(LogError):
    """Messages needed by the query are no longer in the log; sound: the first offset after them, if known."""

    def __init__(self, text: str, sound: int | None = None) -> None:
        super().__init__(text)
        self.sound = sound


# ====================================================================== patience
# Retries while a node does not answer.

T = TypeVar("T")
LONGEST_PAUSE = 5.0


def patiently(call: Callable[[], T], seconds: float, pause: float) -> T:
    """The result of a call that is retried for this long while its node is unreachable, or answers unexpectedly: a
    proxy in front of a starting node may do that. Raises the last error."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except (Unreachable, BadAnswer):
            left = deadline - time.monotonic()
            if left <= 0:
                raise
            time.sleep(min(pause, left))
            pause = min(2 * pause, LONGEST_PAUSE)


# ====================================================================== calls
# Calls of nsqd's HTTP API over one persistent connection. Knows no Spark.

# Limit for answers that are not records.
MOST_BYTES = 64 << 20
SHOWN_BYTES = 200


class Calls:
    """One node by the HOST:PORT of its HTTP API, or of HTTPS with tls=true. Methods for subclasses have one underscore.

    Methods raise Unreachable, BadAnswer and, if a topic is given, NoTopic and NoLog. Not thread-safe.
    """

    def __init__(self, address: str, options: NodeOptions) -> None:
        self.address = address
        self._host, self._port = split_address(address)
        self._options = options
        self._connection: http.client.HTTPConnection | None = None
        self._tls: ssl.SSLContext | None = None
        self._path = ""                                 # of the last call

    def close(self) -> None:
        """Closes the connection; the next call opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------------ answers

    # Any: JSON
    def _json(self, path: str, topic: str) -> dict[str, Any]:
        answer = self._open(path)
        if answer.status != 200:
            self._refused(answer, topic)
        try:
            value = decode(self._body(answer))
        except JSONError:
            value = None
        if not isinstance(value, dict):
            raise self._bad(path.partition("?")[0], "no JSON object")
        return value

    def _refused(self, answer: http.client.HTTPResponse, topic: str) -> None:
        """Raises for an answer other than 200."""
        text = self._message(answer)
        if answer.status == 404 and text == "TOPIC_NOT_FOUND":
            raise NoTopic(f"{self.address} has no topic {topic}")
        if text.startswith("NO_LOG"):
            raise NoLog(f"{self.address}: topic {text.partition(': ')[2] or topic}")
        if answer.status in (401, 403):
            hint = (": give tls=true" if text == "TLS_REQUIRED" else
                    f": {secret_hint(self._options)}" if text.startswith(("UNAUTHORIZED", "FORBIDDEN")) else "")
            raise LogError(f"nsq: {self.address}: {text[:SHOWN_BYTES]}{hint}")
        if answer.status == 404:
            raise BadAnswer(f"{self.address} has no {self._path}: it is not an nsqc with log-backed topics")
        kind = Unreachable if answer.status in (429, 502, 503, 504) else BadAnswer
        raise kind(f"{self.address}: {self._path}: status {answer.status} {text[:SHOWN_BYTES]}")

    def _message(self, answer: http.client.HTTPResponse) -> str:
        body = self._body(answer)
        try:
            message = decode(body)["message"]
        except (JSONError, KeyError, TypeError):
            message = None
        if not isinstance(message, str):
            return repr(body[:SHOWN_BYTES].decode("utf-8", "replace"))
        return message

    def _bad(self, path: str, what: str) -> BadAnswer:
        self.close()
        return BadAnswer(f"{self.address}: {path}: {what}")

    # ------------------------------------------------------------------ the connection

    def _post(self, path: str, topic: str) -> None:
        """A call that changes something, sent once: on a new connection, because an idle one may have been closed."""
        self.close()
        try:
            self._send(path, "POST")
            answer = self._answer()
        except (OSError, http.client.HTTPException) as error:
            raise self._lost_connection(error) from None
        if answer.status != 200:
            self._refused(answer, topic)
        self._body(answer)

    def _open(self, path: str) -> http.client.HTTPResponse:
        """The head of an answer. An idle connection may have been closed meanwhile: then opens a new one."""
        kept = self._connection is not None
        try:
            try:
                return self._ask(path)
            except (ConnectionError, http.client.BadStatusLine):
                self.close()
                if not kept:
                    raise
                return self._ask(path)
        except OSError as error:        # first: an answer that never came is both
            raise self._lost_connection(error) from None
        except http.client.HTTPException as error:
            raise self._not_http(error) from None

    def _not_http(self, error: http.client.HTTPException) -> LogError:
        """The error for an answer in another protocol."""
        found = answered_by(error)
        if found is None:
            return self._bad(self._path, f"not HTTP: {error!r}")
        self.close()
        if found.service is Service.TLS:
            return LogError(f"nsq: {self.address} speaks TLS: give tls=true")
        return LogError(f"nsq: {right_port(self.address, found, Service.NSQD_HTTP)}; option http has HTTP addresses")

    def _ask(self, path: str) -> http.client.HTTPResponse:
        self._send(path)
        return self._answer()

    def _send(self, path: str, method: str = "GET") -> None:
        self._path = path.partition("?")[0]
        connection, secret = self._connection, self._options.http_secret(self.address)
        if connection is None:
            timeout = self._options.timeout
            if self._options.tls and self._tls is None:
                self._tls = _context(self._options)
            connection = (http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
                          if self._options.tls else
                          http.client.HTTPConnection(self._host, self._port, timeout=timeout))
            self._connection = connection
            if secret and not self._options.tls and (port := https_port_of(connection, "/info")):
                self.close()
                raise LogError(f"nsq: {self.address} has HTTPS on port {port}, so authSecret is not sent in clear "
                               "text: give tls=true")
        try:
            connection.request(method, path, headers={"Accept": f"{MEDIA_TYPE}, application/json",
                                                       **authorization(secret)})
        except UnicodeError:
            raise OSError(f"{self._host!r} is not a host name") from None

    def _answer(self) -> http.client.HTTPResponse:
        if self._connection is None:
            raise ConnectionResetError("the connection is closed")
        return self._connection.getresponse()

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            body = answer.read(MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise self._lost_connection(error) from None
        if answer.length and len(body) < MOST_BYTES:     # read() with a limit accepts a premature end
            raise self._lost_connection(EOFError(f"{len(body)} of {len(body) + answer.length} bytes"))
        if not answer.isclosed():
            self.close()
        return body

    def _lost_connection(self, error: Exception) -> LogError:
        self.close()
        if isinstance(error, ssl.SSLError) and (why := reason_of_tls(error, self._tls)) != error.strerror:
            return LogError(f"nsq: {self.address}: {in_options(why)}"
                            + (": omit tls=true, or give HTTPS addresses by option http" * ("speak TLS" in why)))
        text = str(getattr(error, "strerror", None) or error) or type(error).__name__
        return Unreachable(f"{self.address}: {text}")


def _context(options: NodeOptions) -> ssl.SSLContext:
    """Raises LogError: retrying does not help."""
    try:
        return tls(options.tlsCaFile, options.tlsCertFile, options.tlsKeyFile, options.tlsVerify)
    except OSError as error:
        given = ", ".join(f"{name}={path}" for name, path in (
            ("tlsCaFile", options.tlsCaFile), ("tlsCertFile", options.tlsCertFile), ("tlsKeyFile", options.tlsKeyFile))
            if path)
        raise LogError(f"nsq: {given}: {error.strerror or error}") from None


# ====================================================================== api

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


# ====================================================================== resting
# Nodes that have not answered. No caller waits for them: a thread retries each. Knows no Spark.

REST_SECONDS = 5.0      # between retries


@dataclass
class _Rest:
    until: float            # monotonic
    why: str                # the last error
    asked: bool = False     # a thread waits for an answer
    answers: bool = False   # it has answered


class Resting:
    """Errors by node. A hanging node costs its first caller a timeout, and later ones nothing."""

    def __init__(self) -> None:
        self._rests: dict[str, _Rest] = {}

    def failed(self, node: str, error: Exception) -> None:
        """The node did not answer."""
        self._rests[node] = _Rest(time.monotonic() + REST_SECONDS, str(error))

    def why(self, node: str, ask: Callable[[], object]) -> str | None:
        """Why not to query the node now; None: it may be queried. ask() runs on a thread, and raises Unreachable or
        BadAnswer; meanwhile no other caller queries the node."""
        rest = self._rests.get(node)
        if rest is None:
            return None
        if rest.answers:
            del self._rests[node]
            return None
        if not rest.asked and time.monotonic() >= rest.until:
            rest.asked = True
            # A daemon thread: the process does not wait for its timeout at exit.
            threading.Thread(target=_ask_rested, args=(rest, ask), name=f"nsqc-{node}", daemon=True).start()
        return rest.why

    def forget(self) -> None:
        """Allows all nodes to be queried, except those that a thread is querying."""
        self._rests = {node: rest for node, rest in self._rests.items() if rest.asked}


def _ask_rested(rest: _Rest, ask: Callable[[], object]) -> None:
    try:
        ask()
    except (Unreachable, BadAnswer) as error:
        rest.why = str(error)
        rest.until = time.monotonic() + REST_SECONDS
        rest.asked = False
    except Exception:       # the next caller gets it
        rest.answers = True
    else:
        rest.answers = True
