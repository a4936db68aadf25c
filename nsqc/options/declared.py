"""Declares every option once: name, kind, default, range, help. Flags, config file, /config and help derive from it.

Attribute names are nsqd's flag names with underscores. Durations are nanoseconds.
"""

import socket
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, ClassVar, Generic, Self, TypeAlias, TypeVar

import msgspec

from nsqc.log import INFO
from nsqc.options.option import (
    DEFAULT_TLS_VERSION,
    HOUR,
    MINUTE,
    MS,
    TLS_NOT_REQUIRED,
    TLS_REQUIRED,
    TLS_VERSIONS,
    Kind,
    Option,
    S,
    Value,
    declared_in,
    format_duration,
)

try:
    # hashlib would use OpenSSL's, whose tables cost 3 MB of memory and 3 ms.
    from _md5 import md5  # type: ignore[import-not-found, unused-ignore]
except ImportError:  # a Python built without it
    from hashlib import md5

MIB = 1024 * 1024
# A hundred years: the current time plus this still fits 64 bits of nanoseconds.
LONGEST = 100 * 365 * 24 * HOUR
# nsqd's size flags have 64 bits. Frames and records have 31, for the body and the 30 bytes before it that count: type
# 4, timestamp 8, attempts 2, id 16.
LARGEST = 2**63 - 1
LARGEST_BODY = 2**31 - 1 - 30
# The protocol has 32 bits of milliseconds for delays.
LONGEST_DELAY = (2**32 - 1) * MS

INSTANCE_PORTS = 100        # between the ports of two instances
NAME_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
TOPOLOGY_AWARE = "topology-aware-consumption"
BASIC, NETWORK, LOOKUP, ACCESS, DISK, LOGS, MESSAGES, CLIENTS, TOPOLOGY, METRICS, STATSD, LATENCY, TLS, COMPRESSION = (
    "Basic", "Listening", "Lookup and auth", "Access", "Disk queues", "Logs", "Messages and commands",
    "Limits for clients", "Topology", "Metrics", "Statsd", "End-to-end latency", "TLS", "Compression")


def flag(kind: Kind, group: str, text: str, *, key: str = "", choices: tuple[str, ...] = (), least: float | None = None,
         most: float | None = None, own: bool = False, live: bool = False) -> Option:
    """An option that annotates its field; durations are bounded."""
    if kind is Kind.DURATION and most is None:
        most = LONGEST
    return Option("", text, kind, group=group, key=key, choices=choices, least=least, most=most, own=own, live=live)


# Of all servers, among their own.
SLOW_LOOP = flag(
    Kind.DURATION, BASIC, "log iterations of the event loop that take longer than this, with the handler that took "
    "longest; 0: off", least=0, own=True)
ACCESS_FILE = flag(
    Kind.FILE, ACCESS, "a TOML file with users and their permissions; read again on SIGHUP and on changes", own=True)
AUDIT_FILE = flag(
    Kind.FILE, ACCESS, "file for the audit log, reopened on SIGHUP; by default it goes to the log, if there is an "
    "access file", own=True)
AUDIT_LEVEL = flag(
    Kind.TEXT, ACCESS, "what the audit log records: calls that change something, and all refused calls (changes), "
    "only the latter (refused), or nothing (off)", choices=("off", "refused", "changes"), own=True)
# Of the lookup server and the admin server.
TLS_CERT = flag(
    Kind.FILE, TLS, "certificate file: every listener of this server then speaks TLS only; read again on changes and "
    "on SIGHUP", own=True)
TLS_KEY = flag(Kind.FILE, TLS, "its key file", own=True)
TLS_MIN_VERSION = flag(Kind.TLS_VERSION, TLS, "lowest version of TLS", own=True)


def default_node_id() -> int:
    """A hash of the host name, as in nsqd."""
    return zlib.crc32(md5(socket.gethostname().encode(), usedforsecurity=False).digest()) % 1024


RuleValue: TypeAlias = str | int | float  # of a rule; a bool is an int


