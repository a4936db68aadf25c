"""Durations as Go reads and writes them: 250ms, 1h30m, -1.5h; days, as in 7d, are read, too. In Python they are
integers, in nanoseconds."""

from __future__ import annotations

import re

MS, S = 10**6, 10**9
MINUTE, HOUR = 60 * S, 3600 * S
UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": MS, "s": S, "m": MINUTE, "h": HOUR, "d": 24 * HOUR}
PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d)")
LARGEST = 2**63 - 1
LONGEST_TEXT = 256  # characters: more digits than realistic, few enough for exact fractions


def parse_duration(text: str) -> int:
    """Nanoseconds. Only 0 may lack a unit. Raises ValueError."""
    unsigned = text[1:] if text[:1] in ("+", "-") else text
    if unsigned == "0":
        return 0
    total, at = 0, 0
    while len(text) <= LONGEST_TEXT and (part := PART.match(unsigned, at)):
        # Each part is truncated to nanoseconds, as in Go.
        whole, _, digits = part[1].partition(".")
        total += int(whole + digits) * UNITS[part[2]] // 10 ** len(digits)
        at = part.end()
    if at == 0 or at != len(unsigned):
        raise ValueError(f"{text[:LONGEST_TEXT]!r} is not a duration such as 250ms, 1h30m or 7d")
    if total > LARGEST:
        raise ValueError(f"{text!r} is longer than a duration can be")
    return -total if text[0] == "-" else total


def format_duration(nanoseconds: int) -> str:
    """As Go prints it: 1h30m0s, 2.5s, 250ms, 12.3µs, 0s."""
    sign, left = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if left == 0:
        return "0s"
    for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if left < size * 1000:
            return f"{sign}{decimal(left, size)}{unit}"
    minutes, seconds = divmod(left, UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{decimal(seconds, UNITS['s'])}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def decimal(value: int, size: int) -> str:
    """value / size without trailing zeros."""
    whole, rest = divmod(value, size)
    if not rest:
        return str(whole)
    return f"{whole}." + f"{rest:0{len(str(size)) - 1}d}".rstrip("0")
