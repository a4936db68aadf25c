"""Connections to nsqd with the options of the data sources. Knows no Spark."""

from __future__ import annotations

from nsqc import __version__
from nsqc.client import ClientError, ConnectError, Connection, tls
from nsqc.spark import mistakes
from nsqc.spark.options import NsqdOptions


def connect(address: str, options: NsqdOptions, tick_ns: int = 1, zone: str | None = None,
            region: str | None = None) -> Connection:
    """A connection with these options. tick_ns: unit of timestamps in columns. zone, region: a consumer's location.
    Raises OptionError for options that this nsqd does not support, ConnectError and Refused for other reasons."""
    try:
        return dial(address, options, tick_ns, zone, region)
    except ClientError as error:
        if (mistake := mistakes.of_nsqd(error, address, options)) is not None:
            raise mistake from None
        if isinstance(error, ConnectError):
            raise ConnectError(mistakes.in_options(str(error))) from None
        raise


def dial(address: str, options: NsqdOptions, tick_ns: int = 1, zone: str | None = None,
         region: str | None = None) -> Connection:
    """The same, with the client's exceptions. Raises ConnectError, Refused."""
    context = None
    if options.tls:
        try:
            context = tls(options.tlsCaFile, options.tlsCertFile, options.tlsKeyFile, options.tlsVerify)
        except OSError as error:
            raise ConnectError(f"{address}: cannot set up TLS: {error}") from None
    return Connection(
        address, timeout=options.timeout, max_msg_size=options.maxMsgSize, tls=context,
        deflate=options.deflateLevel if options.compression == "deflate" else 0,
        snappy=options.compression == "snappy", auth_secret=options.authSecret,
        user_agent=f"nsqc-spark/{__version__}", tick_ns=tick_ns, topology_zone=zone, topology_region=region)
