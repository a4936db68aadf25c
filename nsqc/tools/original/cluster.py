"""The nodes given by an original tool's flags."""

from __future__ import annotations

from nsqc import NSQD_VERSION
from nsqc.client.address import checked_address
from nsqc.client.errors import BadAddress
from nsqc.client.httpaddress import http_address
from nsqc.options.durations import S
from nsqc.options.option import Kind, Option, Value
from nsqc.tools.cluster import Cluster
from nsqc.tools.declare import Values
from nsqc.tools.original.client_options import Given
from nsqc.tools.original.program import Fatal
from nsqc.tools.security import user_agent

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
    from nsqc.wire.names import is_valid_name

    if not all(is_valid_name(topic.encode(errors="replace")) for topic in topics):
        raise Fatal("invalid topic name")
    if not is_valid_name(channel.encode(errors="replace")):
        raise Fatal("invalid channel name")
