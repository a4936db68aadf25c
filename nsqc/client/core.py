"""The protocol of one V2 connection to an nsqd, without I/O: the blocking and the asyncio connection move the bytes.

The greeting is a generator of steps: the caller executes a step, reads one reply and sends it in.
"""

from __future__ import annotations

import enum
import json
import socket
import ssl
import struct
import time
from collections.abc import Generator, Iterable
from typing import Any, NamedTuple, TypeAlias

from nsqc.client import frames
from nsqc.client.address import is_path, split_address
from nsqc.client.commands import Ids, Offered, channel_name, topic_name
from nsqc.client.errors import AuthError, ConnectError, Ended, NotOffered, TlsRefused, WrongPort, not_nsqd, refusal
from nsqc.client.frames import Inflow
from nsqc.client.lookup import CERTIFICATE_HINT, port_hint, reason, refuses
from nsqc.client.options import FRAME_ROOM, Options, checked, tls_context
from nsqc.client.tls import files_of
from nsqc.wire.codecs import CODECS, Codec, new_codec
from nsqc.wire.outside import JSONError, Service, decode, recognized
from nsqc.wire.parser import is_valid_name

# ====================================================================== stream
# A blocking byte stream over a socket; TLS and a codec can be added while in use.
#
# Blocking calls take a deadline (time.monotonic()); the others never wait. Errors are OSError, and CodecError if the
# stream cannot be decoded.

READ_BYTES = 256 * 1024


class Stream:
    """A connected TCP or unix socket."""

    def __init__(self, address: str, timeout: float):
        self._socket = dial(address, timeout)
        self._waits = True      # the socket has a timeout; false: it never waits
        self._codec: Codec | None = None
        self._more = False      # the codec may have more output without another read
        self._unsent = b""      # encoded, not yet accepted by the socket

    # ------------------------------------------------------------------ upgrades

    def secure(self, context: ssl.SSLContext, server_name: str, deadline: float) -> None:
        """Starts TLS."""
        self._wait_until(deadline)
        self._socket = context.wrap_socket(self._socket, server_hostname=server_name, suppress_ragged_eofs=True)

    def compress(self, codec: Codec) -> None:
        """Starts a codec, within TLS."""
        self._codec = codec

    # ------------------------------------------------------------------ input

    def receive(self, inflow: Inflow, deadline: float | None) -> int:
        """Reads into inflow; returns the byte count: 0 if nothing is available and deadline is None. Raises EOFError at
        the end, BadStream for anything but frames."""
        if self._codec is not None:
            return self._receive_coded(self._codec, inflow, deadline)
        self._wait_until(deadline)
        try:
            count = self._socket.recv_into(inflow)
        except (BlockingIOError, ssl.SSLWantReadError):
            return 0
        if not count:
            raise EOFError
        inflow.fed(count)
        return count

    def _receive_coded(self, codec: Codec, inflow: Inflow, deadline: float | None) -> int:
        """Decodes one piece at a time, so that a decompression bomb cannot expand in memory."""
        if not self._more:
            self._wait_until(deadline)
            try:
                data = self._socket.recv(READ_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                return 0
            if not data:
                raise EOFError
            codec.put(data)
        piece = codec.get()
        self._more = bool(piece)
        inflow.feed(piece)
        # Bytes were received, even if they do not complete a piece yet.
        return len(piece) or 1

    def receive_exactly(self, count: int, deadline: float) -> bytes:
        """Reads exactly this many bytes: later ones may be encoded. Raises EOFError with the bytes read so far."""
        received = bytearray()
        while len(received) < count:
            self._wait_until(deadline)
            data = self._socket.recv(count - len(received))
            if not data:
                raise EOFError(bytes(received))
            received += data
        return bytes(received)

    @property
    def pending(self) -> bool:
        """Whether receive() would find bytes that a selector cannot see."""
        return self._more or (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0)

    # ------------------------------------------------------------------ output

    def send(self, data: bytes | bytearray | memoryview, deadline: float) -> None:
        """Sends unsent bytes, then data."""
        self.push(data)
        while self._unsent:
            self._wait_until(deadline)
            rest = memoryview(self._unsent)
            self._unsent = self._unsent[self._socket.send(rest):]

    def send_all(self, data: bytes | bytearray | memoryview, deadline: float) -> None:
        """Like send(), without a copy if nothing has to be encoded."""
        if self._codec is not None or self._unsent:
            self.send(data, deadline)
            return
        self._wait_until(deadline)
        self._socket.sendall(data)

    def push(self, data: bytes | bytearray | memoryview) -> None:
        """Buffers data for flush() and send()."""
        if self._codec is not None:
            data = self._codec.pack(bytes(data))
        self._unsent = self._unsent + data if self._unsent else bytes(data)

    def flush(self) -> bool:
        """Sends as much as the socket accepts now; returns whether everything is sent."""
        if not self._unsent:
            return True
        self._wait_until(None)
        try:
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent):]
        except (BlockingIOError, ssl.SSLWantWriteError):
            return False
        return True

    @property
    def unsent(self) -> int:
        """Bytes buffered for flush()."""
        return len(self._unsent)

    # ------------------------------------------------------------------ closing

    def fileno(self) -> int:
        """For a selector."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes at once."""
        self._socket.close()

    def close_gently(self, deadline: float) -> None:
        """Sends EOF and waits until the peer has read everything and closes."""
        try:
            if isinstance(self._socket, ssl.SSLSocket):
                self._wait_until(deadline)
                self._socket.unwrap().close()
                return
            self._socket.shutdown(socket.SHUT_WR)
            while time.monotonic() < deadline:
                self._wait_until(deadline)
                if not self._socket.recv(1 << 16):
                    break
        except (OSError, ValueError):
            pass    # it is closed below anyway
        finally:
            self._socket.close()

    def _wait_until(self, deadline: float | None) -> None:
        """Sets the timeout of the next call; None: non-blocking. A system call, which most messages avoid."""
        if deadline is not None:
            self._socket.settimeout(left(deadline))
        elif self._waits:
            self._socket.settimeout(0)
        self._waits = deadline is not None