class RuleTable(msgspec.Struct, frozen=True):
    """A config file table of rules: the names it applies to, and its settings."""

    glob: str
    values: dict[str, RuleValue]
    of: ClassVar[str]       # the key above the globs

    @property
    def title(self) -> str:
        """The form used in the file."""
        return f'[{self.of}."{self.glob}"]'


class TopicTable(RuleTable, frozen=True):
    """A [topics."GLOB"] table; keys as in RULE_KEYS."""

    of = "topics"


class ChannelTable(RuleTable, frozen=True):
    """A [channels."TOPIC/CHANNEL"] table; keys as in nsqc.options.rules."""

    of = "channels"


Field: TypeAlias = Value | tuple[RuleTable, ...]  # of Options


class OptionSet(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A server's options; each field that is a flag is annotated with its declaration. All servers have these."""

    version: Annotated[bool, flag(Kind.BOOL, BASIC, "print the version and exit")] = False
    config: Annotated[str, flag(Kind.FILE, BASIC, "a TOML file with options; flags override it")] = ""
    log_level: Annotated[int, flag(Kind.LEVEL, BASIC, "lowest level to log")] = INFO
    log_prefix: Annotated[str, flag(Kind.TEXT, BASIC, "prefix of log lines")] = ""
    log_format: Annotated[str, flag(
        Kind.LOG_FORMAT, BASIC, "format of log lines: nsqd's (text), text with journald's priority in front (journal), "
        "JSON objects, or logfmt; auto is text, or journal if systemd connected stderr to its journal",
        own=True)] = "auto"
    verbose: Annotated[bool, flag(Kind.BOOL, BASIC, "no effect; use --log-level")] = False

    def replace(self, **changes: Field) -> Self:
        """A copy with changes."""
        return msgspec.structs.replace(self, **changes)

    def value(self, name: str) -> Value:
        """The value of an option by its attribute name."""
        value: Value = getattr(self, name)
        return value

    def faults(self) -> Iterator[tuple[str, str]]:
        """Attribute name and a line for the operator, for each unusable value that its declared range does not
        exclude."""
        if (given := self.value("http_extended_api")) not in ("local", "all"):
            yield "http_extended_api", f"--http-extended-api must be local or all, not {given!r}"
        if (given := self.value("audit_level")) not in ("off", "refused", "changes"):
            yield "audit_level", f"--audit-level must be off, refused or changes, not {given!r}"

    def unusable(self) -> Iterable[tuple[str, str]]:
        """The same, for each error that prevents a start, in the words of NSQ's program."""
        return ()

    def numbered(self) -> Self:
        """A copy with what --instance adds."""
        return self

    def settled(self) -> Self:
        """A copy with implied options. Raises OptionError."""
        return self


class Options(OptionSet, frozen=True, kw_only=True, gc=False):
    """All options of a daemon."""

    log_level: Annotated[int, flag(Kind.LEVEL, BASIC, "lowest level to log", live=True)] = INFO
    log_prefix: str = "[nsqd] "
    node_id: Annotated[int, flag(
        Kind.INT, BASIC, "identifies this daemon in message ids, 0 to 1023; by default a hash of the host name",
        key="id", least=0, most=1023)] = msgspec.field(default_factory=default_node_id)
    instance: Annotated[int, flag(
        Kind.INT, BASIC, "number of this daemon among several on this machine that share a config file: 100 times the "
        "number is added to each port, the number to --node-id, and -NUMBER to --data-path, --audit-file and unix "
        "sockets", least=0, most=99, own=True)] = 0
    slow_loop: Annotated[int, SLOW_LOOP._replace(live=True)] = 100 * MS
    busy_poll: Annotated[int, flag(
        Kind.DURATION, BASIC, "how long the event loop polls for events before it sleeps, under dense traffic; 0: "
        "never; needs two processors", least=0, most=10 * MS, own=True, live=True)] = 300_000
    worker_id: Annotated[bool, flag(Kind.BOOL, BASIC, "no effect; use --node-id")] = False

    tcp_address: Annotated[str, flag(
        Kind.TEXT, NETWORK, "address to listen on for TCP clients: HOST:PORT, or the path of a unix socket",
    )] = "0.0.0.0:4150"
    http_address: Annotated[str, flag(
        Kind.TEXT, NETWORK, "address to listen on for HTTP clients: HOST:PORT, or the path of a unix socket; "
        "empty: do not listen")] = "0.0.0.0:4151"
    https_address: Annotated[str, flag(Kind.TEXT, NETWORK, "address to listen on for HTTPS clients")] = "0.0.0.0:4152"
    broadcast_address: Annotated[str, flag(
        Kind.TEXT, NETWORK, "address announced to others, such as nsqlookupd; by default the host name",
    )] = msgspec.field(default_factory=socket.gethostname)
    broadcast_tcp_port: Annotated[int, flag(
        Kind.INT, NETWORK, "TCP port announced to others; 0: the one listened on", least=0, most=65535)] = 0
    broadcast_http_port: Annotated[int, flag(
        Kind.INT, NETWORK, "HTTP port announced to others; 0: the one listened on", least=0, most=65535)] = 0
    handshake_timeout: Annotated[int, flag(
        Kind.DURATION, NETWORK, "timeout for receiving a complete command, or the protocol's magic",
        least=1, own=True, live=True)] = 30 * S
    max_connections: Annotated[int, flag(
        Kind.INT, NETWORK, "maximum number of client connections; 0: no limit", least=0, own=True,
        live=True)] = 100_000
    max_connections_per_address: Annotated[int, flag(
        Kind.INT, NETWORK, "maximum number of connections from one address; 0: no limit, as many clients may "
        "share a proxy", least=0, own=True, live=True)] = 0
    max_pending_handshakes: Annotated[int, flag(
        Kind.INT, NETWORK, "maximum number of concurrent TLS handshakes; 0: no limit", least=0, own=True,
        live=True)] = 1000
    max_buffered_bytes: Annotated[int, flag(
        Kind.INT, NETWORK, "bytes of unread replies beyond which a client's commands are not read either; its input "
        "is limited by the size limits of commands", least=4096, most=2**31 - 64, own=True,
        live=True)] = MIB
    http_header_timeout: Annotated[int, flag(
        Kind.DURATION, NETWORK, "timeout for an HTTP client to send its first request, and the head of each; a "
        "body gets the same plus a second per 4 KiB", least=1, own=True)] = 30 * S
    http_extended_api: Annotated[str, flag(
        Kind.TEXT, NETWORK, "clients that may use calls beyond nsqd's that show messages or control the "
        "daemon: those on this machine (local), or all; with --access-file its grants decide",
        choices=("local", "all"), own=True, live=True)] = "local"
    http_allowed_hosts: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, NETWORK, "name, or glob such as *.example.com, that HTTP clients may use for this server; IP "
        "addresses, localhost, the host name and --broadcast-address are always accepted. Needed for browsers and for "
        "calls beyond nsqd's", own=True, live=True)] = ()

    lookupd_tcp_address: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, LOOKUP, "nsqlookupd to register with, HOST:PORT, or tls://HOST:PORT for an nsqc lookupd with "
        "--tls-cert", key="nsqlookupd_tcp_addresses", live=True)] = ()
    lookupd_root_ca_file: Annotated[str, flag(
        Kind.FILE, LOOKUP, "authorities that sign the certificates of lookup servers with tls:// addresses, PEM; by "
        "default the system's", own=True, live=True)] = ""
    lookupd_token_file: Annotated[str, flag(
        Kind.FILE, LOOKUP, "file with the token to show to lookup servers that have an access file, for their "
        "channels of new topics; read each time", own=True, live=True)] = ""
    auth_http_address: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, LOOKUP, "auth server to query, HOST:PORT or URL", key="auth_http_addresses")] = ()
    auth_http_request_method: Annotated[str, flag(
        Kind.TEXT, LOOKUP, "request method for auth servers: get with a query string, or post with a JSON body",
        choices=("get", "post"), own=True, live=True)] = "get"
    auth_anchored: Annotated[bool, flag(
        Kind.BOOL, LOOKUP, "expressions of auth servers must match whole names, not just a part", own=True,
        live=True)] = False
    auth_grace: Annotated[int, flag(
        Kind.DURATION, LOOKUP, "how long an auth server's answer stays valid beyond its TTL if all servers are down",
        least=0, own=True, live=True)] = 0
    http_client_connect_timeout: Annotated[int, flag(
        Kind.DURATION, LOOKUP, "timeout for connecting to nsqlookupd and auth servers", least=0, live=True)] = 2 * S
    http_client_request_timeout: Annotated[int, flag(
        Kind.DURATION, LOOKUP, "timeout for entire requests to them", least=0, live=True)] = 5 * S

    access_file: Annotated[str, ACCESS_FILE] = ""
    audit_file: Annotated[str, AUDIT_FILE] = ""
    audit_level: Annotated[str, AUDIT_LEVEL] = "changes"

    data_path: Annotated[str, flag(
        Kind.FOLDER, DISK, "folder for queues and metadata; by default the current one")] = ""
    mem_queue_size: Annotated[int, flag(
        Kind.INT, DISK, "messages kept in memory, per topic and channel; 0: all go to disk", least=0)] = 10000
    max_bytes_per_file: Annotated[int, flag(
        Kind.INT, DISK, "size at which a disk queue starts a new file, bytes", least=1)] = 100 * MIB
    sync_every: Annotated[int, flag(
        Kind.INT, DISK, "number of messages after which a disk queue is synced", least=1)] = 2500
    sync_timeout: Annotated[int, flag(
        Kind.DURATION, DISK, "time after which a disk queue is synced", least=1)] = 2 * S
    min_free_disk: Annotated[int, flag(
        Kind.INT, DISK, "free bytes to keep in the data path: below this, publishes that need the disk are "
        "refused; 0: no limit; -1: 1 GiB, or 5 % of the file system if that is less", least=-1, most=LARGEST, own=True,
        live=True)] = -1
    queue_scan_worker_pool_max: Annotated[int, flag(
        Kind.INT, DISK, "no effect: deadlines are exact, without scans")] = 4
    queue_scan_selection_count: Annotated[int, flag(
        Kind.INT, DISK, "no effect: deadlines are exact, without scans")] = 20

    # Defaults for all topics; a table of the config file, or PUT /topic/rules, may override them for some.
    topic_storage: Annotated[str, flag(
        Kind.STORAGE, LOGS, "where topics store messages: in memory and disk queues as in nsqd (memory), or in a "
        "log", own=True, live=True)] = "memory"
    log_sync: Annotated[str, flag(
        Kind.LOG_SYNC, LOGS, "acknowledge a publish to a log once it is written, once it is also synced, or once the "
        "bucket has it",
        own=True, live=True)] = "write"
    log_retain_time: Annotated[int, flag(
        Kind.DURATION, LOGS, "how long a log keeps messages that all channels have finished; 0: no longer than "
        "needed", least=0, own=True, live=True)] = 0
    log_retain_bytes: Annotated[int, flag(
        Kind.INT, LOGS, "maximum size of a log and how much history it keeps, bytes; 0: unlimited, no "
        "history", least=0, most=LARGEST, own=True, live=True)] = 0
    log_retain_local_bytes: Annotated[int, flag(
        Kind.INT, LOGS, "with --bucket, how much of a log this disk keeps, bytes: older segments are in the bucket "
        "only; 0: unlimited", least=0, most=LARGEST, own=True, live=True)] = 0
    log_overflow: Annotated[str, flag(
        Kind.OVERFLOW, LOGS, "what happens at a limit of a topic or its channels: publishes are refused, the oldest "
        "messages are dropped, or moved to the dead-letter topic", own=True, live=True)] = "refuse"
    bucket: Annotated[str, flag(
        Kind.TEXT, LOGS, "where logs survive the loss of this machine: s3://BUCKET/PREFIX, gs://, az:// or "
        "file:///PATH", own=True)] = ""
    node_name: Annotated[str, flag(
        Kind.TEXT, LOGS, "this node's folder in the bucket, which a successor takes over; by default the host name",
        own=True)] = ""
    bucket_linger: Annotated[int, flag(
        Kind.DURATION, LOGS, "time from one commit to the next, which has what was written meanwhile", least=MS,
        most=MINUTE, own=True)] = 250 * MS
    bucket_take_over: Annotated[bool, flag(
        Kind.BOOL, LOGS, "take over from an owner that did not stop without watching whether it is alive: for "
        "orchestrators that run one instance per name", own=True)] = False
    bucket_timeout: Annotated[int, flag(
        Kind.DURATION, LOGS, "how long publishes and changes with sync = bucket, or a reader of history that is only "
        "there, wait for the bucket before they fail", least=MS, own=True, live=True)] = 10 * S
    bucket_cache_bytes: Annotated[int, flag(
        Kind.INT, LOGS, "room on this disk for history that is fetched from the bucket while somebody reads it, bytes; "
        "at least one segment is there", least=0, most=LARGEST, own=True)] = 1 << 30
    # The [topics."GLOB"] and [channels."TOPIC/CHANNEL"] tables of the config file, in its order.
    topics: tuple[TopicTable, ...] = ()
    channels: tuple[ChannelTable, ...] = ()

    msg_timeout: Annotated[int, flag(
        Kind.DURATION, MESSAGES, "time a client has to finish a message, unless it requests another", least=1,
        live=True)] = MINUTE
    max_msg_timeout: Annotated[int, flag(
        Kind.DURATION, MESSAGES, "longest such time, including TOUCH", least=1)] = 15 * MINUTE
    max_msg_size: Annotated[int, flag(
        Kind.INT, MESSAGES, "largest message, bytes; never more than 2147483617", least=1, most=LARGEST)] = MIB
    max_req_timeout: Annotated[int, flag(
        Kind.DURATION, MESSAGES, "longest delay of REQ and DPUB", least=0, most=LONGEST_DELAY, live=True)] = HOUR
    max_body_size: Annotated[int, flag(
        Kind.INT, MESSAGES, "largest body of a command, bytes", least=1, most=LARGEST, live=True)] = 5 * MIB
    publish_wait: Annotated[int, flag(
        Kind.DURATION, MESSAGES, "how long a publish that a limit of its topic or of a channel refuses waits for room "
        "before it fails; 0: it fails at once", least=0, own=True, live=True)] = 0
    # Twice the heartbeat interval of clients that request none. Not a flag, as in nsqd.
    client_timeout: int = MINUTE

    max_heartbeat_interval: Annotated[int, flag(
        Kind.DURATION, CLIENTS, "longest heartbeat interval a client may request", least=0, live=True)] = MINUTE
    max_rdy_count: Annotated[int, flag(Kind.INT, CLIENTS, "highest RDY", least=0, live=True)] = 2500
    max_output_buffer_size: Annotated[int, flag(
        Kind.INT, CLIENTS, "largest output buffer a client may request, bytes", least=0, live=True)] = 64 * 1024
    max_output_buffer_timeout: Annotated[int, flag(
        Kind.DURATION, CLIENTS, "longest output buffer timeout a client may request", least=0, live=True)] = 30 * S
    min_output_buffer_timeout: Annotated[int, flag(
        Kind.DURATION, CLIENTS, "shortest output buffer timeout a client may request", least=0, live=True)] = 25 * MS
    output_buffer_timeout: Annotated[int, flag(
        Kind.DURATION, CLIENTS, "output buffer timeout of a client that requests none", least=0, live=True)] = 250 * MS
    output_buffer_flush: Annotated[str, flag(
        Kind.FLUSH, CLIENTS, "send messages at the end of each loop iteration (turn), or after the output "
        "buffer timeout as in nsqd (timeout)", own=True)] = "turn"
    max_channel_consumers: Annotated[int, flag(
        Kind.INT, CLIENTS, "maximum number of consumers per channel; 0: no limit", least=0)] = 0
    max_topics: Annotated[int, flag(
        Kind.INT, CLIENTS, "maximum number of topics, including ephemeral ones, that clients can create; 0: no limit",
        least=0, own=True, live=True)] = 0
    max_channels_per_topic: Annotated[int, flag(
        Kind.INT, CLIENTS, "maximum number of channels per topic, including ephemeral ones, that clients can create; "
        "0: no limit", least=0, own=True, live=True)] = 0
    max_create_rate: Annotated[int, flag(
        Kind.INT, CLIENTS, "topics and channels that one connection may create per second, in bursts of up to ten "
        "times the number; a faster client waits; 0: no limit", least=0, own=True, live=True)] = 100

    enable_experiment: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, TOPOLOGY, "experimental feature of nsqd's source after 1.3.0 to enable: "
        f"{TOPOLOGY_AWARE}, which prefers consumers in this daemon's zone, then those in its region", own=True)] = ()
    topology_zone: Annotated[str, flag(
        Kind.TEXT, TOPOLOGY, "this daemon's zone, a part of the network that fails as a unit; announced to clients "
        "and nsqlookupd", own=True)] = ""
    topology_region: Annotated[str, flag(
        Kind.TEXT, TOPOLOGY, "this daemon's region, which has one or more zones; announced, too", own=True)] = ""
    metrics_per_channel: Annotated[bool, flag(
        Kind.BOOL, METRICS, "report /metrics series per channel; false: one per topic for all its channels together",
        own=True)] = True

    statsd_address: Annotated[str, flag(Kind.TEXT, STATSD, "statsd to push statistics to by UDP, HOST:PORT")] = ""
    statsd_interval: Annotated[int, flag(
        Kind.DURATION, STATSD, "time between pushes", least=10 * MS, live=True)] = MINUTE
    statsd_mem_stats: Annotated[bool, flag(Kind.BOOL, STATSD, "include memory metrics", live=True)] = True
    statsd_prefix: Annotated[str, flag(
        Kind.TEXT, STATSD, "prefix of all keys; %s is replaced by the host", live=True)] = "nsq.%s"
    statsd_udp_packet_size: Annotated[int, flag(Kind.INT, STATSD, "largest datagram, bytes", least=1, live=True)] = 508
    statsd_exclude_ephemeral: Annotated[bool, flag(
        Kind.BOOL, STATSD, "omit ephemeral topics and channels", live=True)] = False

    e2e_processing_latency_percentile: Annotated[tuple[float, ...], flag(
        Kind.FLOATS, LATENCY, "percentiles of the processing time to report, as fractions in (0, 1.0]",
        key="e2e_processing_latency_percentiles")] = ()
    e2e_processing_latency_window_time: Annotated[int, flag(
        Kind.DURATION, LATENCY, "time window of these percentiles", least=1)] = 10 * MINUTE

    tls_cert: Annotated[str, flag(Kind.FILE, TLS, "certificate file")] = ""
    tls_key: Annotated[str, flag(Kind.FILE, TLS, "key file")] = ""
    tls_client_auth_policy: Annotated[str, flag(
        Kind.TEXT, TLS, "require a client certificate (require), or a verified one (require-verify)",
        choices=("require", "require-verify"))] = ""
    tls_root_ca_file: Annotated[str, flag(Kind.FILE, TLS, "certificate authorities for client certificates")] = ""
    tls_required: Annotated[int, flag(
        Kind.TLS_REQUIRED, TLS, "clients that must use TLS: all, none, or all but HTTP clients")] = TLS_NOT_REQUIRED
    tls_min_version: Annotated[int, flag(Kind.TLS_VERSION, TLS, "lowest version")] = TLS_VERSIONS[DEFAULT_TLS_VERSION]

    deflate: Annotated[bool, flag(Kind.BOOL, COMPRESSION, "offer deflate", live=True)] = True
    max_deflate_level: Annotated[int, flag(
        Kind.INT, COMPRESSION, "highest deflate level a client may request, 1 to 9", least=1, most=9, live=True)] = 6
    snappy: Annotated[bool, flag(Kind.BOOL, COMPRESSION, "offer snappy", live=True)] = True

    @property
    def is_topology_aware(self) -> bool:
        """Whether messages go to nearby consumers first."""
        return TOPOLOGY_AWARE in self.enable_experiment

    @property
    def topology(self) -> dict[str, str]:
        """This daemon's location, as announced. nsqd 1.3.0 announces nothing, nor does a daemon without these
        options."""
        if not (self.topology_zone or self.topology_region or self.enable_experiment):
            return {}
        return {"topology_zone": self.topology_zone, "topology_region": self.topology_region}

    def numbered(self) -> Self:
        """See OptionSet. Ports that the system chooses stay 0."""
        number = self.instance
        if not number:
            return self
        changes: dict[str, Field] = {"node_id": (self.node_id + number) % 1024}
        for name in ("broadcast_tcp_port", "broadcast_http_port"):
            port = self.value(name)
            assert isinstance(port, int)
            changes[name] = port and port + INSTANCE_PORTS * number
        for name in ("tcp_address", "http_address", "https_address", "data_path", "audit_file"):
            text = str(self.value(name))
            host, colon, port = text.rpartition(":")
            if name.endswith("address") and colon and port.isdecimal() and "/" not in host:
                changes[name] = f"{host}:{int(port) and int(port) + INSTANCE_PORTS * number}"
            elif text:
                changes[name] = f"{text.rstrip('/')}-{number}"
        return self.replace(**changes)

    def faults(self) -> Iterator[tuple[str, str]]:
        """See OptionSet."""
        for percentile in self.e2e_processing_latency_percentile:
            if not 0 < percentile <= 1:
                yield ("e2e_processing_latency_percentile",
                       f"--e2e-processing-latency-percentile must be above 0 and at most 1, not {percentile}")
        for name in self.enable_experiment:
            if name != TOPOLOGY_AWARE:
                yield "enable_experiment", f"--enable-experiment must be {TOPOLOGY_AWARE}, not {name!r}"
        if self.auth_http_request_method not in ("get", "post"):
            yield "auth_http_request_method", "--auth-http-request-method must be post or get"
        if self.node_name in ("probe", "cluster", ".", "..") or self.node_name.strip(NAME_LETTERS):
            yield "node_name", ("--node-name must have letters, digits, `.`, `_` and `-` only, and be none of probe, "
                                f"cluster, `.` and `..`, not {self.node_name!r}")
        for text in self.lacks_bucket((table.title, table.values) for table in self.topics):
            yield "topics", text
        if not self.bucket:
            if self.log_sync == "bucket":
                yield "log_sync", "--log-sync=bucket needs --bucket"
            if self.log_retain_local_bytes:
                yield "log_retain_local_bytes", "--log-retain-local-bytes needs --bucket"
        yield from OptionSet.faults(self)

    def lacks_bucket(self, rules: Iterable[tuple[str, Mapping[str, object]]]) -> list[str]:
        """What rules of topics, as titles and values, need of a bucket that this node does not have: a line for each
        such rule."""
        return [f"{title}: {fault}" for title, values in rules if not self.bucket and (fault := needs_bucket(values))]

    def settled(self) -> Self:
        """See OptionSet."""
        if self.tls_client_auth_policy not in ("", *FLAGS["tls_client_auth_policy"].choices):
            raise OptionError(
                f"--tls-client-auth-policy is require or require-verify, not {self.tls_client_auth_policy}")
        if bool(self.tls_cert) != bool(self.tls_key):
            given, missing = ("--tls-cert", "--tls-key") if self.tls_cert else ("--tls-key", "--tls-cert")
            raise OptionError(f"failed to build TLS config - {given} is given without {missing}")
        implied = self.tls_client_auth_policy and self.tls_required == TLS_NOT_REQUIRED
        options = self.replace(tls_required=TLS_REQUIRED) if implied else self
        if options.tls_required != TLS_NOT_REQUIRED and not options.offers_tls:
            raise OptionError("cannot require TLS client connections without TLS key and cert")
        return options

    @property
    def offers_tls(self) -> bool:
        """Whether a certificate or a key is given; nsqd asks the same."""
        return bool(self.tls_cert or self.tls_key)

    @property
    def message_limit(self) -> int:
        """max_msg_size, limited by the size field of a frame."""
        return min(self.max_msg_size, LARGEST_BODY)

    @property
    def connection_limits(self) -> tuple[int, int, int]:
        """As of nsqc.net.listener.ConnectionLimits."""
        return self.max_connections, self.max_connections_per_address, self.max_pending_handshakes

    @property
    def disk_limits(self) -> tuple[int, int, int, int]:
        """As of nsqc.store.disk.manager.DiskQueues."""
        return self.max_bytes_per_file, self.message_limit, self.sync_every, self.sync_timeout

    def by_config_name(self, name: str) -> bool | int | float | str | list[str | float]:
        """The answer of GET /config/NAME. Raises KeyError for an unknown option."""
        value = self.value(KEYS[name])
        return [*value] if isinstance(value, tuple) else value


