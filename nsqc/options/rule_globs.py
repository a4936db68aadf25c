"""Finds the tables of rules that never take effect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from nsqc.options.declared import RuleTable

SET = re.compile(r"\[!?\]?[^\]]*\]")
# Globs, with ? instead of sets, that can fit a name; and the reason why others cannot.
FITTING = {"topics": re.compile(r"[A-Za-z0-9._#*?-]+"), "channels": re.compile(r"(?=.*[/*?])[A-Za-z0-9._#*?/-]+")}
UNFIT = {"topics": "it fits no valid topic name", "channels": "it fits no TOPIC/CHANNEL with valid names"}


def ineffective(tables: tuple[RuleTable, ...]) -> Iterator[tuple[RuleTable, str]]:
    """Tables that never take effect, and why."""
    for at, table in enumerate(tables):
        glob = SET.sub("?", table.glob)
        if not FITTING[table.of].fullmatch(glob):
            yield table, UNFIT[table.of]
        elif table.of == "topics" and "#" in glob:
            yield table, "it fits ephemeral topics only, which are always kept in memory"
        elif hides := next((earlier for earlier in tables[:at] if covers(earlier.glob, table.glob)), None):
            yield table, f"{hides.title}, which comes first, fits all of its {table.of}"


def covers(glob: str, other: str) -> bool:
    """Whether a glob certainly fits every name that the other one fits."""
    if "?" in glob or "[" in glob:
        return glob == other
    # Only a star here can match a wildcard of the other one; a character in a set might match a set.
    return fnmatchcase(SET.sub("\0", other), glob)
