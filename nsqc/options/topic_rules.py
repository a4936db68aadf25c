"""How each topic is kept: in memory or in a log, and by which rules.

Each value of a topic's rule comes from PUT /topic/rules, else from the first table of the config file that fits the
topic, else from the option with the default for all topics. Ephemeral topics are always kept in memory.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable
from concurrent.futures import Executor

import msgspec

from nsqc.log import Log
from nsqc.options import rules_file
from nsqc.options.declared import FLAGS, RULE_KEYS, Options, Settings, TopicTable
from nsqc.options.flags import show
from nsqc.options.rules_file import Changes, Values
from nsqc.wire.names import is_ephemeral
from nsqc.wire.outside import Decoder

MOST_KNOWN = 65536  # names whose rules are remembered; then all are looked up again
FROM_DEFAULTS, FROM_PUT, FROM_NAME = "default", "PUT /topic/rules", "ephemeral"

OnChange = Callable[[bytes | None], object]


class TopicRule(msgspec.Struct, frozen=True, gc=False):
    """How a topic is kept. storage: memory or log. The rest is for logs; sync: write or fsync; retain_time in
    nanoseconds; retain_bytes: 0 means no limit; overflow: refuse or drop-oldest. source: where it comes from."""

    storage: str
    sync: str
    retain_time: int
    retain_bytes: int
    overflow: str
    source: str

    @property
    def keeps_log(self) -> bool:
        """Whether a log stays, when its topic has switched to memory, until somebody deletes it: if it may have history
        that is to be kept, or if nobody has said so of this topic, whose rule may be lost."""
        return self.storage != "log" and (self.retain_time > 0 or self.retain_bytes > 0 or self.source == FROM_DEFAULTS)


Decoder(TopicRule)     # so that no two threads are the first to use it


class _Change:
    """A PUT that is not on disk yet."""

    __slots__ = ("changes", "done", "gone", "name")

    def __init__(self, name: bytes, changes: Changes, done: asyncio.Future[None]) -> None:
        self.name = name
        self.changes = changes
        self.done = done
        self.gone = False       # the topic was deleted meanwhile, and its rule with it


class TopicRules:
    """The rules of all topics. What PUT has set is in nsqc.rules.json, which is written one time after another; changes
    made meanwhile share the next one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, settings: Settings,
                 log: Log):
        """Reads nsqc.rules.json. Raises OSError if that exists and cannot be read, or is damaged and cannot be
        replaced."""
        self._loop = loop
        self._workers = workers
        self._data_path = data_path
        self._settings = settings
        self._log = log
        self._put: dict[bytes, Values] = rules_file.load(data_path, log)
        self._pieces = {name: rules_file.piece(name, values) for name, values in self._put.items()}
        self._known: dict[bytes, TopicRule] = {}
        self._listeners: list[OnChange] = []
        self._changes: list[_Change] = []       # the next write's
        self._writing: list[_Change] = []
        self._write: asyncio.Future[None] | None = None     # under way
        self._forgotten: set[bytes] = set()     # topics that were deleted since that began
        self._stale = False     # a rule that is gone is still in the file
        self._take(settings.now)
        settings.on_change(self._settings_changed)

    # ------------------------------------------------------------------ which rule holds

    def of(self, name: bytes) -> TopicRule:
        """The rule of a topic, whether it exists or not."""
        rule = self._known.get(name)
        if rule is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            rule = self._known[name] = self._find(name)
        return rule

    def on_change(self, call: OnChange) -> None:
        """Has call(name) called when the rule of that topic has changed; None: that of any topic may have."""
        self._listeners.append(call)

    def _find(self, name: bytes) -> TopicRule:
        if is_ephemeral(name):
            return self._ephemeral
        rule = self._default
        match = None if self._globs is None else self._globs.match(name.decode())
        if match is not None and match.lastgroup is not None:
            rule = self._tables[int(match.lastgroup[1:])]
        values = self._put.get(name)
        return rule if values is None else msgspec.structs.replace(rule, **values, source=FROM_PUT)

    def _take(self, options: Options) -> None:
        """Takes defaults and tables from the options."""
        self._options = options
        defaults = {key: options.value(attribute) for key, attribute in RULE_KEYS.items()}
        self._default = msgspec.convert({**defaults, "source": FROM_DEFAULTS}, TopicRule)
        self._ephemeral = msgspec.structs.replace(self._default, storage="memory", source=FROM_NAME)
        self._tables = [msgspec.structs.replace(self._default, **table.values, source=f"config {table.title}")
                        for table in options.topics]
        self._globs = _globs(options.topics)
        self._known.clear()

    def _settings_changed(self, options: Options) -> None:
        names = ("topics", *RULE_KEYS.values())
        if any(getattr(options, name) != getattr(self._options, name) for name in names):
            self._take(options)
            self._notify(None)

    def _notify(self, name: bytes | None) -> None:
        for call in self._listeners:
            call(name)

    # ------------------------------------------------------------------ PUT

    async def set(self, name: bytes, changes: Changes) -> TopicRule:
        """Changes the rule of one topic, which need not exist; None takes back what was set before. Returns the new
        rule once it is on disk. Raises OSError, and nothing has changed, if it cannot be written."""
        if any(value != self._put.get(name, {}).get(key) for key, value in changes.items()) or self._is_changing(name):
            change = _Change(name, changes, self._loop.create_future())
            self._changes.append(change)
            self._begin()
            await change.done
        return self.of(name)

    def forget(self, name: bytes) -> None:
        """The topic is deleted: what was set for it goes with it."""
        for change in (*self._writing, *self._changes):
            change.gone = change.gone or change.name == name
        if self._write is not None:
            self._forgotten.add(name)
        if self._put.pop(name, None) is not None or self._is_changing(name):
            self._pieces.pop(name, None)
            self._known.pop(name, None)
            self._stale = True
            self._begin()

    async def written(self) -> None:
        """Waits until no write is under way or due."""
        while self._write is not None:
            await asyncio.wait([self._write])
            await asyncio.sleep(0)

    def _is_changing(self, name: bytes) -> bool:
        return any(change.name == name for change in (*self._writing, *self._changes))

    def _begin(self) -> None:
        """Writes what has changed, unless a write is under way."""
        if self._write is not None or not (self._changes or self._stale):
            return
        self._writing, self._changes = self._changes, []
        self._stale = False
        pieces = dict(self._pieces)
        values: dict[bytes, Values] = {}
        for change in self._writing:
            if change.gone:
                continue
            merged = rules_file.merged(values.get(change.name, self._put.get(change.name, {})), change.changes)
            values[change.name] = merged
            if merged:
                pieces[change.name] = rules_file.piece(change.name, merged)
            else:
                pieces.pop(change.name, None)
        self._forgotten = set()
        try:
            self._write = self._loop.run_in_executor(self._workers, rules_file.save, self._data_path,
                                                     [*pieces.values()])
        except RuntimeError as error:  # no thread can be started
            self._write = self._loop.create_future()
            self._write.set_exception(OSError(errno.EAGAIN, str(error)))
        self._write.add_done_callback(lambda done: self._ended(done, values))

    def _ended(self, done: asyncio.Future[None], values: dict[bytes, Values]) -> None:
        error = done.exception()
        ended, self._writing = self._writing, []
        self._write = None
        changed: list[bytes] = []
        if error is not None:
            self._log.error("RULES: failed to write %s - %s", rules_file.NAME, error)
        else:
            changed = [name for name in values.keys() - self._forgotten if self._set(name, values[name])]
        for change in ended:
            if change.done.done():
                continue
            if error is None or change.gone:
                change.done.set_result(None)
            else:
                change.done.set_exception(error)
        self._begin()
        for name in changed:
            self._log.info("RULES: TOPIC(%s): %s", name.decode(), describe(self.of(name)))
            self._notify(name)

    def _set(self, name: bytes, values: Values) -> bool:
        """What is on disk takes effect; whether the topic has another rule now."""
        before = self.of(name)
        if values:
            self._put[name] = values
            self._pieces[name] = rules_file.piece(name, values)
        else:
            self._put.pop(name, None)
            self._pieces.pop(name, None)
        self._known.pop(name, None)
        return self.of(name) != before


def _globs(tables: tuple[TopicTable, ...]) -> re.Pattern[str] | None:
    """One expression for all globs: the name of the group that matches is t and the index of the first that fits."""
    if not tables:
        return None
    from fnmatch import translate  # here: most daemons have no tables

    return re.compile("|".join(f"(?P<t{at}>{translate(table.glob)})" for at, table in enumerate(tables)))


def describe(rule: TopicRule) -> str:
    """A rule as one line for the log."""
    values = " ".join(f"{key}={show(FLAGS[name].kind, getattr(rule, key))}" for key, name in RULE_KEYS.items())
    return f"{values} ({rule.source})"
