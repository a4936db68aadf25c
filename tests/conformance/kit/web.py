"""HTTP by hand: status lines, headers and chunks as they are."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from dataclasses import dataclass

from kit.base import Failure
from kit.data import shown
from kit.wire import connect


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes


SHOWN_HEADERS = ("Content-Type", "X-NSQ-Content-Type", "Allow", "Location")


def http_call(target: str, request: str, body: bytes | None = None, *,
              headers: dict[str, str] | None = None, chunked: bool = False,
              context: ssl.SSLContext | None = None, timeout: float = 10) -> Reply:
    method, _, path = request.partition(" ")
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
        pieces = [body[i : i + 1000] for i in range(0, len(body or b""), 1000)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
    elif body is not None:
        lines.append(f"Content-Length: {len(body)}")
    sock = connect(target)
    try:
        sock.settimeout(timeout)
        if context:
            sock = context.wrap_socket(sock, server_hostname="localhost")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b""))
        answer = http.client.HTTPResponse(sock, method=method)
        answer.begin()
        data = answer.read()
        got = {h: answer.headers[h] for h in SHOWN_HEADERS if h in answer.headers}
        return Reply(answer.status, got, data)
    finally:
        sock.close()


def parse_reply(data: bytes, closed: bool) -> tuple[Reply, int] | None:
    """The first HTTP reply in data and how long it is; None while it is not whole."""
    head, blank, rest = data.partition(b"\r\n\r\n")
    if not blank:
        return None
    start, *lines = head.decode("latin-1").split("\r\n")
    words = start.split(" ")
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise Failure("not an HTTP reply", got=shown(data[:60]))
    fields = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
    headers = {h: fields[h.lower()] for h in SHOWN_HEADERS if h.lower() in fields}
    status, size = int(words[1]), len(head) + 4
    if status < 200:
        return Reply(status, headers, b""), size
    if fields.get("transfer-encoding", "").lower() == "chunked":
        whole = unchunked(rest)
    elif "content-length" in fields:
        length = int(fields["content-length"])
        whole = (rest[:length], length) if len(rest) >= length else None
    else:
        whole = (rest, len(rest)) if closed else None
    return (Reply(status, headers, whole[0]), size + whole[1]) if whole else None


def unchunked(data: bytes) -> tuple[bytes, int] | None:
    """A chunked body and how long it was on the wire; None while it is not whole."""
    body, at = bytearray(), 0
    while (end := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:end].split(b";")[0], 16)
        at = end + 2 + size + 2
        if len(data) < at:
            return None
        if size == 0:
            return bytes(body), at
        body += data[end + 2 : at - 2]
    return None
