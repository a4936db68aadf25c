"""Where the rules send dead letters, and whether these would circle. Channels need not exist: every rule counts that a
channel of a topic may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec

from nsqc.options.channel_keys import DEFAULT, ChannelRule
from nsqc.options.declared import RuleTable
from nsqc.options.limit_keys import LIMIT_FLAGS
from nsqc.options.rule_globs import covers

KEYS = frozenset({"max_attempts", "dead_letter", *LIMIT_FLAGS})     # of rules: they decide whether and where to
REMEDY = "name another dead_letter in one of these rules, or take away its max_attempts or dead-letter"


class Way(NamedTuple):
    """From a topic to the dead-letter topic of its channels that have a rule: a channel's, or a table's."""

    rule: str
    target: bytes


RulesOf = Callable[[bytes], Iterable[tuple[str, ChannelRule]]]      # the rules that channels of a topic may have


def ways_from(topic: bytes, rules: Iterable[tuple[str, ChannelRule]]) -> Iterator[Way]:
    """The ways of dead letters from a topic whose channels may have these rules."""
    for name, rule in rules:
        if rule.moves and (target := rule.dead_topic(topic)):
            yield Way(name, target)


def circle(topic: bytes, first: Way, rules_of: RulesOf) -> str:
    """The ways that lead from a topic, by the first one, back to it, as text; empty: none do."""
    came: dict[bytes, tuple[bytes, Way]] = {first.target: (topic, first)}
    reached = [first.target]
    while reached:
        at = reached.pop()
        for way in ways_from(at, rules_of(at)):
            if way.target not in came:
                came[way.target] = at, way
                reached.append(way.target)
    parts: list[str] = []
    at = topic
    while at in came and (not parts or at != topic):
        at, way = came[at]
        parts.append(f"{way.rule} to {way.target.decode()}")
    return f"dead letters would circle: {', '.join(reversed(parts))}; {REMEDY}" if parts else ""


# ---------------------------------------------------------------------- tables of the config file


def tables_for(tables: Sequence[RuleTable], topic: str) -> Iterator[int | None]:
    """Indexes of the tables that may apply to channels of a topic; None: some channel may have none."""
    for at, table in enumerate(tables):
        if may_fit(table.glob, topic):
            yield at
        if covers(table.glob, f"{topic}/*"):
            return
    yield None


def may_fit(glob: str, topic: str) -> bool:
    """Whether a glob fits a channel of a topic."""
    return any(fnmatchcase(f"{topic}/", glob[:end]) and (end < len(glob) or glob.endswith("*"))
               for end in range(len(glob) + 1))


def circle_in(topics: Sequence[RuleTable], channels: Sequence[RuleTable]) -> tuple[RuleTable, str] | None:
    """A channels table whose dead letters would circle, by the tables alone, and the circle; None: there is none."""
    def rules_of(topic: bytes) -> Iterator[tuple[str, ChannelRule]]:
        name = topic.decode()
        of_topic = next((table for table in topics if fnmatchcase(name, table.glob)), None)
        values = {} if of_topic is None else of_topic.values
        limits = {key: value for key, value in values.items() if key in LIMIT_FLAGS}
        for at in tables_for(channels, name):
            more = {} if at is None else channels[at].values
            title = f"channels of {name}" if at is None else channels[at].title
            yield title, msgspec.structs.replace(DEFAULT, **{**limits, **more})

    # Only a dead_letter can lead back: default names end in .dead, which has no default.
    for table in channels:
        if named := str(table.values.get("dead_letter", "")):
            for way in ways_from(named.encode(), rules_of(named.encode())):
                if text := circle(named.encode(), way, rules_of):
                    return table, text
    return None
