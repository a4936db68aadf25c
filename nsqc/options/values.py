"""Option values from text, for flags, and from TOML, for config files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

from nsqc.log import LEVELS
from nsqc.options.durations import LARGEST, parse_duration
from nsqc.options.option import Kind, Value
from nsqc.wire.names import is_ephemeral, is_valid_name

TLS_VERSIONS = {"tls1.0": 0x301, "tls1.1": 0x302, "tls1.2": 0x303, "tls1.3": 0x304}
DEFAULT_TLS_VERSION = "tls1.0"
TLS_NOT_REQUIRED, TLS_REQUIRED_EXCEPT_HTTP, TLS_REQUIRED = 0, 1, 2

TRUE = ("1", "t", "T", "true", "TRUE", "True")
FALSE = ("0", "f", "F", "false", "FALSE", "False")
NS_PER_MS = 10**6
INTEGER = re.compile(r"[+-]?[0-9][0-9a-zA-Z_]{0,70}")  # before int(), which would allow blanks, too
OCTAL = re.compile(r"[+-]?0[0-7_]+")
SIZE = re.compile(r"(\d+)([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def parse_bool(text: str) -> bool:
    """As Go's strconv.ParseBool, which reads nsqd's flags; arguments of the HTTP API allow fewer words."""
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def parse_int(text: str) -> int:
    """Decimal, or with Go's prefixes 0x, 0b, 0o or 0; underscores are allowed between digits."""
    if INTEGER.fullmatch(text):
        octal = OCTAL.fullmatch(text)
        with contextlib.suppress(ValueError):
            number = int(text, 8 if octal else 0)
            if -(2**63) <= number < 2**63:
                return number
    raise ValueError(f"{text!r} is not an integer of 64 bits")


def parse_level(text: str) -> int:
    """A log level by name."""
    if text.lower() not in LEVELS:
        raise ValueError(f"{text!r} is not a log level ({', '.join(LEVELS)})")
    return LEVELS[text.lower()]


def parse_tls_required(text: str) -> int:
    """true, false or tcp-https."""
    if text.lower() == "tcp-https":
        return TLS_REQUIRED_EXCEPT_HTTP
    return TLS_REQUIRED if parse_bool(text.lower()) else TLS_NOT_REQUIRED


def parse_tls_version(text: str) -> int:
    """tls1.0 to tls1.3; empty means the default, as in nsqd's sample config file."""
    version = text.lower() or DEFAULT_TLS_VERSION
    if version not in TLS_VERSIONS:
        raise ValueError(f"{text!r} is not a TLS version ({', '.join(TLS_VERSIONS)})")
    return TLS_VERSIONS[version]


def one_of(kind: Kind) -> Callable[[str], str]:
    """A parser of texts that are one of the words of a kind."""
    def parse(text: str) -> str:
        if text not in kind.words:
            raise ValueError(f"{text!r} is not one of {', '.join(kind.words)}")
        return text

    return parse


def parse_size(text: str) -> int:
    """Bytes, or a number of KiB, MiB, GiB or TiB."""
    size = SIZE.fullmatch(text)
    if size is None:
        raise ValueError(f"{text!r} is not a size such as 512, 64K or 1G")
    return int(size[1]) * UNITS[size[2].upper()]


def parse_float(text: str) -> float:
    """Decimal, with an exponent or without."""
    if not FLOAT.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def parse_floats(text: str) -> tuple[float, ...]:
    """Comma separated."""
    return tuple(parse_float(part.strip()) for part in text.split(","))


def parse_texts(text: str) -> tuple[str, ...]:
    """Comma separated; empty parts are ignored."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_topic(text: str) -> str:
    """The name of a topic that outlives its clients; empty: none."""
    name = text.encode("utf-8", "replace")
    if name and (not is_valid_name(name) or is_ephemeral(name)):
        raise ValueError(f"{text!r:.80} is not a topic name without #ephemeral: 1 to 64 of a-z A-Z 0-9 . _ -")
    return text


FROM_TEXT: dict[Kind, Callable[[str], Value]] = {
    Kind.BOOL: parse_bool, Kind.INT: parse_int, Kind.TEXT: str, Kind.FILE: str, Kind.FOLDER: str, Kind.ADDRESS: str,
    Kind.DURATION: parse_duration, Kind.SIZE: parse_size, Kind.TOPIC: parse_topic,
    Kind.TEXTS: parse_texts, Kind.FLOAT: parse_float, Kind.FLOATS: parse_floats, Kind.LEVEL: parse_level,
    Kind.TLS_REQUIRED: parse_tls_required, Kind.TLS_VERSION: parse_tls_version,
    **{kind: one_of(kind) for kind in (Kind.FLUSH, Kind.STORAGE, Kind.LOG_SYNC, Kind.OVERFLOW, Kind.EXPIRED,
                                       Kind.LOG_FORMAT)},
}
# Kinds whose value may be a TOML number. Not a boolean, for which nsqd reads numbers the wrong way round.
NUMERIC = (Kind.INT, Kind.DURATION, Kind.FLOAT, Kind.FLOATS, Kind.TLS_REQUIRED)
NAMED = {bool: "true or false", int: "a number", float: "a number", dict: "a table"}


def from_text(kind: Kind, text: str) -> Value:
    """The value in a flag's text. Raises ValueError."""
    return FROM_TEXT[kind](text)


def from_toml(kind: Kind, value: object) -> Value:
    """The value of a key in a config file. Raises ValueError.

    As with nsqd, numbers and booleans may be text as well, and a plain number for a duration is milliseconds.
    """
    if isinstance(value, list):
        return from_list(kind, value)
    if isinstance(value, str):
        return from_text(kind, value)
    if isinstance(value, bool):
        if kind in (Kind.BOOL, Kind.TLS_REQUIRED):
            return from_text(kind, str(value).lower())
    elif isinstance(value, int) and kind is Kind.DURATION:
        if abs(value) * NS_PER_MS > LARGEST:
            raise ValueError("more milliseconds than a duration can have")
        return value * NS_PER_MS
    elif isinstance(value, (int, float)) and kind in NUMERIC:
        return from_text(kind, str(value))
    raise ValueError(f"{NAMED.get(type(value), f'a {type(value).__name__}')} is not expected here")


def from_list(kind: Kind, items: list[object]) -> tuple[str, ...] | tuple[float, ...]:
    """The value of a TOML list; unlike in a flag, a comma in an item does not separate. Raises ValueError."""
    if kind is Kind.TEXTS:
        texts = [item for item in items if isinstance(item, str)]
        if len(texts) < len(items):
            raise ValueError("a list of text is expected here")
        return tuple(filter(None, texts))
    if kind is Kind.FLOATS:
        numbers = [item for item in items if isinstance(item, (int, float)) and not isinstance(item, bool)]
        if len(numbers) < len(items):
            raise ValueError("a list of numbers is expected here")
        return tuple(map(float, numbers))
    raise ValueError("a list is not expected here")
