"""Runs an original tool: version, flags, Go's log lines, exit codes."""

from __future__ import annotations

import math
import re
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from nsqc import NSQD_VERSION
from nsqc.client.address import checked_address, http_address
from nsqc.client.errors import BadAddress, ClientError
from nsqc.client.options import ConnectionOptions
from nsqc.client.peers import Backoff
from nsqc.options.option import (
    TRUE,
    FlagError,
    HelpWanted,
    Kind,
    Option,
    S,
    Value,
    flags_in,
    format_duration,
    from_text,
    parse_bool,
    parse_duration,
    parse_int,
)
from nsqc.tools import running
from nsqc.tools.cluster import Cluster
from nsqc.tools.declare import ToolError, Values, initial, user_agent
from nsqc.tools.running import PipeClosed, Stopped

# ====================================================================== flags
# The flags of NSQ's tools: their values, and the errors and the list of flags as Go's flag package prints them.

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


# ====================================================================== program

EXIT_FATAL, EXIT_FLAGS, EXIT_PIPE = 1, 2, 141
SOCKET_ERROR = re.compile(
    r"(\S+): (Connection refused|Connection reset by peer|No route to host|Network is unreachable)")


class Program(NamedTuple):
    """run returns the exit code and may raise Fatal, ToolError, ClientError, OSError."""

    name: str
    flags: tuple[Option, ...]
    run: Callable[[Values], int]
    has_version: bool = True


class Fatal(Exception):
    """The tool ends with this line and exit code 1."""


VERSION = Option("version", "print the version and exit", Kind.BOOL, False)


def run(program: Program, words: list[str]) -> int:
    """The exit code."""
    flags = (*program.flags, VERSION) if program.has_version else program.flags
    try:
        values = parse(flags, words)
    except HelpWanted:
        running.note_lines(usage(program.name, flags))
        return 0
    except FlagError as error:
        running.note_lines(f"{error}\n{usage(program.name, flags)}")
        return EXIT_FLAGS
    return guarded(lambda: printed_version(program) if program.has_version and values.flag("version")
                   else program.run(values))


def printed_version(program: Program) -> int:
    """Prints the version."""
    running.line(f"{program.name} v{NSQD_VERSION}")
    return 0


def guarded(work: Callable[[], int]) -> int:
    """Runs work, with its errors as log lines."""
    try:
        return work()
    except Stopped:
        return 0
    except PipeClosed:
        return EXIT_PIPE
    except Fatal as error:
        log_line(str(error))
    except (ToolError, ClientError) as error:
        log_line(as_go(str(error)))
    except OSError as error:
        name = f"{error.filename}: " if isinstance(error.filename, str) else ""
        log_line(f"ERROR: {name}{error.strerror or error}")
    except MemoryError:
        log_line("ERROR: out of memory")
    return EXIT_FATAL


def log_line(text: str) -> None:
    """A log line in Go's format."""
    running.note(f"{time.strftime('%Y/%m/%d %H:%M:%S')} {text}")


def warn_line(text: str) -> None:
    """A line about an nsqd, in go-nsq's format."""
    log_line(f"WRN    1 {as_go(text)}")


def as_go(text: str) -> str:
    """An error of a socket in Go's wording."""
    text = text.removeprefix("no nsqd answers: ")
    return SOCKET_ERROR.sub(lambda found: f"dial tcp {found[1]}: connect: {found[2].lower()}", text)


# ====================================================================== client options
# --consumer-opt and --producer-opt: go-nsq's options. Options with an equivalent in nsqc work. Options that only tune
# go-nsq are accepted with a warning; those that would change a tool's behaviour are refused.

MS = 10**6
MINUTE = 60 * S
MOST = 2**62
GO_PARSERS = {Kind.BOOL: "ParseBool", Kind.INT: "ParseInt", Kind.FLOAT: "ParseFloat"}
VERSIONS = {"ssl3.0": ssl.TLSVersion.MINIMUM_SUPPORTED, "tls1.0": ssl.TLSVersion.TLSv1,
            "tls1.1": ssl.TLSVersion.TLSv1_1, "tls1.2": ssl.TLSVersion.TLSv1_2}
