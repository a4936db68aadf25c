"""Rules of topics or channels: the rule that applies, and values set by PUT, on disk.

Each value of a rule comes from PUT, else from the first table of the config file that fits the name, else from a
default.
"""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

import msgspec

from nsqc.log import Log
from nsqc.options import rules_file
from nsqc.options.declared import Options, RuleTable, Settings
from nsqc.options.flags import show
from nsqc.options.limit_keys import Limits
from nsqc.options.rule_scopes import Scope
from nsqc.options.rules_file import Changes, Values

MOST_KNOWN = 65536  # names whose rules are remembered; then all are looked up again

OnChange = Callable[[bytes | None], object]


RuleT = TypeVar("RuleT", bound=Limits)


class _Change:
    """A PUT that is not on disk yet."""

    __slots__ = ("changes", "done", "gone", "name")

    def __init__(self, name: bytes, changes: Changes, done: asyncio.Future[None]) -> None:
        self.name = name
        self.changes = changes
        self.done = done
        self.gone = False       # the topic or channel was deleted meanwhile, and its rule with it


class Rules(Generic[RuleT]):
    """The rules of one scope. Values set by PUT are in a file, with at most one write in progress; changes made
    meanwhile share the next one."""

    scope: Scope
    _options: Options

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, settings: Settings,
                 log: Log):
        """Reads the file. Raises OSError if that exists and cannot be read, or is damaged and cannot be replaced."""
        self._loop = loop
        self._workers = workers
        self._data_path = data_path
        self._log = log
        self._put: dict[bytes, Values] = rules_file.load(data_path, self.scope, log)
        self._pieces = {name: rules_file.piece(name, values) for name, values in self._put.items()}
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
        values = rules_file.merged(self._put.get(name, {}), changes)
        rule = self._derived(name)
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

    def _set_globs(self, tables: Sequence[RuleTable]) -> None:
        self._globs = _globs(tables)
        self._known.clear()

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
                                                     self.scope, [*pieces.values()])
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
            self._log.error("RULES: failed to write %s - %s", self.scope.file, error)
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
            self._log.info("RULES: %s(%s): %s", self.scope.noun.upper(), name.decode(),
                           self.describe(self.of(name)))
            self._notify(name)

    def _set(self, name: bytes, values: Values) -> bool:
        """Applies the values that are on disk; returns whether the rule has changed."""
        before = self.of(name)
        if values:
            self._put[name] = values
            self._pieces[name] = rules_file.piece(name, values)
        else:
            self._put.pop(name, None)
            self._pieces.pop(name, None)
        self._known.pop(name, None)
        return self.of(name) != before


def _globs(tables: Sequence[RuleTable]) -> re.Pattern[str] | None:
    """One expression for all globs: the name of the group that matches is t and the index of the first that fits."""
    if not tables:
        return None
    from fnmatch import translate  # here: most daemons have no tables

    return re.compile("|".join(f"(?P<t{at}>{translate(table.glob)})" for at, table in enumerate(tables)))
