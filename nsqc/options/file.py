"""The config file: TOML with nsqd's keys. Flags win over it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, cast

from nsqc.options.declared import SERVE, Declaration, Field, OptionError, OptionSet, RuleTable, RuleValue
from nsqc.options.option import from_toml
from nsqc.options.rule_tables import BY_KEY, Place, json_value, read_tables


class TomlError(ValueError):
    """The text is not TOML; says why and, if the parser knows, where: `at line N`."""


# Any: TOML
def parse_toml(text: str) -> dict[str, Any]:
    """The tables of a file. Raises TomlError."""
    import tomllib  # here, because most daemons have no config file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TomlError(str(error)) from None
    except RecursionError:
        raise TomlError("a value is nested too deeply") from None


NEAR = 0.8  # similarity to a known key from which an unknown one counts as a typo


class Reading(NamedTuple):
    """The content of a file: values by attribute name, warnings by unknown key, and faults with their places."""

    values: dict[str, Field]
    unknown: dict[str, str]
    problems: list[tuple[Place, str]]


def read_config(path: str, declaration: Declaration[OptionSet] = SERVE) -> tuple[dict[str, Field], dict[str, str]]:
    """The values of a file by attribute name, and a warning for each unknown key. Raises OptionError.

    As with nsqd, unknown keys are ignored, because tools and releases share files; but one that looks like a misspelt
    option is refused. A key with a dash is ignored, however close it is: nsq's own example files had `log-level`, which
    nsqd ignores. Values out of range are left to declared.check.
    """
    try:
        tables = parse_toml(read_text(path))
    except TomlError as error:
        raise OptionError(f"failed to load config file {path} - {error}") from None
    values, unknown, problems = interpret(tables, declaration)
    for _, text in problems:
        raise OptionError(f"config file {path}: {text}")
    return values, unknown


def read_rules(path: str) -> dict[str, dict[str, dict[str, RuleValue]]]:
    """The tables of a file of rules, in the form of PUT /rules: by scope, glob and key. Raises OptionError."""
    try:
        given = parse_toml(read_text(path))
        reading = interpret(given)
        problems = [text for _, text in reading.problems]
        problems += [f"unknown key {key!r}: a file of rules has tables {', '.join(BY_KEY)}"
                     for key in given.keys() - BY_KEY]
        for text in problems:
            raise ValueError(text)
    except (TomlError, ValueError) as error:
        raise OptionError(f"{path}: {str(error).removeprefix(f'failed to load config file {path} - ')}") from None
    tables = {key: cast("tuple[RuleTable, ...]", reading.values.get(key, ())) for key in BY_KEY}
    return {key: {table.glob: {name: json_value(scope.flags[name].kind, value) for name, value in table.values.items()}
                  for table in tables[key]} for key, scope in BY_KEY.items()}


def read_text(path: str) -> str:
    """The text of a file. Raises OptionError."""
    try:
        with open(path, encoding="utf-8-sig") as file:      # some editors put a byte order mark before the text
            return file.read()
    except OSError as error:
        raise OptionError(f"failed to load config file {path} - {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise OptionError(f"failed to load config file {path} - {error}") from None


def interpret(tables: Mapping[str, object], declaration: Declaration[OptionSet] = SERVE) -> Reading:
    """The meaning of a file's keys and values, in the file's order."""
    reading = Reading({}, {}, [])
    for key, value in tables.items():
        name = declaration.keys.get(key)
        if key in BY_KEY and declaration.has_tables:
            reading.values[key], problems = read_tables(BY_KEY[key], value)
            reading.problems.extend(problems)
            continue
        if name is None:
            suggestion = likely_key(key, tables, declaration)
            if suggestion and "-" not in key:
                reading.problems.append(((key,), f"unknown key {key!r}, did you mean {suggestion}?"))
            else:
                reading.unknown[key] = f"unknown key {key!r} is ignored" + (
                    f", did you mean {suggestion}?" if suggestion else "")
            continue
        try:
            reading.values[name] = from_toml(declaration.flags[name].kind, value)
        except ValueError as error:
            reading.problems.append(((key,), f"{key} = {value!r} cannot be used - {error}"))
    reading.problems.extend(circles(reading))
    return reading


def circles(reading: Reading) -> Iterator[tuple[Place, str]]:
    """A table whose dead letters would circle, if any."""
    tables = {key: value for key in BY_KEY if isinstance(value := reading.values.get(key, ()), tuple)}
    topics, channels = ([one for one in tables[key] if isinstance(one, RuleTable)] for key in ("topics", "channels"))
    if any("dead_letter" in table.values for table in channels):
        from nsqc.options.rules import circle_in  # here: few files name a dead-letter topic

        if (found := circle_in(topics, channels)) is not None:
            yield ("channels", found[0].glob, "dead_letter"), f"{found[0].title}: {found[1]}"


def likely_key(key: str, given: Collection[str], declaration: Declaration[OptionSet] = SERVE) -> str:
    """The key most likely meant by an unknown one, which may also be the flag's name; empty: none.

    None if that key is given, too: then the file serves several tools, whose keys may be similar.
    """
    plain = key.lower().replace("-", "_")
    near = [known for known, name in declaration.keys.items() if plain in (known, name)]
    if not near:
        import difflib  # only after a typo

        known_keys = [*declaration.keys, *BY_KEY] if declaration.has_tables else [*declaration.keys]
        near = difflib.get_close_matches(plain, known_keys, n=1, cutoff=NEAR)
    return near[0] if near and near[0] not in given else ""
