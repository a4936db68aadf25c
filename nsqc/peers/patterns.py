"""Regular expressions of auth servers, with the semantics of Go's regexp package.

RE2 has Go's syntax, and its time is linear in the name for any expression, which matters because clients choose names.
It accepts slightly more than Go does; refuse_what_go_refuses() closes that gap.
"""

from __future__ import annotations

import re
from functools import lru_cache

import re2

CACHED = 1024  # compiled expressions kept
# Bytes for the program and the states of one expression: programs have up to about 22,000 instructions.
MAX_MEMORY = 256 * 1024
MAX_DEPTH = 1000  # nested groups, as in Go
# Tokenizes an expression that RE2 has accepted: everything in which a parenthesis is not a group comes first.
TOKEN = re.compile(r"""
    \\Q.*?(?:\\E|\Z)                                    # quoted text
  | \\(?P<escape>.)
  | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]             # a character class
  | (?P<open>\()(?:\?P?<(?P<name>[^>]*)>)?
  | (?P<close>\))
    """, re.VERBOSE | re.DOTALL)


class PatternError(ValueError):
    """An expression that Go refuses too, or that is too large."""


class Pattern:
    """A compiled expression. anchored: it must match a whole name, not just a part."""

    __slots__ = ("_find",)

    def __init__(self, text: str, anchored: bool = False):
        """Raises PatternError."""
        options = re2.Options()
        options.log_errors = False  # RE2 would write to stderr
        options.max_mem = MAX_MEMORY
        if is_latin(text):
            # Names are ASCII: as single bytes, a large set of characters takes one instruction instead of hundreds.
            options.encoding = re2.Options.Encoding.LATIN1
        try:
            regexp = re2.compile(text.encode(), options)
        except re2.error as error:
            raise PatternError(error.args[0].decode("utf-8", "replace")) from None
        refuse_what_go_refuses(text)
        self._find = regexp.fullmatch if anchored else regexp.search

    def matches(self, name: str) -> bool:
        """Whether the expression matches a name."""
        return self._find(name.encode()) is not None


def is_latin(text: str) -> bool:
    """Whether an expression names no character beyond Latin-1. In ASCII only \\x{...} can do so."""
    return text.isascii() and r"\x{" not in text


def refuse_what_go_refuses(text: str) -> None:
    """Raises PatternError for expressions that RE2 accepts and Go does not."""
    names: set[str] = set()
    depth = 0
    for token in TOKEN.finditer(text):
        if token["escape"] == "C":
            raise PatternError(r"invalid escape sequence: \C")
        depth += bool(token["open"]) - bool(token["close"])
        if depth >= MAX_DEPTH:
            raise PatternError("expression nests too deeply")
        if name := token["name"]:
            if not name.isascii():
                raise PatternError(f"invalid named capture: {name}")
            if name in names:
                raise PatternError(f"duplicate group name: {name}")
            names.add(name)


@lru_cache(maxsize=CACHED)
def compiled(text: str, anchored: bool) -> Pattern:
    """A Pattern; the most recently used ones are cached. Raises PatternError."""
    return Pattern(text, anchored)
