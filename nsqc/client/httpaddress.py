"""HTTP addresses in options: HOST:PORT, or a URL with a path and a login."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nsqc.client.address import checked_address, is_path, join_address, split_address
from nsqc.client.errors import BadAddress

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
