"""The tables of the config file with rules: `[topics."GLOB"]` for the storage of topics, `[channels."TOPIC/CHANNEL"]`
for delivery, each for the names that its glob fits. nsqd ignores them.
"""

from __future__ import annotations

from collections.abc import Mapping

from nsqc.options.declared import RuleTable, RuleValue, beyond
from nsqc.options.flags import show
from nsqc.options.rule_scopes import Scope, scope_of
from nsqc.options.values import from_toml

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
