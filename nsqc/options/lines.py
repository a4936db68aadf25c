"""Finds the line of each setting in a config file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from nsqc.options import toml


def lines_of(text: str) -> Callable[..., int]:
    """line_of(key): the line, from 1, that sets a top-level key; 0: none. line_of(key, glob) and line_of(key, glob, of)
    find the table [key.glob] and a key in it; for other notations, the enclosing key."""
    lines = text.splitlines()

    def find(start: str, first: int = 0) -> int:
        form = re.compile(start)
        for number in range(first, len(lines)):
            # A matching line may be part of a longer value: then the text before it is incomplete.
            if form.match(lines[number]) and is_complete("\n".join(lines[:number])):
                return number + 1
        return 0

    def line_of(key: str, *below: str) -> int:
        if not below:
            return find(rf"\s*\[*\s*{written(key)}\s*[.=\]]")
        header = rf"\s*\[\s*{written(key)}\s*\.\s*{written(below[0])}\s*\]"
        table = find(header)
        if not table:
            return find(rf"\s*{written(key)}\s*\.\s*{written(below[0])}\s*[.=]") or line_of(key)
        if below[1:]:
            at = find(rf"\s*{written(below[1])}\s*[.=]", table)
            following = find(r"\s*\[", table)
            if at and (not following or at < following):
                return at
        return table

    return line_of


def written(key: str) -> str:
    """An expression for a key, with quotes or without."""
    forms = (key, f"'{key}'", json.dumps(key), json.dumps(key, ensure_ascii=False))
    return f"(?:{'|'.join(map(re.escape, forms))})"


def is_complete(text: str) -> bool:
    """Whether the text alone is a TOML file."""
    try:
        toml.parse(text)
    except toml.TomlError:
        return False
    return True
