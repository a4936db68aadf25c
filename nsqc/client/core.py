"""The protocol of one V2 connection to an nsqd, without I/O: the blocking and the asyncio connection move the bytes.

The greeting is a generator of steps: the caller executes a step, reads one reply and sends it in.
"""

from __future__ import annotations

import enum
import json
import ssl
import struct
import time
from collections.abc import Generator, Iterable
from typing import Any, NamedTuple, TypeAlias

from nsqc.client import encode
from nsqc.client.address import is_path, split_address
from nsqc.client.batch import Ids
from nsqc.client.commands import Offered, channel_name, topic_name
from nsqc.client.errors import AuthError, ConnectError, Ended, NotOffered, TlsRefused, WrongPort, not_nsqd, refusal
from nsqc.client.inflow import Inflow
from nsqc.client.options import FRAME_ROOM, Options, checked, tls_context
from nsqc.client.tls import files_of
from nsqc.client.trouble import CERTIFICATE_HINT, port_hint, reason, refuses
from nsqc.wire.answers import Service, recognized
from nsqc.wire.codec import Codec
from nsqc.wire.codecs import CODECS, new_codec
from nsqc.wire.outside import JSONError, decode

RESPONSE, ERROR = 0, 1
HEARTBEAT, OK, CLOSE_WAIT = b"_heartbeat_", b"OK", b"CLOSE_WAIT"
NOP, CLS = b"NOP\n", b"CLS\n"
LATE = ("E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED")
CLOSE_SECONDS = 2.0             # for requeuing messages
DEFAULT_MAX_READY = 2500        # nsqd's default, if it does not report its limit
DEFAULT_MSG_TIMEOUT_MS = 60_000 # the same
TOUCHES = 3                     # per message timeout


class Send(NamedTuple):
    """Send these bytes."""

    data: bytes


class Secure(NamedTuple):
    """Start TLS; no byte may have been read beyond the last reply."""

    context: ssl.SSLContext
    server_name: str


class Compress(NamedTuple):
    """Start the codec; bytes beyond the last reply are already encoded."""

    codec: Codec


Step: TypeAlias = Send | Secure | Compress


class Reply(enum.Enum):
    """The kinds of responses and of harmless errors."""

    HEARTBEAT = 1     # answer it with NOP
    CLOSING = 2       # nsqd waits for the connection to close
    LATE = 3          # a FIN, REQ or TOUCH was too late; its id is in failed_ids
    ANSWER = 4        # to a command