STRATEGIES = {"": False, "exponential": False, "full_jitter": True}
# Bounds of durations are nanoseconds.
KNOWN = {option.name: option for option in (
    Option("dial_timeout", "", Kind.DURATION, least=1, most=MOST),
    Option("write_timeout", "", Kind.DURATION, least=100 * MS, most=5 * MINUTE),
    Option("lookupd_poll_interval", "", Kind.DURATION, least=10 * MS, most=5 * MINUTE),
    Option("max_requeue_delay", "", Kind.DURATION, least=0, most=60 * MINUTE),
    Option("default_requeue_delay", "", Kind.DURATION, least=0, most=60 * MINUTE),
    Option("max_attempts", "", Kind.INT, least=0, most=65535), Option("client_id", ""), Option("hostname", ""),
    Option("user_agent", ""), Option("heartbeat_interval", "", Kind.DURATION, least=1 * S, most=MOST),
    Option("sample_rate", "", Kind.INT, least=0, most=99), Option("tls_v1", "", Kind.BOOL),
    Option("tls_root_ca_file", ""), Option("tls_cert", ""), Option("tls_key", ""),
    Option("tls_insecure_skip_verify", "", Kind.BOOL), Option("deflate", "", Kind.BOOL),
    Option("deflate_level", "", Kind.INT, least=1, most=9), Option("snappy", "", Kind.BOOL),
    Option("output_buffer_size", "", Kind.INT, least=0, most=MOST),
    Option("output_buffer_timeout", "", Kind.DURATION, least=0, most=MOST),
    Option("max_in_flight", "", Kind.INT, least=0, most=MOST),
    Option("msg_timeout", "", Kind.DURATION, least=0, most=MOST), Option("auth_secret", ""),
    Option("tls_min_version", "", choices=tuple(VERSIONS)),
    Option("lookupd_poll_timeout", "", Kind.DURATION, least=1, most=MOST),
    Option("lookupd_poll_jitter", "", Kind.FLOAT, least=0, most=1),
    Option("backoff_strategy", "", choices=tuple(STRATEGIES)),
    Option("max_backoff_duration", "", Kind.DURATION, least=0, most=60 * MINUTE),
    Option("backoff_multiplier", "", Kind.DURATION, least=0, most=60 * MINUTE),
    Option("read_timeout", "", Kind.DURATION, least=100 * MS, most=5 * MINUTE),
    Option("low_rdy_idle_timeout", "", Kind.DURATION, least=1 * S, most=5 * MINUTE),
    Option("low_rdy_timeout", "", Kind.DURATION, least=1 * S, most=5 * MINUTE),
    Option("rdy_redistribute_interval", "", Kind.DURATION, least=1 * MS, most=5 * S),
    Option("skip_lookupd_authorization", "", Kind.BOOL))}
# Used by some tools only.
LOOKUP = ("lookupd_poll_interval", "lookupd_poll_timeout")
AGAIN = ("default_requeue_delay", "max_requeue_delay", "max_attempts")
PAUSES = ("backoff_strategy", "max_backoff_duration", "backoff_multiplier")
# Used by no tool: they tune mechanisms that nsqc does not have.
TUNING = ("read_timeout", "lookupd_poll_jitter", "low_rdy_idle_timeout", "low_rdy_timeout", "rdy_redistribute_interval")


def split(text: str) -> tuple[str, str]:
    """KEY,VALUE; KEY alone is true. Names may have dashes."""
    key, comma, value = text.partition(",")
    return key.replace("-", "_"), value if comma else "true"


def check(text: str) -> None:
    """Raises ValueError with go-nsq's words, where it has any."""
    key, value = split(text)
    if key == "local_addr" or (key == "skip_lookupd_authorization" and value in TRUE):
        raise ValueError(f"option {key} is not supported by nsqc")
    if key not in KNOWN:
        raise ValueError(f"invalid option {key}")
    option = KNOWN[key]
    if not value:
        return
    if option.choices:
        if value not in option.choices:
            raise ValueError(f"invalid {key} {value}, it is one of {', '.join(filter(None, option.choices))}")
        return
    try:
        number = from_text(option.kind, value)
    except ValueError:
        raise ValueError(f"failed to coerce option {key} ({value}) - {why(option.kind, value)}") from None
    if isinstance(number, (int, float)):
        if option.least is not None and number < option.least:
            raise ValueError(f"invalid {key} ! {value} < {plain(option.kind, option.least)}")
        if option.most is not None and number > option.most:
            raise ValueError(f"invalid {key} ! {value} > {plain(option.kind, option.most)}")


