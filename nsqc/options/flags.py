"""The flags of `nsqc serve`, in the grammar of Go's flag package.

-name and --name are the same; a value stands behind = or is the next word; a boolean takes a value behind = only. The
last of repeated flags counts, but lists grow. Behind -- or the first word that is no flag nothing may follow.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from nsqc.log import LEVELS
from nsqc.options.declared import FLAGS, TLS_VERSIONS, Flag, Kind, Options, flag_name
from nsqc.options.durations import format_duration
from nsqc.options.values import from_text

NAMES = {name.replace("_", "-"): name for name in FLAGS}
LISTS = (Kind.TEXTS, Kind.FLOATS)
NEAR = 0.8  # how alike a name must be to be proposed
IMPLIED = {Kind.BOOL: "true", Kind.TLS_REQUIRED: "true"}


class FlagError(ValueError):
    """Flags that cannot be read; the text is one line for the operator."""


class HelpWanted(Exception):
    """-h, -help or --help stands among the flags."""


def parse_flags(words: list[str]) -> dict[str, Any]:
    """Attribute names and values of the flags given. Raises FlagError, HelpWanted."""
    found: dict[str, Any] = {}
    left = deque(words)
    while left:
        word = left.popleft()
        if word == "--" and not left:
            break
        if word == "--" or len(word) < 2 or word[0] != "-":
            raise FlagError(f"unexpected argument: {(left[0] if word == '--' else word)!r}")
        name, text = split_flag(word)
        kind = FLAGS[name].kind
        if text is None:
            if kind not in IMPLIED and not left:
                raise FlagError(f"flag needs an argument: {flag_name(name)}")
            text = IMPLIED[kind] if kind in IMPLIED else left.popleft()
        try:
            value = from_text(kind, text)
        except ValueError as error:
            raise FlagError(f"invalid value for flag {flag_name(name)}: {error}") from None
        found[name] = joined(kind, found.get(name, ()), value) if kind in LISTS else value
    return found


def split_flag(word: str) -> tuple[str, str | None]:
    """A flag's attribute name, and the text behind = if there is one. Raises FlagError, HelpWanted."""
    flag, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
    if not flag or flag[0] == "-":
        raise FlagError(f"bad flag syntax: {word!r}")
    if flag in NAMES:
        return NAMES[flag], text if equals else None
    if flag in ("h", "help"):
        raise HelpWanted
    import difflib  # for those who mistype only: it would take its part of every start

    near = difflib.get_close_matches(flag, NAMES, n=1, cutoff=NEAR)
    raise FlagError(f"unknown flag: {word.partition('=')[0]!r}" + (f", did you mean --{near[0]}?" if near else ""))


def joined(kind: Kind, before: tuple[Any, ...], value: tuple[Any, ...]) -> tuple[Any, ...]:
    """A list that grows with each flag; numbers come highest first, as in nsqd."""
    return tuple(sorted(before + value, reverse=True)) if kind is Kind.FLOATS else before + value


def show(kind: Kind, value: Any) -> str:
    """A value as it would be written."""
    if kind is Kind.DURATION:
        return format_duration(value)
    if kind is Kind.BOOL:
        return str(value).lower()
    if kind is Kind.LEVEL:
        return next(name for name, level in LEVELS.items() if level == value)
    if kind is Kind.TLS_VERSION:
        return next(name for name, version in TLS_VERSIONS.items() if version == value)
    if kind is Kind.TLS_REQUIRED:
        return ("false", "tcp-https", "true")[value]
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


def plain(kind: Kind, value: Any) -> Any:
    """A value as TOML and JSON have it: a boolean, a number, text or a list."""
    if kind is Kind.TLS_REQUIRED:
        return (False, "tcp-https", True)[value]
    if isinstance(value, tuple):
        return list(value)
    return value if kind in (Kind.BOOL, Kind.INT) else show(kind, value)


def by_group() -> dict[str, list[str]]:
    """Attribute names under the titles of their groups."""
    groups: dict[str, list[str]] = {}
    for name, flag in FLAGS.items():
        groups.setdefault(flag.group, []).append(name)
    return groups


def help_text() -> str:
    """All flags, grouped."""
    import shutil  # with textwrap, for this text only: they would take their part of every start
    import textwrap

    width = max(60, min(shutil.get_terminal_size().columns, 110))
    lines = ["Usage: nsqc serve [FLAGS]", "",
             "Flags are nsqd's: -name and --name are the same, a value follows after = or as the next word.",
             "Durations are written like 250ms, 1.5s or 1h30m."]
    for group, names in by_group().items():
        lines += ["", f"{group}:"]
        for name in names:
            lines.append(f"  {flag_name(name)}  {FLAGS[name].kind.value}")
            lines += textwrap.wrap(describe(name), width, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines)


def describe(name: str) -> str:
    """An option's help with its default, and what is special about it."""
    flag = FLAGS[name]
    shown = show(flag.kind, getattr(Options(), name))
    notes = [f"default {shown}"] if shown not in ("", "false") else []
    notes += marks(flag)
    return flag.help + (f" ({'; '.join(notes)})" if notes else "")


def marks(flag: Flag) -> list[str]:
    """What is special about an option."""
    return [text for text, true in (("not in nsqd", flag.own), ("changes on SIGHUP", is_live(flag))) if true]


def is_live(flag: Flag) -> bool:
    """Whether an option may change while the daemon runs, by SIGHUP. False where options do not declare it."""
    return getattr(flag, "live", False)
