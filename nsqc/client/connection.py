"""One V2 connection to an nsqd: connected, identified, upgraded and authenticated when it exists.

Publishing blocks for its answers; consuming blocks only where a time-out says so. Not for several threads at once.
"""

from __future__ import annotations

import json
import logging
import select
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nsqc.client import encode
from nsqc.client.errors import AuthError, BadName, Closed, ConnectError, NoAnswer, Refused, refusal
from nsqc.client.inflow import BadStream, Inflow
from nsqc.client.message import Message, messages
from nsqc.client.stream import Stream
from nsqc.version import __version__
from nsqc.wire.codec import CodecError
from nsqc.wire.names import is_valid_name

log = logging.getLogger("nsqc.client")

RESPONSE, ERROR = 0, 1
HEARTBEAT, OK, CLOSE_WAIT = b"_heartbeat_", b"OK", b"CLOSE_WAIT"
HARMLESS = ("E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED")
KIB, MIB = 1 << 10, 1 << 20
FRAME_ROOM = 64 * KIB           # of a frame above the largest message
MPUB_ROOM = 8                   # of an MPUB's body above its only message
DEFERRED_AT_ONCE = 1000         # DPUBs sent before their answers are read
PULL_BYTES = MIB                # read of one connection before others have their turn
CLOSE_SECONDS = 2.0
DEFAULT_MAX_READY = 2500        # nsqd's, where it does not tell


class Batch(NamedTuple):
    """Messages as columns, each an object with the buffer protocol.

    Body n is bodies[offsets[n]:offsets[n + 1]] (int32); timestamps: int64; attempts: int32; ids: 16 bytes each.
    """

    count: int
    bodies: Any
    offsets: Any
    timestamps: Any
    attempts: Any
    ids: Any


