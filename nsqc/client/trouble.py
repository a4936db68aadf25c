"""Converts exceptions of sockets and TLS into actionable error texts, for both clients."""

from __future__ import annotations

import os
import ssl

from nsqc.client.address import is_path, split_address
from nsqc.client.tls import files_of
from nsqc.wire.answers import DEFAULT_PORTS, Service

OTHER_NAME = (62, 64)       # OpenSSL's codes: the certificate is for another host name, or IP address
WANTS_CERTIFICATE = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE")
REFUSES_CERTIFICATE = ("TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
                       "SSLV3_ALERT_CERTIFICATE_EXPIRED", "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE")
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")
# The arguments of nsqc.client.tls(), and the options of the tools.
CERTIFICATE_HINT = "give one by cert_file and key_file (--tls-cert, --tls-key)"
AUTHORITY_HINT = "give others by ca_file (--tls-ca)"


def reason(error: Exception, context: ssl.SSLContext | None = None) -> str:
    """The cause of a failed connection. context: of TLS, if used."""
    if isinstance(error, ssl.SSLError):
        return reason_of_tls(error, context)
    if isinstance(error, OSError) and error.errno and error.errno > 0:
        return os.strerror(error.errno)     # asyncio has its own texts
    return getattr(error, "strerror", None) or str(error)


def reason_of_tls(error: ssl.SSLError, context: ssl.SSLContext | None) -> str:
    """The cause of a TLS failure."""
    files = files_of(context)
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in OTHER_NAME:
            return f"certificate verify failed: it is for another name: {error.verify_message}"
        trusted = f"the authorities in {files.ca_file}" if files.ca_file else "the system's authorities"
        return f"certificate verify failed: {error.verify_message}; only {trusted} are trusted: {AUTHORITY_HINT}"
    if error.reason in WANTS_CERTIFICATE and not files.cert_file:
        return f"it requires a client certificate: {CERTIFICATE_HINT}"
    if error.reason in (*REFUSES_CERTIFICATE, *WANTS_CERTIFICATE):
        return f"it does not accept the client certificate {files.cert_file or ''}".rstrip()
    if error.reason in NO_TLS:
        return "it does not speak TLS"
    return error.strerror or str(error)


def refuses(error: ssl.SSLError) -> bool:
    """Whether another handshake fails likewise."""
    return (isinstance(error, ssl.SSLCertVerificationError)
            or error.reason in (*WANTS_CERTIFICATE, *REFUSES_CERTIFICATE, *NO_TLS))


def port_hint(error: Exception, address: str, wanted: Service) -> str:
    """A hint for a refused connection, if the port may be the wrong one."""
    if not isinstance(error, ConnectionRefusedError) or is_path(address) or "://" in address:
        return ""
    port, default = split_address(address)[1], DEFAULT_PORTS[wanted]
    others = [other for other in DEFAULT_PORTS.values() if other != default]
    # Anything but nsqlookupd's default port is rare; nsqd's port varies, with several on a machine.
    if port in others or (wanted is Service.LOOKUPD_HTTP and port != default):
        return f"; {wanted.value} is {default} by default"
    return ""