def left(deadline: float) -> float:
    """Seconds until the deadline, never 0: that would make the socket non-blocking."""
    return max(deadline - time.monotonic(), 0.001)


def dial(address: str, timeout: float) -> socket.socket:
    """A connected socket. Raises OSError, BadAddress."""
    if is_path(address):
        unix = socket.socket(socket.AF_UNIX)
        try:
            unix.settimeout(timeout)
            unix.connect(address)
        except OSError:
            unix.close()
            raise
        return unix
    tcp = socket.create_connection(split_address(address), timeout)
    tune(tcp)
    return tcp


def tune(sock: socket.socket) -> None:
    """Sets up a TCP connection to nsqd: small commands are sent at once, and a dead peer is detected within two
    minutes."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


# ====================================================================== core

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
    LATE = 3          # a FIN, REQ or TOUCH was too late; its id is in failed_ids; or a DEAD has failed
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
        self.not_moved: list[str] = []          # errors of DEAD: nsqd delivers these messages again
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
        for name, key in (("tls" if self.options.tls else "", "tls_v1"), (self.options.codec, self.options.codec)):
            if name and not self.features.get(key):
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
                return new_codec(name, self.options.level or CODECS[name].level)
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
            if text.startswith("E_DEAD_FAILED"):
                self.not_moved.append(text)
                return Reply.LATE
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

    def rdy(self, count: int, backs_off: bool = False) -> bytes:
        """RDY, capped at what nsqd allows. backs_off: a word for nsqc's statistics, which nsqd ignores."""
        return b"RDY %d%b\n" % (min(count, self.max_ready), b" backoff" if backs_off else b"")

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
        return frames.touch(ids) if ids else b""

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
        self._answer_message(frames.finish(ids))

    def requeue_ids(self, ids: Ids, delay_ms: int = 0) -> None:
        """REQ for ids, 16 bytes each. Raises ConnectError, ValueError."""
        checked(delay_ms=delay_ms)
        self.forget(ids)
        self._answer_message(frames.requeue(ids, delay_ms))

    def move_id(self, message_id: bytes, topic: str, reason: str) -> bool:
        """DEAD: moves a message to a topic of dead letters. False: nsqd does not know it. Raises ConnectError, BadName,
        ValueError."""
        if not is_valid_name(reason.encode()):
            raise ValueError(f"reason is {reason!r}; it takes 1 to 64 of the characters . a-z A-Z 0-9 _ -")
        command = b"DEAD %b %b %b\n" % (message_id, topic_name(topic), reason.encode())
        if self.offered.dead_letters:
            self.forget(message_id)
            self._answer_message(command)
        return self.offered.dead_letters

    def touch_id(self, message_id: bytes) -> None:
        """TOUCH. Raises ConnectError."""
        self._answer_message(frames.touch(message_id))

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
        return frames.requeue(ids) if ids else b""
