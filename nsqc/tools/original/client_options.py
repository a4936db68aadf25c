"""--consumer-opt and --producer-opt: go-nsq's options. Options with an equivalent in nsqc work. Options that only tune
go-nsq are accepted with a warning; those that would change a tool's behaviour are refused."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from nsqc.client.backoff import Backoff
from nsqc.client.options import ConnectionOptions
from nsqc.options.durations import parse_duration
from nsqc.tools.original.goflags import TRUE, Flag, truth, whole
from nsqc.tools.original.program import warn_line

MS, S = 10**6, 10**9
MINUTE = 60 * S
MOST = 2**62
NUMBERS: dict[str, Callable[[str], float]] = {"duration": parse_duration, "int": whole, "bool": truth, "float": float}
GO_PARSERS = {"bool": "ParseBool", "int": "ParseInt", "float": "ParseFloat"}
# Kind, lowest and highest value; durations in nanoseconds.
KNOWN: dict[str, tuple[str, float, float]] = {
    "dial_timeout": ("duration", 1, MOST), "write_timeout": ("duration", 100 * MS, 5 * MINUTE),
    "lookupd_poll_interval": ("duration", 10 * MS, 5 * MINUTE), "max_requeue_delay": ("duration", 0, 60 * MINUTE),
    "default_requeue_delay": ("duration", 0, 60 * MINUTE), "max_attempts": ("int", 0, 65535),
    "client_id": ("string", 0, 0), "hostname": ("string", 0, 0), "user_agent": ("string", 0, 0),
    "heartbeat_interval": ("duration", 1 * S, MOST), "sample_rate": ("int", 0, 99),
    "tls_v1": ("bool", 0, 0), "tls_root_ca_file": ("string", 0, 0), "tls_cert": ("string", 0, 0),
    "tls_key": ("string", 0, 0), "tls_insecure_skip_verify": ("bool", 0, 0), "deflate": ("bool", 0, 0),
    "deflate_level": ("int", 1, 9), "snappy": ("bool", 0, 0), "output_buffer_size": ("int", 0, MOST),
    "output_buffer_timeout": ("duration", 0, MOST), "max_in_flight": ("int", 0, MOST),
    "msg_timeout": ("duration", 0, MOST), "auth_secret": ("string", 0, 0), "tls_min_version": ("version", 0, 0),
    "lookupd_poll_timeout": ("duration", 1, MOST), "lookupd_poll_jitter": ("float", 0, 1),
    "backoff_strategy": ("strategy", 0, 0), "max_backoff_duration": ("duration", 0, 60 * MINUTE),
    "backoff_multiplier": ("duration", 0, 60 * MINUTE), "read_timeout": ("duration", 100 * MS, 5 * MINUTE),
    "low_rdy_idle_timeout": ("duration", 1 * S, 5 * MINUTE), "low_rdy_timeout": ("duration", 1 * S, 5 * MINUTE),
    "rdy_redistribute_interval": ("duration", 1 * MS, 5 * S), "skip_lookupd_authorization": ("bool", 0, 0),
}
# Used by some tools only.
LOOKUP = ("lookupd_poll_interval", "lookupd_poll_timeout")
AGAIN = ("default_requeue_delay", "max_requeue_delay", "max_attempts")
PAUSES = ("backoff_strategy", "max_backoff_duration", "backoff_multiplier")
# Used by no tool: they tune mechanisms that nsqc does not have.
TUNING = ("read_timeout", "lookupd_poll_jitter", "low_rdy_idle_timeout", "low_rdy_timeout", "rdy_redistribute_interval")
WORDS: dict[str, Mapping[str, object]] = {
    "version": {"ssl3.0": ssl.TLSVersion.MINIMUM_SUPPORTED, "tls1.0": ssl.TLSVersion.TLSv1,
                "tls1.1": ssl.TLSVersion.TLSv1_1, "tls1.2": ssl.TLSVersion.TLSv1_2},
    "strategy": {"": False, "exponential": False, "full_jitter": True}}


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
    kind, least, most = KNOWN[key]
    if not value or kind == "string":
        return
    if kind in WORDS:
        if value not in WORDS[kind]:
            raise ValueError(f"invalid {key} {value}, it is one of {', '.join(filter(None, WORDS[kind]))}")
        return
    try:
        number = NUMBERS[kind](value)
    except ValueError:
        raise ValueError(f"failed to coerce option {key} ({value}) - {why(kind, value)}") from None
    if kind != "bool" and number < least:
        raise ValueError(f"invalid {key} ! {value} < {plain(kind, least)}")
    if kind != "bool" and number > most:
        raise ValueError(f"invalid {key} ! {value} > {plain(kind, most)}")


def why(kind: str, value: str) -> str:
    """The fault of a value, in Go's words."""
    if kind == "duration":
        missing = value.lstrip("+-").replace(".", "", 1).isdecimal()
        return f'time: missing unit in duration "{value}"' if missing else f'time: invalid duration "{value}"'
    return f'strconv.{GO_PARSERS[kind]}: parsing "{value}": invalid syntax'


def plain(kind: str, value: float) -> str:
    """A bound in written form."""
    from nsqc.options.durations import format_duration

    return format_duration(int(value)) if kind == "duration" else f"{value:g}"


def flag(name: str) -> Flag:
    """--consumer-opt or --producer-opt."""
    return Flag(name, "value", (), "an option of the client, KEY,VALUE (may be repeated)", check)


class Given(NamedTuple):
    """The given options by name; empty values are omitted."""

    values: dict[str, str]

    def on(self, name: str) -> bool:
        """A bool."""
        return truth(self.values[name]) if name in self.values else False

    def text(self, name: str) -> str:
        """A string."""
        return self.values.get(name, "")

    def number(self, name: str, default: int) -> int:
        """An int."""
        return whole(self.values[name]) if name in self.values else default

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
        return WORDS["strategy"][self.text("backoff_strategy")] is True

    @property
    def least_tls(self) -> ssl.TLSVersion | None:
        """The lowest version of TLS, if given."""
        version = WORDS["version"].get(self.text("tls_min_version"))
        return version if isinstance(version, ssl.TLSVersion) else None

    def connection(self, user_agent: str) -> ConnectionOptions:
        """Options of the connection itself."""
        options: ConnectionOptions = {"user_agent": user_agent}
        if self.text("client_id"):
            options["client_id"] = self.text("client_id")
        if self.text("hostname"):
            options["hostname"] = self.text("hostname")
        options["heartbeat_interval_ms"] = round(self.seconds("heartbeat_interval", 30.0) * 1000)
        if "msg_timeout" in self.values:
            options["msg_timeout_ms"] = round(self.seconds("msg_timeout", 0) * 1000)
        if "output_buffer_size" in self.values:
            options["output_buffer_size"] = self.number("output_buffer_size", 0)
        if "output_buffer_timeout" in self.values:
            options["output_buffer_timeout_ms"] = round(self.seconds("output_buffer_timeout", 0) * 1000)
        options["sample_rate"] = self.number("sample_rate", 0)
        if self.on("deflate"):
            options["deflate"] = self.number("deflate_level", 6)
        options["snappy"] = self.on("snappy")
        return options


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
