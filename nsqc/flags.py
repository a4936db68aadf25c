"""The flags of `nsqc serve`, in the grammar of Go's flag package.

-name and --name are the same; a value stands behind = or is the next word; a boolean takes a value behind = only. The
last of repeated flags counts, but lists grow. Behind -- or the first word that is no flag nothing may follow.
"""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

from nsqc.durations import format_duration
from nsqc.options import FLAGS, HIDDEN, LEVELS, TLS_VERSIONS, Kind, Options, flag_name
from nsqc.values import from_text

NAMES = {name.replace("_", "-"): name for name in FLAGS if name not in HIDDEN}
IMPLIED = {Kind.BOOL: "true", Kind.TLS_REQUIRED: "true"}


class FlagError(ValueError):
    """Flags that cannot be read; the text is one line for the operator."""


class HelpWanted(Exception):
    """-h, -help or --help stands among the flags."""


def parse_flags(words: list[str]) -> dict[str, Any]:
    """Attribute names and values of the flags given. Raises FlagError, HelpWanted."""
    found: dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--" or len(word) < 2 or word[0] != "-":
            if word == "--" and not left:
                break
            raise FlagError(f"unexpected argument: {left[0] if word == '--' else word}")
        flag, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
        if not flag or flag[0] == "-":
            raise FlagError(f"bad flag syntax: {word}")
        if flag in ("h", "help") and flag not in NAMES:
            raise HelpWanted
        if flag not in NAMES:
            raise FlagError(f"flag provided but not defined: -{flag}")
        name = NAMES[flag]
        kind = FLAGS[name].kind
        if not equals:
            if kind in IMPLIED:
                text = IMPLIED[kind]
            elif left:
                text = left.pop(0)
            else:
                raise FlagError(f"flag needs an argument: -{flag}")
        try:
            value = from_text(kind, text)
        except ValueError as error:
            raise FlagError(f"invalid value {text!r} for flag -{flag}: {error}") from None
        found[name] = found.get(name, ()) + value if kind in (Kind.TEXTS, Kind.FLOATS) else value
    return found


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


def help_text() -> str:
    """All flags, grouped."""
    width = max(60, min(shutil.get_terminal_size().columns, 110))
    defaults = Options()
    lines = ["Usage: nsqc serve [FLAGS]", "",
             "Flags are nsqd's: -name and --name are the same, a value follows after = or as the next word."]
    groups = dict.fromkeys(flag.group for flag in FLAGS.values())
    for group in groups:
        lines += ["", f"{group}:"]
        for name, flag in FLAGS.items():
            if flag.group != group or name in HIDDEN:
                continue
            lines.append(f"  {flag_name(name)}  {flag.kind.value}")
            shown = show(flag.kind, getattr(defaults, name))
            text = flag.help + (f" (default {shown})" if shown not in ("", "false") else "")
            lines += textwrap.wrap(text, width, initial_indent=" " * 8, subsequent_indent=" " * 8)
    return "\n".join(lines)
