"""A tool's declaration: its options, arguments, examples. Used by the parser, help, man page and completions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from nsqc.options.durations import S
from nsqc.options.option import Kind, Option, Value


class Argument(NamedTuple):
    """A word without a flag. many: any number of them, the value is a tuple. option: the name of an option that also
    sets it; topics and channels always have one, --topic and --channel."""

    name: str
    help: str
    kind: Kind = Kind.TEXT
    required: bool = True
    many: bool = False
    option: str = ""


def initial(option: Option) -> Value | None:
    """The value of an option that is not given."""
    return () if option.many and option.default is None else option.default


def as_option(argument: Argument) -> Option | None:
    """The option that also sets an argument; None if it has none."""
    if argument.kind not in (Kind.TOPIC, Kind.CHANNEL) and not argument.option:
        return None
    return Option(argument.option or argument.name.lower(), argument.help, argument.kind, many=argument.many)


class Values:
    """The values of a command line, by option or argument; there is a getter per type."""

    def __init__(self, values: Mapping[str, Value | None], given: frozenset[str], rest: tuple[str, ...] = ()):
        self._values = values
        self._given = given
        self.rest = rest        # the words after the flags of one of NSQ's tools

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
        return tuple(map(str, value)) if isinstance(value, tuple) else ()

    def number(self, name: str) -> int:
        """INT, SIZE, or DURATION in nanoseconds; 0 without a value."""
        return int(self._number(name))

    def decimal(self, name: str) -> float:
        """FLOAT; 0 without a value."""
        return float(self._number(name))

    def seconds(self, name: str) -> float:
        """DURATION; 0 without a value."""
        return self._number(name) / S

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
