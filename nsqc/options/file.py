"""The config file: TOML with nsqd's keys. Flags win over it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from nsqc.options.declared import FLAGS, KEYS, OptionError
from nsqc.options.values import from_toml

NEAR = 0.8  # how alike an unknown key must be to a known one to count as a slip of the keyboard


class Reading(NamedTuple):
    """What stands in a file: values by attribute name, keys that are no options, and what stops a start, by key."""

    found: dict[str, Any]
    unknown: list[str]
    problems: list[tuple[str, str]]


def read_config(path: str) -> tuple[dict[str, Any], list[str]]:
    """Attribute names and values of a file, and the keys that are no options. Raises OptionError.

    As with the original, unknown keys are passed over, for files are shared between tools and releases; but one that
    looks like a misspelt option is refused. Values out of range are left to options.check.
    """
    import tomllib  # here, for most daemons have no such file

    try:
        tables = tomllib.loads(read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"failed to load config file {path} - {error}") from None
    found, unknown, problems = interpret(tables)
    for _, text in problems:
        raise OptionError(f"config file {path}: {text}")
    return found, unknown


def read_text(path: str) -> str:
    """The text of a file. Raises OptionError."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise OptionError(f"failed to load config file {path} - {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise OptionError(f"failed to load config file {path} - {error}") from None


def interpret(tables: Mapping[str, Any]) -> Reading:
    """What the keys and values of a file stand for, in the file's order."""
    reading = Reading({}, [], [])
    for key, value in tables.items():
        name = KEYS.get(key)
        if name is None:
            if meant := likely_key(key, tables):
                reading.problems.append((key, f"unknown key {key!r}, did you mean {meant}?"))
            else:
                reading.unknown.append(key)
            continue
        try:
            reading.found[name] = from_toml(FLAGS[name].kind, value)
        except ValueError as error:
            reading.problems.append((key, f"{key} = {value!r} cannot be used - {error}"))
    return reading


def likely_key(key: str, given: Collection[str]) -> str:
    """The option's key that a key nearly is, or whose flag's name it is where the key is another; empty: none.

    None where that option is given beside it: then the file serves several tools, whose keys may be alike.
    """
    plain = key.lower().replace("-", "_")
    near = [known for known, name in KEYS.items() if plain in (known, name)]
    if not near:
        import difflib  # for those who mistype only

        near = difflib.get_close_matches(plain, KEYS, n=1, cutoff=NEAR)
    return near[0] if near and near[0] not in given else ""
