"""Declares every option of `nsqc lookupd` once, like the daemon's."""

import ipaddress
import posixpath
import socket
from collections.abc import Iterator
from typing import Annotated

import msgspec

from nsqc.net.address import split_address
from nsqc.options.declared import (
    ACCESS,
    ACCESS_FILE,
    AUDIT_FILE,
    AUDIT_LEVEL,
    BASIC,
    METRICS,
    NETWORK,
    SLOW_LOOP,
    TLS,
    TLS_CERT,
    TLS_KEY,
    TLS_MIN_VERSION,
    Declaration,
    OptionSet,
    flag,
    flag_name,
)
from nsqc.options.option import MINUTE, MS, TLS_VERSIONS, Kind, S
from nsqc.wire.nodehosts import NodeHosts

NODES, LIMITS, GRAPHITE = "Nodes", "Limits", "Graphite"


def half_a_pair(options: OptionSet, prefix: str = "") -> Iterator[tuple[str, str]]:
    """A certificate without its key, or a key without its certificate: see OptionSet.unusable()."""
    cert, key = f"{prefix}tls_cert", f"{prefix}tls_key"
    for name, other in ((key, cert), (cert, key)):
        if options.value(name) and not options.value(other):
            yield name, f"{flag_name(name)} must be specified with {flag_name(other)}"


# ====================================================================== lookupd
# Declares every option of `nsqc lookupd` once, like the daemon's.



class LookupdOptions(OptionSet, frozen=True, kw_only=True, gc=False):
    """All options of a lookup server."""

    log_prefix: str = "[nsqlookupd] "
    slow_loop: Annotated[int, SLOW_LOOP] = 100 * MS

    tcp_address: Annotated[str, flag(
        Kind.TEXT, NETWORK, "address to listen on for nodes, HOST:PORT")] = "0.0.0.0:4160"
    http_address: Annotated[str, flag(
        Kind.TEXT, NETWORK, "address to listen on for HTTP clients, HOST:PORT")] = "0.0.0.0:4161"
    broadcast_address: Annotated[str, flag(
        Kind.TEXT, NETWORK, "address announced to nodes; by default the host name",
    )] = msgspec.field(default_factory=socket.gethostname)
    http_extended_api: Annotated[str, flag(
        Kind.TEXT, NETWORK, "clients that may use calls beyond nsqlookupd's that inspect the server: "
        "those on this machine (local), or all; with --access-file its grants decide", choices=("local", "all"),
        own=True)] = "local"
    http_allowed_hosts: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, NETWORK, "name, or glob such as *.example.com, that HTTP clients may use for this server; IP "
        "addresses, localhost, the host name and --broadcast-address are always accepted. Needed for browsers and for "
        "calls beyond nsqlookupd's", own=True)] = ()

    access_file: Annotated[str, ACCESS_FILE] = ""
    audit_file: Annotated[str, AUDIT_FILE] = ""
    audit_level: Annotated[str, AUDIT_LEVEL] = "changes"

    inactive_producer_timeout: Annotated[int, flag(
        Kind.DURATION, NODES, "time since its last PING after which a node is no longer listed", least=0,
    )] = 5 * MINUTE
    tombstone_lifetime: Annotated[int, flag(
        Kind.DURATION, NODES, "how long a tombstoned node is hidden from lookups", least=0)] = 45 * S

    handshake_timeout: Annotated[int, flag(
        Kind.DURATION, LIMITS, "timeout for receiving a complete command, or the protocol's magic", least=1,
        own=True)] = 30 * S
    http_header_timeout: Annotated[int, flag(
        Kind.DURATION, LIMITS, "timeout for an HTTP client to send its first request, and the head of each",
        least=1, own=True)] = 30 * S
    max_connections: Annotated[int, flag(
        Kind.INT, LIMITS, "maximum number of connections; 0: no limit", least=0, own=True)] = 100_000
    max_connections_per_address: Annotated[int, flag(
        Kind.INT, LIMITS, "maximum number of connections from one address; 0: no limit", least=0, own=True)] = 0
    max_registrations: Annotated[int, flag(
        Kind.INT, LIMITS, "maximum number of topics and channels; nodes that register further ones are answered, and "
        "the names ignored; 0: no limit", least=0, own=True)] = 1_000_000

    tls_cert: Annotated[str, TLS_CERT] = ""
    tls_key: Annotated[str, TLS_KEY] = ""
    tls_min_version: Annotated[int, TLS_MIN_VERSION] = TLS_VERSIONS["tls1.2"]

    def unusable(self) -> Iterator[tuple[str, str]]:
        """See OptionSet."""
        yield from half_a_pair(self)


