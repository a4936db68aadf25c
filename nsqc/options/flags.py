"""The flags of `nsqc serve`, `nsqc lookupd` and `nsqc admin`, and the text forms of values.

If a flag is repeated the last one counts, but lists grow. Words that are not flags are refused.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Collection, Mapping

from nsqc.log import LEVELS
from nsqc.log.formats import mask_address
from nsqc.options.declared import SERVE, Declaration, OptionSet, flag_name
from nsqc.options.option import (
    TLS_VERSIONS,
    FlagError,
    Kind,
    Option,
    UnknownFlag,
    Value,
    flags_in,
    format_duration,
    from_text,
)

# ====================================================================== environment
# Options in environment variables: NSQC_MEM_QUEUE_SIZE is --mem-queue-size. Flags win over them, they win over the
# config file.

PREFIX = "NSQC_"
NOT_OPTIONS = ("version",)      # instructions; images and compose files have NSQC_VERSION for their own purposes
# Names that other parts of nsqc read, or that say how it was built.
OTHERS = ("NSQC_AUTH_SECRET", "NSQC_TOKEN", "NSQC_SPARK_LOG", "NSQC_VERBOSE", "NSQC_PROGRESS", "NSQC_VERSION",
          "NSQC_BUILD")
FOR_TESTS = "NSQC_TEST_"
# Kubernetes sets these in every container of a namespace that has a service named nsqc or nsqc-*.
SERVICE_LINK = re.compile(r"NSQC_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)")
NEAR_NAME = 0.6      # similarity from which a name is suggested


def variable(name: str) -> str:
    """The environment variable of an option, by its attribute name."""
    return PREFIX + name.upper()


def from_environment(declaration: Declaration[OptionSet] = SERVE, environment: Mapping[str, str] = os.environ
                     ) -> dict[str, Value]:
    """The options in the environment, by attribute name. A variable's text has the flag's form; lists are
    comma-separated. Raises FlagError, also for an unknown name: an option must not be lost to a typo."""
    known = {variable(name): name for name in declaration.flags if name not in NOT_OPTIONS}
    values: dict[str, Value] = {}
    for given, text in environment.items():
        if not given.startswith(PREFIX):
            continue
        if given in known:
            try:
                values[known[given]] = from_text(declaration.flags[known[given]].kind, text)
            except ValueError as error:
                raise FlagError(f"invalid value in environment variable {given}: {error}") from None
        elif not is_ignored(given):
            raise FlagError(unknown(given, [*known], declaration.command))
    return values


def is_ignored(given: str) -> bool:
    """Whether a name that is not an option's has another purpose."""
    return given in OTHERS or given.startswith(FOR_TESTS) or SERVICE_LINK.fullmatch(given) is not None


def unknown(given: str, known: list[str], command: str) -> str:
    """The error for an unknown name."""
    import difflib  # only after a typo

    # Without the common prefix.
    names = [name.removeprefix(PREFIX) for name in known]
    near = difflib.get_close_matches(given.removeprefix(PREFIX), names, n=1, cutoff=NEAR_NAME)
    return (f"environment variable {given} is not an option of {command}" +
            (f"; did you mean {PREFIX}{near[0]}?" if near else "; unset it"))


# ====================================================================== flags

NEAR = 0.8  # similarity from which a name is suggested


def parse_flags(words: list[str], declaration: Declaration[OptionSet] = SERVE) -> dict[str, Value]:
    """The values of the flags, by attribute name. Raises FlagError, HelpWanted."""
    values: dict[str, Value] = {}
    rest = deque(words)
    known = {option.name: option for option in declaration.flags.values()}
    try:
        for option, text in flags_in(rest, known):
            name = option.name.replace("-", "_")
            try:
                value = from_text(option.kind, text)
            except ValueError as error:
                raise FlagError(f"invalid value for flag --{option.name}: {error}") from None
            values[name] = joined(option.kind, values.get(name, ()), value)
    except UnknownFlag as error:
        raise FlagError(f"unknown flag: {error.word!r}{suggestion(error.name, known)}") from None
    if rest:
        raise FlagError(f"unexpected argument: {rest[0]!r}")
    return values


def suggestion(name: str, known: Collection[str]) -> str:
    """The flag that was probably meant, as the end of an error; empty: none."""
    import difflib  # only after a typo: it would slow every start

    near = difflib.get_close_matches(name, known, n=1, cutoff=NEAR)
    return f", did you mean --{near[0]}?" if near else ""


def joined(kind: Kind, previous: Value, value: Value) -> Value:
    """The value of a repeated flag: lists grow, others are replaced. Numbers are sorted as in nsqd, highest first."""
    if not (isinstance(previous, tuple) and isinstance(value, tuple)):
        return value
    if kind is Kind.FLOATS:
        return tuple(sorted(map(float, (*previous, *value)), reverse=True))
    return tuple(map(str, (*previous, *value)))


def show(kind: Kind, value: Value) -> str:
    """A value as text that a flag accepts."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, (str, float)):
        return str(value)
    if kind is Kind.DURATION:
        return format_duration(value)
    if kind is Kind.LEVEL:
        return next(name for name, level in LEVELS.items() if level == value)
    if kind is Kind.TLS_VERSION:
        return next(name for name, version in TLS_VERSIONS.items() if version == value)
    if kind is Kind.TLS_REQUIRED:
        return ("false", "tcp-https", "true")[value]
    return str(value)


def shown(kind: Kind, value: Value) -> str:
    """The same for people: without passwords in addresses."""
    if isinstance(value, tuple):
        return ",".join(mask_address(str(item)) for item in value)
    return mask_address(show(kind, value))


def plain(kind: Kind, value: Value) -> bool | int | float | str | list[str | float]:
    """A value in the form of TOML and JSON: a boolean, a number, text or a list."""
    if isinstance(value, tuple):
        return [*value]
    if kind in (Kind.BOOL, Kind.INT, Kind.FLOAT):
        return value
    if kind is Kind.TLS_REQUIRED and isinstance(value, int):
        return (False, "tcp-https", True)[value]
    return show(kind, value)


def help_text(declaration: Declaration[OptionSet] = SERVE) -> str:
    """All flags, grouped."""
    import shutil  # here, with textwrap: they would slow every start
    import textwrap

    width = max(60, min(shutil.get_terminal_size().columns, 110))
    lines = [f"Usage: {declaration.command} [FLAGS]", "",
             f"Flags are {declaration.original}'s: -name and --name are the same, a value follows after = or as the "
             "next word.",
             "Durations are written like 250ms, 1h30m or 7d.",
             "NSQC_LOG_LEVEL in the environment is --log-level, and so on; flags win over variables, these over files."]
    for group, names in declaration.by_group().items():
        lines += ["", f"{group}:"]
        for name in names:
            lines.append(f"  {flag_name(name)}  {declaration.flags[name].kind.value}")
            text = describe(name, declaration)
            lines += textwrap.wrap(text, width, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines)


def describe(name: str, declaration: Declaration[OptionSet] = SERVE) -> str:
    """An option's help with its default and its marks."""
    flag = declaration.flags[name]
    default = show(flag.kind, declaration.options().value(name))
    notes = [f"default {default}"] if default not in ("", "false") else []
    notes += marks(flag, declaration)
    return flag.help + (f" ({'; '.join(notes)})" if notes else "")


def marks(flag: Option, declaration: Declaration[OptionSet] = SERVE) -> list[str]:
    """Properties that distinguish an option from most."""
    texts = ((f"not in {declaration.original}", flag.own), ("changes on SIGHUP", flag.live))
    return [text for text, applies in texts if applies]
