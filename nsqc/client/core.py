"""What one V2 connection to an nsqd says and understands, without a socket: the blocking connection and asyncio's move
the bytes.

Beginning is a generator of steps (greeting): whoever moves the bytes takes a step, reads one reply and sends it in.
"""

from __future__ import annotations

import enum
import json
import struct
from collections.abc import Generator, Iterable
from typing import Any, NamedTuple, TypeAlias

from nsqc.client import encode
from nsqc.client.address import is_path, split_address
from nsqc.client.batch import Ids
from nsqc.client.commands import channel_name, topic_name
from nsqc.client.errors import AuthError, ConnectError, refusal
from nsqc.client.inflow import Inflow
from nsqc.client.options import FRAME_ROOM, Options, checked, tls_context
from nsqc.wire.codec import Codec

RESPONSE, ERROR = 0, 1
HEARTBEAT, OK, CLOSE_WAIT = b"_heartbeat_", b"OK", b"CLOSE_WAIT"
NOP, CLS = b"NOP\n", b"CLS\n"
LATE = ("E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED")
CLOSE_SECONDS = 2.0             # for handing messages back
DEFAULT_MAX_READY = 2500        # nsqd's, where it does not tell


class Say(NamedTuple):
    """Send this."""

    data: bytes


class Secure(NamedTuple):
    """Put TLS on: nothing may have come behind the last reply. context: an ssl.SSLContext."""

    context: Any
    server_name: str


class Compress(NamedTuple):
    """Put the codec on; what has come behind the last reply is encoded already."""

    codec: Codec


Step: TypeAlias = Say | Secure | Compress


class Said(enum.Enum):
    """What a response or a harmless error is."""

    HEARTBEAT = 1     # to be answered by NOP
    CLOSING = 2       # nsqd waits to be closed
    LATE = 3          # a FIN, REQ or TOUCH came too late; noted in failed_ids
    ANSWER = 4        # to a command


class Core:
    """features: nsqd's answer to IDENTIFY; identity: that to AUTH. failed_ids: messages whose FIN, REQ or TOUCH came
    too late: they come again. inflow: what has come and was not taken yet."""

    def __init__(self, address: str, options: Options):
        self.address = address
        self.options = options
        self.timeout = options.timeout
        self.max_msg_size = options.max_msg_size
        self.max_body_size = options.max_body_size
        self.inflow = Inflow(options.max_frame_bytes, options.tick_ns)
        self.failed_ids: list[bytes] = []
        self.features: dict[str, Any] = {}
        self.identity: dict[str, Any] = {}
        self.subscribed = False
        # Whether an answer to a message may be lost with its connection, as one that comes too late may be: then the
        # message comes again, and whoever owns this connection makes another.
        self.forgiving = False
        self._held: dict[bytes, None] = {}      # ids of messages that the application has not answered

    # ------------------------------------------------------------------ beginning

    def greeting(self) -> Generator[Step, bytes, None]:
        """IDENTIFY, TLS, compression, AUTH: after each step the next reply is to be sent in. Raises ConnectError,
        Refused."""
        body = json.dumps(self.options.identify()).encode()
        answer = yield Say(b"  V2IDENTIFY\n" + struct.pack(">i", len(body)) + body)
        self.features = self._json(answer, "IDENTIFY")
        for name in ("tls", "deflate", "snappy"):
            if getattr(self.options, name) and not self.features.get("tls_v1" if name == "tls" else name):
                raise ConnectError(f"{self.address}: nsqd does not offer {name}")
        if self.options.tls:
            name = "localhost" if is_path(self.address) else split_address(self.address)[0]
            self.expect_ok((yield Secure(tls_context(self.options.tls), name)))
        codec = self._agreed_codec()
        if codec is not None:
            self.expect_ok((yield Compress(codec)))
        if self.features.get("auth_required"):
            secret = self.options.auth_secret
            if not secret:
                raise AuthError(self.address, "E_AUTH_REQUIRED nsqd asks for AUTH, and there is no auth_secret")
            answer = yield Say(b"AUTH\n" + struct.pack(">i", len(secret)) + secret)
            self.identity = self._json(answer, "AUTH")

    def _json(self, answer: bytes, command: str) -> dict[str, Any]:
        try:
            found = json.loads(answer)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ConnectError(f"{self.address}: answers {command} with {answer[:60]!r}: no nsqd")
        return found

    def _agreed_codec(self) -> Codec | None:
        """Imported where it is used: it brings a library along."""
        if self.features.get("deflate"):
            from nsqc.wire.deflate import Deflate

            return Deflate(self.options.deflate or 6)
        if self.features.get("snappy"):
            from nsqc.wire.snappy import Snappy

            return Snappy()
        return None

    def frame_size(self, head: bytes) -> int:
        """Bytes that follow the first 8 of a reply within the greeting. Raises ConnectError."""
        size = int.from_bytes(head[:4], "big", signed=True)
        if not 4 <= size <= FRAME_ROOM:
            raise ConnectError(f"{self.address}: answers with {head!r}: no nsqd")
        return size - 4

    # ------------------------------------------------------------------ what nsqd says

    def understand(self, kind: int, data: bytes) -> Said:
        """What a frame that is no message means. Raises Refused for errors that end the connection."""
        if kind == ERROR:
            text = data.decode(errors="replace")
            if not text.startswith(LATE):
                raise refusal(self.address, text)
            self.failed_ids += [word.encode() for word in text.split() if len(word) == 16]
            return Said.LATE
        if data == HEARTBEAT:
            return Said.HEARTBEAT
        return Said.CLOSING if data == CLOSE_WAIT else Said.ANSWER

    def expect_ok(self, data: bytes) -> None:
        """Raises ConnectError for any other answer."""
        if data != OK:
            raise ConnectError(f"{self.address}: answers {data[:60]!r} where OK was due")

    @property
    def max_ready(self) -> int:
        """The largest RDY that this nsqd allows."""
        told = self.features.get("max_rdy_count")
        return told if isinstance(told, int) and told > 0 else DEFAULT_MAX_READY

    # ------------------------------------------------------------------ commands

    def sub(self, topic: str, channel: str) -> bytes:
        """SUB. Raises BadName."""
        return b"SUB %b %b\n" % (topic_name(topic), channel_name(channel))

    def rdy(self, count: int) -> bytes:
        """RDY, of no more than nsqd allows."""
        return b"RDY %d\n" % min(count, self.max_ready)

    # ------------------------------------------------------------------ messages

    def hold(self, ids: Iterable[bytes]) -> None:
        """The application has these messages and is to answer them."""
        self._held.update(dict.fromkeys(ids))

    def forget(self, ids: Ids) -> None:
        """These are answered, 16 bytes each."""
        if self._held:
            ids = bytes(ids)
            for at in range(0, len(ids), 16):
                self._held.pop(ids[at:at + 16], None)

    def post(self, data: bytes) -> None:
        """Sends it as soon as that can be. Raises ConnectError."""
        raise NotImplementedError

    def finish_ids(self, ids: Ids) -> None:
        """FIN for ids, 16 bytes each, of any number, in one write. Raises ConnectError."""
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
            if not self.forgiving:
                raise

    def hand_back(self) -> bytes:
        """REQs of everything that has come and was not answered; it is forgotten then."""
        ids = b"".join(self._held) + bytes(self.inflow.columns()[5])
        self._held.clear()
        return encode.requeue(ids) if ids else b""