# Flags that are instructions or have no effect: they are not keys of a config file or of /config.
NO_KEY = ("version", "config", "verbose", "worker_id")

Chosen = TypeVar("Chosen", bound=OptionSet, covariant=True)


class Declaration(Generic[Chosen]):
    """The options of one program, as flags and as keys of a config file."""

    def __init__(self, options: type[Chosen], command: str, original: str, has_tables: bool = False):
        self.options = options
        self.command = command          # the command that takes these flags
        self.original = original        # the program of NSQ that has them, too
        self.has_tables = has_tables    # the config file may have tables with rules
        self.flags = declared_in(OptionSet) | declared_in(options)
        # Config file keys to attribute names.
        self.keys: dict[str, str] = {declared.key or name: name for name, declared in self.flags.items()
                                     if name not in NO_KEY}

    def by_group(self) -> dict[str, list[str]]:
        """Attribute names under the titles of their groups."""
        groups: dict[str, list[str]] = {}
        for name, declared in self.flags.items():
            groups.setdefault(declared.group, []).append(name)
        return groups

    def check(self, options: OptionSet) -> None:
        """Raises OptionError for the first unusable value."""
        for _, text in self.faults(options):
            raise OptionError(text)

    def faults(self, options: OptionSet) -> Iterator[tuple[str, str]]:
        """Attribute name and a line for the operator, for each unusable value."""
        for name, declared in self.flags.items():
            value = options.value(name)
            if isinstance(value, int) and (text := beyond(declared, value)):
                yield name, f"{flag_name(name)} {text}"
        yield from options.faults()


