"""Every option, declared once: name, kind, default, range, help. Flags, config file, /config and help come from here.

Attribute names are nsqd's flag names with underscores. Durations are nanoseconds.
"""

# No annotations as text here: evaluating them again would take a tenth of the daemon's start.
import socket
import zlib
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Annotated, Any

import msgspec

from nsqc.log import INFO, LEVELS
from nsqc.options.durations import format_duration

try:
    # What hashlib would take from OpenSSL, whose tables are 3 MB of memory and as many milliseconds.
    from _md5 import md5
except ImportError:  # a Python built without it
    from hashlib import md5

MS, S = 10**6, 10**9
MINUTE, HOUR = 60 * S, 3600 * S
MIB = 1024 * 1024
# A hundred years: added to the time of day, this still fits 64 bits of nanoseconds.
LONGEST = 100 * 365 * 24 * HOUR
# nsqd's flags for sizes have 64 bits. What frames and records have is 31, for the body and the 30 bytes before it that
# their size counts: type 4, timestamp 8, attempts 2, id 16.
LARGEST = 2**63 - 1
LARGEST_BODY = 2**31 - 1 - 30
# Delays travel in 32 bits of milliseconds.
LONGEST_DELAY = (2**32 - 1) * MS


class Kind(Enum):
    """How a value is written."""

    BOOL = "bool"
    INT = "int"
    TEXT = "string"
    FILE = "file"
    FOLDER = "folder"
    DURATION = "duration"
    TEXTS = "string, may be repeated"
    FLOATS = "float, may be repeated"
    LEVEL = "|".join(LEVELS)
    TLS_REQUIRED = "true|false|tcp-https"
    TLS_VERSION = "tls1.0|tls1.1|tls1.2|tls1.3"
    FLUSH = "turn|timeout"


