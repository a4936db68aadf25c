"""Finds nsqd by querying nsqlookupd over HTTP. An nsqlookupd that is down does no harm while another one
answers.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import ssl
from collections.abc import Iterable
from typing import NamedTuple, TypedDict

from nsqc.client.errors import BadAddress, LookupFailed
from nsqc.client.log import Log
from nsqc.client.tls import files_of
from nsqc.wire.nodehosts import ip_of
from nsqc.wire.outside import DEFAULT_PORTS, Answer, JSONError, Service, decode, of_info, recognized, wrong_port

# ====================================================================== address
# Addresses of nsqd: HOST:PORT, or the path of a unix socket.

HOST = re.compile(r"[^\s,;/@\[\]:]+")


def split_address(address: str, usual: int = 4150) -> tuple[str, int]:
    """Host and port of HOST:PORT or [IPv6]:PORT. usual: the port in an error. Raises BadAddress."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not (colon and is_host(host) and port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise BadAddress(f"{address!r} is not HOST:PORT{hint(address, usual)}")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """HOST:PORT or [IPv6]:PORT."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def checked_address(address: str, port: int = 4150) -> str:
    """The address, if it is HOST:PORT or a unix socket's path. port: the default one, for errors. Raises BadAddress,
    TypeError."""
    if not isinstance(address, str):
        raise TypeError(f"an address is HOST:PORT, a str, not {type(address).__name__}")
    if not is_path(address):
        split_address(address, port)
    return address


def checked_addresses(addresses: str | Iterable[str]) -> list[str]:
    """One address or several, as a list. Raises BadAddress, TypeError."""
    return [checked_address(address) for address in ([addresses] if isinstance(addresses, str) else addresses)]


def is_path(address: str) -> bool:
    """Whether an address is a unix socket's path: HOST:PORT has no slash."""
    return "/" in address and "://" not in address and "\0" not in address


def is_host(host: str) -> bool:
    """Whether a text can be a host name or address; only IPv6 addresses have colons."""
    if ":" not in host:
        return HOST.fullmatch(host) is not None
    try:
        socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    except OSError:
        return False
    return True


def hint(address: str, usual: int) -> str:
    """The likely mistake in a bad address."""
    if "://" in address:
        return ": omit the scheme"
    if "," in address:
        return ": pass several addresses as a list"
    if ":" not in address:
        return f": its port is missing, such as {address or 'localhost'}:{usual}"
    return ""


# ====================================================================== HTTP addresses
# HTTP addresses in options: HOST:PORT, or a URL with a path and a login.

PORTS = {"http": 80, "https": 443}
LOOKUP = "/lookup"
LOOKUPD_PORT = 4161


class HttpAddress(NamedTuple):
    """text: for messages, without the login. tls: None without a scheme. socket: the path of a unix socket; host is
    then empty. path, query: of a URL; login: user:password."""

    text: str
    host: str = ""
    port: int = 0
    tls: bool | None = None
    path: str = ""
    query: str = ""
    login: str = ""
    socket: str = ""

    @property
    def authority(self) -> str:
        """HOST:PORT."""
        return join_address(self.host, self.port)

    def below(self, path: str) -> str:
        """The target of a call of nsqd: the path of the URL comes before it."""
        return self._with_query(self.path.rstrip("/") + path)

    def beside(self, path: str) -> str:
        """The target of a call of nsqlookupd. As in go-nsq, the URL's path is the path of /lookup; other calls are
        its siblings. A path with a trailing slash is the folder of all calls."""
        bare, _, arguments = path.partition("?")
        folder = self.path.rpartition("/")[0]
        target = self.path if bare == LOOKUP and self.path and not self.path.endswith("/") else folder + bare
        return self._with_query(target + (f"?{arguments}" if arguments else ""))

    def _with_query(self, target: str) -> str:
        return target + (("&" if "?" in target else "?") + self.query if self.query else "")

    @property
    def headers(self) -> dict[str, str]:
        """Request headers that the address requires."""
        if not self.login:
            return {}
        import base64

        return {"Authorization": f"Basic {base64.b64encode(self.login.encode()).decode()}"}


def http_address(text: str, usual: int = LOOKUPD_PORT) -> HttpAddress:
    """An address from its text. usual: the port in an error. Raises BadAddress, TypeError."""
    if isinstance(text, str) and "://" not in text and ":" in text.partition("/")[0] and "/" in text:
        text = f"http://{text}"     # HOST:PORT/PATH
    if not isinstance(text, str) or "://" not in text:
        checked_address(text, usual)
        if is_path(text):
            return HttpAddress(text, socket=text)
        host, port = split_address(text)
        return HttpAddress(text, host, port)
    from urllib.parse import quote, unquote, urlsplit  # slow to import, and most addresses are not URLs

    shown = without_login(text)
    try:
        url = urlsplit(text)
        port = PORTS[url.scheme] if url.port is None else url.port
    except (ValueError, KeyError):
        raise BadAddress(f"{shown!r} is neither HOST:PORT nor an http or https URL") from None
    if not url.hostname or not port or not (text.isascii() and text.isprintable()) or " " in text:
        raise BadAddress(f"{shown!r} is not a URL such as http://lookup:4161 or https://lookup.example/lookup")
    login, at, _ = url.netloc.rpartition("@")
    return HttpAddress(shown, url.hostname, port, url.scheme == "https", quote(url.path, safe="/%:@!$&'()*+,;=~"),
                       url.query, unquote(login) if at else "")


