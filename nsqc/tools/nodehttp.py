"""The HTTP APIs of nsqd and nsqlookupd, for tools: blocking calls with a time-out, over TCP, TLS or a unix socket."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from nsqc.client.address import is_path, split_address
from nsqc.tools.errors import EXIT_FAILED, NoNode, ToolError
from nsqc.wire.outside import JSONError, decode

ACCEPT = {"Accept": "application/vnd.nsq; version=1.0", "User-Agent": "nsqc"}
MOST_BYTES = 1 << 30        # of an answer: what is larger is not an answer


class Unreachable(NoNode):
    """This node does not answer, or not in HTTP; another may."""


class BadStatus(ToolError):
    """The node refuses. status: of HTTP; message: the node's word for it, such as TOPIC_NOT_FOUND."""

    def __init__(self, address: str, status: int, message: str):
        super().__init__(f"{address}: {status} {message}".rstrip(), EXIT_FAILED)
        self.status, self.message = status, message


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Opens the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class NodeHttp:
    """One node. address: HOST:PORT or the path of a unix socket; timeout in seconds; tls: HTTPS. Connections are kept
    between calls; not thread-safe. Raises BadAddress."""

    def __init__(self, address: str, timeout: float, tls: ssl.SSLContext | None = None):
        self.address = address
        self._connection: http.client.HTTPConnection
        if is_path(address):
            self._connection = UnixConnection(address, timeout)
        else:
            host, port = split_address(address)
            self._connection = (http.client.HTTPSConnection(host, port, timeout=timeout, context=tls) if tls is not None
                                else http.client.HTTPConnection(host, port, timeout=timeout))

    def close(self) -> None:
        """Closes the connection; the next call opens it again."""
        self._connection.close()

    # Any: JSON
    def get(self, path: str, arguments: Mapping[str, object] | None = None) -> Any:
        """The JSON answer of a GET. Raises Unreachable, BadStatus."""
        return self.json("GET", path, arguments)

    # Any: JSON
    def json(self, method: str, path: str, arguments: Mapping[str, object] | None = None, body: bytes = b"") -> Any:
        """The JSON answer of a call; None if it has no body. Raises Unreachable, BadStatus."""
        answer = self.call(method, path, arguments, body)
        if not answer:
            return None
        try:
            value = decode(answer)
        except JSONError:
            raise Unreachable(f"{self.address}: {path} answers {answer[:40]!r}: not JSON") from None
        # An nsqd before 1.0 wraps its answers in "data".
        wrapped = isinstance(value, dict) and value.keys() == {"status_code", "status_txt", "data"}
        return value["data"] if wrapped else value

    def post(self, path: str, arguments: Mapping[str, object] | None = None, body: bytes = b"") -> bytes:
        """The body of the answer to a POST. Raises Unreachable, BadStatus."""
        return self.call("POST", path, arguments, body)

    def call(self, method: str, path: str, arguments: Mapping[str, object] | None = None, body: bytes = b"") -> bytes:
        """The body of an answer with status 200. Raises Unreachable, BadStatus."""
        target = path + (f"?{urlencode(arguments, quote_via=quote)}" if arguments else "")
        try:
            status, answer = self._exchange(method, target, body)
        except TimeoutError:
            self.close()
            raise Unreachable(f"{self.address}: no answer in time") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            reason = "not an HTTP answer" if not isinstance(error, OSError) else error.strerror or str(error)
            raise Unreachable(f"{self.address}: {reason or type(error).__name__}") from None
        if status != 200:
            raise BadStatus(self.address, status, refusal(answer))
        return answer

    def _exchange(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        fresh = self._connection.sock is None
        try:
            self._connection.request(method, target, body or None, ACCEPT)
            answer = self._connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self._connection.close()
            # The node has closed a connection that was kept: nothing was answered, and only reads are safe to repeat.
            if fresh or method != "GET":
                raise
            self._connection.request(method, target, body or None, ACCEPT)
            answer = self._connection.getresponse()
        data = answer.read(MOST_BYTES)
        if not answer.isclosed() and answer.read(1):
            raise ValueError("the answer is too large")
        return answer.status, data


def refusal(answer: bytes) -> str:
    """What a node says in an error: {"message": ...}, or the text itself."""
    try:
        value = decode(answer)
    except JSONError:
        value = None
    message = value.get("message") if isinstance(value, dict) else value
    # Of another value only the text is shown: str() of a nested one may run out of stack.
    return message if isinstance(message, str) else answer[:200].decode(errors="replace").strip()
