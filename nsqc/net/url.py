"""URLs of HTTP servers to query. Separate from plain addresses, because few daemons need the URL parser."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from nsqc.log.formats import mask_address
from nsqc.net.address import join_address

PORTS = {"http": 80, "https": 443}
HOST = re.compile(r"[^\s/\\<>\"]+")
MISSPELT_URL = re.compile(r"https?:?/(?!/)|https?//", re.IGNORECASE)


class Server(NamedTuple):
    """An HTTP server and the path to request. login is "user:password" or empty."""

    tls: bool
    host: str
    address: str
    target: str
    login: str

    @property
    def name(self) -> str:
        """The URL for the log, without login and query."""
        return f"{'https' if self.tls else 'http'}://{self.host}{self.target.partition('?')[0]}"


def parse_server(text: str) -> Server:
    """Parses a URL, or HOST:PORT, whose path is /auth. Raises ValueError."""
    refusal = f"{mask_address(text)!r} is neither HOST:PORT nor an http or https URL"
    try:
        url = urlsplit(text if "://" in text else f"http://{text}/auth")
        hostname, port = url.hostname or "", url.port
    except ValueError:
        raise ValueError(refusal) from None
    if port == 0 or not HOST.fullmatch(hostname) or url.scheme not in PORTS or MISSPELT_URL.match(text):
        raise ValueError(refusal)
    target = quote(url.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{url.query}" if url.query else "")
    login, _, host = url.netloc.rpartition("@")
    return Server(url.scheme == "https", host, join_address(hostname, PORTS[url.scheme] if port is None else port),
                  target, unquote(login))
