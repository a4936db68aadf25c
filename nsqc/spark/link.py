"""How the sources reach nsqd: nsqc.client with the options that all of them know. Knows no Spark."""

from __future__ import annotations

from typing import Any

from nsqc import __version__
from nsqc.client import (
    ClientError,
    ConnectError,
    Connection,
    LookupFailed,
    Refused,
    lookup,
    nodes,
    tls,
)
from nsqc.spark.options import Peers

__all__ = ["ClientError", "ConnectError", "Connection", "LookupFailed", "Refused", "connect", "lookup", "nodes"]


def connect(address: str, options: Peers, **more: Any) -> Connection:
    """A connection as the options want it. Raises ConnectError, Refused."""
    context = None
    if options.tls:
        try:
            context = tls(options.tlsCaFile, options.tlsCertFile, options.tlsKeyFile, options.tlsVerify)
        except OSError as error:
            raise ConnectError(f"{address}: TLS cannot be set up: {error}") from None
    return Connection(
        address, timeout=options.timeout, max_msg_size=options.maxMsgSize, tls=context,
        deflate=options.deflateLevel if options.compression == "deflate" else 0,
        snappy=options.compression == "snappy", auth_secret=options.authSecret,
        user_agent=f"nsqc-spark/{__version__}", **more)
