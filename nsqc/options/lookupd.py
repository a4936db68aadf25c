"""Declares every option of `nsqc lookupd` once, like the daemon's."""

# No `from __future__ import annotations`: the annotations are read.
import socket
from typing import Annotated

import msgspec

from nsqc.options.declared import ACCESS_FILE, AUDIT_FILE, AUDIT_LEVEL, NETWORK, SLOW_LOOP, Declaration, OptionSet, flag
from nsqc.options.durations import MINUTE, MS, S
from nsqc.options.option import Kind

NODES, LIMITS = "Nodes", "Limits"


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


LOOKUPD = Declaration(LookupdOptions, "nsqc lookupd", "nsqlookupd")
