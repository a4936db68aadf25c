"""Every option of `nsqc lookupd`, declared once, as those of the daemon are."""

# No `from __future__ import annotations`: the annotations are read.
import socket
from collections.abc import Mapping
from typing import Annotated

import msgspec

from nsqc.log import INFO
from nsqc.options.declared import (
    ACCESS,
    BASIC,
    LOG_FORMAT_HELP,
    MINUTE,
    MS,
    NETWORK,
    Declaration,
    Kind,
    OptionSet,
    S,
    Value,
    flag,
)
from nsqc.options.server import effective

NODES, LIMITS = "Nodes", "Limits"


class LookupdOptions(OptionSet, frozen=True, kw_only=True, gc=False):
    """All options of a lookup server."""

    version: Annotated[bool, flag(Kind.BOOL, BASIC, "print the version and exit")] = False
    config: Annotated[str, flag(Kind.FILE, BASIC, "a TOML file with options; flags win over it")] = ""
    log_level: Annotated[int, flag(Kind.LEVEL, BASIC, "lowest level that is logged")] = INFO
    log_prefix: Annotated[str, flag(Kind.TEXT, BASIC, "prefix of log lines")] = "[nsqlookupd] "
    log_format: Annotated[str, flag(Kind.LOG_FORMAT, BASIC, LOG_FORMAT_HELP, own=True)] = "auto"
    verbose: Annotated[bool, flag(Kind.BOOL, BASIC, "no effect; use --log-level")] = False

    slow_loop: Annotated[int, flag(
        Kind.DURATION, BASIC, "time after which an iteration of the event loop is logged, with the handler that took "
        "longest; 0: none is", least=0, own=True)] = 100 * MS

    tcp_address: Annotated[str, flag(
        Kind.TEXT, NETWORK, "address to listen on for nodes, HOST:PORT")] = "0.0.0.0:4160"
    http_address: Annotated[str, flag(
        Kind.TEXT, NETWORK, "address to listen on for HTTP clients, HOST:PORT")] = "0.0.0.0:4161"
    broadcast_address: Annotated[str, flag(
        Kind.TEXT, NETWORK, "address announced to nodes; by default the host name",
    )] = msgspec.field(default_factory=socket.gethostname)
    http_extended_api: Annotated[str, flag(
        Kind.TEXT, NETWORK, "who may use the calls that nsqlookupd does not have and that look into the server: "
        "clients on this machine (local), or all; with --access-file its grants decide", choices=("local", "all"),
        own=True)] = "local"
    http_allowed_hosts: Annotated[tuple[str, ...], flag(
        Kind.TEXTS, NETWORK, "name, or glob such as *.example.com, by which HTTP clients may call this server; IP "
        "addresses, localhost, the host name and --broadcast-address always work. Needed for pages in browsers and for "
        "calls that nsqlookupd does not have", own=True)] = ()

    access_file: Annotated[str, flag(
        Kind.FILE, ACCESS, "a TOML file that says who may do what; read again on SIGHUP and when it changes",
        own=True)] = ""
    audit_file: Annotated[str, flag(
        Kind.FILE, ACCESS, "file of the audit log, opened again on SIGHUP; by default it goes to the log, if there is "
        "an access file", own=True)] = ""
    audit_level: Annotated[str, flag(
        Kind.TEXT, ACCESS, "what the audit log has: calls that change something, and all that are refused (changes), "
        "only the latter, or nothing", choices=("off", "refused", "changes"), own=True)] = "changes"

    inactive_producer_timeout: Annotated[int, flag(
        Kind.DURATION, NODES, "time since its last PING after which a node is no longer listed", least=0,
    )] = 5 * MINUTE
    tombstone_lifetime: Annotated[int, flag(
        Kind.DURATION, NODES, "time for which a tombstoned node is not looked up", least=0)] = 45 * S

    handshake_timeout: Annotated[int, flag(
        Kind.DURATION, LIMITS, "time within which a command, or the protocol's magic, must be complete", least=1,
        own=True)] = 30 * S
    http_header_timeout: Annotated[int, flag(
        Kind.DURATION, LIMITS, "time within which an HTTP client must send its first request, and the head of each",
        least=1, own=True)] = 30 * S
    max_connections: Annotated[int, flag(
        Kind.INT, LIMITS, "maximum number of connections; 0: no limit", least=0, own=True)] = 100_000

    # What nsqc.net.limits asks for besides.
    max_connections_per_address: int = 0
    max_pending_handshakes: int = 0


LOOKUPD = Declaration(LookupdOptions, "nsqc lookupd", "nsqlookupd")


def resolve(flags: Mapping[str, Value]) -> tuple[LookupdOptions, dict[str, str]]:
    """The options of flags and of the config file that they name, and warnings by unknown key. Raises OptionError."""
    options, _, unknown = effective(LOOKUPD, flags, {})
    return options, unknown