class Connection:
    """address: HOST:PORT or the path of a unix socket. timeout: seconds for connecting and for any answer.

    tls: True (the system's authorities), an ssl.SSLContext (see nsqc.client.tls) or None. deflate: a level from 1 to 9,
    or 0. auth_secret: what AUTH sends where nsqd asks for it. max_msg_size, max_body_size: nsqd's limits, which it does
    not tell; what is larger is refused before it is sent. tick_ns: unit of the timestamps of Batch.
    features: nsqd's answer to IDENTIFY. failed_ids: messages whose FIN, REQ or TOUCH came too late: they come again.

    Raises ConnectError, Refused, AuthError; ValueError for arguments that exclude each other.
    """

    def __init__(self, address: str, *, timeout: float = 10.0, tls: bool | ssl.SSLContext | None = None,
                 deflate: int = 0, snappy: bool = False, auth_secret: str | bytes | None = None,
                 client_id: str | None = None, hostname: str | None = None, user_agent: str | None = None,
                 heartbeat_interval_ms: int | None = None, msg_timeout_ms: int | None = None,
                 output_buffer_size: int | None = None, output_buffer_timeout_ms: int | None = None,
                 sample_rate: int = 0, max_msg_size: int = MIB, max_body_size: int = 5 * MIB,
                 max_frame_bytes: int | None = None, tick_ns: int = 1):
        if deflate and snappy:
            raise ValueError("deflate and snappy exclude each other")
        self.address = address
        self.timeout = timeout
        self.max_msg_size = min(max_msg_size, max_body_size - MPUB_ROOM)
        self.max_body_size = max_body_size
        self.inflow = Inflow(max_frame_bytes or max_msg_size + FRAME_ROOM, tick_ns)
        self.failed_ids: list[bytes] = []
        self.subscribed = False
        self._owed: deque[int] = deque()        # OKs awaited for each thing submitted
        self._held: dict[bytes, None] = {}      # ids of messages that the application has not answered
        name = socket.gethostname()
        wanted = {
            "client_id": client_id or name.split(".")[0], "hostname": hostname or name,
            "user_agent": user_agent or f"nsqc/{__version__}", "feature_negotiation": True,
            "heartbeat_interval": heartbeat_interval_ms, "msg_timeout": msg_timeout_ms,
            "output_buffer_size": output_buffer_size, "output_buffer_timeout": output_buffer_timeout_ms,
            "sample_rate": sample_rate or None, "tls_v1": bool(tls) or None, "snappy": snappy or None,
            "deflate": bool(deflate) or None, "deflate_level": deflate or None}
        self._stream = self._guard(lambda: Stream(address, timeout))
        try:
            self._open({key: value for key, value in wanted.items() if value is not None}, tls, auth_secret)
        except BaseException:
            self._stream.close()
            raise

    # ------------------------------------------------------------------ beginning

    def _open(self, wanted: dict[str, Any], tls: Any, secret: str | bytes | None) -> None:
        body = json.dumps(wanted).encode()
        self._send(b"  V2IDENTIFY\n" + struct.pack(">i", len(body)) + body)
        answer = self._exact_reply()
        try:
            self.features: dict[str, Any] = json.loads(answer)
        except ValueError:
            raise ConnectError(f"{self.address}: answers IDENTIFY with {answer[:60]!r}: no nsqd") from None
        for name in ("tls_v1", "deflate", "snappy"):
            if wanted.get(name) and not self.features.get(name):
                raise ConnectError(f"{self.address}: nsqd does not offer {name.removesuffix('_v1')}")
        if tls:
            self._secure(ssl.create_default_context() if tls is True else tls)
        self._compress()
        if self.features.get("auth_required"):
            self._authenticate(secret)

    def _secure(self, context: ssl.SSLContext) -> None:
        server_name = self.address.rpartition(":")[0].strip("[]")
        self._guard(lambda: self._stream.secure(context, server_name or "localhost", self._deadline()))
        self._expect_ok(self._exact_reply())

    def _compress(self) -> None:
        """Codecs are imported where they are used: they bring a library along."""
        if self.features.get("deflate"):
            from nsqc.wire.deflate import Deflate

            self._stream.compress(Deflate(self.features.get("deflate_level") or 6))
        elif self.features.get("snappy"):
            from nsqc.wire.snappy import Snappy

            self._stream.compress(Snappy())
        else:
            return
        self._expect_ok(self.reply())

    def _authenticate(self, secret: str | bytes | None) -> None:
        if not secret:
            raise AuthError(self.address, "E_AUTH_REQUIRED nsqd asks for AUTH, and there is no auth_secret")
        secret = secret.encode() if isinstance(secret, str) else secret
        self._send(b"AUTH\n" + struct.pack(">i", len(secret)) + secret)
        self.identity: dict[str, Any] = json.loads(self.reply())

    def _exact_reply(self) -> bytes:
        """A response of which not a byte more is read, for what follows may be encrypted or compressed."""
        deadline = self._deadline()
        while True:
            head = self._guard(lambda: self._stream.receive_exactly(8, deadline))
            size, kind = struct.unpack(">ii", head)
            if not 4 <= size <= FRAME_ROOM:
                raise ConnectError(f"{self.address}: answers with {head!r}: no nsqd")
            data = self._guard(lambda size=size: self._stream.receive_exactly(size - 4, deadline))
            if kind == ERROR:
                raise refusal(self.address, data.decode(errors="replace"))
            if data != HEARTBEAT:
                return data
            self._send(b"NOP\n")

    @property
    def max_ready(self) -> int:
        """The largest RDY that this nsqd allows."""
        return int(self.features.get("max_rdy_count") or DEFAULT_MAX_READY)

    # ------------------------------------------------------------------ publishing

    def publish(self, topic: str, body: bytes) -> None:
        """PUB; returns when nsqd has it. Raises BadName, BadMessage, Refused, ConnectError."""
        name = topic_name(topic)
        encode.check((body,), self.max_msg_size)
        self.submit(encode.pub(name, body))
        self.drain(0)

    def publish_many(self, topic: str, bodies: Sequence[bytes], *, batch_bytes: int = 256 * KIB,
                     batch_rows: int = 10_000, window: int = 4) -> None:
        """MPUBs of up to batch_bytes and batch_rows, of which window are on their way at a time; returns when nsqd has
        all. bodies: a list or tuple. Raises BadMessage before anything is sent, BadName, Refused, ConnectError."""
        name = topic_name(topic)
        encode.check(bodies, self.max_msg_size)
        at, limit = 0, min(batch_bytes, self.max_body_size)
        while at < len(bodies):
            command, at = encode.mpub(name, bodies, at, batch_rows, limit)
            self.submit(command)
            self.drain(max(window, 1) - 1)
        self.drain(0)

    def publish_deferred(self, topic: str, body: bytes, delay_ms: int) -> None:
        """DPUB: to be delivered after delay_ms milliseconds. Raises as publish."""
        self.publish_deferred_many(topic, (body,), delay_ms)

    def publish_deferred_many(self, topic: str, bodies: Sequence[bytes], delay_ms: int) -> None:
        """A DPUB for each body, sent without waiting for the answers between them. Raises as publish_many."""
        name = topic_name(topic)
        encode.check(bodies, self.max_msg_size)
        for at in range(0, len(bodies), DEFERRED_AT_ONCE):
            part = bodies[at:at + DEFERRED_AT_ONCE]
            self.submit(b"".join(encode.dpub(name, body, delay_ms) for body in part), len(part))
            self.drain(0)

    def submit(self, commands: Any, answers: int = 1) -> None:
        """Sends commands that will be answered with so many OKs. Raises ConnectError."""
        self._send(commands)
        self._owed.append(answers)

    def drain(self, outstanding: int) -> int:
        """Waits until at most so many submissions are not answered; how many were answered now.
        Raises Refused, ConnectError."""
        done = 0
        while len(self._owed) > outstanding:
            self._expect_ok(self.reply())
            self._owed[0] -= 1
            if not self._owed[0]:
                self._owed.popleft()
                done += 1
        return done

    def ping(self) -> None:
        """Answers heartbeats that have come: for connections that publish rarely. Raises ConnectError, Refused."""
        self.pull()

    # ------------------------------------------------------------------ consuming

    def subscribe(self, topic: str, channel: str) -> None:
        """SUB: from here on the connection consumes; nothing comes before ready(). Raises BadName, Refused,
        ConnectError."""
        self._send(b"SUB %b %b\n" % (topic_name(topic), channel_name(channel)))
        self._expect_ok(self.reply())
        self.subscribed = True

    def ready(self, count: int) -> None:
        """RDY: how many messages may be in flight. Raises ConnectError."""
        self.post(b"RDY %d\n" % min(count, self.max_ready))

    def receive(self, timeout: float | None = None) -> list[Message]:
        """The messages that have come: at least one, but none where nothing comes within timeout seconds (None: waits).
        Heartbeats are answered. Raises ConnectError, Refused."""
        if not self._wait_for_rows(timeout):
            return []
        found = messages(self.inflow.columns(), self)
        self._held.update((message.id, None) for message in found)
        return found

    def receive_batch(self, timeout: float | None = None) -> Batch | None:
        """The same as columns; None where nothing comes. Finish them by finish_ids."""
        return Batch(*self.inflow.columns()) if self._wait_for_rows(timeout) else None

    def finish_ids(self, ids: Any) -> None:
        """FIN for ids, 16 bytes each, of any number, in one write. Raises ConnectError."""
        self._forget(ids)
        self.post(encode.finish(ids))

    def requeue_ids(self, ids: Any, delay_ms: int = 0) -> None:
        """REQ for ids, 16 bytes each. Raises ConnectError."""
        self._forget(ids)
        self.post(encode.requeue(ids, delay_ms))

    def touch_id(self, message_id: bytes) -> None:
        """TOUCH. Raises ConnectError."""
        self.post(encode.touch(message_id))

    def _forget(self, ids: Any) -> None:
        if self._held:
            ids = bytes(ids)
            for at in range(0, len(ids), 16):
                self._held.pop(ids[at:at + 16], None)

    def _wait_for_rows(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self.pull()
            if self.inflow.rows:
                return True
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            if not self.pending:
                self._wait(left)

    def _wait(self, seconds: float | None) -> None:
        """Until something can be read, or sent where something is unsent."""
        poll = select.poll()
        poll.register(self, select.POLLIN | (0 if self.flush() else select.POLLOUT))
        poll.poll(None if seconds is None else max(seconds * 1000, 1))

    # ------------------------------------------------------------------ without waiting

    def fileno(self) -> int:
        """For a selector."""
        return self._stream.fileno()

    @property
    def pending(self) -> bool:
        """Whether pull() has something to take that a selector does not see."""
        return self._stream.pending

    @property
    def unsent(self) -> bool:
        """Whether something posted waits for the socket."""
        return self._stream.unsent > 0

    def post(self, data: bytes) -> None:
        """Sends as much as the socket takes; flush() sends the rest. Raises ConnectError."""
        self._stream.push(data)
        self.flush()

    def flush(self) -> bool:
        """Whether everything that was posted is gone. Raises ConnectError."""
        return self._guard(self._stream.flush)

    def pull(self) -> int:
        """Takes what nsqd has sent into inflow; how many messages. Raises ConnectError; Refused for an error that ends
        the connection."""
        rows, taken = self.inflow.rows, 0
        while taken < PULL_BYTES or self.pending:
            count = self._guard(lambda: self._stream.receive(self.inflow, None))
            if not count:
                break
            taken += count
        self.flush()
        self._answer()
        return self.inflow.rows - rows

    def _answer(self) -> bool:
        """Deals with what is no message; whether nsqd waits to be closed."""
        waits = False
        replies = list(self.inflow.replies)
        self.inflow.replies.clear()
        for kind, data in replies:
            text = data.decode(errors="replace")
            if kind == ERROR and text.startswith(HARMLESS):
                self.failed_ids += [word.encode() for word in text.split() if len(word) == 16]
            elif kind == ERROR:
                raise refusal(self.address, text)
            elif data == HEARTBEAT:
                self.post(b"NOP\n")
            waits |= data == CLOSE_WAIT
        return waits

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Closes at once. What is in flight comes again after its time-out; leave() hands it back."""
        self._stream.close()

    def leave(self) -> None:
        """Hands all messages that were not answered back to nsqd, also those still on their way; then closes."""
        if self.fileno() < 0:
            return
        try:
            if self.subscribed:
                self._hand_back_all()
            self._stream.close_gently(time.monotonic() + CLOSE_SECONDS)
        except (OSError, Refused) as error:
            log.debug("%s: on leaving: %s", self.address, error)
        finally:
            self._stream.close()

    def _hand_back_all(self) -> None:
        self.ready(0)
        if self._held:
            self.requeue_ids(b"".join(self._held))
        self.post(b"CLS\n")
        deadline = time.monotonic() + CLOSE_SECONDS
        waits = False
        while not waits and time.monotonic() < deadline:
            self._hand_back()
            try:
                self._guard(lambda: self._stream.receive(self.inflow, time.monotonic() + 0.1))
            except NoAnswer:
                continue
            waits = self._answer()
        self._hand_back()
        self._guard(lambda: self._stream.send(b"", time.monotonic() + CLOSE_SECONDS))

    def _hand_back(self) -> None:
        if self.inflow.rows:
            self.post(encode.requeue(self.inflow.columns()[5]))
        self.flush()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    # ------------------------------------------------------------------ for all of it

    def _deadline(self) -> float:
        return time.monotonic() + self.timeout

    def _send(self, data: Any) -> None:
        self._guard(lambda: self._stream.send_all(data, self._deadline()))

    def reply(self) -> bytes:
        """The next response, within the time-out; heartbeats are answered. Raises Refused, ConnectError."""
        deadline = self._deadline()
        while True:
            while self.inflow.replies:
                kind, data = self.inflow.replies.pop(0)
                if kind == ERROR:
                    raise refusal(self.address, data.decode(errors="replace"))
                if data != HEARTBEAT:
                    return data
                self._send(b"NOP\n")
            self._guard(lambda: self._stream.receive(self.inflow, deadline))

    def _expect_ok(self, data: bytes) -> None:
        if data != OK:
            raise ConnectError(f"{self.address}: answers {data[:60]!r} where OK was due")

    def _guard(self, call: Callable[[], Any]) -> Any:
        """What the stream raises, in this module's terms."""
        try:
            return call()
        except (TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise NoAnswer(f"{self.address}: no answer in time") from None
        except EOFError:
            raise ConnectError(f"{self.address}: closed by nsqd") from None
        except (BadStream, CodecError) as error:
            raise ConnectError(f"{self.address}: {error}") from None
        except (OSError, ValueError) as error:
            if not isinstance(error, ssl.SSLError) and hasattr(self, "_stream") and self._stream.fileno() < 0:
                raise Closed(f"{self.address}: the connection is closed") from None
            raise ConnectError(f"{self.address}: {getattr(error, 'strerror', None) or error}") from None


def topic_name(topic: str) -> bytes:
    """As bytes. Raises BadName."""
    return checked_name("topic", topic)


def channel_name(channel: str) -> bytes:
    """As bytes. Raises BadName."""
    return checked_name("channel", channel)


def checked_name(what: str, name: str) -> bytes:
    found = name.encode()
    if not is_valid_name(found):
        raise BadName(f"{what} {name!r}: a name is 1 to 64 of . a-z A-Z 0-9 _ -, and #ephemeral may follow")
    return found
