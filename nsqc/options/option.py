"""The declaration of an option: of a server, of a rule's key, of a tool, or of one of NSQ's tools."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias, get_type_hints

from nsqc.log import LEVELS
from nsqc.wire.parser import is_ephemeral, is_valid_name

# ====================================================================== durations
# Durations as Go reads and writes them: 250ms, 1h30m, -1.5h; days, as in 7d, are read, too. In Python they are
# integers, in nanoseconds.

MS, S = 10**6, 10**9
MINUTE, HOUR = 60 * S, 3600 * S
TIME_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": MS, "s": S, "m": MINUTE, "h": HOUR, "d": 24 * HOUR}
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
        total += int(whole + digits) * TIME_UNITS[part[2]] // 10 ** len(digits)
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
    minutes, seconds = divmod(left, TIME_UNITS["m"])
    hours, minutes = divmod(minutes, 60)
    text = f"{decimal(seconds, TIME_UNITS['s'])}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{sign}{hours}h{text}" if hours else sign + text


def decimal(value: int, size: int) -> str:
    """value / size without trailing zeros."""
    whole, rest = divmod(value, size)
    if not rest:
        return str(whole)
    return f"{whole}." + f"{rest:0{len(str(size)) - 1}d}".rstrip("0")


# ====================================================================== option

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | tuple[float, ...]


class Kind(Enum):
    """The type of an option's value, and its name for people."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    TEXT = "string"
    DURATION = "duration"       # such as 250ms, 1h30m or 7d
    SIZE = "size"               # bytes, such as 512, 64K or 1G
    FILE = "file"
    FOLDER = "folder"
    ADDRESS = "host:port"
    TOPIC = "topic"
    CHANNEL = "channel"
    PLACE = "place"             # in a log; the value is the checked text
    TEXTS = "string, may be repeated"
    FLOATS = "float, may be repeated"
    LEVEL = "|".join(LEVELS)
    TLS_REQUIRED = "true|false|tcp-https"
    TLS_VERSION = "tls1.0|tls1.1|tls1.2|tls1.3"
    FLUSH = "turn|timeout"
    STORAGE = "memory|log"
    LOG_SYNC = "write|fsync|bucket"
    OVERFLOW = "refuse|drop-oldest|dead-letter"
    EXPIRED = "drop|dead-letter"
    LOG_FORMAT = "auto|text|json|journal|logfmt"

    @property
    def words(self) -> tuple[str, ...]:
        """All values, if there are few; a boolean's are not listed."""
        return tuple(self.value.split("|")) if "|" in self.value else ()


class Option(NamedTuple):
    """--name. An option of a server has its name and default from the field that it annotates. Durations are
    nanoseconds."""

    name: str
    help: str
    kind: Kind = Kind.TEXT
    default: Value | None = None
    group: str = "Options"
    many: bool = False              # may be repeated, the value is a tuple
    short: str = ""                 # a letter, for -n
    choices: tuple[str, ...] = ()   # all values of a text; servers check them where the value is used
    least: float | None = None
    most: float | None = None
    check: Callable[[str], None] | None = None      # raises ValueError for a text that is not valid
    metavar: str = ""               # the word for the value, if not the kind's
    key: str = ""                   # in the config file, if different from the name
    own: bool = False               # nsqc's own, unknown to the original
    live: bool = False              # can change at run time, by SIGHUP (nsqc.options.reload); others need a restart

    @property
    def values(self) -> tuple[str, ...]:
        """All values, if there are few."""
        return self.choices or self.kind.words

    @property
    def takes(self) -> str:
        """The word for its value in the help of a tool; empty for a boolean."""
        return "" if self.kind is Kind.BOOL else self.metavar or "|".join(self.values) or self.kind.value.upper()


def declared_in(owner: type) -> dict[str, Option]:
    """The options that annotate the fields of a class, by attribute name."""
    hints = get_type_hints(owner, include_extras=True)
    return {name: item._replace(name=name.replace("_", "-")) for name in owner.__annotations__
            for item in getattr(hints[name], "__metadata__", ()) if isinstance(item, Option)}


# ====================================================================== values
# Option values from text, for flags, and from TOML, for config files.

TLS_VERSIONS = {"tls1.0": 0x301, "tls1.1": 0x302, "tls1.2": 0x303, "tls1.3": 0x304}
DEFAULT_TLS_VERSION = "tls1.0"
TLS_NOT_REQUIRED, TLS_REQUIRED_EXCEPT_HTTP, TLS_REQUIRED = 0, 1, 2

TRUE = ("1", "t", "T", "true", "TRUE", "True")
FALSE = ("0", "f", "F", "false", "FALSE", "False")
NS_PER_MS = 10**6
INTEGER = re.compile(r"[+-]?[0-9][0-9a-zA-Z_]{0,70}")  # before int(), which would allow blanks, too
OCTAL = re.compile(r"[+-]?0[0-7_]+")
SIZE = re.compile(r"(\d+)([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
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
    return int(size[1]) * SIZE_UNITS[size[2].upper()]


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
EXPECTED = {Kind.BOOL: "true or false", Kind.INT: "a number", Kind.FLOAT: "a number", Kind.FLOATS: "numbers",
            Kind.DURATION: 'a duration such as "250ms"', Kind.TEXTS: "a list of strings"}
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
    given = NAMED.get(type(value), f"a {type(value).__name__}")
    raise ValueError(f"expected {EXPECTED.get(kind, 'a string')}, not {given}")


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
    raise ValueError(f"expected {EXPECTED.get(kind, 'a string')}, not a list")


# ====================================================================== goflags
# The grammar of Go's flag package: of nsqd's, nsqlookupd's and nsqadmin's flags, and of those of NSQ's tools.
#
# -name and --name are the same. A value follows after = or as the next word; for a boolean, after = only.

IMPLIED = {Kind.BOOL: "true", Kind.TLS_REQUIRED: "true"}    # the value of a flag alone


class FlagError(ValueError):
    """Flags that cannot be read; the text is for the user."""


class UnknownFlag(FlagError):
    """A flag that is not declared. name: without dashes."""

    def __init__(self, word: str, name: str):
        super().__init__(f"flag provided but not defined: -{name}")
        self.word, self.name = word, name


class HelpWanted(Exception):
    """One of the flags is -h, -help or --help."""


def flags_in(words: deque[str], known: Mapping[str, Option]) -> Iterator[tuple[Option, str]]:
    """Takes the flags from words: each with the text of its value. The first word that is not a flag, or --, ends them.
    Raises FlagError, HelpWanted."""
    while words and len(words[0]) > 1 and words[0][0] == "-":
        word = words.popleft()
        if word == "--":
            return
        name, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
        if not name or name[0] == "-":
            raise FlagError(f"bad flag syntax: {word}")
        option = known.get(name)
        if option is None:
            raise HelpWanted if name in ("h", "help") else UnknownFlag(word.partition("=")[0], name)
        if not equals:
            if option.kind not in IMPLIED and not words:
                raise FlagError(f"flag needs an argument: -{name}")
            text = IMPLIED[option.kind] if option.kind in IMPLIED else words.popleft()
        yield option, text
