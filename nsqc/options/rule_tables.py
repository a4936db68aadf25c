"""The keys of rules, declared once, and the tables of the config file with rules. Knows no files of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec

from nsqc.options.declared import (
    FLAGS,
    LARGEST,
    RULE_KEYS,
    ChannelTable,
    RuleTable,
    RuleValue,
    TopicTable,
    beyond,
    flag,
)
from nsqc.options.flags import plain, show
from nsqc.options.option import HOUR, Kind, Option, declared_in, from_toml
from nsqc.wire.parser import EPHEMERAL, is_ephemeral, is_valid_name

# ====================================================================== rule globs
# Finds the tables of rules that never take effect.

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


# ====================================================================== limit keys
# The rules for both topics and channels: how long messages may wait, and how many of them. Declared once; see
# nsqc.options.rules.

DELIVERY = "Delivery rules"
FROM_DEFAULTS = "default"


class Limits(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Limits for waiting messages in a topic or a channel. By default, as in nsqd: any number of messages, for any
    time. source: where the rule comes from."""

    message_ttl: Annotated[int, flag(
        Kind.DURATION, DELIVERY, "time after publishing when a message that still waits expires; 0: never",
        least=0)] = 0
    expired: Annotated[str, flag(
        Kind.EXPIRED, DELIVERY,
        "where expired messages go: they are dropped, or moved to the dead-letter topic")] = "drop"
    max_depth: Annotated[int, flag(
        Kind.INT, DELIVERY, "messages that may wait; 0: no limit", least=0, most=LARGEST)] = 0
    max_bytes: Annotated[int, flag(
        Kind.INT, DELIVERY, "bytes of messages that may wait; 0: no limit", least=0, most=LARGEST)] = 0
    overflow: Annotated[str, flag(
        Kind.OVERFLOW, DELIVERY, "what happens at a limit: publishes are refused, the oldest messages are dropped, or "
        "moved to the dead-letter topic")] = "refuse"
    source: str = FROM_DEFAULTS


LIMIT_FLAGS = declared_in(Limits)
DEFAULT_LIMITS = Limits()


# ====================================================================== channel keys
# The delivery rules of channels, declared once: name, type, range, default, help. Config tables, `/channel/rules`,
# `nsqc channel rules`, checks and docs come from here. Durations are nanoseconds.

DEAD = b".dead"         # default suffix of a dead-letter topic's name
DEAD_LETTER = "dead-letter"     # value of `expired` and `overflow` that moves messages there
MAX_NAME = 64           # bytes in a topic's name


class ChannelRule(Limits, frozen=True, gc=False, kw_only=True):
    """How a channel delivers; the defaults are nsqd's behaviour."""

    requeue_delay: Annotated[int, flag(
        Kind.DURATION, DELIVERY, "delay after the first delivery that times out or is requeued with 0; 0: none",
        least=0)] = 0
    requeue_backoff: Annotated[float, flag(
        Kind.FLOAT, DELIVERY, "factor by which the delay grows with each further delivery", least=1, most=1000)] = 1.0
    requeue_max: Annotated[int, flag(
        Kind.DURATION, DELIVERY, "longest such delay", least=1)] = HOUR
    requeue_on_disconnect: Annotated[bool, flag(
        Kind.BOOL, DELIVERY,
        "requeue the messages in flight to a client as soon as its connection is lost, rather than "
        "at their time-out")] = False
    max_attempts: Annotated[int, flag(
        Kind.INT, DELIVERY,
        "deliveries after which a message goes to the dead-letter topic rather than to a consumer; 0: "
        "no limit", least=0, most=65535)] = 0
    dead_letter: Annotated[str, flag(
        Kind.TOPIC, DELIVERY, "the dead-letter topic; empty: TOPIC.dead")] = ""
    max_in_flight: Annotated[int, flag(
        Kind.INT, DELIVERY, "messages in flight to all consumers together; 0: no limit", least=0, most=LARGEST)] = 0
    ordered: Annotated[bool, flag(
        Kind.BOOL, DELIVERY,
        "strict order: one message in flight at once, and no other before it is finished or moved to "
        "the dead-letter topic")] = False
    rate: Annotated[float, flag(
        Kind.FLOAT, DELIVERY, "deliveries a second on this node; 0: no limit", least=0, most=1_000_000_000)] = 0.0
    rate_burst: Annotated[int, flag(
        Kind.INT, DELIVERY, "deliveries at once after a pause; never less than rate allows in 10 ms", least=1,
        most=1_000_000)] = 1

    @property
    def is_off(self) -> bool:
        """Whether the channel delivers like nsqd's."""
        return self is DEFAULT or not self.set_values().keys() - WITHOUT_EFFECT

    @property
    def moves(self) -> bool:
        """Whether the channel may move messages to its dead-letter topic, if it has one."""
        limited = self.max_depth > 0 or self.max_bytes > 0
        return (self.max_attempts > 0 or (self.message_ttl > 0 and self.expired == DEAD_LETTER)
                or (limited and self.overflow == DEAD_LETTER))

    def dead_topic(self, topic: bytes) -> bytes:
        """The dead-letter topic of a topic's channel. Empty: none, since messages would circle."""
        if self.dead_letter:
            name = self.dead_letter.encode()
        else:
            stem = topic.removesuffix(EPHEMERAL.encode())
            if stem.endswith(DEAD):
                return b""
            name = stem[:MAX_NAME - len(DEAD)] + DEAD
        return b"" if name == topic else name

    def set_values(self) -> dict[str, RuleValue]:
        """The values that differ from the defaults, by key."""
        return {key: value for key in CHANNEL_FLAGS if (value := getattr(self, key)) != getattr(DEFAULT, key)}

    def as_json(self) -> dict[str, RuleValue]:
        """The same in JSON's form: durations are text."""
        return {key: json_value(CHANNEL_FLAGS[key].kind, value) for key, value in self.set_values().items()}


