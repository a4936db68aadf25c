"""Rules of topics or channels: the rule that applies, and those set over HTTP, on disk.

Each value of a rule comes from the PUT for its name, else from the first table that fits the name, else from a default.
Tables that PUT /rules has declared come before those of the config file.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from fnmatch import fnmatchcase
from typing import Generic, NamedTuple, TypeAlias, TypeVar, cast

import msgspec

from nsqc.log import Log
from nsqc.options.declared import (
    RULE_KEYS,
    Options,
    RuleTable,
    RuleValue,
    Settings,
)
from nsqc.options.flags import show
from nsqc.options.option import Kind, parse_duration, parse_topic
from nsqc.options.rule_tables import (
    CHANNELS,
    DEFAULT,
    DEFAULT_LIMITS,
    FROM_DEFAULTS,
    LIMIT_FLAGS,
    MOST_IDS,
    TOPICS,
    ChannelRule,
    Limits,
    Scope,
    covers,
    in_range,
    unknown_key,
)
from nsqc.store.files import read_edited_file, replace_file, set_aside
from nsqc.wire.outside import Decoder, JSONError
from nsqc.wire.parser import is_ephemeral

# ====================================================================== rules file
# nsqc.rules.json and nsqc.channel-rules.json: the values set by PUT for each topic and channel, and the tables declared
# by PUT /rules, in their order. nsqd ignores them.
#
#     {"topics": {"NAME": {"storage": "log", "retain_time": 3600000000000}}, "declared": {"GLOB": {"storage": "log"}}}
#     {"channels": {"TOPIC/CHANNEL": {"requeue_delay": 1000000000}}}
#
# Durations are nanoseconds there.

NOT_FILES = (errno.EINVAL, errno.EISDIR, errno.ENXIO)  # errors of reading something other than a file

Values: TypeAlias = Mapping[str, RuleValue]  # by key of a rule
Changes: TypeAlias = Mapping[str, RuleValue | None]  # None: resets the key

EXPECTED = {Kind.DURATION: 'a duration such as "36h", or nanoseconds,', Kind.INT: "an integer", Kind.FLOAT: "a number"}

_encode = msgspec.json.Encoder().encode


_decode = Decoder(dict[str, dict[str, dict[str, object]]]).decode


# ---------------------------------------------------------------------- values


def from_json(scope: Scope, key: str, given: object) -> RuleValue | None:
    """The value of a key in JSON: null, or in the rule's form; durations are text or nanoseconds. Raises ValueError
    that names key and value."""
    if key not in scope.flags:
        raise ValueError(unknown_key(scope, key))
    if given is None:
        return None
    try:
        return in_range(scope, key, _of_kind(scope.flags[key].kind, given))
    except ValueError as error:
        raise ValueError(f"{key} = {_shown(given)} cannot be used - {error}") from None


def _of_kind(kind: Kind, given: object) -> RuleValue:
    """A JSON value as one of that kind. Raises ValueError that states the expected form."""
    value = parse_duration(given) if kind is Kind.DURATION and isinstance(given, str) else given
    if kind is Kind.BOOL:
        if isinstance(value, bool):
            return value
        raise ValueError("true or false is expected")
    if kind is Kind.TOPIC:
        if isinstance(value, str):
            return parse_topic(value)
        raise ValueError("the name of a topic is expected")
    if kind in EXPECTED:
        wanted = (int, float) if kind is Kind.FLOAT else (int,)
        if isinstance(value, wanted) and not isinstance(value, bool):
            return float(value) if kind is Kind.FLOAT else value
        raise ValueError(f"{EXPECTED[kind]} is expected")
    if isinstance(value, str) and value in kind.value.split("|"):
        return value
    raise ValueError(f"one of {', '.join(kind.value.split('|'))} is expected")


def _shown(given: object) -> str:
    """A JSON value as it was sent, truncated if long."""
    try:
        text = _encode(given).decode("utf-8", "replace")
    except (TypeError, ValueError, RecursionError, OverflowError):
        text = repr(type(given).__name__)
    return text if len(text) <= 100 else f"{text[:100]}..."


def changed(values: Values, changes: Changes) -> Values:
    """The values after the changes."""
    return {key: value for key, value in {**values, **changes}.items() if value is not None}


# ---------------------------------------------------------------------- the file


def piece(name: bytes, values: Values) -> bytes:
    """A topic or channel in the file; names contain nothing that JSON escapes."""
    return b'"%b":%b' % (name, _encode(values))


def save(data_path: str, scope: Scope, pieces: list[bytes], tables: Sequence[RuleTable]) -> None:
    """Replaces the file, durably. Raises OSError."""
    declared = b',\n"declared":%b' % _encode({table.glob: table.values for table in tables}) if tables else b""
    replace_file(os.path.join(data_path, scope.file),
                 b'{"%b":{%b}%b}\n' % (scope.key.encode(), b",\n".join(pieces), declared))


def declare(scope: Scope, given: Mapping[str, Mapping[str, object]]) -> tuple[RuleTable, ...]:
    """Tables from JSON: values by key, by glob. Raises ValueError that names the table."""
    tables = []
    for glob, values in given.items():
        table = scope.table(glob, {})
        try:
            table.values.update(changed({}, {key: from_json(scope, key, value) for key, value in values.items()}))
        except ValueError as error:
            raise ValueError(f"{table.title}: {error}") from None
        tables.append(table)
    return tuple(tables)


def load(data_path: str, scope: Scope, log: Log) -> tuple[dict[bytes, Values], tuple[RuleTable, ...]]:
    """Reads the file. If any of it is unusable, the file is kept as .bad, and replaced by the rest.

    Raises OSError if it exists and cannot be read, or cannot be replaced: without the rules, topics would be stored in
    another way than requested.
    """
    path = os.path.join(data_path, scope.file)
    rules: dict[bytes, Values] = {}
    tables: tuple[RuleTable, ...] = ()
    problems: list[str] = []
    try:
        content = _decode(read_edited_file(path))
        entries = content[scope.key]
        tables = declare(scope, content.get("declared", {}))
    except FileNotFoundError:
        return {}, ()
    except JSONError as error:
        entries = {}
        problems.append(str(error))
    except KeyError:
        entries = {}
        problems.append(f"it has no {scope.key}")
    except ValueError as error:
        problems.append(str(error))
    except OSError as error:
        if error.errno not in NOT_FILES:
            raise
        entries = {}
        problems.append("it is not a file")
    for text, given in entries.items():
        name = text.encode("utf-8", "replace")
        try:
            if not scope.can_have(name):
                raise ValueError(f"no {scope.noun} of that name can have a rule")
            rules[name] = changed({}, {key: from_json(scope, key, value) for key, value in given.items()})
        except ValueError as error:
            problems.append(f"{text[:64]!r}: {error}")
    if problems:
        backup = set_aside(path)
        log.error("RULES: %s is damaged (%s%s): kept as %s, %d rules remain", path, problems[0],
                  f" and {len(problems) - 1} more" if problems[1:] else "", backup, len(rules))
        save(data_path, scope, [piece(name, values) for name, values in rules.items()], tables)
    return rules, tables


# ====================================================================== rules

MOST_KNOWN = 65536  # names whose rules are remembered; then all are looked up again

OnChange = Callable[[bytes | None], object]


RuleT = TypeVar("RuleT", bound=Limits)


class _Change:
    """A PUT that is not on disk yet. tables: of PUT /rules, which has no name; None: of a name."""

    __slots__ = ("changes", "done", "gone", "name", "tables")

    def __init__(self, name: bytes, changes: Changes, done: asyncio.Future[None],
                 tables: tuple[RuleTable, ...] | None = None) -> None:
        self.name = name
        self.tables = tables
        self.changes = changes
        self.done = done
        self.gone = False       # the topic or channel was deleted meanwhile, and its rule with it


class Rules(Generic[RuleT]):
    """The rules of one scope. Values set by PUT are in a file, with at most one write in progress; changes made
    meanwhile share the next one."""

    scope: Scope
    digest: int         # of the defaults and tables that apply here; nodes with the same rules have the same
    defaults: Values = {}       # of the keys for which there are options
    _options: Options

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, settings: Settings,
                 log: Log):
        """Reads the file. Raises OSError if that exists and cannot be read, or is damaged and cannot be replaced."""
        self._loop = loop
        self._workers = workers
        self._data_path = data_path
        self._log = log
        self._put, self.declared = load(data_path, self.scope, log)
        self._pieces = {name: piece(name, values) for name, values in self._put.items()}
        self._known: dict[bytes, RuleT] = {}
        self._globs: re.Pattern[str] | None = None
        self._listeners: list[OnChange] = []
        self._changes: list[_Change] = []       # for the next write
        self._writing: list[_Change] = []
        self._write: asyncio.Future[None] | None = None     # in progress
        self._forgotten: set[bytes] = set()     # names deleted since that began
        self._stale = False     # the file still has a deleted rule
        self._take(settings.now)
        settings.on_change(self._settings_changed)
        if faults := settings.now.lacks_bucket((
                *((table.title, table.values) for table in self.declared),
                *((f"{self.scope.noun} {name.decode()}", values) for name, values in self._put.items()))):
            log.error("RULES: %s%s; until a start with --bucket, publishes to such topics are acknowledged after an "
                      "fsync, and this disk keeps their whole logs", faults[0],
                      f" (and {len(faults) - 1} more)" if faults[1:] else "")

    # ------------------------------------------------------------------ the rule that applies

    def of(self, name: bytes) -> RuleT:
        """The rule of a name, whether it exists or not."""
        rule = self._known.get(name)
        if rule is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            rule = self._known[name] = self.after(name, {})
        return rule

    def after(self, name: bytes, changes: Changes) -> RuleT:
        """The rule that a name would have after set()."""
        rule = self._derived(name)
        if not (changes or name in self._put):
            return rule     # 20,000 topics take their rules at a start
        values = changed(self._put.get(name, {}), changes)
        return self._changed(rule, values, self.scope.call) if values else rule

    def on_change(self, call: OnChange) -> None:
        """Registers call(name), called when the rule of that name has changed; None: any rule may have."""
        self._listeners.append(call)

    def describe(self, rule: RuleT) -> str:
        """A rule as one line for the log."""
        values = " ".join(f"{key}={show(declared.kind, getattr(rule, key))}"
                          for key, declared in self.scope.flags.items())
        return f"{values} ({rule.source})"

    def _derived(self, name: bytes) -> RuleT:
        """The rule of a name without values set by PUT."""
        raise NotImplementedError

    def _take(self, options: Options) -> None:
        """Takes defaults and tables from the options."""
        raise NotImplementedError

    def _has_changed(self, options: Options) -> bool:
        """Whether the options' defaults or tables differ from those taken."""
        raise NotImplementedError

    @staticmethod
    def _changed(rule: RuleT, values: Values, source: str) -> RuleT:
        """The rule with other values."""
        return msgspec.structs.replace(rule, **values, source=source)

    def _tables_of(self, options: Options) -> tuple[RuleTable, ...]:
        """All tables, the most important first."""
        of_file: tuple[RuleTable, ...] = getattr(options, self.scope.key)
        tables = (*self.declared, *of_file)
        self._globs = _globs(tables)
        self._known.clear()
        return tables

    def _source(self, table: RuleTable) -> str:
        """What the rule of a table says about its origin."""
        return f"{'declared' if any(table is one for one in self.declared) else 'config'} {table.title}"

    def _table_of(self, name: bytes) -> int | None:
        """The index of the first table whose glob fits."""
        match = None if self._globs is None else self._globs.match(name.decode())
        return None if match is None or match.lastgroup is None else int(match.lastgroup[1:])

    def _settings_changed(self, options: Options) -> None:
        if self._has_changed(options):
            self._take(options)
            self._notify(None)

    def _notify(self, name: bytes | None) -> None:
        for call in self._listeners:
            call(name)

    # ------------------------------------------------------------------ PUT

    async def set(self, name: bytes, changes: Changes) -> RuleT:
        """Changes the rule of one name, which need not exist; a value of None resets a key. Returns the new rule once
        it is on disk. Raises OSError, without any change, if it cannot be written."""
        if any(value != self._put.get(name, {}).get(key) for key, value in changes.items()) or self._is_changing(name):
            change = _Change(name, changes, self._loop.create_future())
            self._changes.append(change)
            self._begin()
            await change.done
        return self.of(name)

    async def declare(self, tables: tuple[RuleTable, ...]) -> None:
        """Replaces the declared tables. Returns once they are on disk. Raises OSError, without any change, if they
        cannot be written."""
        if tables != self.declared or any(change.tables is not None for change in (*self._writing, *self._changes)):
            change = _Change(b"", {}, self._loop.create_future(), tables)
            self._changes.append(change)
            self._begin()
            await change.done

    def set_by_name(self) -> dict[bytes, Values]:
        """The values set by PUT for names."""
        return dict(self._put)

    def forget(self, name: bytes) -> None:
        """Drops the rule of a deleted topic or channel."""
        for change in (*self._writing, *self._changes):
            change.gone = change.gone or change.name == name
        if self._write is not None:
            self._forgotten.add(name)
        if self._put.pop(name, None) is not None or self._is_changing(name):
            self._pieces.pop(name, None)
            self._known.pop(name, None)
            self._stale = True
            self._begin()

    def forget_all(self, prefix: bytes) -> None:
        """Drops the rules of all deleted names with this prefix."""
        names = {*self._put, *(change.name for change in (*self._writing, *self._changes))}
        for name in names:
            if name.startswith(prefix):
                self.forget(name)

    async def written(self) -> None:
        """Waits until no write is in progress or due."""
        while self._write is not None:
            await asyncio.wait([self._write])
            await asyncio.sleep(0)

    def _is_changing(self, name: bytes) -> bool:
        return any(change.name == name for change in (*self._writing, *self._changes))

    def _begin(self) -> None:
        """Writes the changes, unless a write is in progress."""
        if self._write is not None or not (self._changes or self._stale):
            return
        self._writing, self._changes = self._changes, []
        self._stale = False
        pieces = dict(self._pieces)
        values: dict[bytes, Values] = {}
        tables = self.declared
        for change in self._writing:
            if change.tables is not None:
                tables = change.tables
            if change.gone or change.tables is not None:
                continue
            merged = changed(values.get(change.name, self._put.get(change.name, {})), change.changes)
            values[change.name] = merged
            if merged:
                pieces[change.name] = piece(change.name, merged)
            else:
                pieces.pop(change.name, None)
        self._forgotten = set()
        try:
            self._write = self._loop.run_in_executor(self._workers, save, self._data_path,
                                                     self.scope, [*pieces.values()], tables)
        except RuntimeError as error:  # no thread can be started
            self._write = self._loop.create_future()
            self._write.set_exception(OSError(errno.EAGAIN, str(error)))
        self._write.add_done_callback(lambda done: self._ended(done, values, tables))

    def _ended(self, done: asyncio.Future[None], values: dict[bytes, Values], tables: tuple[RuleTable, ...]) -> None:
        error = done.exception()
        ended, self._writing = self._writing, []
        self._write = None
        changed: list[bytes] = []
        if error is not None:
            self._log.error("RULES: failed to write %s - %s", self.scope.file, error)
        else:
            changed = [name for name in values.keys() - self._forgotten if self._set(name, values[name])]
            if tables != self.declared:
                self.declared = tables
                self._take(self._options)
                self._log.info("RULES: %d declared tables of %ss", len(tables), self.scope.noun)
                self._notify(None)
        for change in ended:
            if change.done.done():
                continue
            if error is None or change.gone:
                change.done.set_result(None)
            else:
                change.done.set_exception(error)
        self._begin()
        for name in changed:
            self._log.info("RULES: %s(%s): %s", self.scope.noun.upper(), name.decode(),
                           self.describe(self.of(name)))
            self._notify(name)

    def _set(self, name: bytes, values: Values) -> bool:
        """Applies the values that are on disk; returns whether the rule has changed."""
        before = self.of(name)
        if values:
            self._put[name] = values
            self._pieces[name] = piece(name, values)
        else:
            self._put.pop(name, None)
            self._pieces.pop(name, None)
        self._known.pop(name, None)
        return self.of(name) != before