def why(kind: Kind, value: str) -> str:
    """The fault of a value, in Go's words."""
    if kind is Kind.DURATION:
        missing = value.lstrip("+-").replace(".", "", 1).isdecimal()
        return f'time: missing unit in duration "{value}"' if missing else f'time: invalid duration "{value}"'
    return f'strconv.{GO_PARSERS[kind]}: parsing "{value}": invalid syntax'


def plain(kind: Kind, value: float) -> str:
    """A bound in written form."""
    from nsqc.options.option import format_duration

    return format_duration(int(value)) if kind is Kind.DURATION else f"{value:g}"


def flag(name: str) -> Option:
    """--consumer-opt or --producer-opt."""
    return Option(name, "an option of the client, KEY,VALUE (may be repeated)", many=True, check=check)


class Given(NamedTuple):
    """The given options by name; empty values are omitted."""

    values: dict[str, str]

    def on(self, name: str) -> bool:
        """A bool."""
        return parse_bool(self.values[name]) if name in self.values else False

    def text(self, name: str) -> str:
        """A string."""
        return self.values.get(name, "")

    def number(self, name: str, default: int) -> int:
        """An int."""
        return parse_int(self.values[name]) if name in self.values else default

    def seconds(self, name: str, default: float) -> float:
        """A duration."""
        return parse_duration(self.values[name]) / S if name in self.values else default

    @property
    def requeue_delay(self) -> float:
        """Seconds until a failed message is delivered again."""
        return self.seconds("default_requeue_delay", 90.0)

    @property
    def timeout(self) -> float:
        """Timeout for connecting and for each answer, seconds; go-nsq has two options: the longer; 0: not given."""
        return max(self.seconds("dial_timeout", 0), self.seconds("write_timeout", 0))

    @property
    def pause(self) -> Backoff:
        """The backoff after consecutive failures; a maximum of 0 disables it."""
        return Backoff(self.seconds("backoff_multiplier", 1.0), self.seconds("max_backoff_duration", 120.0))

    @property
    def has_jitter(self) -> bool:
        """Whether pauses are random, up to the backoff."""
        return STRATEGIES[self.text("backoff_strategy")]

    @property
    def least_tls(self) -> ssl.TLSVersion | None:
        """The lowest version of TLS, if given."""
        return VERSIONS.get(self.text("tls_min_version"))

    def connection(self, user_agent: str) -> ConnectionOptions:
        """Options of the connection itself."""
        def milliseconds(name: str) -> int | None:
            return round(self.seconds(name, 0) * 1000) if name in self.values else None

        size = self.number("output_buffer_size", 0) if "output_buffer_size" in self.values else None
        return {
            "user_agent": user_agent, "client_id": self.text("client_id"), "hostname": self.text("hostname"),
            "heartbeat_interval_ms": round(self.seconds("heartbeat_interval", 30.0) * 1000),
            "msg_timeout_ms": milliseconds("msg_timeout"), "output_buffer_size": size,
            "output_buffer_timeout_ms": milliseconds("output_buffer_timeout"),
            "sample_rate": self.number("sample_rate", 0), "snappy": self.on("snappy"),
            "deflate": self.number("deflate_level", 6) if self.on("deflate") else 0}


def read(texts: Iterable[str], *used: str) -> Given:
    """Options accepted by check(); of a repeated one the last counts. used: those of LOOKUP, AGAIN and PAUSES
    that apply to the tool; warns about the others."""
    given = Given({key: value for key, value in map(split, texts) if value})
    for key, value in given.values.items():
        idle = key in TUNING or (key in LOOKUP + AGAIN + PAUSES and key not in used)
        # All tools retry forever and back off exponentially anyway.
        if idle and (key, value) not in (("max_attempts", "0"), ("backoff_strategy", "exponential")):
            warn_line(f"option {key} has no effect in nsqc")
    return given


# ====================================================================== cluster
# The nodes given by an original tool's flags.

DIAL_SECONDS = 5.0
NSQD = Option("nsqd-tcp-address", "TCP address of an nsqd (may be repeated)", many=True)
LOOKUPD = Option("lookupd-http-address", "HTTP address of an nsqlookupd (may be repeated)", many=True)
MAX_IN_FLIGHT = Option("max-in-flight", "maximum number of messages in flight", Kind.INT, 200)