class Core:
    """features: nsqd's answer to IDENTIFY; identity: to AUTH. failed_ids: messages whose FIN, REQ or TOUCH was too
    late: nsqd delivers them again. inflow: received but not collected yet."""

    def __init__(self, address: str, options: Options):
        self.address = address
        self.options = options
        self.timeout = options.timeout
        self.max_msg_size = options.max_msg_size
        self.max_body_size = options.max_body_size
        self.inflow = Inflow(options.max_frame_bytes, options.tick_ns)
        self.failed_ids: list[bytes] = []
        self.features: dict[str, Any] = {}      # Any: JSON
        self.identity: dict[str, Any] = {}      # Any: JSON
        self.offered = Offered()
        self.subscribed = False
        self._context: ssl.SSLContext | None = None
        self._is_securing = False               # TLS has started, and nsqd has not answered over it
        # Whether FIN, REQ and TOUCH fail silently when the connection is lost: nsqd then delivers the message again,
        # over a new connection of the owner.
        self.tolerant = False
        # Ids of messages that the application has not answered yet, and when they were received (monotonic).
        self._held: dict[bytes, float] = {}
        self._touched = 0.0             # time of keep_alive()'s last TOUCH for all of them

    # ------------------------------------------------------------------ greeting

    def greeting(self) -> Generator[Step, bytes, None]:
        """IDENTIFY, TLS, compression, AUTH: send in the next reply after each step. Raises ConnectError, Refused."""
        body = json.dumps(self.options.identify()).encode()
        answer = yield Send(b"  V2IDENTIFY\n" + struct.pack(">i", len(body)) + body)
        self.features = self._json(answer, "IDENTIFY")
        self.offered = Offered.by(self.features)
        for name in ("tls", *CODECS):
            if getattr(self.options, name) and not self.features.get("tls_v1" if name == "tls" else name):
                raise NotOffered(f"{self.address}: nsqd does not offer {name}")
        if self.options.tls:
            name = "localhost" if is_path(self.address) else split_address(self.address)[0]
            self._context = tls_context(self.options.tls)
            self._is_securing = True
            self.expect_ok((yield Secure(self._context, name)))
            self._is_securing = False
        codec = self._agreed_codec()
        if codec is not None:
            self.expect_ok((yield Compress(codec)))
        if self.features.get("auth_required"):
            secret = self.options.auth_secret
            if not secret:
                raise AuthError(self.address, "E_AUTH_REQUIRED nsqd asks for AUTH, but there is no auth_secret")
            hosts = self.options.secret_hosts
            if hosts is not None and not is_path(self.address) and not hosts.cover(split_address(self.address)[0]):
                raise AuthError(self.address, "E_AUTH_REQUIRED nsqd asks for AUTH, but is not in node_addresses")
            if self.features.get("tls_required"):
                raise AuthError(self.address, "E_AUTH_REQUIRED nsqd requires TLS: give tls, as auth_secret is not sent "
                                              "in clear text")
            answer = yield Send(b"AUTH\n" + struct.pack(">i", len(secret)) + secret)
            self.identity = self._json(answer, "AUTH")

    def _json(self, answer: bytes, command: str) -> dict[str, Any]:     # Any: JSON
        try:
            value = decode(answer)
        except JSONError:
            value = None
        if not isinstance(value, dict):
            raise WrongPort(f"{self.address}: answers {command} with {answer[:60]!r}: not an nsqd")
        return value

    def _agreed_codec(self) -> Codec | None:
        """The codec accepted by nsqd, if any."""
        for name in CODECS:
            if self.features.get(name):
                return new_codec(name, self.options.deflate or 6)
        return None

    def frame_size(self, head: bytes) -> int:
        """Bytes that follow the first 8 of a reply during the greeting. Raises ConnectError."""
        found = recognized(head)
        if found is not None and found.service is not Service.NSQD_TCP:
            raise not_nsqd(self.address, found)
        size = int.from_bytes(head[:4], "big", signed=True)
        if not 4 <= size <= FRAME_ROOM:
            raise WrongPort(f"{self.address}: answers with {head!r}: not an nsqd")
        return size - 4

    def ended(self, received: bytes = b"", text: str = "closed by nsqd") -> ConnectError:
        """The error for a closed connection; received: the bytes of an incomplete reply."""
        found = recognized(received)
        if found is not None and found.service is not Service.NSQD_TCP:
            return not_nsqd(self.address, found)
        if self._is_securing and not files_of(self._context).cert_file:
            # nsqd verifies certificates after the client's side of the handshake is done.
            text += f" after the TLS handshake; it may require a client certificate: {CERTIFICATE_HINT}"
        return Ended(f"{self.address}: {text}")

    def failed(self, error: Exception) -> ConnectError:
        """Converts the socket's exception."""
        kind = TlsRefused if isinstance(error, ssl.SSLError) and refuses(error) else ConnectError
        return kind(f"{self.address}: {reason(error, self._context)}"
                    f"{port_hint(error, self.address, Service.NSQD_TCP)}")

    # ------------------------------------------------------------------ replies

    def classify(self, kind: int, data: bytes) -> Reply:
        """The kind of a frame that is not a message. Raises Refused for errors that end the connection."""
        if kind == ERROR:
            text = data.decode(errors="replace")
            if not text.startswith(LATE):
                raise refusal(self.address, text)
            self.failed_ids += [word.encode() for word in text.split() if len(word) == 16]
            return Reply.LATE
        if data == HEARTBEAT:
            return Reply.HEARTBEAT
        return Reply.CLOSING if data == CLOSE_WAIT else Reply.ANSWER

    def expect_ok(self, data: bytes) -> None:
        """Raises ConnectError for any answer but OK."""
        if data != OK:
            raise ConnectError(f"{self.address}: answers {data[:60]!r} instead of OK")

    @property
    def max_ready(self) -> int:
        """The largest RDY that this nsqd allows."""
        limit = self.features.get("max_rdy_count")
        return limit if isinstance(limit, int) and limit > 0 else DEFAULT_MAX_READY

    # ------------------------------------------------------------------ commands

    def sub(self, topic: str, channel: str) -> bytes:
        """SUB. Raises BadName."""
        return b"SUB %b %b\n" % (topic_name(topic), channel_name(channel))

    def rdy(self, count: int) -> bytes:
        """RDY, capped at what nsqd allows."""
        return b"RDY %d\n" % min(count, self.max_ready)

    # ------------------------------------------------------------------ messages

    def hold(self, ids: Iterable[bytes]) -> None:
        """The application has received these messages and has to answer them."""
        self._held.update(dict.fromkeys(ids, time.monotonic()))

    @property
    def in_flight(self) -> int:
        """Messages received and not answered."""
        return len(self._held) + self.inflow.rows

    @property
    def msg_timeout(self) -> float:
        """Seconds after which nsqd delivers an unanswered message again."""
        timeout = self.features.get("msg_timeout")
        return (timeout if isinstance(timeout, (int, float)) and timeout > 0 else DEFAULT_MSG_TIMEOUT_MS) / 1000

    def keep_alive(self, now: float, limit: float) -> None:
        """Touches all messages received less than limit seconds ago and not answered, a few times per message timeout.
        Call it often. Raises ConnectError."""
        if touches := self.due_touches(now, limit):
            self._answer_message(touches)

    def due_touches(self, now: float, limit: float) -> bytes:
        """The TOUCHes for keep_alive()."""
        if not self._held or not limit or now - self._touched < self.msg_timeout / TOUCHES:
            return b""
        self._touched = now
        # A copy: threads answer messages meanwhile.
        ids = b"".join(message for message, since in list(self._held.items()) if now - since < limit)
        return encode.touch(ids) if ids else b""

    def forget(self, ids: Ids) -> None:
        """These messages are answered; ids: 16 bytes each."""
        if self._held:
            ids = bytes(ids)
            if len(ids) == 16:
                self._held.pop(ids, None)
                return
            for at in range(0, len(ids), 16):
                self._held.pop(ids[at:at + 16], None)

    def post(self, data: bytes) -> None:
        """Sends bytes as soon as possible. Raises ConnectError."""
        raise NotImplementedError

    def finish_ids(self, ids: Ids) -> None:
        """FIN for any number of ids, 16 bytes each, in one write. Raises ConnectError."""
        self.forget(ids)
        self._answer_message(encode.finish(ids))

    def requeue_ids(self, ids: Ids, delay_ms: int = 0) -> None:
        """REQ for ids, 16 bytes each. Raises ConnectError, ValueError."""
        checked(delay_ms=delay_ms)
        self.forget(ids)
        self._answer_message(encode.requeue(ids, delay_ms))

    def touch_id(self, message_id: bytes) -> None:
        """TOUCH. Raises ConnectError."""
        self._answer_message(encode.touch(message_id))

    def _answer_message(self, command: bytes) -> None:
        try:
            self.post(command)
        except ConnectError:
            if not self.tolerant:
                raise

    def requeue_unanswered(self) -> bytes:
        """REQs for all messages received and not answered; forgets the messages."""
        ids = b"".join(self._held) + bytes(self.inflow.columns()[5])
        self._held.clear()
        return encode.requeue(ids) if ids else b""
