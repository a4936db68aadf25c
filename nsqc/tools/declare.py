"""A tool's declaration: its options, arguments, examples. Used by the parser, help, man page and completions."""

from __future__ import annotations

import codecs
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from nsqc import paths
from nsqc.client.options import ConnectionOptions
from nsqc.options.option import MS, Kind, Option, S, Value, format_duration, from_text
from nsqc.wire.codecs import CODECS

# ====================================================================== errors
# Errors that end a tool: one line on stderr and an exit code. docs/tools.md has the table.

EXIT_OK = 0
EXIT_FAILED = 1         # some or all of the work was refused, or cannot be read or written
EXIT_USAGE = 2          # the command line is invalid
EXIT_NO_NODE = 3        # no nsqd or nsqlookupd answers
EXIT_NO_NAME = 4        # a topic, channel or node does not exist
EXIT_PERMANENT = 5      # a worker: no nsqd will accept it until the options or an nsqd change
EXIT_INTERRUPTED = 130  # SIGINT, after a clean end
EXIT_PIPE = 141         # the reader of stdout has gone
EXIT_TERMINATED = 143   # SIGTERM with work left


class ToolError(Exception):
    """The tool cannot continue. The text is one line for the user; code: the exit code."""

    def __init__(self, text: str, code: int = EXIT_FAILED):
        super().__init__(text)
        self.code = code


class UsageError(ToolError):
    """The command line is invalid. where: the tool whose --help explains it."""

    def __init__(self, text: str, where: str = ""):
        super().__init__(text, EXIT_USAGE)
        self.where = where


class NoNode(ToolError):
    """No node answers."""

    def __init__(self, text: str):
        super().__init__(text, EXIT_NO_NODE)


class NoName(ToolError):
    """A topic, channel or node does not exist. near: existing names, for a suggestion."""

    def __init__(self, kind: str, name: str, known: list[str] | tuple[str, ...] = (), place: str = ""):
        super().__init__(f"{kind} {name!r} does not exist{place}{suggestion(name, known)}", EXIT_NO_NAME)


def suggestion(name: str, known: list[str] | tuple[str, ...], template: str = ", did you mean {!r}?") -> str:
    """The nearest of some names as the end of an error; empty if none is near."""
    import difflib  # only after a typo

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return template.format(near[0]) if near else ""


# ====================================================================== declare

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


# ====================================================================== family
# Options shared by tools: one name for one thing.

NODES, SECURITY, OUTPUT = "Nodes", "TLS, authentication, compression", "Output"
HIGHEST_IN_FLIGHT = 1_000_000

NSQD = Option("nsqd", "nsqd to use, by its TCP address or the path of its unix socket", Kind.ADDRESS, None, NODES,
              many=True)
NSQLOOKUPD = Option("nsqlookupd", "nsqlookupd to query for nsqd, by its HTTP address, or a URL such as "
                                  "https://lookup.example/lookup; if one fails, the next is queried",
                    Kind.ADDRESS, None, NODES, many=True)
HTTP = Option("http", "HTTP address, or URL, of each --nsqd, in the same order; default: the port after the TCP port",
              Kind.ADDRESS, None, NODES, many=True)
CONFIG = Option("config", "config file of the local daemon, used without --nsqd and --nsqlookupd; default: "
                          "$NSQC_CONFIG, then /etc/nsqc/nsqc.cfg; without such a file $NSQC_TCP_ADDRESS, or "
                          "127.0.0.1:4150",
                Kind.FILE, "", NODES)
TIMEOUT = Option("timeout", "timeout for connecting and for each answer", Kind.DURATION, 5 * S, NODES, least=MS)

TLS = (
    Option("tls", "use TLS with nsqd, and HTTPS", Kind.BOOL, False, SECURITY),
    Option("tls-ca", "authorities to trust, PEM; default: the system's", Kind.FILE, "", SECURITY),
    Option("tls-cert", "certificate of this client, PEM", Kind.FILE, "", SECURITY),
    Option("tls-key", "its key, PEM", Kind.FILE, "", SECURITY),
    Option("tls-insecure", "accept any certificate", Kind.BOOL, False, SECURITY),
)
AUTH = Option("auth-secret", "secret for AUTH, and token for HTTP; @FILE reads it from a file", Kind.TEXT, "",
              SECURITY, metavar="SECRET")
NODE_ADDRESSES = Option("node-addresses", "host, network such as 10.0.0.0/8, or glob such as *.nsq.internal, of nodes "
                        "that get --auth-secret although only --nsqlookupd names them; default: over HTTP those for "
                        "which nsqc lookupd's access file vouches, over TCP all", Kind.TEXT, None, SECURITY, many=True,
                        metavar="HOSTS")
