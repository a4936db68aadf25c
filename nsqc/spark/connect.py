"""Connections to nsqd with the options of the data sources. Knows no Spark."""

from __future__ import annotations

from typing import Unpack, cast

from nsqc import __version__
from nsqc.client import ClientError, ConnectError, Connection, tls
from nsqc.client.address import checked_address
from nsqc.client.options import ConnectionOptions, Options
from nsqc.spark import mistakes
from nsqc.spark.options import NsqdOptions
from nsqc.wire.codecs import CODECS


def connect(address: str, options: NsqdOptions, publishes: bool = False,
            **more: Unpack[ConnectionOptions]) -> Connection:
    """A connection with these options. publishes: it asks for nsqc's extensions for publishers. more: options of the
    client. Raises OptionError for options that do not fit this nsqd, ConnectError and Refused for other reasons."""
    try:
        return dial(address, options, publishes, **more)
    except ClientError as error:
        if (mistake := mistakes.of_nsqd(error, address, options)) is not None:
            raise mistake from None
        if isinstance(error, ConnectError):
            raise ConnectError(mistakes.in_options(str(error))) from None
        raise


def dial(address: str, options: NsqdOptions, publishes: bool = False,
         **more: Unpack[ConnectionOptions]) -> Connection:
    """The same in the words of the client. Raises ConnectError, Refused."""
    context = None
    if options.tls:
        try:
            context = tls(options.tlsCaFile, options.tlsCertFile, options.tlsKeyFile, options.tlsVerify)
        except OSError as error:
            raise ConnectError(f"{address}: TLS cannot be set up: {error}") from None
    given: ConnectionOptions = {
        "max_msg_size": options.maxMsgSize, "tls": context,
        "auth_secret": options.authSecret,
        "node_addresses": options.nodeAddresses if options.nsqlookupd else None,
        "user_agent": f"nsqc-spark/{__version__}", **compression_of(options), **more}
    return Connection.with_options(checked_address(address),
                                   Options("Connection", ("address",), options.timeout, given, publishes))


def compression_of(options: NsqdOptions) -> ConnectionOptions:
    """The client's option for a codec, if any."""
    if options.compression == "none":
        return {}
    level = options.deflateLevel if options.compression == "deflate" else CODECS[options.compression].level
    return cast(ConnectionOptions, {options.compression: level or True})
