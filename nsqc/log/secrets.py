"""Passwords in URLs, which nothing shows: no line of the log, no page, no error."""

from __future__ import annotations

import re

MASK = "xxxxx"      # as in Go's url.Redacted
# After the user of a URL, up to the last @ before the next URL: a password may have been written without escapes. A
# port is none.
_IN_URL = re.compile(r"(://[^\s/?#@:\[]*:)(?!\d*(?:[\s/?#]|$))(?:(?!://)\S)*@")
_IN_ADDRESS = re.compile(r"((?:[A-Za-z][\w+.-]*://)?[^\s/?#@:\[]*:)(?!\d*(?:[/?#]|$)).*@", re.DOTALL)
_FLAG = re.compile(r"--?[\w-]+=")


def mask(text: str) -> str:
    """Any text, with xxxxx in place of the password of each URL in it."""
    return _IN_URL.sub(rf"\1{MASK}@", text) if "@" in text and "://" in text else text


def mask_address(text: str) -> str:
    """The value of an option: a URL, or USER:PASSWORD@HOST:PORT."""
    match = _IN_ADDRESS.match(text) if "@" in text else None
    return mask(text) if match is None else f"{match[1]}{MASK}@{text[match.end():]}"


def mask_word(word: str) -> str:
    """A word of a command line: a flag with its value, or a value."""
    flag = _FLAG.match(word)
    start = 0 if flag is None else flag.end()
    return word[:start] + mask_address(word[start:])