COMPRESSION = tuple(
    Option(name, f"compress with {name}, level 1 to {codec.levels}", Kind.INT, 0, SECURITY, least=0, most=codec.levels,
           metavar="LEVEL") if codec.levels else Option(name, f"compress with {name}", Kind.BOOL, False, SECURITY)
    for name, codec in CODECS.items())


def other_side(prefix: str, group: str) -> tuple[Option, ...]:
    """The options for TLS, authentication and compression again, with a prefix."""
    return tuple(option._replace(name=f"{prefix}{option.name}", group=group) for option in (*TLS, AUTH, *COMPRESSION))


# Tools that query nodes over HTTP, and tools that also use NSQ's protocol.
HTTP_NODES = (NSQD, NSQLOOKUPD, HTTP, CONFIG, TIMEOUT, *TLS, AUTH, NODE_ADDRESSES)
TCP_NODES = (*HTTP_NODES, *COMPRESSION)

JSON = Option("json", "JSON instead of text, for scripts", Kind.BOOL, False, OUTPUT)
YES = Option("yes", "do not ask for confirmation", Kind.BOOL, False, OUTPUT, short="y")

TOPIC = Argument("TOPIC", "the topic", Kind.TOPIC)
TOPICS = Argument("TOPIC", "one or more topics", Kind.TOPIC, many=True)
CHANNEL = Argument("CHANNEL", "the channel", Kind.CHANNEL)
# For tools whose other words are not topics.
TOPIC_OPTION = Option("topic", "the topic", Kind.TOPIC, "")
FROM = Option("from", "start in a topic's log: beginning, end, an offset, a time in RFC 3339, or an age "
                      "such as 1h or 7d", Kind.PLACE, "")
CHANNEL_OPTION = Option("channel", "the channel", Kind.CHANNEL, "")


def in_flight(default: int) -> Option:
    """--max-in-flight."""
    return Option("max-in-flight", "messages that may be in flight, over all nsqd", Kind.INT, default, least=1,
                  most=HIGHEST_IN_FLIGHT)


# ====================================================================== parse
# The values of a tool's command line, from the texts of its options and its words.

NAME_KINDS = (Kind.TOPIC, Kind.CHANNEL)
PATHS = (Kind.FILE, Kind.FOLDER)


def parse(tool: Tool, texts: Mapping[str, Sequence[str]], words: Sequence[str]) -> Values:
    """texts: those given for each option. words: those that belong to no option. Raises UsageError."""
    options = (*tool.options, *filter(None, map(as_option, tool.arguments)))
    values = {option.name: given_value(tool, option, texts[option.name]) if texts.get(option.name) else initial(option)
              for option in options}
    given = {name for name, found in texts.items() if found}
    take_arguments(tool, deque(words), values, given)
    return Values(values, frozenset(given))


def given_value(tool: Tool, option: Option, texts: Sequence[str]) -> Value:
    """The value of an option that is given. Raises UsageError."""
    if option.kind is Kind.BOOL:
        return True
    found = [value_of(tool, option, text) for text in texts]
    if option.many:
        return tuple(map(str, found))
    if any(value != found[0] for value in found):
        # The last one would count, silently overriding the others.
        raise UsageError(f"--{option.name} may be given only once", tool.words)
    return found[0]


def value_of(tool: Tool, option: Option, text: str) -> Value:
    """Parses a value. Raises UsageError."""
    value = converted(tool, f"--{option.name}", option.kind, text)
    if option.choices and text not in option.choices:
        raise UsageError(f"--{option.name}: {text!r} is not one of {', '.join(option.choices)}", tool.words)
    if isinstance(value, (int, float)) and ((option.least is not None and value < option.least)
                                            or (option.most is not None and value > option.most)):
        raise UsageError(f"--{option.name}: {text} is not {bounds(option)}", tool.words)
    return value


def converted(tool: Tool, place: str, kind: Kind, text: str) -> Value:
    """The value of a text; place: the option or argument, for errors. Raises UsageError.

    An empty topic or channel is refused: it probably comes from an unset variable of a script, and a missing name would
    mean something else, such as all topics.
    """
    if kind in NAME_KINDS:
        if not text:
            raise UsageError(f"{place} is empty", tool.words)
        return text
    try:
        if kind in PATHS:
            return paths.local(text)
        if kind is Kind.PLACE:
            from nsqc.options.places import parse_place  # few tools have such values

            parse_place(text)
            return text
        return from_text(kind, text)
    except ValueError as error:
        raise UsageError(f"{place}: {error}", tool.words) from None


def bounds(option: Option) -> str:
    """The range of an option, for its error."""
    least, most = (format_duration(int(bound or 0)) if option.kind is Kind.DURATION else f"{bound or 0:.15g}"
                   for bound in (option.least, option.most))
    return f"{least} or more" if option.most is None else f"from {least} to {most}"


