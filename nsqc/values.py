"""Option values from text, as flags have them, and from TOML, as config files do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from nsqc.durations import parse_duration
from nsqc.options import (
    FLUSH_RULES,
    LEVELS,
    TLS_NOT_REQUIRED,
    TLS_REQUIRED,
    TLS_REQUIRED_EXCEPT_HTTP,
    TLS_VERSIONS,
    Kind,
)

TRUE = ("1", "t", "T", "true", "TRUE", "True")
FALSE = ("0", "f", "F", "false", "FALSE", "False")
NS_PER_MS = 10**6


def parse_bool(text: str) -> bool:
    """As Go reads them."""
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def parse_int(text: str) -> int:
    """Decimal, or with Go's prefixes 0x, 0o, 0b."""
    with contextlib.suppress(ValueError):
        number = int(text, 10 if text.lstrip("+-").isdigit() else 0)
        if -(2**63) <= number < 2**63:
            return number
    raise ValueError(f"{text!r} is no whole number")


def parse_level(text: str) -> int:
    """A log level by name."""
    if text.lower() not in LEVELS:
        raise ValueError(f"{text!r} is no log level ({', '.join(LEVELS)})")
    return LEVELS[text.lower()]


def parse_tls_required(text: str) -> int:
    """true, false or tcp-https."""
    if text.lower() == "tcp-https":
        return TLS_REQUIRED_EXCEPT_HTTP
    return TLS_REQUIRED if parse_bool(text.lower()) else TLS_NOT_REQUIRED


def parse_tls_version(text: str) -> int:
    """tls1.0 to tls1.3."""
    if text.lower() not in TLS_VERSIONS:
        raise ValueError(f"{text!r} is no TLS version ({', '.join(TLS_VERSIONS)})")
    return TLS_VERSIONS[text.lower()]


def parse_flush(text: str) -> str:
    """turn or timeout."""
    if text not in FLUSH_RULES:
        raise ValueError(f"{text!r} is none of {', '.join(FLUSH_RULES)}")
    return text


def parse_floats(text: str) -> tuple[float, ...]:
    """Comma separated."""
    return tuple(float(part) for part in text.split(","))


def parse_texts(text: str) -> tuple[str, ...]:
    """Comma separated."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


FROM_TEXT: dict[Kind, Callable[[str], Any]] = {
    Kind.BOOL: parse_bool, Kind.INT: parse_int, Kind.TEXT: str, Kind.DURATION: parse_duration,
    Kind.TEXTS: parse_texts, Kind.FLOATS: parse_floats, Kind.LEVEL: parse_level,
    Kind.TLS_REQUIRED: parse_tls_required, Kind.TLS_VERSION: parse_tls_version, Kind.FLUSH: parse_flush,
}


def from_text(kind: Kind, text: str) -> Any:
    """The value that a flag's text stands for. Raises ValueError."""
    return FROM_TEXT[kind](text)


def from_toml(kind: Kind, value: Any) -> Any:
    """The value that a config file's value stands for. Raises ValueError.

    As with the original, numbers and booleans may be text as well, and a duration as a plain number is milliseconds.
    """
    if isinstance(value, list):
        if kind not in (Kind.TEXTS, Kind.FLOATS):
            raise ValueError("a list is not expected here")
        return tuple(one for part in value for one in from_toml(kind, part))
    if isinstance(value, bool):
        if kind not in (Kind.BOOL, Kind.TLS_REQUIRED):
            raise ValueError("true and false are not expected here")
        return from_text(kind, str(value).lower())
    if isinstance(value, int) and kind is Kind.DURATION:
        return value * NS_PER_MS
    if isinstance(value, (int, float)):
        if kind in (Kind.TEXT, Kind.TEXTS, Kind.LEVEL, Kind.FLUSH):
            raise ValueError("a number is not expected here")
        return from_text(kind, str(value))
    if isinstance(value, str):
        return from_text(kind, value)
    raise ValueError(f"a {type(value).__name__} is not expected here")
