"""Headers of messages, as NSQ has none: a body may begin with lines of text that carry them. Only for publishers that
call with_headers(); docs/client.md has the format."""

from __future__ import annotations

import re
from collections.abc import Mapping

MAGIC = b"NSQ-Headers/1\n"
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def with_headers(body: bytes | bytearray | memoryview, headers: Mapping[str, str]) -> bytes:
    """A body with headers, such as traceparent and content-type, for any publish call. Names: lower-case letters,
    digits, dots, dashes and underscores; values: text without control characters. Raises ValueError, TypeError."""
    lines = []
    for name, value in headers.items():
        if not NAME.fullmatch(name):
            raise ValueError(f"header {name!r}: a name has lower-case letters, digits, dots, dashes and underscores")
        if CONTROL.search(value):
            raise ValueError(f"header {name!r}: its value {value!r} has a control character")
        lines.append(f"{name}: {value}\n".encode())
    return b"".join((MAGIC, *lines, b"\n", bytes(body)))


def parted(body: bytes) -> tuple[dict[str, str], bytes]:
    """The headers, and the body without them. A body that does not follow the format has no headers."""
    if not body.startswith(MAGIC):
        return {}, body
    head, end, rest = body[len(MAGIC) - 1:].partition(b"\n\n")
    headers: dict[str, str] = {}
    for line in head.split(b"\n")[1:]:
        name, colon, value = line.decode(errors="replace").partition(": ")
        if not colon or name in headers:
            return {}, body
        headers[name] = value
    return (headers, rest) if end else ({}, body)