def take_arguments(tool: Tool, words: deque[str], values: dict[str, Value | None], given: set[str]) -> None:
    """Assigns words to arguments in order, skipping those set by their options. An argument that may be repeated takes
    all remaining words, in addition to its options. Raises UsageError."""
    for argument in tool.arguments:
        option = as_option(argument)
        named = values[option.name] if option is not None and option.name in given else None
        if argument.many:
            before = named if isinstance(named, tuple) else ()
            values[argument.name] = (*map(str, before), *(checked_word(tool, argument, word) for word in words))
            is_given = bool(before or words)
            words.clear()
        else:
            is_given = named is not None or bool(words)
            values[argument.name] = checked_word(tool, argument, words.popleft()) if named is None and words else named
        if is_given:
            given.add(argument.name)
        elif argument.required:
            raise UsageError(f"{argument.name} is missing: {argument.help}", tool.words)
    if words:
        raise UsageError(f"unexpected word {words[0]!r}", tool.words)


def checked_word(tool: Tool, argument: Argument, word: str) -> str:
    """The text of the word for an argument. Raises UsageError."""
    value = converted(tool, argument.name, argument.kind, word)
    return str(value) if argument.kind in PATHS else word


# ====================================================================== security
# TLS, authentication and compression, from the options of a command line.

GO_NSQ_VERSION = "1.1.0"    # of NSQ 1.3.0's tools
OPTION_NAMES = ("tls", "tls-ca", "tls-cert", "tls-key", "tls-insecure", "auth-secret", *CODECS)


def user_agent(tool: str, version: str) -> str:
    """A user agent in the form of NSQ's own tools, which dashboards and auth servers use to tell clients apart."""
    return f"{tool}/{version} go-nsq/{GO_NSQ_VERSION}"


class Security:
    """From family.TLS, AUTH and COMPRESSION. prefix: of these options' names, for a second side. has_urls: there are
    https URLs, to which the TLS options also apply. Raises UsageError."""

    def __init__(self, values: Values, tool: str, prefix: str = "", has_urls: bool = False):
        self._values, self._tool, self._prefix, self._has_urls = values, tool, prefix, has_urls
        self._tls: ssl.SSLContext | None = None

    def is_given(self) -> bool:
        """Whether the command line has any of them."""
        return any(self._values.given(self._prefix + name) for name in OPTION_NAMES)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context for TLS and HTTPS; None without --tls. Raises UsageError."""
        if not self._flag("tls"):
            for name in ("tls-ca", "tls-cert", "tls-key", "tls-insecure"):
                if self._values.given(self._prefix + name) and not self._has_urls:
                    raise UsageError(f"--{self._prefix}{name} needs --{self._prefix}tls", self._tool)
            return None
        return self.context

    @property
    def context(self) -> ssl.SSLContext:
        """The context for TLS, wherever it is used. Raises UsageError."""
        if self._tls is None:
            from nsqc.client.tls import tls

            text = self._text
            try:
                self._tls = tls(text("tls-ca") or None, text("tls-cert") or None, text("tls-key") or None,
                                not self._flag("tls-insecure"))
            except (OSError, ValueError) as error:
                place = f"--{self._prefix}tls" if self._prefix else "TLS"
                raise UsageError(f"{place}: {error}", self._tool) from None
        return self._tls

    def connection_options(self) -> ConnectionOptions:
        """The options for nsqc.client. Raises UsageError."""
        from nsqc import __version__

        values = {name: self._values.number(self._prefix + name) if codec.levels else self._flag(name)
                  for name, codec in CODECS.items()}
        wanted = [f"--{self._prefix}{name}" for name, value in values.items() if value]
        if len(wanted) > 1:
            raise UsageError(f"{' and '.join(wanted)} exclude each other", self._tool)
        return cast(ConnectionOptions, {"tls": self.tls, "auth_secret": self.secret(), **values,
                                        "user_agent": user_agent(self._tool.replace(" ", "-"), __version__)})

    def secret(self) -> bytes | None:
        """The secret for AUTH and HTTP. Raises UsageError."""
        text = self._text("auth-secret")
        if not text.startswith("@"):
            return text.encode() or None
        try:
            with open(text[1:], "rb") as file:
                return file.read(1 << 16).removeprefix(codecs.BOM_UTF8).strip()
        except OSError as error:
            raise UsageError(f"--{self._prefix}auth-secret: {text[1:]}: {error.strerror}", self._tool) from None

    def _flag(self, name: str) -> bool:
        return self._values.flag(self._prefix + name)

    def _text(self, name: str) -> str:
        return self._values.text(self._prefix + name)
