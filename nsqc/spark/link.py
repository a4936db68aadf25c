"""One V2 connection to an nsqd, blocking when it publishes, never blocking when it consumes. Knows no Spark."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from nsqc.spark.inflow import BadStream, Inflow, finish, requeue
from nsqc.version import __version__

log = logging.getLogger("nsqc.spark")

RESPONSE, ERROR = 0, 1
HEARTBEAT, OK, CLOSE_WAIT = b"_heartbeat_", b"OK", b"CLOSE_WAIT"
HARMLESS = ("E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED")
HEARTBEAT_MS = 30_000
FRAME_ROOM = 1 << 16        # above the largest message
PULL_BYTES = 1 << 20        # read of one connection before the others have their turn
CLOSE_SECONDS = 2.0


class LinkError(OSError):
    """The connection could not be made or has ended; another try, or another nsqd, may do."""


class Refused(Exception):
    """nsqd answered with an error; code is its first word, such as E_BAD_TOPIC."""

    def __init__(self, address: str, text: str):
        super().__init__(f"{address}: {text}")
        self.code = text.split(" ", 1)[0]


class Link:
    """Connected and identified. timeout: seconds for any answer. Raises LinkError, Refused."""

    def __init__(self, address: str, timeout: float, max_msg_size: int = 1 << 20):
        self.address = address
        self.timeout = timeout
        self.inflow = Inflow(max_msg_size + FRAME_ROOM)
        self.failed_ids: list[bytes] = []       # of messages that could not be finished: they come again
        self._sent = b""                        # what the socket has not taken yet
        self._owed: deque[int] = deque()        # OKs awaited for each thing submitted
        host, _, port = address.rpartition(":")
        try:
            self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise LinkError(f"{address}: {error.strerror or error}") from None
        try:
            self._identify()
        except BaseException:
            self.socket.close()
            raise

    def _identify(self) -> None:
        about = {"client_id": socket.gethostname().split(".")[0], "hostname": socket.gethostname(),
                 "user_agent": f"nsqc-spark/{__version__}", "feature_negotiation": True,
                 "heartbeat_interval": HEARTBEAT_MS}
        body = json.dumps(about).encode()
        self.send(b"  V2IDENTIFY\n" + struct.pack(">i", len(body)) + body)
        answer = self.reply()
        try:
            self.features = json.loads(answer)
        except ValueError:
            raise LinkError(f"{self.address}: answers IDENTIFY with {answer[:60]!r}: no nsqd") from None
        if self.features.get("auth_required"):
            raise Refused(self.address, "E_AUTH_REQUIRED this nsqd asks for AUTH, which the Spark sources do not do")

    @property
    def max_ready(self) -> int:
        """The largest RDY that this nsqd allows."""
        return int(self.features.get("max_rdy_count") or 2500)

    # ------------------------------------------------------------------ blocking

    def send(self, data: Any) -> None:
        """Everything, at once. Raises LinkError."""
        try:
            self.socket.settimeout(self.timeout)
            self.socket.sendall(data)
        except OSError as error:
            raise self._ended(error) from None

    def reply(self) -> bytes:
        """The next response; heartbeats are answered. Raises Refused for an error frame, LinkError."""
        deadline = time.monotonic() + self.timeout
        while True:
            while self.inflow.replies:
                kind, data = self.inflow.replies.pop(0)
                if kind == ERROR:
                    raise Refused(self.address, data.decode(errors="replace"))
                if data != HEARTBEAT:
                    return data
                self.send(b"NOP\n")
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            self._receive()

    def _receive(self) -> int:
        try:
            count = self.socket.recv_into(self.inflow)
            self.inflow.fed(count)
        except BlockingIOError:
            return 0
        except (OSError, BadStream) as error:
            raise self._ended(error) from None
        if not count:
            raise LinkError(f"{self.address}: closed by nsqd")
        return count

    def _ended(self, error: Exception) -> LinkError:
        text = "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
        return LinkError(f"{self.address}: {text}")

    def submit(self, commands: Any, answers: int = 1) -> None:
        """Sends commands that will be answered with so many OKs. Raises LinkError."""
        self.send(commands)
        self._owed.append(answers)

    def drain(self, outstanding: int) -> int:
        """Waits until at most so many submissions are not answered; how many were answered now.
        Raises Refused, LinkError."""
        done = 0
        while len(self._owed) > outstanding:
            data = self.reply()
            if data != OK:
                raise LinkError(f"{self.address}: answers {data[:60]!r}")
            self._owed[0] -= 1
            if not self._owed[0]:
                self._owed.popleft()
                done += 1
        return done

    def subscribe(self, topic: str, channel: str) -> None:
        """From here on the connection consumes. Raises Refused, LinkError."""
        self.send(f"SUB {topic} {channel}\n".encode())
        if self.reply() != OK:
            raise LinkError(f"{self.address}: SUB was not answered with OK")

    # ------------------------------------------------------------------ not blocking

    def fileno(self) -> int:
        """For a selector."""
        return self.socket.fileno()

    def post(self, data: bytes) -> None:
        """Sends as much as the socket takes; flush() sends the rest. Raises LinkError."""
        self._sent += data
        self.flush()

    def flush(self) -> bool:
        """Whether everything that was posted is gone. Raises LinkError."""
        try:
            self.socket.settimeout(0)
            while self._sent:
                self._sent = self._sent[self.socket.send(self._sent):]
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._ended(error) from None
        return True

    def pull(self) -> int:
        """Takes what nsqd has sent: new messages. Raises LinkError, Refused for an error that ends the connection."""
        rows, taken = self.inflow.rows, 0
        self.socket.settimeout(0)
        while taken < PULL_BYTES:
            count = self._receive()
            if not count:
                break
            taken += count
        self._answer()
        return self.inflow.rows - rows

    def _answer(self) -> bool:
        """Deals with what is no message; whether nsqd waits to be closed."""
        waits = False
        for kind, data in self.inflow.replies:
            text = data.decode(errors="replace")
            if kind == ERROR and text.startswith(HARMLESS):
                self.failed_ids += [word.encode() for word in text.split() if len(word) == 16]
            elif kind == ERROR:
                self.inflow.replies.clear()
                raise Refused(self.address, text)
            elif data == HEARTBEAT:
                self.post(b"NOP\n")
            waits |= data == CLOSE_WAIT
        self.inflow.replies.clear()
        return waits

    def ready(self, count: int) -> None:
        """RDY. Raises LinkError."""
        self.post(b"RDY %d\n" % count)

    def finish(self, ids: Any) -> None:
        """FIN for all ids, 16 bytes each. Raises LinkError."""
        self.post(finish(ids))

    def close(self) -> None:
        """Closes at once."""
        self.socket.close()

    def leave(self) -> None:
        """Hands all messages that were collected back to nsqd, and those that are still on their way; then closes."""
        try:
            self.ready(0)
            self.post(b"CLS\n")
            deadline = time.monotonic() + CLOSE_SECONDS
            waits = False
            while not waits and time.monotonic() < deadline:
                self._hand_back()
                self.socket.settimeout(0.1)
                try:
                    self._receive()
                except LinkError as error:
                    if "no answer in time" not in str(error):
                        raise
                waits = self._answer()
            self._hand_back()
            self.socket.settimeout(CLOSE_SECONDS)
            self.socket.sendall(self._sent)
            self.socket.shutdown(socket.SHUT_WR)
            while self.socket.recv(1 << 16):    # until nsqd has read everything and closes
                pass
        except (OSError, Refused) as error:
            log.debug("%s: on leaving: %s", self.address, error)
        finally:
            self.socket.close()

    def _hand_back(self) -> None:
        if self.inflow.rows:
            self.post(requeue(self.inflow.columns()[5]))
        self.flush()


# ---------------------------------------------------------------------- which nsqd there are

class LookupFailed(OSError):
    """No nsqlookupd answered; the text names the last cause."""


def lookup(path: str, nsqlookupd: Iterable[str], timeout: float) -> list[str]:
    """The nsqd (HOST:PORT of TCP) that one of the nsqlookupd names at /lookup?topic=T or /nodes, without doubles.
    Raises LookupFailed where none of them answers."""
    found: dict[str, None] = {}
    answered, cause = False, ""
    for address in nsqlookupd:
        try:
            for producer in ask(address, path, timeout):
                found[f"{producer['broadcast_address']}:{producer['tcp_port']}"] = None
            answered = True
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            cause = f"nsqlookupd {address}: {error}"
            log.warning("%s", cause)
    if not answered:
        raise LookupFailed(cause)
    return list(found)


def ask(address: str, path: str, timeout: float) -> list[dict]:
    """The producers that one nsqlookupd knows; none where it does not know the topic."""
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout)
    try:
        connection.request("GET", path, headers={"Accept": "application/vnd.nsq; version=1.0"})
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status == 404:
        return []
    if answer.status != 200:
        raise ValueError(f"status {answer.status}")
    said = json.loads(body)
    return (said.get("data") or said)["producers"]


def producers_of(topic: str, nsqlookupd: Iterable[str], timeout: float) -> list[str]:
    """The nsqd that have a topic. Raises LookupFailed."""
    return lookup(f"/lookup?topic={quote(topic, safe='')}", nsqlookupd, timeout)


def all_nodes(nsqlookupd: Iterable[str], timeout: float) -> list[str]:
    """All nsqd. Raises LookupFailed."""
    return lookup("/nodes", nsqlookupd, timeout)