CHANNEL_FLAGS = declared_in(ChannelRule) | LIMIT_FLAGS
DEFAULT = ChannelRule()
WITHOUT_EFFECT = {"expired", "overflow"}    # unless other keys are set


def json_value(kind: Kind, value: RuleValue) -> RuleValue:
    """A value of a rule as clients see it: durations are text."""
    given = plain(kind, value)
    return given if isinstance(given, (bool, int, float, str)) else show(kind, value)


# ====================================================================== topic keys
# Keys of topics' rules without an option for the default, declared once: name, type, range, default, help. Durations
# are nanoseconds. All of them are off by default.

PUBLISHING = "Publishing"
MOST_IDS = 1_000_000

DEFAULTS: dict[str, RuleValue] = {"dedupe": 0, "dedupe_ids": MOST_IDS}

TOPIC_FLAGS: dict[str, Option] = {
    "dedupe": flag(
        Kind.DURATION, PUBLISHING,
        "how long the ids of publishes are remembered: a publish whose id is known is not stored again; 0: not at all",
        least=0, most=30 * 24 * HOUR),
    "dedupe_ids": flag(
        Kind.INT, PUBLISHING, "ids that are remembered; beyond that the oldest are forgotten early", least=1,
        most=100_000_000),
}


# ====================================================================== rule scopes
# Topics and channels have rules. Each kind has its keys, its tables in the config file and a file for values set by
# PUT.

class Scope(msgspec.Struct, frozen=True):
    """Topics, or channels."""

    key: str                    # of its tables in the config file, and in its own file
    noun: str
    file: str                   # in the data path: values set by PUT
    call: str                   # that changes a rule
    flags: dict[str, Option]      # the declarations of the keys of a rule
    table: type[RuleTable]

    def can_have(self, name: bytes) -> bool:
        """Whether PUT may set a rule for that name; the rule of an ephemeral one would outlive it."""
        parts = name.split(b"/")
        return (len(parts) == (1 if self is TOPICS else 2)
                and all(is_valid_name(part) and not is_ephemeral(part) for part in parts))


TOPICS = Scope("topics", "topic", "nsqc.rules.json", "PUT /topic/rules",
               {key: FLAGS[name] for key, name in RULE_KEYS.items()}
               | {key: declared for key, declared in LIMIT_FLAGS.items() if key not in RULE_KEYS} | TOPIC_FLAGS,
               TopicTable)
CHANNELS = Scope("channels", "channel", "nsqc.channel-rules.json", "PUT /channel/rules", CHANNEL_FLAGS, ChannelTable)
BY_KEY = {scope.key: scope for scope in (TOPICS, CHANNELS)}


def scope_of(table: RuleTable) -> Scope:
    """The scope of a table."""
    return BY_KEY[table.of]


# ====================================================================== rule tables
# The tables of the config file with rules: `[topics."GLOB"]` for the storage of topics, `[channels."TOPIC/CHANNEL"]`
# for delivery, each for the names that its glob fits. nsqd ignores them.

Place = tuple[str, ...]  # a key of the file and the keys below it


def read_tables(scope: Scope, value: object) -> tuple[tuple[RuleTable, ...], list[tuple[Place, str]]]:
    """The tables in the order of the file, and their faults: place and text. A faulty key is omitted."""
    if not isinstance(value, Mapping):
        expected = scope.table('GLOB' if scope.key == "topics" else "TOPIC/CHANNEL", {}).title
        return (), [((scope.key,), f"{scope.key} = {value!r:.200} cannot be used - tables such as {expected} are "
                     "expected")]
    tables: list[RuleTable] = []
    problems: list[tuple[Place, str]] = []
    for glob, content in value.items():
        table = scope.table(glob, {})
        if not isinstance(content, Mapping):
            problems.append(((scope.key, glob), f"{table.title}: {content!r:.200} is not a table"))
            continue
        for key, given in content.items():
            try:
                table.values[key] = read_value(scope, key, given)
            except ValueError as error:
                problems.append(((scope.key, glob, key), f"{table.title}: {error}"))
        tables.append(table)
    return tuple(tables), problems


def read_value(scope: Scope, key: str, given: object) -> RuleValue:
    """The value of a key of a table. Raises ValueError."""
    if key not in scope.flags:
        if isinstance(given, Mapping):
            character = "dot" if scope.key == "topics" else "slash"
            raise ValueError(f"unknown key {key!r}; a glob with a {character} needs quotes")
        raise ValueError(unknown_key(scope, key))
    try:
        value = from_toml(scope.flags[key].kind, given)
    except ValueError as error:
        raise ValueError(f"{key} = {given!r:.200} cannot be used - {error}") from None
    return in_range(scope, key, value if isinstance(value, (str, int, float)) else str(value))


def written(table: RuleTable) -> str:
    """The settings of a table, on one line."""
    flags = scope_of(table).flags
    return ", ".join(f"{key} = {show(flags[key].kind, value)}" for key, value in table.values.items())


def in_range(scope: Scope, key: str, value: RuleValue) -> RuleValue:
    """Returns the value. Raises ValueError if it is out of its declared range."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and (text := beyond(scope.flags[key], value)):
        raise ValueError(f"{key} {text}")
    return value


def unknown_key(scope: Scope, key: str) -> str:
    """The error for a key that no rule has."""
    import difflib  # only after a typo

    near = difflib.get_close_matches(key.lower().replace("-", "_"), scope.flags, n=1)
    return f"unknown key {key[:64]!r}, " + (
        f"did you mean {near[0]}?" if near else f"known are {', '.join(scope.flags)}")
