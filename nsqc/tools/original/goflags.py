"""Flags in the grammar of Go's flag package, with its errors and its list of flags."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from nsqc.options.durations import format_duration, parse_duration

Value: TypeAlias = bool | int | float | str | tuple[str, ...]
TRUE = ("1", "t", "T", "true", "TRUE", "True")
FALSE = ("0", "f", "F", "false", "FALSE", "False")
NS_PER_S = 10**9
SHORT = 4       # "  -x": Go prints the text of such a flag on the same line


class Flag(NamedTuple):
    """kind: bool, int, float, duration (seconds), string, or value, which may be repeated. check: raises ValueError for
    one of its values."""

    name: str
    kind: str
    default: Value
    help: str
    check: Callable[[str], None] | None = None


class FlagError(ValueError):
    """The flags are invalid."""


class HelpWanted(Exception):
    """-h, or -help."""


class Flags:
    """The values of flags, and the words after them."""

    def __init__(self, values: dict[str, Value], given: frozenset[str], rest: tuple[str, ...]):
        self._values, self._given, self.rest = values, given, rest

    def given(self, name: str) -> bool:
        """Whether the command line sets it."""
        return name in self._given

    def on(self, name: str) -> bool:
        """A bool."""
        return self._values[name] is True

    def text(self, name: str) -> str:
        """A string."""
        return str(self._values[name])

    def texts(self, name: str) -> tuple[str, ...]:
        """A value."""
        value = self._values[name]
        return value if isinstance(value, tuple) else ()

    def number(self, name: str) -> int:
        """An int."""
        return int(self.decimal(name))

    def decimal(self, name: str) -> float:
        """A float, or a duration in seconds."""
        value = self._values[name]
        return float(value) if isinstance(value, (int, float)) else 0.0


def parse(flags: tuple[Flag, ...], words: list[str]) -> Flags:
    """Raises FlagError, HelpWanted. The first word that is not a flag ends the flags."""
    by_name = {flag.name: flag for flag in flags}
    values = {flag.name: flag.default for flag in flags}
    given: set[str] = set()
    rest = deque(words)
    while rest and len(rest[0]) > 1 and rest[0][0] == "-":
        word = rest.popleft()
        if word == "--":
            break
        name, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
        if not name or name[0] in "-=":
            raise FlagError(f"bad flag syntax: {word}")
        flag = by_name.get(name)
        if flag is None:
            if name in ("h", "help"):
                raise HelpWanted
            raise FlagError(f"flag provided but not defined: -{name}")
        if flag.kind == "bool" and not equals:
            text = "true"
        elif not equals:
            if not rest:
                raise FlagError(f"flag needs an argument: -{name}")
            text = rest.popleft()
        value = converted(flag, text)
        before = values[name]
        values[name] = (*before, text) if isinstance(before, tuple) else value
        given.add(name)
    return Flags(values, frozenset(given), tuple(rest))


def converted(flag: Flag, text: str) -> Value:
    """The value of a flag. Raises FlagError."""
    try:
        if flag.check is not None:
            flag.check(text)
        return CONVERSIONS[flag.kind](text)
    except ValueError as error:
        if flag.kind == "bool":
            raise FlagError(f'invalid boolean value "{text}" for -{flag.name}: parse error') from None
        reason = error if flag.check is not None else "parse error"
        raise FlagError(f'invalid value "{text}" for flag -{flag.name}: {reason}') from None


def truth(text: str) -> bool:
    """Raises ValueError."""
    if text not in TRUE + FALSE:
        raise ValueError(text)
    return text in TRUE


def whole(text: str) -> int:
    """Decimal, 0x, 0o, 0b or octal after 0, in 64 bits. Raises ValueError."""
    digits = text.lstrip("+-")
    value = int(text, 8) if len(digits) > 1 and digits.isdecimal() and digits[0] == "0" else int(text, 0)
    if text != text.strip() or not -2**63 <= value < 2**63:
        raise ValueError(text)
    return value


CONVERSIONS: dict[str, Callable[[str], Value]] = {
    "bool": truth, "int": whole, "float": float, "string": str, "value": str,
    "duration": lambda text: parse_duration(text) / NS_PER_S}


def usage(name: str, flags: tuple[Flag, ...]) -> str:
    """The list of flags, by name."""
    lines = [f"Usage of {name}:"]
    for flag in sorted(flags):
        head = f"  -{flag.name}" + ("" if flag.kind == "bool" else f" {flag.kind}")
        between = "\t" if len(head) <= SHORT else "\n    \t"
        lines.append(f"{head}{between}{flag.help}{default(flag)}")
    return "\n".join(lines)


def default(flag: Flag) -> str:
    """The default, unless it is the type's zero value."""
    if flag.default in (False, 0, "", ()):
        return ""
    if flag.kind == "string":
        return f' (default "{flag.default}")'
    if flag.kind == "duration" and isinstance(flag.default, float):
        return f" (default {format_duration(round(flag.default * NS_PER_S))})"
    return f" (default {flag.default:g})" if isinstance(flag.default, float) else f" (default {flag.default})"