def check_sources(flags: Values, stop: str = "") -> None:
    """Exactly one kind of address. Raises Fatal."""
    nsqd, lookupd = flags.texts("nsqd-tcp-address"), flags.texts("lookupd-http-address")
    if not nsqd and not lookupd:
        raise Fatal(f"--nsqd-tcp-address or --lookupd-http-address required{stop}")
    if nsqd and lookupd:
        raise Fatal("use --nsqd-tcp-address or --lookupd-http-address not both")


def cluster_of(name: str, nsqd: tuple[str, ...], lookupd: tuple[str, ...], given: Given,
               timeout: float = DIAL_SECONDS) -> Cluster:
    """name: the original's, for the user agent; lookupd: also as URLs. Raises Fatal, ToolError."""
    try:
        for address in nsqd:
            checked_address(address)
        for address in lookupd:
            http_address(address)
    except BadAddress as error:
        raise Fatal(f"ERROR: {error}") from None
    values: dict[str, Value] = {
        "nsqd": nsqd, "nsqlookupd": lookupd, "http": (), "config": "", "node-addresses": (),
        "auth-secret": given.text("auth_secret"),
        "timeout": round((given.timeout or timeout) * S), "tls": given.on("tls_v1"),
        "tls-ca": given.text("tls_root_ca_file"), "tls-cert": given.text("tls_cert"),
        "tls-key": given.text("tls_key"), "tls-insecure": given.on("tls_insecure_skip_verify"),
        "deflate": 0, "snappy": False}
    cluster = Cluster(Values(values, frozenset()), name)
    if given.least_tls is not None and cluster.tls is not None:
        cluster.tls.minimum_version = given.least_tls
    cluster.lookup_timeout = given.seconds("lookupd_poll_timeout", cluster.timeout)
    cluster.poll_interval = given.seconds("lookupd_poll_interval", 60.0)
    cluster.extra = given.connection(user_agent(name, NSQD_VERSION))
    return cluster


def check_names(topics: tuple[str, ...], channel: str) -> None:
    """Raises Fatal with go-nsq's words."""
    from nsqc.wire.parser import is_valid_name

    if not all(is_valid_name(topic.encode(errors="replace")) for topic in topics):
        raise Fatal("invalid topic name")
    if not is_valid_name(channel.encode(errors="replace")):
        raise Fatal("invalid channel name")


# ====================================================================== status
# Status lines of nsq_to_http and nsq_to_nsq: answer times.

FEW = 100


class Recorder:
    """A line after every N answers; name: its beginning."""

    def __init__(self, every: int, name: str, say: Callable[[str], None]):
        self._every, self._name, self._say = every, name, say
        self._seconds: list[float] = []
        if every < FEW:
            say(f"Warning: use more than {FEW} status values for accurate percentiles (configured with {every})")

    def add(self, seconds: float) -> None:
        """Adds an answer."""
        if len(self._seconds) >= self._every:
            ordered = sorted(self._seconds)
            parts = [f"{percent}th: {self._percentile(ordered, percent)}" for percent in (99, 95)]
            average = shown(sum(ordered) / len(ordered))
            self._say(f"{self._name}: finished {len(ordered)} - {' - '.join(parts)} - avg: {average}")
            self._seconds = []
        self._seconds.append(seconds)

    @staticmethod
    def _percentile(ordered: list[float], percent: int) -> str:
        at = math.ceil(percent / 100 * len(ordered) + 0.5)
        return shown(ordered[min(max(at, 1), len(ordered)) - 1])


def shown(seconds: float) -> str:
    """A time in Go's format, to a hundredth of its unit."""
    nanoseconds = round(seconds * 10**9)
    unit = next((size for size in (10**9, 10**6, 10**3) if nanoseconds >= size), 1)
    step = max(unit // 100, 1)
    return format_duration(nanoseconds // step * step)


class Status:
    """every: answers per line, 0: no lines. One recorder for each address, if there are several, and one for all."""

    def __init__(self, every: int, addresses: tuple[str, ...], say: Callable[[str], None]):
        self._by_address: dict[str, Recorder] = {}
        self._all: Recorder | None = None
        if every > 0:
            self._all = Recorder(every, "[aggregate]", say)
            if len(addresses) > 1:
                self._by_address = {address: Recorder(every, f"[{address}]", say) for address in addresses}

    def add(self, address: str, seconds: float, count: int = 1) -> None:
        """Records count answers after this many seconds."""
        for _ in range(count):
            if self._all is not None:
                self._all.add(seconds)
            if address in self._by_address:
                self._by_address[address].add(seconds)