LOOKUPD = Declaration(LookupdOptions, "nsqc lookupd", "nsqlookupd")


# ====================================================================== admin
# Every option of `nsqc admin`, declared once: nsqadmin's, and nsqc's own.

class AdminOptions(OptionSet, frozen=True, kw_only=True, gc=False):
    """All options of the admin server."""

    log_prefix: str = "[nsqadmin] "
    slow_loop: Annotated[int, SLOW_LOOP] = 100 * MS
    dev_static_dir: Annotated[str, flag(
        Kind.FOLDER, BASIC, "folder with the files of the page, instead of those inside nsqc")] = ""

    http_address: Annotated[str, flag(Kind.TEXT, NETWORK, "address to listen on, HOST:PORT")] = "0.0.0.0:4171"
    base_path: Annotated[str, flag(Kind.TEXT, NETWORK, "prefix of every path, for a reverse proxy")] = "/"
    http_allowed_hosts: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, NETWORK, "name, or glob such as *.example.com, that browsers may use for this server; IP "
        "addresses, localhost and the host name are always accepted", own=True)] = ()
    http_header_timeout: Annotated[int, flag(
        Kind.DURATION, NETWORK, "timeout for an HTTP client to send its first request, and the head of each",
        least=1, own=True)] = 30 * S
    max_connections: Annotated[int, flag(
        Kind.INT, NETWORK, "maximum number of connections; 0: no limit", least=0, own=True)] = 10_000

    lookupd_http_address: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, NODES, "nsqlookupd to query for nodes, HOST:PORT, or https://HOST:PORT",
        key="nsqlookupd_http_addresses")] = ()
    nsqd_http_address: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, NODES, "nsqd to show, HOST:PORT, or https://HOST:PORT; instead of --lookupd-http-address",
        key="nsqd_http_addresses")] = ()
    http_client_connect_timeout: Annotated[int, flag(
        Kind.DURATION, NODES, "timeout for connecting to a node", least=1)] = 2 * S
    http_client_request_timeout: Annotated[int, flag(
        Kind.DURATION, NODES, "timeout for entire requests to a node", least=1)] = 5 * S
    poll_interval: Annotated[int, flag(
        Kind.DURATION, NODES, "time between two polls of all nodes. It grows if polling would take more than 1 % of a "
        "node's time", least=S, most=MINUTE, own=True)] = 5 * S
    rules: Annotated[str, flag(
        Kind.FILE, NODES, "a TOML file with tables of rules, as for nsqc rules apply: every node that lacks them gets "
        "them, also one that joins later; read again on changes", own=True)] = ""
    node_auth_secret: Annotated[str, flag(
        Kind.TEXT, NODES, "token to show to nodes that have an access file; @FILE reads it from a file. Nodes that "
        "only lookup servers name get it if --node-addresses covers them, or an nsqc lookupd's access file vouches for "
        "them", own=True)] = ""
    node_addresses: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, NODES, "host, network such as 10.0.0.0/8, or glob such as *.nsq.internal, of nodes that get "
        "--node-auth-secret although only a lookup server names them; may list several, separated by commas",
        own=True)] = ()

    acl_http_header: Annotated[str, flag(
        Kind.TEXT, ACCESS, "header in which an authenticating proxy names the user")] = "X-Forwarded-User"
    admin_user: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, ACCESS, "user who may make changes; by default everybody may", key="admin_users")] = ()
    read_only: Annotated[bool, flag(Kind.BOOL, ACCESS, "refuse all changes", own=True)] = False
    allow_config_from_cidr: Annotated[str, flag(
        Kind.TEXT, ACCESS, "network from which /config may be used; empty: all")] = "127.0.0.1/8"
    http_extended_api: Annotated[str, flag(
        Kind.TEXT, ACCESS, "clients that may read messages, seek, republish, drain and change rules: those on this "
        "machine (local), or all. With --admin-user those users may, too; with --access-file its grants decide",
        choices=("local", "all"), own=True)] = "local"
    access_file: Annotated[str, ACCESS_FILE] = ""
    audit_file: Annotated[str, flag(
        Kind.FILE, ACCESS, "file for the audit log, reopened on SIGHUP; by default it goes to the log", own=True)] = ""
    audit_level: Annotated[str, AUDIT_LEVEL] = "changes"
    notification_http_endpoint: Annotated[str, flag(
        Kind.TEXT, ACCESS, "URL that each change is POSTed to")] = ""

    tls_cert: Annotated[str, TLS_CERT] = ""
    tls_key: Annotated[str, TLS_KEY] = ""
    tls_min_version: Annotated[int, TLS_MIN_VERSION] = TLS_VERSIONS["tls1.2"]
    http_client_tls_insecure_skip_verify: Annotated[bool, flag(
        Kind.BOOL, TLS, "do not verify the certificates of nodes")] = False
    http_client_tls_root_ca_file: Annotated[str, flag(
        Kind.FILE, TLS, "authorities that sign the certificates of nodes, PEM")] = ""
    http_client_tls_cert: Annotated[str, flag(Kind.FILE, TLS, "certificate to show to nodes, PEM")] = ""
    http_client_tls_key: Annotated[str, flag(Kind.FILE, TLS, "its key, PEM")] = ""

    graphite_url: Annotated[str, flag(Kind.TEXT, GRAPHITE, "URL of Graphite, for /api/graphite")] = ""
    proxy_graphite: Annotated[bool, flag(Kind.BOOL, GRAPHITE, "serve /render from Graphite")] = False
    prometheus_url: Annotated[str, flag(
        Kind.TEXT, METRICS, "URL of a Prometheus that scrapes the nodes: charts of the fleet, topics and channels come "
        "from there, and so go back to before the start of this server", own=True)] = ""
    statsd_prefix: Annotated[str, flag(
        Kind.TEXT, METRICS, "prefix of nsqd's keys; shown by /config, as the page needs no Graphite")] = "nsq.%s"
    statsd_counter_format: Annotated[str, flag(
        Kind.TEXT, METRICS, "key of a counter; shown by /config")] = "stats.counters.%s.count"
    statsd_gauge_format: Annotated[str, flag(
        Kind.TEXT, METRICS, "key of a gauge; shown by /config")] = "stats.gauges.%s"
    statsd_interval: Annotated[int, flag(
        Kind.DURATION, METRICS, "nsqd's --statsd-interval; shown by /config", least=0)] = 60 * S

    # Also needed by nsqc.httpd.gate.
    broadcast_address: str = msgspec.field(default_factory=socket.gethostname)

    @property
    def prefix(self) -> str:
        """The base path as a prefix of paths: without a trailing slash, so empty for /."""
        return posixpath.normpath("/" + self.base_path.strip("/")).rstrip("/")

    def unusable(self) -> Iterator[tuple[str, str]]:
        """See OptionSet."""
        if not self.lookupd_http_address and not self.nsqd_http_address:
            yield "nsqd_http_address", "--nsqd-http-address or --lookupd-http-address required"
        if self.lookupd_http_address and self.nsqd_http_address:
            yield "nsqd_http_address", "use --nsqd-http-address or --lookupd-http-address not both"
        yield from half_a_pair(self, "http_client_")
        yield from half_a_pair(self)
        for name, addresses in (("lookupd_http_address", self.lookupd_http_address),
                                ("nsqd_http_address", self.nsqd_http_address)):
            for address in addresses:
                try:
                    split_address(address.removeprefix("https://").rstrip("/"))
                except ValueError as error:
                    yield name, f"failed to resolve {flag_name(name)} ({address}) - {error}"
        try:
            NodeHosts(self.node_addresses)
        except ValueError as error:
            yield "node_addresses", f"--node-addresses: {error}"
        if self.allow_config_from_cidr:
            try:
                ipaddress.ip_network(self.allow_config_from_cidr, strict=False)
            except ValueError:
                yield "allow_config_from_cidr", (
                    f"failed to parse --allow-config-from-cidr ({self.allow_config_from_cidr}) - invalid CIDR address: "
                    f"{self.allow_config_from_cidr}")
        for name in ("notification_http_endpoint", "graphite_url", "prometheus_url"):
            url = str(self.value(name))
            if url and not url.startswith(("http://", "https://")):
                yield name, f"{flag_name(name)}={url}: is not an http or https URL"


ADMIN_SERVER = Declaration(AdminOptions, "nsqc admin", "nsqadmin")
