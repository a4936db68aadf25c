"""Escapes for untrusted text on terminals: control characters, and characters that reorder or hide text."""

from __future__ import annotations

import re

# Controls (DEL, C1), line separators, bidirectional and invisible marks, lone surrogates.
_OBEYED = "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
_ANY = re.compile(f"[\x00-\x1f{_OBEYED}]")
_NOT_LAYOUT = re.compile(f"[\x00-\x08\x0b-\x1f{_OBEYED}]")
_IN_JSON = re.compile(f"[{_OBEYED}]")


def visible(text: str) -> str:
    """Text in one line, with escapes such as \\n, \\x1b and \\u202e."""
    return _ANY.sub(_escape, text)


def visible_lines(text: str) -> str:
    """Like visible(), but keeps newlines and tabs."""
    return _NOT_LAYOUT.sub(_escape, text)


def visible_bytes(data: bytes) -> bytes:
    """visible_lines() for UTF-8; invalid bytes become escapes such as \\xff."""
    return visible_lines(data.decode(errors="backslashreplace")).encode()


def visible_json(text: str) -> str:
    """JSON with such characters escaped. The result stays valid: they occur within strings only, and the encoder has
    already escaped those below U+0020."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
