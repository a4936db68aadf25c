"""Filters messages by a field of their JSON, and selects fields."""

from __future__ import annotations

import json
from typing import NamedTuple

import msgspec

from nsqc.wire.outside import Decoder, JSONError, decode

DECODER = Decoder(dict[str, msgspec.Raw])


class Filter(NamedTuple):
    """field: a required key; value: its required value, unless empty: a string equals the text, a number its value.
    kept: the fields to pass on; empty: all."""

    field: str
    value: str
    kept: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.field or self.kept)

    def apply(self, body: bytes) -> bytes | None:
        """The body to pass on; None: nothing, also if it is not a JSON object."""
        try:
            found = DECODER.decode(body)
        except JSONError:
            return None
        if self.field:
            if self.field not in found:
                return None
            if self.value and not matches(found[self.field], self.value):
                return None
        if not self.kept:
            return body
        # Values are copied verbatim, so no number changes.
        parts = [json.dumps(key, ensure_ascii=False).encode(errors="surrogatepass") + b":" + bytes(found[key])
                 for key in sorted(self.kept & found.keys())]
        return b"{" + b",".join(parts) + b"}"


def matches(raw: msgspec.Raw, wanted: str) -> bool:
    """Whether a JSON value is a string with this text, or a number of this value."""
    try:
        value: object = decode(bytes(raw))
    except JSONError:
        return False
    if isinstance(value, str):
        return value == wanted
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return float(value) == float(wanted)
    except (ValueError, OverflowError):
        return False