def without_login(text: str) -> str:
    """A URL for messages. In a malformed one, everything before the last @ may be part of a password."""
    from urllib.parse import urlsplit  # as above

    scheme, _, rest = text.partition("://")
    authority, slash, path = rest.partition("/")
    try:
        is_sound = "@" in authority or urlsplit(text).port is not None or ":" not in authority
    except ValueError:
        is_sound = False
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}" if is_sound else f"{scheme}://{rest.rpartition('@')[2]}"


def checked_http_addresses(addresses: str | Iterable[str]) -> list[str]:
    """One address or several, as a list. Raises BadAddress, TypeError."""
    found = [addresses] if isinstance(addresses, str) else list(addresses)
    for address in found:
        http_address(address)
    return found


# ====================================================================== http
# Connections to HTTP servers, for blocking calls: over TCP, TLS or a unix socket. Import it late: http.client is slow
# to import.

MOST_INFO = 64 << 10    # bytes of /info


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Opens the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def authorization(secret: str | None) -> dict[str, str]:
    """The request header that carries a secret, such as an access file's token."""
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def https_port_of(connection: http.client.HTTPConnection, target: str) -> int:
    """Asks a node over HTTP, before any secret is sent in clear text, for the port of its HTTPS; 0: it has none, or
    does not require it and is on this machine. target: of its /info. Raises OSError, HTTPException."""
    connection.request("GET", target, headers={"Accept": "application/vnd.nsq; version=1.0"})
    peer = connection.sock.getpeername()
    answer = connection.getresponse()
    body = answer.read(MOST_INFO)
    if not answer.isclosed():
        connection.close()
    if not isinstance(peer, tuple):
        return 0
    ip = ip_of(peer[0])
    if b"https_port" not in body or (answer.status != 403 and ip is not None and ip.is_loopback):
        return 0
    try:
        value = decode(body)
    except JSONError:
        return 0
    port = value.get("https_port") if isinstance(value, dict) else 0
    return port if isinstance(port, int) and 0 < port < 65536 else 0


def connection_to(address: HttpAddress, timeout: float, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
    """A connection that opens with its first request. tls: the context; None selects HTTP for an address without a
    scheme, and the system's authorities for an https URL. Raises OSError if those cannot be read."""
    if address.socket:
        return UnixConnection(address.socket, timeout)
    if address.tls or (address.tls is None and tls is not None):
        return http.client.HTTPSConnection(address.host, address.port, timeout=timeout,
                                           context=tls or ssl.create_default_context())
    return http.client.HTTPConnection(address.host, address.port, timeout=timeout)


def answered_by(error: http.client.HTTPException) -> Answer | None:
    """The service behind an answer that is not HTTP; None: unknown."""
    line = getattr(error, "line", None)
    return recognized(line.encode("latin-1", "replace")) if isinstance(line, str) else None


# ====================================================================== trouble
# Converts exceptions of sockets and TLS into actionable error texts, for both clients.

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


# ====================================================================== lookup

log = Log("nsqc.client")


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
           tls: bool | ssl.SSLContext | None = None) -> list[str]:
    """The nsqd (HOST:PORT of TCP) that have a topic, according to all nsqlookupd (HOST:PORT of HTTP, or URLs) together.
    tls: for https URLs. Raises LookupFailed if none of them answers."""
    from urllib.parse import quote  # as http.client below

    return ask_all(f"/lookup?topic={quote(topic, safe='')}", nsqlookupd, timeout, tls)


def nodes(nsqlookupd: Iterable[str], timeout: float = 10.0, tls: bool | ssl.SSLContext | None = None) -> list[str]:
    """All nsqd. Raises LookupFailed."""
    return ask_all("/nodes", nsqlookupd, timeout, tls)


def ask_all(path: str, nsqlookupd: Iterable[str], timeout: float,
            tls: bool | ssl.SSLContext | None = None) -> list[str]:
    """The nsqd that any nsqlookupd lists, without duplicates. Raises LookupFailed."""
    addresses: dict[str, None] = {}
    answered, cause = False, "no nsqlookupd given"
    for address in nsqlookupd:
        try:
            for node in ask(address, path, timeout, tls):
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


def ask(address: str, path: str, timeout: float, tls: bool | ssl.SSLContext | None = None) -> list[Node]:
    """The nsqd listed by one nsqlookupd; none if it does not know the topic. Raises OSError, ValueError, KeyError,
    TypeError."""
    try:
        status, body = fetch(address, http_address(address).beside(path), timeout, tls=tls)
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
        raise ValueError(f"status {status}")
    answer = decode(body)
    if not isinstance(answer, dict):
        raise ValueError("its answer is not a JSON object")
    # An nsqlookupd before 1.0 wraps its answers in "data".
    producers: list[Node] = (answer.get("data") or answer)["producers"]
    return producers


def fetch(address: str, path: str, timeout: float, most_bytes: int | None = None,
          tls: bool | ssl.SSLContext | None = None, secret: str | None = None) -> tuple[int, bytes]:
    """Status and body of a GET; path: with arguments, as it is sent. tls: for https URLs. secret: not sent in clear
    text to a server that has HTTPS. Raises OSError, NotHttp, ValueError."""
    from http.client import HTTPException  # slow to import, and most clients have fixed nsqd


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
