"""Connections to nsqd with the options of the data sources. Knows no Spark."""

from __future__ import annotations

from nsqc import __version__
from nsqc.client import ClientError, ConnectError, Connection, tls
from nsqc.client.address import checked_address
from nsqc.client.options import Options
from nsqc.spark import mistakes
from nsqc.spark.options import NsqdOptions


def connect(address: str, options: NsqdOptions, tick_ns: int = 1, zone: str | None = None,
            region: str | None = None, publishes: bool = False) -> Connection:
    """A connection with these options. tick_ns: unit of timestamps in columns. zone, region: where a consumer is.
    publishes: it asks for nsqc's extensions for publishers. Raises OptionError for options that do not fit this nsqd,
    ConnectError and Refused for other reasons."""
    try:
        return dial(address, options, tick_ns, zone, region, publishes)
    except ClientError as error:
        if (mistake := mistakes.of_nsqd(error, address, options)) is not None:
            raise mistake from None
        if isinstance(error, ConnectError):
            raise ConnectError(mistakes.in_options(str(error))) from None
        raise


def dial(address: str, options: NsqdOptions, tick_ns: int = 1, zone: str | None = None,
         region: str | None = None, publishes: bool = False) -> Connection:
    """The same in the words of the client. Raises ConnectError, Refused."""
    context = None
    if options.tls:
        try:
            context = tls(options.tlsCaFile, options.tlsCertFile, options.tlsKeyFile, options.tlsVerify)
        except OSError as error:
            raise ConnectError(f"{address}: TLS cannot be set up: {error}") from None
    given = {
        "max_msg_size": options.maxMsgSize, "tls": context,
        "deflate": options.deflateLevel if options.compression == "deflate" else 0,
        "snappy": options.compression == "snappy", "auth_secret": options.authSecret,
        "user_agent": f"nsqc-spark/{__version__}", "tick_ns": tick_ns, "topology_zone": zone, "topology_region": region}
    return Connection.with_options(checked_address(address),
                                   Options("Connection", ("address",), options.timeout, given, publishes))
