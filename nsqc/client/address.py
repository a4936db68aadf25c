"""Addresses in options: HOST:PORT, the path of a unix socket, or an HTTP address."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from typing import NamedTuple

from nsqc.client.errors import BadAddress

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
