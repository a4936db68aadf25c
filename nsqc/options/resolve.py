"""Resolves flags, environment and config file to the options of a server, with the source of each value."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Generic, NamedTuple

from nsqc.options.declared import Chosen, Declaration, Field, OptionError, Options
from nsqc.options.file import read_config
from nsqc.options.option import Value


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
    options = declaration.options().replace(**{**values, **flags}).numbered()
    declaration.check(options)
    if isinstance(options, Options) and (options.lookupd_tcp_address or options.auth_http_address
                                         or options.statsd_address):
        from nsqc.options.check import unreachable  # here: few daemons need it, and it needs the parser of URLs

        for _, text in unreachable(options):
            raise OptionError(text)
    return options
