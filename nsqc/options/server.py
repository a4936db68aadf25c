"""Resolves flags, environment and config file to the options of the lookup server or the admin server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple

from nsqc.options.declared import Chosen, Declaration, Field, OptionError, OptionSet, unknown_choice
from nsqc.options.file import read_config
from nsqc.options.option import Value
from nsqc.options.resolve import source


class Effective(NamedTuple, Generic[Chosen]):
    """Options as they take effect, the source of each value by config key, and warnings by unknown key of the file."""

    options: Chosen
    sources: dict[str, str]
    unknown: dict[str, str]


def effective(declaration: Declaration[Chosen], words: Mapping[str, Value], environment: Mapping[str, Value]
              ) -> Effective[Chosen]:
    """The options of flags, environment variables and the config file that they name. Raises OptionError."""
    flags = {**environment, **words}
    values: dict[str, Field] = {}
    unknown: dict[str, str] = {}
    if flags.get("config"):
        values, unknown = read_config(str(flags["config"]), declaration)
    options = declaration.options().replace(**{**values, **flags})
    for _, text in invalid(declaration, options):
        raise OptionError(text)
    sources = {key: source(name, words, environment, values) for key, name in declaration.keys.items()}
    return Effective(options, sources, unknown)


def invalid(declaration: Declaration[OptionSet], options: OptionSet) -> Iterable[tuple[str, str]]:
    """Attribute name and a line for the operator, for each value that no server of that kind accepts."""
    return (*declaration.out_of_range(options), *unknown_choice(options))
