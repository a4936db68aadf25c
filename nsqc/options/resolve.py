"""Resolves flags, environment and config file to the options of a server, with the source of each value."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Generic, NamedTuple

from nsqc.options import toml
from nsqc.options.declared import SERVE, Chosen, Declaration, Field, OptionError, Options, OptionSet, RuleTable
from nsqc.options.option import Value, from_toml
from nsqc.options.rules import BY_KEY, Place, read_tables

# ====================================================================== file
# The config file: TOML with nsqd's keys. Flags win over it.

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
        tables = toml.parse(read_text(path))
    except toml.TomlError as error:
        raise OptionError(f"failed to load config file {path} - {error}") from None
    values, unknown, problems = interpret(tables, declaration)
    for _, text in problems:
        raise OptionError(f"config file {path}: {text}")
    return values, unknown


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


# ====================================================================== resolve

class Effective(NamedTuple, Generic[Chosen]):
    """Options as they take effect, the source of each value by config key, and warnings by unknown key of the file."""

    options: Chosen
    sources: dict[str, str]
    unknown: dict[str, str]


def resolve(declaration: Declaration[Chosen], flags: Mapping[str, Value]) -> tuple[Chosen, dict[str, str]]:
    """The options of a start, and warnings by unknown key of the config file. Raises OptionError."""
    values, unknown = read_file(declaration, flags)
    options = merged(declaration, values, flags)
    for _, reason in options.unusable():
        raise OptionError(f"failed to instantiate {declaration.original} - {reason}")
    return options, unknown


def resolve_again(declaration: Declaration[Chosen], flags: Mapping[str, Value]) -> tuple[Chosen, dict[str, str]]:
    """Like resolve(), for a reload: a pipe can be read only once, and reading it again would block. Raises
    OptionError."""
    path = str(flags.get("config") or "")
    if path and os.path.exists(path) and not os.path.isfile(path):
        raise OptionError(f"failed to load config file {path} - not a file")
    return resolve(declaration, flags)


def effective(declaration: Declaration[Chosen], words: Mapping[str, Value], environment: Mapping[str, Value]
              ) -> Effective[Chosen]:
    """The options of flags, environment variables and the config file that they name, with the sources and with implied
    options. Raises OptionError."""
    flags = {**environment, **words}
    values, unknown = read_file(declaration, flags)
    given = merged(declaration, values, flags)
    options = given.settled()
    sources = {}
    for key, name in declaration.keys.items():
        sources[key] = source(name, words, environment, values)
        if given.value(name) != options.value(name):
            sources[key] = "tls_client_auth_policy"  # the only option that implies others
    return Effective(options, sources, unknown)


def source(name: str, words: Collection[str], environment: Collection[str], values: Collection[str]) -> str:
    """The source of an option's value: the first of flags, environment and config file that has it."""
    places = (("flag", words), ("environment", environment), ("config file", values))
    return next((place for place, names in places if name in names), "default")


def read_file(declaration: Declaration[Chosen], flags: Mapping[str, Value]
              ) -> tuple[dict[str, Field], dict[str, str]]:
    """Runs read_config() on the file named by the flags, if any. Raises OptionError."""
    return read_config(str(flags["config"]), declaration) if flags.get("config") else ({}, {})


def merged(declaration: Declaration[Chosen], values: Mapping[str, Field], flags: Mapping[str, Value]) -> Chosen:
    """The options from the values of a file and from flags, which win. Raises OptionError."""
    options = declaration.options().replace(**{**values, **flags})
    declaration.check(options)
    if isinstance(options, Options) and (options.lookupd_tcp_address or options.auth_http_address
                                         or options.statsd_address):
        from nsqc.options.check import unreachable  # here: few daemons need it, and it needs the parser of URLs

        for _, text in unreachable(options):
            raise OptionError(text)
    return options
