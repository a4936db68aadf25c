"""--consumer-opt and --producer-opt: go-nsq's options. Options with an equivalent in nsqc work. Options that only tune
go-nsq are accepted with a warning; those that would change a tool's behaviour are refused."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import NamedTuple

from nsqc.client.backoff import Backoff
from nsqc.client.options import ConnectionOptions
from nsqc.options.durations import parse_duration
from nsqc.options.option import Kind, Option
from nsqc.options.values import TRUE, from_text, parse_bool, parse_int
from nsqc.tools.original.program import warn_line

MS, S = 10**6, 10**9
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
    from nsqc.options.durations import format_duration

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
