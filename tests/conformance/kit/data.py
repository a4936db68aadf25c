"""Bytes as scenario files show them, and how values compare."""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
from collections.abc import Callable
from typing import Any

from kit.base import BadScenario


def shown(data: bytes) -> Any:
    """Bytes as a scenario file writes them: text, else hex, else a digest."""
    with contextlib.suppress(UnicodeDecodeError):
        text = data.decode()
        if len(text) <= 400 and all(c.isprintable() or c in "\n\r\t" for c in text):
            return text
    if len(data) <= 64:
        return {"hex": data.hex()}
    return {"length": len(data), "sha256": hashlib.sha256(data).hexdigest()[:16]}


def payload(part: Any, expand: Callable[[str], str]) -> bytes:
    """The bytes that one part of a step stands for."""
    if isinstance(part, str):
        return expand(part).encode()
    if isinstance(part, list):
        return b"".join(payload(p, expand) for p in part)
    match part:
        case {"hex": digits}:
            return bytes.fromhex(digits)
        case {"i32": number}:
            return struct.pack(">i", number)
        case {"fill": text, "n": times}:
            return payload(text, expand) * times
        case {"sized": inner}:
            body = payload(inner, expand)
            return struct.pack(">i", len(body)) + body
        case {"json": value}:
            return expand(json.dumps(value)).encode()
    raise BadScenario(f"unknown kind of data: {part!r}")


def same(a: Any, b: Any, key_order: bool = False) -> bool:
    """Equality that keeps 1, 1.0 and true apart."""
    return json.dumps(a, sort_keys=not key_order) == json.dumps(b, sort_keys=not key_order)


def sort_key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def look_up(value: Any, path: str) -> Any:
    """Follow a path such as topics.0.channels.1.depth."""
    for name in path.split("."):
        try:
            value = value[int(name)] if isinstance(value, list) else value[name]
        except (KeyError, IndexError, TypeError, ValueError):
            return "<missing>"
    return value
