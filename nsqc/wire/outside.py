"""Decodes untrusted JSON: from peers, files, request bodies. Every failure is a JSONError.

Parsers fail in many ways: malformed text, invalid UTF-8, a value of another type, nesting that exhausts the stack.
Callers handle one exception. tests/wire/test_outside.py checks that no other module of the package decodes JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

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
