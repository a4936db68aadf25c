"""The flags of NSQ's tools: their values, and the errors and the list of flags as Go's flag package prints them."""

from __future__ import annotations

from collections import deque

from nsqc.options.durations import format_duration
from nsqc.options.goflags import FlagError, flags_in
from nsqc.options.option import Kind, Option, Value
from nsqc.options.values import from_text
from nsqc.tools.declare import Values, initial

SHORT = 4       # "  -x": Go prints the text of such a flag on the same line


def parse(flags: tuple[Option, ...], words: list[str]) -> Values:
    """Raises FlagError, HelpWanted."""
    values = {flag.name: initial(flag) for flag in flags}
    given: set[str] = set()
    rest = deque(words)
    for flag, text in flags_in(rest, {flag.name: flag for flag in flags}):
        value, before = converted(flag, text), values[flag.name]
        values[flag.name] = (*map(str, before), text) if isinstance(before, tuple) else value
        given.add(flag.name)
    return Values(values, frozenset(given), tuple(rest))


def converted(flag: Option, text: str) -> Value:
    """The value of a flag. Raises FlagError."""
    try:
        if flag.check is not None:
            flag.check(text)
        return from_text(flag.kind, text)
    except ValueError as error:
        if flag.kind is Kind.BOOL:
            raise FlagError(f'invalid boolean value "{text}" for -{flag.name}: parse error') from None
        reason = error if flag.check is not None else "parse error"
        raise FlagError(f'invalid value "{text}" for flag -{flag.name}: {reason}') from None


def usage(name: str, flags: tuple[Option, ...]) -> str:
    """The list of flags, by name."""
    lines = [f"Usage of {name}:"]
    for flag in sorted(flags, key=lambda flag: flag.name):
        word = "value" if flag.many or flag.check is not None else flag.kind.value
        head = f"  -{flag.name}" + ("" if flag.kind is Kind.BOOL else f" {word}")
        between = "\t" if len(head) <= SHORT else "\n    \t"
        lines.append(f"{head}{between}{flag.help}{default(flag)}")
    return "\n".join(lines)


def default(flag: Option) -> str:
    """The default, unless it is the type's zero value."""
    if not flag.default:
        return ""
    if flag.kind is Kind.TEXT:
        return f' (default "{flag.default}")'
    if flag.kind is Kind.DURATION and isinstance(flag.default, int):
        return f" (default {format_duration(flag.default)})"
    return f" (default {flag.default:g})" if isinstance(flag.default, float) else f" (default {flag.default})"