def digest_of(content: object) -> int:
    """A number that differs if the content does."""
    return zlib.crc32(msgspec.json.encode(content, order="deterministic"))


def _globs(tables: Sequence[RuleTable]) -> re.Pattern[str] | None:
    """One expression for all globs: the name of the group that matches is t and the index of the first that fits."""
    if not tables:
        return None
    from fnmatch import translate  # here: most daemons have no tables

    return re.compile("|".join(f"(?P<t{at}>{translate(table.glob)})" for at, table in enumerate(tables)))


# ====================================================================== topic rules
# How each topic is stored: in memory or in a log, and by which rules.
#
# Each value of a topic's rule comes from PUT /topic/rules, else from the first table of the config file that fits the
# topic, else from the option with the default for all topics, or the default of the key. Ephemeral topics always stay
# in memory.

FROM_NAME = "ephemeral"


class TopicRule(Limits, frozen=True, gc=False, kw_only=True):
    """How a topic is stored, and how much and how long. storage: memory or log. For logs, sync: write, fsync or bucket;
    retain_time in nanoseconds; retain_bytes, retain_local_bytes: 0 means no limit. dedupe, dedupe_ids: see
    nsqc.options.rules."""

    storage: str
    sync: str
    retain_time: int
    retain_bytes: int
    retain_local_bytes: int
    dedupe: int = 0
    dedupe_ids: int = MOST_IDS

    def limits(self) -> dict[str, RuleValue]:
        """The values from which its channels' rules derive."""
        return {key: getattr(self, key) for key in LIMIT_FLAGS}

    @property
    def keeps_log(self) -> bool:
        """Whether the log of a topic that has switched to memory stays until an operator deletes it: if it may have
        history to keep, or if the topic only has the default rule, whose previous rule may be lost."""
        return self.storage != "log" and (self.retain_time > 0 or self.retain_bytes > 0 or self.source == FROM_DEFAULTS)


