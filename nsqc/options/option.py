"""The declaration of an option: of a server, of a rule's key, of a tool, or of one of NSQ's tools."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypeAlias

from nsqc.log import LEVELS

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
    LOG_SYNC = "write|fsync"
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
    return {name: item._replace(name=name.replace("_", "-")) for name, annotation in owner.__annotations__.items()
            for item in getattr(annotation, "__metadata__", ()) if isinstance(item, Option)}
