"""The options of Connection, Producer and Consumer, blocking and asyncio: checked in constructors, before connecting.

ConnectionOptions is for type checkers and documentation; the code works with Options.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, TypedDict, get_type_hints

from nsqc import __version__
from nsqc.wire.codecs import CODECS

if TYPE_CHECKING:
    from nsqc.wire.nodehosts import NodeHosts

KIB, MIB = 1 << 10, 1 << 20
FRAME_ROOM = 64 * KIB           # bytes of a frame beyond the largest message
MPUB_ROOM = 8                   # bytes of an MPUB body beyond its only message


class Rule(NamedTuple):
    """An option: the accepted values (for errors), its types and bounds; the default, for options of a connection. None
    is valid if it is the default."""

    takes: str
    kinds: tuple[type, ...]
    low: float | None = None
    above: float | None = None
    high: float | None = None
    default: Any = ...      # Any: options differ in type

    def check(self, name: str, value: object) -> None:
        """Raises TypeError, ValueError."""
        if value is None and self.default is None:
            return
        if not isinstance(value, self.kinds) or (isinstance(value, bool) and bool not in self.kinds):
            raise TypeError(f"{name} is {value!r}; it takes {self.takes}")
        if isinstance(value, (int, float)) and (
                (self.low is not None and not value >= self.low) or (self.above is not None and not value > self.above)
                or (self.high is not None and not value <= self.high)):
            raise ValueError(f"{name} is {value!r}; it takes {self.takes}")


def whole(takes: str, low: int, high: int | None = None, default: int | EllipsisType | None = ...) -> Rule:
    """A whole number from low to high."""
    return Rule(takes, (int,), low=low, high=high, default=default)


def seconds(low: float | None = None, above: float | None = None) -> Rule:
    """Seconds, from low or above a bound."""
    return Rule(f"seconds above {above}" if low is None else f"seconds, {low} or above", (int, float), low, above)


NAME = Rule("a str or None", (str,), default=None)
MILLISECONDS = whole("milliseconds, a whole number, -1 or above", -1, default=None)


class ConnectionOptions(TypedDict, total=False):
    """Options of a connection. tls: True (the system's authorities), an ssl.SSLContext (see nsqc.client.tls), None.
    deflate: a level from 1 to 9, or 0. snappy: not with deflate. auth_secret: sent by AUTH if nsqd requires it.
    node_addresses: hosts, networks such as 10.0.0.0/8 or globs, separated by commas: AUTH is sent to these nsqd only;
    default: to all, including those that nsqlookupd lists.
    client_id, hostname, user_agent: shown in nsqd's statistics. topology_zone, topology_region: the consumer's
    location; nsqd prefers nearby consumers if configured to. heartbeat_interval_ms, msg_timeout_ms, output_buffer_size,
    output_buffer_timeout_ms, sample_rate: as in IDENTIFY. max_msg_size, max_body_size: nsqd's limits in bytes, which
    nsqd does not report; anything larger is refused before it is sent. max_frame_bytes: the largest frame to accept.
    tick_ns: unit of timestamps in columns, in nanoseconds."""

    tls: Annotated[bool | ssl.SSLContext | None,
                   Rule("True, False, None or an ssl.SSLContext", (bool, ssl.SSLContext), default=None)]
    deflate: Annotated[int, whole("a level from 1 to 9, or 0", 0, 9, 0)]
    snappy: Annotated[bool, Rule("True or False", (bool,), default=False)]
    auth_secret: Annotated[str | bytes | None, Rule("a str, bytes or None", (str, bytes), default=None)]
    node_addresses: Annotated[str | None, NAME]
    client_id: Annotated[str | None, NAME]
    hostname: Annotated[str | None, NAME]
    user_agent: Annotated[str | None, NAME]
    topology_zone: Annotated[str | None, NAME]
    topology_region: Annotated[str | None, NAME]
    heartbeat_interval_ms: Annotated[int | None, MILLISECONDS]
    msg_timeout_ms: Annotated[int | None, MILLISECONDS]
    output_buffer_size: Annotated[int | None, whole("bytes, a whole number, -1 or above", -1, default=None)]
    output_buffer_timeout_ms: Annotated[int | None, MILLISECONDS]
    sample_rate: Annotated[int, whole("percent, a whole number from 0 to 99", 0, 99, 0)]
    max_msg_size: Annotated[int, whole("bytes, a whole number above 0", 1, default=MIB)]
    max_body_size: Annotated[int, whole(f"bytes, a whole number above {MPUB_ROOM}", MPUB_ROOM + 1, default=5 * MIB)]
    max_frame_bytes: Annotated[int | None, whole("bytes, a whole number above 0", 1, default=None)]
    tick_ns: Annotated[int, whole("nanoseconds, a whole number above 0", 1, default=1)]


CONNECTION: dict[str, Rule] = {name: hint.__metadata__[0]
                               for name, hint in get_type_hints(ConnectionOptions, include_extras=True).items()}
OTHERS: dict[str, Rule] = {
    **dict.fromkeys(("timeout", "poll_interval"), seconds(above=0)),
    **dict.fromkeys(("backoff", "touch_limit", "requeue_delay", "max_requeue_delay", "max_slowdown", "stop_timeout",
                     "handler_timeout", "batch_timeout", "linger"), seconds(low=0)),
    **dict.fromkeys(("retries", "max_attempts", "max_stuck", "max_messages"), whole("a whole number, 0 or above", 0)),
    "batch": whole("a whole number, 1 or above, or None for one message at a time", 1, default=None),
    **dict.fromkeys(("connections", "concurrency", "batch_rows", "window"), whole("a whole number, 1 or above", 1)),
    "spread": Rule("True or False", (bool,)),
    "max_in_flight": whole("a whole number, 1 or above, or None for one per connection", 1, default=None),
    "max_pending_bytes": whole("bytes, a whole number above 0", 1),
    "batch_bytes": whole("bytes, a whole number above 0", 1),
    "delay_ms": whole("milliseconds, a whole number, 0 or above", 0),
}
# Names of the same options in other NSQ clients.
FOREIGN_NAMES = {"nsqd_tcp_addresses": "nsqd", "nsqd_addresses": "nsqd", "lookupd_http_addresses": "nsqlookupd",
                 "lookupd_addresses": "nsqlookupd", "tls_v1": "tls", "ssl": "tls", "tls_options": "tls",
                 "heartbeat_interval": "heartbeat_interval_ms", "msg_timeout": "msg_timeout_ms",
                 "message_timeout": "msg_timeout_ms", "secret": "auth_secret", "deflate_level": "deflate",
                 "lookupd_poll_interval": "poll_interval", "message_handler": "handler", "max_tries": "max_attempts",
                 "giving_up": "on_give_up", "max_backoff_duration": "max_slowdown"}


def checked(**values: object) -> None:
    """Raises TypeError or ValueError for the first invalid option."""
    for name, value in values.items():
        (CONNECTION.get(name) or OTHERS[name]).check(name, value)


def unknown(owner: str, name: str, known: Iterable[str]) -> NoReturn:
    """Raises the TypeError for an unknown option, with a suggestion."""
    from difflib import get_close_matches  # needed for errors only

    names = list(known)
    near = [FOREIGN_NAMES[name]] if FOREIGN_NAMES.get(name) in names else get_close_matches(name, names, 1)
    raise TypeError(f"{owner} has no option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


class Options:
    """Checked options of connections. owner: the class that errors name; own: its other options, for suggestions.
    publishes: it asks for nsqc's extensions for publishers.

    Raises TypeError, ValueError.
    """

    def __init__(self, owner: str, own: Iterable[str], timeout: float, given: Mapping[str, Any],    # Any: checked here
                 publishes: bool = False):
        for name in given:
            if name not in CONNECTION:
                unknown(owner, name, [*CONNECTION, *own, "timeout"])
        checked(timeout=timeout, **given)
        # Any: options differ in type
        values: dict[str, Any] = {name: rule.default for name, rule in CONNECTION.items()} | dict(given)
        codecs = [name for name in CODECS if values[name]]
        if len(codecs) > 1:
            raise ValueError(f"{' and '.join(codecs)} exclude each other")
        self.timeout = float(timeout)
        self.tls: bool | ssl.SSLContext | None = values["tls"]
        self.codec = codecs[0] if codecs else ""
        self.level = int(values[self.codec]) if codecs else 0      # of a codec that has levels
        secret: str | bytes | None = values["auth_secret"]
        self.auth_secret = secret.encode() if isinstance(secret, str) else secret
        hosts: str | None = values["node_addresses"]
        self.secret_hosts: NodeHosts | None = None      # None: all
        if hosts is not None:
            from nsqc.wire.nodehosts import NodeHosts  # ipaddress takes a while to import

            self.secret_hosts = NodeHosts([hosts])
        self.max_body_size: int = values["max_body_size"]
        self.max_msg_size = min(int(values["max_msg_size"]), self.max_body_size - MPUB_ROOM)
        self.max_frame_bytes: int = values["max_frame_bytes"] or values["max_msg_size"] + FRAME_ROOM
        self.tick_ns: int = values["tick_ns"]
        self._identify = values
        self._publishes = publishes

    def identify(self) -> dict[str, object]:
        """The JSON object of IDENTIFY."""
        given, name = self._identify, socket.gethostname()
        fields = {
            "client_id": given["client_id"] or name.split(".")[0], "hostname": given["hostname"] or name,
            "user_agent": given["user_agent"] or f"nsqc/{__version__}", "feature_negotiation": True,
            "heartbeat_interval": given["heartbeat_interval_ms"], "msg_timeout": given["msg_timeout_ms"],
            "topology_zone": given["topology_zone"] or None, "topology_region": given["topology_region"] or None,
            "output_buffer_size": given["output_buffer_size"],
            "output_buffer_timeout": given["output_buffer_timeout_ms"],
            "sample_rate": given["sample_rate"] or None, "tls_v1": bool(self.tls) or None,
            **({self.codec: True} if self.codec else {}),
            **({f"{self.codec}_level": self.level} if self.codec and CODECS[self.codec].levels else {}),
            # nsqc's own, which other servers ignore.
            "publish_ids": self._publishes or None, "deferred_batches": self._publishes or None,
            "dead_letters": not self._publishes or None,
            "tls_required": (self.auth_secret is not None and not self.tls) or None}
        return {key: value for key, value in fields.items() if value is not None}


def tls_context(tls: bool | ssl.SSLContext) -> ssl.SSLContext:
    """The TLS context for an option. Raises OSError if the system's authorities cannot be read."""
    return tls if isinstance(tls, ssl.SSLContext) else ssl.create_default_context()
