"""Declares every option of `nsqc lookupd` once, like the daemon's."""

# No `from __future__ import annotations`: the annotations are read.
import socket
from typing import Annotated

import msgspec

from nsqc.log import INFO
from nsqc.options.declared import ACCESS, BASIC, LOG_FORMAT_HELP, NETWORK, Declaration, OptionSet, flag
from nsqc.options.durations import MINUTE, MS, S
from nsqc.options.option import Kind

NODES, LIMITS = "Nodes", "Limits"


class LookupdOptions(OptionSet, frozen=True, kw_only=True, gc=False):
    """All options of a lookup server."""

    version: Annotated[bool, flag(Kind.BOOL, BASIC, "print the version and exit")] = False
    config: Annotated[str, flag(Kind.FILE, BASIC, "a TOML file with options; flags override it")] = ""
    log_level: Annotated[int, flag(Kind.LEVEL, BASIC, "lowest level to log")] = INFO
    log_prefix: Annotated[str, flag(Kind.TEXT, BASIC, "prefix of log lines")] = "[nsqlookupd] "
    log_format: Annotated[str, flag(Kind.LOG_FORMAT, BASIC, LOG_FORMAT_HELP, own=True)] = "auto"
    verbose: Annotated[bool, flag(Kind.BOOL, BASIC, "no effect; use --log-level")] = False

    slow_loop: Annotated[int, flag(
        Kind.DURATION, BASIC, "log iterations of the event loop that take longer than this, with the handler that took "
        "longest; 0: off", least=0, own=True)] = 100 * MS

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

    access_file: Annotated[str, flag(
        Kind.FILE, ACCESS, "a TOML file with users and their permissions; read again on SIGHUP and on changes",
        own=True)] = ""
    audit_file: Annotated[str, flag(
        Kind.FILE, ACCESS, "file for the audit log, reopened on SIGHUP; by default it goes to the log, if there is "
        "an access file", own=True)] = ""
    audit_level: Annotated[str, flag(
        Kind.TEXT, ACCESS, "what the audit log records: calls that change something, and all refused calls (changes), "
        "only the latter (refused), or nothing (off)", choices=("off", "refused", "changes"), own=True)] = "changes"

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

    # Also needed by nsqc.net.limits.
    max_connections_per_address: int = 0
    max_pending_handshakes: int = 0


LOOKUPD = Declaration(LookupdOptions, "nsqc lookupd", "nsqlookupd")
