"""Determines which names the globs of tables can match, to warn about tables that never take effect."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase

from nsqc.options.declared import RuleTable
from nsqc.wire.names import EPHEMERAL

MAX_NAME = 64  # characters of a topic name, #ephemeral included
NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
SPECIAL = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)  # a set of characters, or one character

Fits = Callable[[str], bool]


def ineffective(tables: tuple[RuleTable, ...]) -> Iterator[tuple[RuleTable, str]]:
    """Tables that never take effect, and why."""
    for at, table in enumerate(tables):
        if table.of == "channels":
            if not can_match_channel(table.glob):
                yield table, "it fits no TOPIC/CHANNEL with valid names"
            elif hides := next((earlier for earlier in tables[:at] if covers(earlier.glob, table.glob)), None):
                yield table, f"{hides.title}, which comes first, fits all of its channels"
        elif not can_match(table.glob):
            if can_match(table.glob, EPHEMERAL):
                yield table, "it fits ephemeral topics only, which are always kept in memory"
            else:
                yield table, "it fits no valid topic name"
        elif hides := next((earlier for earlier in tables[:at] if covers(earlier.glob, table.glob)), None):
            yield table, f"{hides.title}, which comes first, fits all of its topics"


def can_match(glob: str, ending: str = "") -> bool:
    """Whether a glob fits a valid name: 1 to 64 name characters, followed by the ending."""
    tokens = SPECIAL.findall(glob)
    places = {0: 0}  # reachable places in the glob, by the fewest characters
    for at, token in enumerate(tokens):
        if at in places and token == "*":
            places[at + 1] = places[at]
        elif at in places and any(fnmatchcase(character, token) for character in NAME_CHARACTERS):
            places[at + 1] = places[at] + 1
        # Or the ending begins here, after at least one character.
        if (ending and at in places and places[at] + len(ending) <= MAX_NAME
                and (places[at] > 0 or "*" in tokens[:at + 1]) and fnmatchcase(ending, "".join(tokens[at:]))):
            return True
    return not ending and len(tokens) in places and places[len(tokens)] <= MAX_NAME and bool(tokens)


def can_match_channel(glob: str) -> bool:
    """Whether a glob fits a topic's name, a slash and a channel's name: it is split at each place where the slash may
    be, a star serving both sides."""
    tokens = SPECIAL.findall(glob)
    for at, token in enumerate(tokens):
        if not fnmatchcase("/", token):
            continue
        star = token if token == "*" else ""
        if all(can_match(part) or can_match(part, EPHEMERAL)
               for part in ("".join(tokens[:at]) + star, star + "".join(tokens[at + 1:]))):
            return True
    return False


def covers(glob: str, other: str) -> bool:
    """Whether a glob certainly fits every name that the other one fits."""
    if "?" in glob or "[" in glob:
        return glob == other
    # Only a star here can match a wildcard of the other one; a character in a set might match a set.
    return fnmatchcase(re.sub(r"\[!?\]?[^\]]*\]", "\0", other), glob)
