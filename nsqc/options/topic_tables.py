"""The `[topics."GLOB"]` tables of the config file: how topics are kept whose names a glob fits. nsqd ignores them."""

from __future__ import annotations

from collections.abc import Mapping

from nsqc.options.declared import FLAGS, RULE_KEYS, TopicTable, beyond
from nsqc.options.flags import show
from nsqc.options.values import from_toml

KEY = "topics"

Place = tuple[str, ...]  # a key of the file and the keys below it


def read_tables(value: object) -> tuple[tuple[TopicTable, ...], list[tuple[Place, str]]]:
    """The tables in the order of the file, and what is wrong with them: place and text. A key that is wrong is left
    out."""
    if not isinstance(value, Mapping):
        return (), [((KEY,), f'{KEY} = {value!r:.200} cannot be used - tables such as [topics."GLOB"] are expected')]
    tables: list[TopicTable] = []
    problems: list[tuple[Place, str]] = []
    for glob, content in value.items():
        table = TopicTable(glob, {})
        if not isinstance(content, Mapping):
            problems.append(((KEY, glob), f"{table.title}: {content!r:.200} is not a table"))
            continue
        for key, given in content.items():
            try:
                table.values[key] = read_value(key, given)
            except ValueError as error:
                problems.append(((KEY, glob, key), f"{table.title}: {error}"))
        tables.append(table)
    return tuple(tables), problems


def read_value(key: str, given: object) -> str | int:
    """The value of a key of a table. Raises ValueError."""
    if key not in RULE_KEYS:
        if isinstance(given, Mapping):
            raise ValueError(f"unknown key {key!r}; a glob with a dot needs quotes")
        raise ValueError(unknown_key(key))
    declared = FLAGS[RULE_KEYS[key]]
    try:
        value = from_toml(declared.kind, given)
    except ValueError as error:
        raise ValueError(f"{key} = {given!r:.200} cannot be used - {error}") from None
    return in_range(key, value if isinstance(value, (str, int)) else str(value))


def written(table: TopicTable) -> str:
    """What a table sets, on one line."""
    return ", ".join(f"{key} = {show(FLAGS[RULE_KEYS[key]].kind, value)}" for key, value in table.values.items())


def in_range(key: str, value: str | int) -> str | int:
    """The value. Raises ValueError if it is beyond the bounds of its option."""
    if isinstance(value, int) and (text := beyond(FLAGS[RULE_KEYS[key]], value)):
        raise ValueError(f"{key} {text}")
    return value


def unknown_key(key: str) -> str:
    """What is wrong with a key that no rule has."""
    import difflib  # only after a typo

    near = difflib.get_close_matches(key.lower().replace("-", "_"), RULE_KEYS, n=1)
    return f"unknown key {key[:64]!r}, " + (f"did you mean {near[0]}?" if near else f"known are {', '.join(RULE_KEYS)}")