class Flag(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one option beside its name and default."""

    kind: Kind
    help: str
    group: str
    key: str = ""  # in the config file, where it is not the name
    choices: tuple[str, ...] = ()  # of a text that may be nothing else; whoever uses the value checks it
    least: int | None = None
    most: int | None = None
    own: bool = False  # nsqc's, unknown to nsqd
    live: bool = False  # may change while the daemon runs, by SIGHUP (nsqc.options.reload); else it takes a restart


TLS_VERSIONS = {"tls1.0": 0x301, "tls1.1": 0x302, "tls1.2": 0x303, "tls1.3": 0x304}
DEFAULT_TLS_VERSION = "tls1.0"
TLS_NOT_REQUIRED, TLS_REQUIRED_EXCEPT_HTTP, TLS_REQUIRED = 0, 1, 2
FLUSH_RULES = ("turn", "timeout")

BASIC, NETWORK, LOOKUP, DISK, MESSAGES, CLIENTS, STATSD, LATENCY, TLS, COMPRESSION = (
    "Basic", "Listening", "Lookup and auth", "Disk queues", "Messages and commands", "Limits for clients", "Statsd",
    "End-to-end latency", "TLS", "Compression")


def flag(kind: Kind, group: str, text: str, **more: Any) -> Flag:
    if kind is Kind.DURATION:
        more.setdefault("most", LONGEST)
    return Flag(kind=kind, group=group, help=text, **more)


def default_node_id() -> int:
    """nsqd's: a hash of the host name."""
    return zlib.crc32(md5(socket.gethostname().encode(), usedforsecurity=False).digest()) % 1024


class Options(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All options of a daemon."""

    version: Annotated[bool, flag(Kind.BOOL, BASIC, "print the version and leave")] = False
    config: Annotated[str, flag(Kind.FILE, BASIC, "a TOML file with options; flags win over it")] = ""
    log_level: Annotated[int, flag(Kind.LEVEL, BASIC, "the least level that is logged", live=True)] = INFO
    log_prefix: Annotated[str, flag(Kind.TEXT, BASIC, "what log lines begin with")] = "[nsqd] "
    verbose: Annotated[bool, flag(Kind.BOOL, BASIC, "without effect; use --log-level")] = False
    node_id: Annotated[int, flag(
        Kind.INT, BASIC, "what tells daemons apart in message ids, 0 to 1023; by default a hash of the host name",
        key="id", least=0, most=1023)] = msgspec.field(default_factory=default_node_id)
    worker_id: Annotated[bool, flag(Kind.BOOL, BASIC, "without effect; use --node-id")] = False

    tcp_address: Annotated[str, flag(
        Kind.TEXT, NETWORK, "where TCP clients connect: HOST:PORT, or the path of a unix socket")] = "0.0.0.0:4150"
    http_address: Annotated[str, flag(
        Kind.TEXT, NETWORK, "where HTTP clients connect: HOST:PORT, or the path of a unix socket; empty: nowhere",
    )] = "0.0.0.0:4151"
    https_address: Annotated[str, flag(Kind.TEXT, NETWORK, "where HTTPS clients connect")] = "0.0.0.0:4152"
    broadcast_address: Annotated[str, flag(
        Kind.TEXT, NETWORK, "the address that others are told; by default the host name",
    )] = msgspec.field(default_factory=socket.gethostname)
    broadcast_tcp_port: Annotated[int, flag(
        Kind.INT, NETWORK, "the TCP port that others are told; 0: the one listened on", least=0, most=65535)] = 0
    broadcast_http_port: Annotated[int, flag(
        Kind.INT, NETWORK, "the HTTP port that others are told; 0: the one listened on", least=0, most=65535)] = 0
    handshake_timeout: Annotated[int, flag(
        Kind.DURATION, NETWORK, "how long a begun command, or the protocol's magic, may take to come whole",
        least=1, own=True, live=True)] = 30 * S
    max_connections: Annotated[int, flag(
        Kind.INT, NETWORK, "connections of all clients together; 0: any number", least=0, own=True,
        live=True)] = 100_000
    max_connections_per_address: Annotated[int, flag(
        Kind.INT, NETWORK, "connections from one address; 0: any number, for many clients may come through one proxy",
        least=0, own=True, live=True)] = 0
    max_pending_handshakes: Annotated[int, flag(
        Kind.INT, NETWORK, "TLS handshakes at a time; 0: any number", least=0, own=True, live=True)] = 1000
    max_buffered_bytes: Annotated[int, flag(
        Kind.INT, NETWORK, "answers that a client may leave unread, bytes, before its commands are left unread, too; "
        "what it sends is bounded by the size limits for commands", least=4096, most=2**31 - 64, own=True,
        live=True)] = MIB
    http_header_timeout: Annotated[int, flag(
        Kind.DURATION, NETWORK, "how long an HTTP client may take to send its first request, and the head of each; a "
        "body gets as long and a second more for every 4 KiB", least=1, own=True)] = 30 * S

    lookupd_tcp_address: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, LOOKUP, "nsqlookupd to register with, HOST:PORT", key="nsqlookupd_tcp_addresses", live=True)] = ()
    auth_http_address: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, LOOKUP, "auth server to ask, HOST:PORT or URL", key="auth_http_addresses")] = ()
    auth_http_request_method: Annotated[str, flag(
        Kind.TEXT, LOOKUP, "how auth servers are asked: get with a query, or post with a JSON body",
        choices=("get", "post"), own=True, live=True)] = "get"
    auth_anchored: Annotated[bool, flag(
        Kind.BOOL, LOOKUP, "expressions of auth servers must match whole names, not just a part", own=True,
        live=True)] = False
    auth_grace: Annotated[int, flag(
        Kind.DURATION, LOOKUP, "how long an auth server's answer counts beyond its time while all servers are down",
        least=0, own=True, live=True)] = 0
    http_client_connect_timeout: Annotated[int, flag(
        Kind.DURATION, LOOKUP, "for connecting to lookupd and auth servers", least=0, live=True)] = 2 * S
    http_client_request_timeout: Annotated[int, flag(
        Kind.DURATION, LOOKUP, "for whole requests to them", least=0, live=True)] = 5 * S

    data_path: Annotated[str, flag(
        Kind.FOLDER, DISK, "folder of queues and metadata; by default the current one")] = ""
    mem_queue_size: Annotated[int, flag(
        Kind.INT, DISK, "messages kept in memory, for each topic and channel; 0: all go to disk", least=0)] = 10000
    max_bytes_per_file: Annotated[int, flag(
        Kind.INT, DISK, "size at which a disk queue begins a new file, bytes", least=1)] = 100 * MIB
    sync_every: Annotated[int, flag(
        Kind.INT, DISK, "messages of a disk queue after which it is synced", least=1)] = 2500
    sync_timeout: Annotated[int, flag(
        Kind.DURATION, DISK, "time after which a disk queue is synced", least=1)] = 2 * S
    queue_scan_worker_pool_max: Annotated[int, flag(
        Kind.INT, DISK, "without effect: deadlines are exact here, nothing is scanned")] = 4
    queue_scan_selection_count: Annotated[int, flag(
        Kind.INT, DISK, "without effect: deadlines are exact here, nothing is scanned")] = 20

    msg_timeout: Annotated[int, flag(
        Kind.DURATION, MESSAGES, "time a client has to finish a message, unless it asks for another", least=1,
        live=True)] = MINUTE
    max_msg_timeout: Annotated[int, flag(
        Kind.DURATION, MESSAGES, "the longest such time, TOUCH included", least=1)] = 15 * MINUTE
    max_msg_size: Annotated[int, flag(
        Kind.INT, MESSAGES, "largest message, bytes; never more than 2147483617", least=1, most=LARGEST)] = MIB
    max_req_timeout: Annotated[int, flag(
        Kind.DURATION, MESSAGES, "longest delay of REQ and DPUB", least=0, most=LONGEST_DELAY, live=True)] = HOUR
    max_body_size: Annotated[int, flag(
        Kind.INT, MESSAGES, "largest body of a command, bytes", least=1, most=LARGEST, live=True)] = 5 * MIB
    # Twice the heartbeat interval of clients that ask for none. It is no flag in nsqd, so it is none here.
    client_timeout: int = MINUTE

    max_heartbeat_interval: Annotated[int, flag(
        Kind.DURATION, CLIENTS, "longest heartbeat interval a client may ask for", least=0, live=True)] = MINUTE
    max_rdy_count: Annotated[int, flag(Kind.INT, CLIENTS, "highest RDY", least=0, live=True)] = 2500
    max_output_buffer_size: Annotated[int, flag(
        Kind.INT, CLIENTS, "largest output buffer a client may ask for, bytes", least=0, live=True)] = 64 * 1024
    max_output_buffer_timeout: Annotated[int, flag(
        Kind.DURATION, CLIENTS, "longest output buffer timeout a client may ask for", least=0, live=True)] = 30 * S
    min_output_buffer_timeout: Annotated[int, flag(
        Kind.DURATION, CLIENTS, "shortest output buffer timeout a client may ask for", least=0, live=True)] = 25 * MS
    output_buffer_timeout: Annotated[int, flag(
        Kind.DURATION, CLIENTS, "output buffer timeout of a client that asks for none", least=0, live=True)] = 250 * MS
    output_buffer_flush: Annotated[str, flag(
        Kind.FLUSH, CLIENTS, "when messages leave: at the end of a turn of the loop, or held for the output buffer "
        "timeout as nsqd does", own=True)] = "turn"
    max_channel_consumers: Annotated[int, flag(
        Kind.INT, CLIENTS, "consumers a channel may have; 0: any number", least=0)] = 0

    statsd_address: Annotated[str, flag(Kind.TEXT, STATSD, "HOST:PORT that gets statistics by UDP")] = ""
    statsd_interval: Annotated[int, flag(Kind.DURATION, STATSD, "time between them", least=10 * MS, live=True)] = MINUTE
    statsd_mem_stats: Annotated[bool, flag(Kind.BOOL, STATSD, "include memory figures", live=True)] = True
    statsd_prefix: Annotated[str, flag(Kind.TEXT, STATSD, "of all keys; %s stands for the host", live=True)] = "nsq.%s"
    statsd_udp_packet_size: Annotated[int, flag(Kind.INT, STATSD, "largest datagram, bytes", least=1, live=True)] = 508
    statsd_exclude_ephemeral: Annotated[bool, flag(
        Kind.BOOL, STATSD, "leave ephemeral topics and channels out", live=True)] = False

    e2e_processing_latency_percentile: Annotated[tuple[float, ...], flag(
        Kind.FLOATS, LATENCY, "fractions in (0, 1.0] of messages to tell the processing time of",
        key="e2e_processing_latency_percentiles")] = ()
    e2e_processing_latency_window_time: Annotated[int, flag(
        Kind.DURATION, LATENCY, "the time that these figures look back", least=1)] = 10 * MINUTE

    tls_cert: Annotated[str, flag(Kind.FILE, TLS, "certificate file")] = ""
    tls_key: Annotated[str, flag(Kind.FILE, TLS, "key file")] = ""
    tls_client_auth_policy: Annotated[str, flag(
        Kind.TEXT, TLS, "whether clients need a certificate: require or require-verify",
        choices=("require", "require-verify"))] = ""
    tls_root_ca_file: Annotated[str, flag(Kind.FILE, TLS, "authorities for client certificates")] = ""
    tls_required: Annotated[int, flag(
        Kind.TLS_REQUIRED, TLS, "who must use TLS: everybody, nobody, or all but HTTP clients")] = TLS_NOT_REQUIRED
    tls_min_version: Annotated[int, flag(Kind.TLS_VERSION, TLS, "least version")] = TLS_VERSIONS[DEFAULT_TLS_VERSION]

    deflate: Annotated[bool, flag(Kind.BOOL, COMPRESSION, "offer deflate", live=True)] = True
    max_deflate_level: Annotated[int, flag(
        Kind.INT, COMPRESSION, "highest deflate level a client may ask for, 1 to 9", least=1, most=9, live=True)] = 6
    snappy: Annotated[bool, flag(Kind.BOOL, COMPRESSION, "offer snappy", live=True)] = True

    @property
    def message_limit(self) -> int:
        """max_msg_size, as far as the size of a frame can tell."""
        return min(self.max_msg_size, LARGEST_BODY)

    def replace(self, **changes: Any) -> "Options":
        """A copy with changes."""
        return msgspec.structs.replace(self, **changes)

    def by_config_name(self, name: str) -> Any:
        """What GET /config/NAME answers. Raises KeyError for a name that is no option's."""
        value = getattr(self, KEYS[name])
        return list(value) if isinstance(value, tuple) else value


FLAGS: dict[str, Flag] = {
    name: item
    for name, hint in Options.__annotations__.items()
    for item in getattr(hint, "__metadata__", ()) if isinstance(item, Flag)
}
# What is an instruction, or without any effect: a flag, but no key of a config file or of /config.
NO_KEY = ("version", "config", "verbose", "worker_id")
# Config file keys to attribute names.
KEYS: dict[str, str] = {known.key or name: name for name, known in FLAGS.items() if name not in NO_KEY}


class OptionError(ValueError):
    """An option that cannot be accepted; the text is one line for the operator."""


def flag_name(name: str) -> str:
    """An attribute name as a flag."""
    return "--" + name.replace("_", "-")


def check(options: Options) -> None:
    """Raises OptionError for the first value out of range."""
    for _, text in out_of_range(options):
        raise OptionError(text)


def out_of_range(options: Options) -> Iterator[tuple[str, str]]:
    """Attribute name and a line for the operator, of each value out of range."""
    for name, known in FLAGS.items():
        value = getattr(options, name)
        if known.least is not None and value < known.least:
            yield name, f"{flag_name(name)} must be at least {figure(known, known.least)}, not {figure(known, value)}"
        if known.most is not None and value > known.most:
            yield name, f"{flag_name(name)} must be at most {figure(known, known.most)}, not {figure(known, value)}"
    for value in options.e2e_processing_latency_percentile:
        if not 0 < value <= 1:
            yield ("e2e_processing_latency_percentile",
                   f"--e2e-processing-latency-percentile must be above 0 and at most 1, not {value}")
    if options.auth_http_request_method not in ("get", "post"):
        yield "auth_http_request_method", "--auth-http-request-method must be post or get"


def figure(known: Flag, value: int) -> str:
    """A bound or a value as one writes it."""
    return format_duration(value) if known.kind is Kind.DURATION else str(value)


class Settings:
    """The options in force; a few may change while the daemon runs."""

    def __init__(self, options: Options):
        self.now = options
        self._listeners: list[Callable[[Options], None]] = []

    def on_change(self, callback: Callable[[Options], None]) -> None:
        """Has callback(options) called after every change."""
        self._listeners.append(callback)

    def change(self, **fields: Any) -> None:
        """Puts new values in force. Raises OptionError."""
        changed = self.now.replace(**fields)
        check(changed)
        self.now = changed
        for callback in self._listeners:
            callback(changed)
