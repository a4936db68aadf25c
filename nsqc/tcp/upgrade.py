"""From a plain connection to TLS and compression: handshakes with a deadline, codecs, and what statistics tell."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import msgspec

from nsqc.wire.codec import Codec

HANDSHAKE_S = 5.0  # the original's
SHUTDOWN_S = 5.0  # for a client to take its last bytes and the end of TLS

# Cipher suites that the original knows by name; it gives others as numbers.
KNOWN_SUITES = {
    0x0005: "TLS_RSA_WITH_RC4_128_SHA",
    0x000A: "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    0x002F: "TLS_RSA_WITH_AES_128_CBC_SHA",
    0x0035: "TLS_RSA_WITH_AES_256_CBC_SHA",
    0xC007: "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    0xC009: "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    0xC00A: "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    0xC011: "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    0xC012: "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    0xC013: "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    0xC014: "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    0xC02B: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    0xC02F: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
}
VERSIONS = {"TLSv1": "TLS1.0", "TLSv1.1": "TLS1.1", "TLSv1.2": "TLS1.2", "TLSv1.3": "TLS1.3"}


class Secured(msgspec.Struct, gc=False, frozen=True):
    """What is known of a connection's TLS."""

    version: str
    cipher_suite: str
    common_name: str  # of the client's certificate; empty where it has none

    def stats(self) -> dict[str, Any]:
        """The fields that ClientStats has for it."""
        return {"tls": True, "tls_version": self.version, "tls_cipher_suite": self.cipher_suite,
                "tls_negotiated_protocol": "", "tls_negotiated_protocol_is_mutual": True}


def describe(connection: ssl.SSLObject) -> Secured:
    """What a finished handshake has led to."""
    name = connection.cipher()[0]
    version = connection.version()
    number = next((suite["id"] & 0xFFFF for suite in connection.context.get_ciphers() if suite["name"] == name), 0)
    subject = (connection.getpeercert() or {}).get("subject", ())
    common_name = next((value for part in subject for key, value in part if key == "commonName"), "")
    return Secured(VERSIONS.get(version, f"Unknown {version}"), KNOWN_SUITES.get(number, f"Unknown {number}"),
                   common_name)


def new_codec(wanted: Any) -> Codec:
    """The codec that an nsqc.tcp.identify.Upgrade names."""
    # Their libraries are for those who ask for them; see nsqc.process.later.
    if wanted.codec == "deflate":
        from nsqc.wire.deflate import Deflate

        return Deflate(wanted.level)
    from nsqc.wire.snappy import Snappy

    return Snappy()


def start_tls(loop: asyncio.AbstractEventLoop, connection: Any, transport: Any, certificates: Any) -> None:
    """Begins the handshake; ends in connection.tls_done(transport) or connection.tls_failed(error)."""
    task = loop.create_task(_shake_hands(loop, connection, transport, certificates.context))
    UNDER_WAY.add(task)
    task.add_done_callback(UNDER_WAY.discard)


UNDER_WAY: set[asyncio.Task[None]] = set()  # the loop itself holds tasks only weakly


async def _shake_hands(loop: asyncio.AbstractEventLoop, connection: Any, transport: Any,
                       context: ssl.SSLContext) -> None:
    try:
        secure = await loop.start_tls(transport, connection, context, server_side=True,
                                      ssl_handshake_timeout=HANDSHAKE_S, ssl_shutdown_timeout=SHUTDOWN_S)
    except (OSError, EOFError, asyncio.CancelledError) as error:
        connection.tls_failed(error)
    else:
        try:
            connection.tls_done(secure)
        except Exception as error:  # whatever it is, nobody else would end this connection
            connection.broke(error)