SERVE = Declaration(Options, "nsqc serve", "nsqd", has_tables=True)
FLAGS, KEYS = SERVE.flags, SERVE.keys


# Keys of a topic's rule to the attributes with their defaults.
RULE_KEYS = {"storage": "topic_storage", "sync": "log_sync", "retain_time": "log_retain_time",
             "retain_bytes": "log_retain_bytes", "retain_local_bytes": "log_retain_local_bytes",
             "overflow": "log_overflow"}


def needs_bucket(rule: Mapping[str, object]) -> str:
    """Why values of a topic's rule need a bucket; empty: they do not."""
    if rule.get("sync") == "bucket":
        return "sync = bucket needs --bucket"
    return "retain_local_bytes needs --bucket" if rule.get("retain_local_bytes") else ""


class OptionError(ValueError):
    """An unusable value; the text is one line for the operator."""


def flag_name(name: str) -> str:
    """An attribute name as a flag."""
    return "--" + name.replace("_", "-")


def beyond(declared: Option, value: float) -> str:
    """The bound that a value violates, described; empty: none."""
    if declared.least is not None and value < declared.least:
        return f"must be at least {written(declared, declared.least)}, not {written(declared, value)}"
    if declared.most is not None and value > declared.most:
        return f"must be at most {written(declared, declared.most)}, not {written(declared, value)}"
    return ""


def written(declared: Option, value: float) -> str:
    """A bound or a value as written in a config file."""
    return format_duration(int(value)) if declared.kind is Kind.DURATION else str(value)


class Settings:
    """The current options; a few may change while the daemon runs."""

    def __init__(self, options: Options):
        self.now = options
        self._listeners: list[Callable[[Options], None]] = []

    def on_change(self, callback: Callable[[Options], None]) -> None:
        """Registers callback(options), called after every change."""
        self._listeners.append(callback)

    def change(self, **fields: Field) -> None:
        """Sets new values and notifies the listeners. Raises OptionError."""
        changed = self.now.replace(**fields)
        SERVE.check(changed)
        self.now = changed
        for callback in self._listeners:
            callback(changed)
