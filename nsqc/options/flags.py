"""The flags of `nsqc serve` and `nsqc lookupd`, in the grammar of Go's flag package.

-name and --name are the same. A value follows after = or as the next word; for a boolean, after = only. If a flag is
repeated the last one counts, but lists grow. Words that are not flags are refused, and so is anything after --.
"""

from __future__ import annotations

from collections import deque

from nsqc.log import LEVELS
from nsqc.log.secrets import mask_address
from nsqc.options.declared import SERVE, TLS_VERSIONS, Declaration, Flag, Kind, OptionSet, Value, flag_name
from nsqc.options.durations import format_duration
from nsqc.options.values import from_text

NEAR = 0.8  # similarity from which a name is suggested
IMPLIED = {Kind.BOOL: "true", Kind.TLS_REQUIRED: "true"}


class FlagError(ValueError):
    """Flags that cannot be read; the text is one line for the operator."""


class HelpWanted(Exception):
    """One of the flags is -h, -help or --help."""


def parse_flags(words: list[str], declaration: Declaration[OptionSet] = SERVE) -> dict[str, Value]:
    """The values of the flags, by attribute name. Raises FlagError, HelpWanted."""
    values: dict[str, Value] = {}
    rest = deque(words)
    while rest:
        word = rest.popleft()
        if word == "--" and not rest:
            break
        if word == "--" or len(word) < 2 or word[0] != "-":
            raise FlagError(f"unexpected argument: {(rest[0] if word == '--' else word)!r}")
        name, text = split_flag(word, declaration)
        kind = declaration.flags[name].kind
        if text is None:
            if kind not in IMPLIED and not rest:
                raise FlagError(f"flag needs an argument: {flag_name(name)}")
            text = IMPLIED[kind] if kind in IMPLIED else rest.popleft()
        try:
            value = from_text(kind, text)
        except ValueError as error:
            raise FlagError(f"invalid value for flag {flag_name(name)}: {error}") from None
        values[name] = joined(kind, values.get(name, ()), value)
    return values


def split_flag(word: str, declaration: Declaration[OptionSet]) -> tuple[str, str | None]:
    """A flag's attribute name, and the text after = if there is one. Raises FlagError, HelpWanted."""
    flag, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
    if not flag or flag[0] == "-":
        raise FlagError(f"bad flag syntax: {word!r}")
    name = flag.replace("-", "_")
    if name in declaration.flags and "_" not in flag:
        return name, text if equals else None
    if flag in ("h", "help"):
        raise HelpWanted
    import difflib  # only after a typo: it would slow every start

    near = difflib.get_close_matches(flag, [known.replace("_", "-") for known in declaration.flags], n=1, cutoff=NEAR)
    raise FlagError(f"unknown flag: {word.partition('=')[0]!r}" + (f", did you mean --{near[0]}?" if near else ""))


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


def marks(flag: Flag, declaration: Declaration[OptionSet] = SERVE) -> list[str]:
    """Properties that distinguish an option from most."""
    texts = ((f"not in {declaration.original}", flag.own), ("changes on SIGHUP", flag.live))
    return [text for text, applies in texts if applies]
