"""Decodes untrusted JSON: from peers, files, request bodies. Every failure is a JSONError.

Parsers fail in many ways: malformed text, invalid UTF-8, a value of another type, nesting that exhausts the stack.
Callers handle one exception. tests/wire/test_outside.py checks that no other module of the package decodes JSON.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

# ====================================================================== outside

LONGEST_REASON = 200  # characters; a parser may quote the text
# Errors of msgspec and of invalid UTF-8 are ValueErrors.
FAILURES = (ValueError, RecursionError, OverflowError)

T = TypeVar("T")


class JSONError(ValueError):
    """The JSON cannot be used. Its text is the reason: one short line of printable characters."""


class Decoder(Generic[T]):
    """Decodes JSON to one type that msgspec supports. Create it at import time: two threads that are the first to
    use a type crash msgspec 0.22."""

    __slots__ = ("_decode",)

    def __init__(self, kind: type[T]) -> None:
        import msgspec  # here: decode() does not need it, and tools that use only that start faster

        self._decode = msgspec.json.Decoder(kind).decode

    def decode(self, text: bytes | str) -> T:
        """The value. Raises JSONError."""
        try:
            return self._decode(text)
        except FAILURES as error:
            raise failure(error) from None


# OpenSSL's codes of a certificate that is not accepted.
UNKNOWN_AUTHORITY, OTHER_NAME, TOO_WEAK = (2, 18, 19, 20, 21), (62, 64), (66, 67, 68)


def distrust(code: int, message: str, remedy: str) -> str:
    """Why the certificate of a server is not accepted, and the remedy. code, message: OpenSSL's; remedy: for one whose
    authority is not known."""
    if code in OTHER_NAME:
        message = f"it is for another name: {message}"
    elif code in TOO_WEAK:
        message += ": use SHA-256 and keys of at least 2048 bits, also for its authority"
    elif code in UNKNOWN_AUTHORITY:
        message += remedy and f"; {remedy}"
    return f"certificate verify failed: {message}"


# Any: JSON
Json: TypeAlias = Any


def decode(text: bytes | str, *, strict: bool = True,
           object_pairs_hook: Callable[[list[tuple[str, Json]]], object] | None = None) -> Json:
    """Any JSON value, by the standard library, with its arguments. The daemon uses Decoder instead and does not import
    the library unless a file is damaged. Raises JSONError."""
    import json

    try:
        return json.loads(text, strict=strict, object_pairs_hook=object_pairs_hook)
    except FAILURES as error:
        raise failure(error) from None


def failure(error: Exception) -> JSONError:
    """Converts a parser's exception to a JSONError."""
    if isinstance(error, RecursionError):
        return JSONError("nested too deeply")
    text = str(error)
    shown = "".join(char if char.isprintable() else "?" for char in text[:LONGEST_REASON])
    return JSONError(shown + "..." if len(text) > LONGEST_REASON else shown)


# ====================================================================== answers
# Identifies the service at an address by its answer: with a wrong port, clients get answers in other protocols.

class Service(enum.Enum):
    """A service, as errors call it."""

    NSQD_TCP = "nsqd's TCP port"
    NSQD_HTTP = "nsqd's HTTP port"
    LOOKUPD_TCP = "nsqlookupd's TCP port"
    LOOKUPD_HTTP = "nsqlookupd's HTTP port"
    HTTP = "an HTTP port"                   # unknown until `GET /info`
    FOREIGN_HTTP = "another program's HTTP port"
    TLS = "a TLS port"


DEFAULT_PORTS = {Service.NSQD_TCP: 4150, Service.NSQD_HTTP: 4151, Service.LOOKUPD_TCP: 4160, Service.LOOKUPD_HTTP: 4161}
# Every service answers this; the TCP ports of nsqd and nsqlookupd with errors, in different frames.
PROBE = (b"GET /info HTTP/1.1\r\nHost: localhost\r\nAccept: application/vnd.nsq; version=1.0\r\n"
         b"Connection: close\r\n\r\n")
MOST_BYTES = 64 * 1024      # of an answer to it
# Sent by Go's server and nginx to a client without TLS.
WANTS_TLS = (b"HTTP request to an HTTPS server", b"plain HTTP request was sent to HTTPS port")


class Answer(NamedTuple):
    """A service. tcp_port: from /info, for nsqd's HTTP port; 0: unknown."""

    service: Service
    tcp_port: int = 0


def recognized(data: bytes) -> Answer | None:
    """The sender of a connection's first bytes; None: unknown."""
    if data.startswith(b"HTTP/"):
        return _of_http(data)
    if data[:1] in (b"\x15", b"\x16") and data[1:2] == b"\x03":
        return Answer(Service.TLS)
    # A frame of nsqd has a type after its size; a reply of nsqlookupd has none.
    if data[8:10] == b"E_" and data[4:8] == b"\0\0\0\1":
        return Answer(Service.NSQD_TCP)
    return Answer(Service.LOOKUPD_TCP) if data[4:6] == b"E_" else None


def _of_http(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    if any(text in body for text in WANTS_TLS):
        return Answer(Service.TLS)
    if head[:12].split(b" ")[-1] != b"200":
        return Answer(Service.NSQD_HTTP if b"TLS_REQUIRED" in body else Service.HTTP)
    return of_info(body[body.find(b"{"):body.rfind(b"}") + 1])


def probed(data: bytes) -> Answer | None:
    """The sender of an answer to PROBE. Unlike recognized(), it never returns HTTP."""
    found = recognized(data)
    return Answer(Service.FOREIGN_HTTP) if found is not None and found.service is Service.HTTP else found


def of_info(body: bytes) -> Answer:
    """The sender of an answer to `GET /info`."""
    try:
        info = decode(body)
    except JSONError:
        return Answer(Service.FOREIGN_HTTP)
    if isinstance(info, dict) and isinstance(info.get("data"), dict):
        info = info["data"]     # before 1.0
    if not isinstance(info, dict) or not isinstance(info.get("version"), str):
        return Answer(Service.FOREIGN_HTTP)
    port = info.get("tcp_port")
    return Answer(Service.NSQD_HTTP, port) if isinstance(port, int) else Answer(Service.LOOKUPD_HTTP)


def wrong_port(found: Answer, wanted: Service) -> str:
    """The error text when one service was found but another is needed; names the right port."""
    if found.service is Service.NSQD_HTTP and wanted is Service.NSQD_TCP and found.tcp_port > 0:
        return f"this is {found.service.value}; its TCP port is {found.tcp_port}"
    known = " (nsqd's is 4151, nsqlookupd's 4161 by default)" if found.service is Service.HTTP else ""
    return f"this is {found.service.value}{known}, not {wanted.value} ({DEFAULT_PORTS[wanted]} by default)"