Decoder(TopicRule)     # so that no two threads are the first to use it


class TopicRules(Rules[TopicRule]):
    """The rules of all topics."""

    scope = TOPICS

    def _derived(self, name: bytes) -> TopicRule:
        if is_ephemeral(name):
            return self._ephemeral
        at = self._table_of(name)
        return self._default if at is None else self._tables[at]

    def _take(self, options: Options) -> None:
        self._options = options
        self.defaults = {key: cast("RuleValue", options.value(attribute)) for key, attribute in RULE_KEYS.items()}
        self._default = msgspec.convert(self.defaults, TopicRule)
        self._ephemeral = msgspec.structs.replace(self._default, storage="memory", source=FROM_NAME)
        tables = self._tables_of(options)
        self._tables = [msgspec.structs.replace(self._default, **table.values, source=self._source(table))
                        for table in tables]
        self.digest = digest_of([self.defaults, *((table.glob, table.values) for table in tables)])

    def _has_changed(self, options: Options) -> bool:
        names = ("topics", *RULE_KEYS.values())
        return any(getattr(options, name) != getattr(self._options, name) for name in names)


# ====================================================================== dead letters
# Where the rules send dead letters, and whether these would circle. Channels need not exist: every rule counts that a
# channel of a topic may have.

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


# ====================================================================== channel rules
# How each channel delivers.
#
# Each value of a channel's rule comes from PUT /channel/rules, else from the first table of the config file whose glob
# fits TOPIC/CHANNEL, else from the topic's rule if that has such a key, else from the default, which is nsqd's
# behaviour.

