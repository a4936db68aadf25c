"""A tool's declaration: its options, arguments, examples. Used by the parser, help, man page and completions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None


class Kind(Enum):
    """The type of a value, and its name in the help."""

    BOOL = ""
    TEXT = "TEXT"
    INT = "NUMBER"
    FLOAT = "DECIMAL"
    DURATION = "DURATION"       # such as 250ms, 1h30m or 7d; the value is in seconds
    SIZE = "SIZE"               # bytes, such as 512, 64K or 1G
    FILE = "FILE"
    FOLDER = "FOLDER"
    ADDRESS = "HOST:PORT"
    TOPIC = "TOPIC"             # completed from the running node
    CHANNEL = "CHANNEL"
    PLACE = "PLACE"             # in a log; the value is the checked text


class Option(NamedTuple):
    """--name. short: a letter, for -n. many: may be repeated, the value is a tuple. least, most: bounds of numbers.
    choices: all values of a text. metavar: the word for the value, if not the type's."""

    name: str
    help: str
    kind: Kind = Kind.TEXT
    default: Value = None
    group: str = "Options"
    many: bool = False
    short: str = ""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    metavar: str = ""

    @property
    def takes(self) -> str:
        """The word for its value; empty for a boolean."""
        return self.metavar or "|".join(self.choices) or self.kind.value


class Argument(NamedTuple):
    """A word without a flag. many: any number of them, the value is a tuple. option: the name of an option that also
    sets it; topics and channels always have one, --topic and --channel."""

    name: str
    help: str
    kind: Kind = Kind.TEXT
    required: bool = True
    many: bool = False
    option: str = ""


def as_option(argument: Argument) -> Option | None:
    """The option that also sets an argument; None if it has none."""
    if argument.kind not in (Kind.TOPIC, Kind.CHANNEL) and not argument.option:
        return None
    return Option(argument.option or argument.name.lower(), argument.help, argument.kind, many=argument.many)


class Values:
    """The values of a command line, by option or argument; there is a getter per type."""

    def __init__(self, values: Mapping[str, Value], given: frozenset[str]):
        self._values = values
        self._given = given

    def given(self, name: str) -> bool:
        """Whether the command line sets it."""
        return name in self._given

    def flag(self, name: str) -> bool:
        """BOOL."""
        return self._values[name] is True

    def text(self, name: str) -> str:
        """Any text value; empty without a value."""
        value = self._values[name]
        return "" if value is None else str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """An option or argument that may be repeated."""
        value = self._values[name]
        return value if isinstance(value, tuple) else ()

    def number(self, name: str) -> int:
        """INT or SIZE; 0 without a value."""
        return int(self._number(name))

    def decimal(self, name: str) -> float:
        """FLOAT, or DURATION in seconds; 0 without a value."""
        return float(self._number(name))

    def _number(self, name: str) -> float:
        value = self._values[name]
        return value if isinstance(value, (int, float)) else 0


class Tool(NamedTuple):
    """path: the words that call it, below nsqc. help: one line. text: more, paragraphs for --help. examples: command
    lines, each with its description. run returns the exit code, and may raise ToolError."""

    path: tuple[str, ...]
    help: str
    run: Callable[[Values], int]
    options: tuple[Option, ...] = ()
    arguments: tuple[Argument, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    text: str = ""

    @property
    def words(self) -> str:
        """The command's words."""
        return " ".join(("nsqc", *self.path))


class Group(NamedTuple):
    """A tool with sub-commands, such as `nsqc topic`."""

    path: tuple[str, ...]
    help: str
    tools: tuple[Tool, ...]

    @property
    def words(self) -> str:
        """The command's words."""
        return " ".join(("nsqc", *self.path))


def leaves(tool: Tool | Group) -> Iterator[Tool]:
    """The tools of a group; or the tool itself."""
    if isinstance(tool, Group):
        yield from tool.tools
    else:
        yield tool
