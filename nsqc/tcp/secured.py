"""A connection's TLS, described in nsqd's words."""

from __future__ import annotations

import ssl

import msgspec

from nsqc.net.peercert import common_name

# Cipher suites with names in nsqd; it shows others as numbers.
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
    """A connection's TLS."""

    version: str
    cipher_suite: str
    common_name: str  # from the client's certificate; empty without one


def describe(connection: ssl.SSLObject) -> Secured:
    """The result of a finished handshake."""
    cipher, version = connection.cipher(), connection.version()
    name = None if cipher is None else cipher[0]
    number = next((suite["id"] & 0xFFFF for suite in connection.context.get_ciphers() if suite["name"] == name), 0)
    certificate = connection.getpeercert() or {}
    return Secured(VERSIONS.get(version or "", f"Unknown {version}"),
                   KNOWN_SUITES.get(number, f"Unknown {number}"), common_name(certificate))
