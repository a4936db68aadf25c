"""Finds nsqd by querying nsqlookupd over HTTP. An nsqlookupd that is down does no harm while another one
answers.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable
from typing import TypedDict

from nsqc.client.address import http_address, is_path, split_address
from nsqc.client.errors import LookupFailed, WrongPort, not_nsqd
from nsqc.client.log import Log
from nsqc.client.tls import files_of
from nsqc.wire.outside import DEFAULT_PORTS, MOST_BYTES, Answer, Service, decode, distrust, of_info, wrong_port

# ====================================================================== trouble
# Converts exceptions of sockets and TLS into actionable error texts, for both clients.

WANTS_CERTIFICATE = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE")
REFUSES_CERTIFICATE = ("TLSV1_ALERT_UNKNOWN_CA", "SSLV3_ALERT_BAD_CERTIFICATE", "SSLV3_ALERT_CERTIFICATE_UNKNOWN",
                       "SSLV3_ALERT_CERTIFICATE_EXPIRED", "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE")
NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST")
INFO_SECONDS = 2.0      # explaining an error must not delay it much
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
        trusted = f"the authorities in {files.ca_file}" if files.ca_file else "the system's authorities"
        return distrust(error.verify_code, error.verify_message, f"only {trusted} are trusted: {AUTHORITY_HINT}")
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


# ====================================================================== lookup

log = Log("nsqc.client")
REFUSED = {401: ": it requires a token that it knows (auth_secret, --auth-secret)",
           403: ": the token does not permit it"}


class NotHttp(ValueError):
    """The server speaks another protocol. found: the service, if known."""

    def __init__(self, text: str, found: Answer | None):
        super().__init__(text)
        self.found = found


def context_of(tls: bool | ssl.SSLContext | None) -> ssl.SSLContext | None:
    """The context for https URLs; None: the default one."""
    return tls if isinstance(tls, ssl.SSLContext) else None


class Node(TypedDict):
    """An nsqd in an answer of nsqlookupd; the parts that clients need."""

    broadcast_address: str
    tcp_port: int


def lookup(topic: str, nsqlookupd: Iterable[str], timeout: float = 10.0,
           tls: bool | ssl.SSLContext | None = None, secret: bytes | str | None = None) -> list[str]:
    """The nsqd (HOST:PORT of TCP) that have a topic, according to all nsqlookupd (HOST:PORT of HTTP, or URLs) together.
    tls: for https URLs. secret: a token, for those that ask for one. Raises LookupFailed if none of them answers."""
    from urllib.parse import quote  # as http.client below

    return ask_all(f"/lookup?topic={quote(topic, safe='')}", nsqlookupd, timeout, tls, secret)


def nodes(nsqlookupd: Iterable[str], timeout: float = 10.0, tls: bool | ssl.SSLContext | None = None,
          secret: bytes | str | None = None) -> list[str]:
    """All nsqd. Raises LookupFailed."""
    return ask_all("/nodes", nsqlookupd, timeout, tls, secret)


def ask_all(path: str, nsqlookupd: Iterable[str], timeout: float, tls: bool | ssl.SSLContext | None = None,
            secret: bytes | str | None = None) -> list[str]:
    """The nsqd that any nsqlookupd lists, without duplicates. Raises LookupFailed."""
    addresses: dict[str, None] = {}
    answered, cause = False, "no nsqlookupd given"
    for address in nsqlookupd:
        try:
            for node in ask(address, path, timeout, tls, secret):
                found = f"{node['broadcast_address']}:{node['tcp_port']}"
                split_address(found)    # not the path of a unix socket: anyone may announce a node
                addresses[found] = None
            answered = True
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = port_hint(error, address, Service.LOOKUPD_HTTP)
            cause = f"nsqlookupd {http_address(address).text}: {reason(error, context_of(tls))}{hint}"
            log.warning("%s", cause)
    if not answered:
        raise LookupFailed(cause)
    return list(addresses)


def ask(address: str, path: str, timeout: float, tls: bool | ssl.SSLContext | None = None,
        secret: bytes | str | None = None) -> list[Node]:
    """The nsqd listed by one nsqlookupd; none if it does not know the topic. Raises OSError, ValueError, KeyError,
    TypeError."""
    target = http_address(address).beside(path)
    try:
        status, body = fetch(address, target, timeout, tls=tls)
        if status == 401 and secret:    # others need no token, and get none
            token = secret if isinstance(secret, str) else secret.decode("latin-1")
            status, body = fetch(address, target, timeout, tls=tls, secret=token)
    except NotHttp as error:
        raise ValueError(wrong_port(error.found, Service.LOOKUPD_HTTP) if error.found is not None
                         else str(error)) from None
    if status == 404:
        if b"TOPIC_NOT_FOUND" in body:
            return []
        # nsqd's HTTP port answers 404, too.
        found = of_info(fetch(address, http_address(address).beside("/info"), timeout, tls=tls)[1])
        raise ValueError(wrong_port(found, Service.LOOKUPD_HTTP) if found.service is not Service.LOOKUPD_HTTP
                         else f"status {status}")
    if status != 200:
        raise ValueError(f"status {status}{REFUSED.get(status, '')}")
    answer = decode(body)
    if not isinstance(answer, dict):
        raise ValueError("its answer is not a JSON object")
    # An nsqlookupd before 1.0 wraps its answers in "data".
    producers: list[Node] = (answer.get("data") or answer)["producers"]
    return producers


def with_port(address: str, error: WrongPort, timeout: float) -> WrongPort:
    """The error, with the right port if the server at the address tells it over HTTP. Blocks, but not for long."""
    if error.found is None or error.found.service is not Service.HTTP or is_path(address):
        return error
    try:
        return not_nsqd(address, of_info(fetch(address, "/info", min(timeout, INFO_SECONDS), MOST_BYTES)[1]))
    except (OSError, ValueError):
        return error


def fetch(address: str, path: str, timeout: float, most_bytes: int | None = None,
          tls: bool | ssl.SSLContext | None = None, secret: str | None = None) -> tuple[int, bytes]:
    """Status and body of a GET; path: with arguments, as it is sent. tls: for https URLs. secret: not sent in clear
    text to a server that has HTTPS. Raises OSError, NotHttp, ValueError."""
    from http.client import HTTPException  # slow to import, and most clients have fixed nsqd

    from nsqc.client.http import answered_by, authorization, connection_to, https_port_of

    where = http_address(address)
    connection = connection_to(where, timeout, context_of(tls) if where.tls else None)
    try:
        if secret and not where.tls and (port := https_port_of(connection, where.below("/info"))):
            raise ValueError(f"its HTTPS is on port {port}: the secret is not sent in clear text")
        connection.request("GET", path, headers={"Accept": "application/vnd.nsq; version=1.0", **authorization(secret),
                                                **where.headers})
        answer = connection.getresponse()
        return answer.status, answer.read(most_bytes)
    except HTTPException as error:
        raise NotHttp(f"not an HTTP answer: {error!r}", answered_by(error)) from None
    finally:
        connection.close()