class ChannelRules(Rules[ChannelRule]):
    """The rules of all channels, by TOPIC/CHANNEL."""

    scope = CHANNELS

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, settings: Settings,
                 log: Log, topics: TopicRules):
        """topics: the rules from which channels' rules derive. Raises OSError as Rules does."""
        self._topics = topics
        self._merged: dict[tuple[int | None, TopicRule], ChannelRule] = {}  # by table and topic's rule: they are few
        super().__init__(loop, workers, data_path, settings, log)
        topics.on_change(self._topic_changed)

    def _take(self, options: Options) -> None:
        self._options = options
        self._merged.clear()
        self.tables = self._tables_of(options)
        self.digest = digest_of([(table.glob, table.values) for table in self.tables])

    def _topic_changed(self, name: bytes | None) -> None:
        self._known.clear()
        self._merged.clear()
        self._notify(None if name is None else name + b"/")

    def _has_changed(self, options: Options) -> bool:
        return options.channels != self._options.channels

    def _derived(self, name: bytes) -> ChannelRule:
        return self._merged_rule(self._table_of(name), self._topics.of(name.partition(b"/")[0]))

    def _merged_rule(self, at: int | None, topic: TopicRule) -> ChannelRule:
        rule = self._merged.get((at, topic))
        if rule is None:
            rule = self._merged[at, topic] = self._merge(at, topic)
        return rule

    def _merge(self, at: int | None, topic: TopicRule) -> ChannelRule:
        """The rule derived from a table, if any, and the topic's rule."""
        limits = topic.limits()
        if at is not None:
            table = self.tables[at]
            return self._changed(DEFAULT, {**limits, **table.values}, self._source(table))
        if all(limits[key] == getattr(DEFAULT_LIMITS, key) for key in limits):
            return DEFAULT
        return self._changed(DEFAULT, limits, f"topic: {topic.source}")

    def of_topic(self, topic: bytes, topic_rule: TopicRule | None = None) -> Iterator[tuple[str, ChannelRule]]:
        """The rules that channels of a topic may have, each with the name of a channel or a table. topic_rule: instead
        of the topic's current one."""
        topic_rule = topic_rule or self._topics.of(topic)
        tables = self.tables
        for at in tables_for(tables, topic.decode()):
            title = f"channels of {topic.decode()}" if at is None else tables[at].title
            yield title, self._merged_rule(at, topic_rule)
        for name, values in self._put.items():
            if name.startswith(topic + b"/"):
                rule = self._merged_rule(self._table_of(name), topic_rule)
                yield name.decode(), self._changed(rule, values, self.scope.call)

    def forget_topic(self, name: bytes) -> None:
        """A deleted topic also loses the rules set for its channels."""
        self.forget_all(name + b"/")
