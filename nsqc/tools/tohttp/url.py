"""URLs to send messages to."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote_plus, urlsplit

from nsqc.tools.errors import UsageError

PLACEHOLDER = "%s"


class Url(NamedTuple):
    """text: as given. target: the path with its arguments, for the request line; of a GET with %s for the message."""

    text: str
    is_tls: bool
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """For the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    def with_body(self, body: bytes) -> str:
        """The target of a GET with the message in it."""
        before, _, after = self.target.partition(PLACEHOLDER)
        return before + quote_plus(body) + after


def read_url(text: str) -> Url:
    """Raises UsageError."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{text}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{text}: is not a URL such as http://127.0.0.1:8080/messages")
    if parts.username is not None:
        raise UsageError(f"{text}: give a user by --header 'Authorization: Basic ...'")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or not target.isprintable() or " " in target:
        raise UsageError(f"{text}: has characters that a URL cannot have")
    is_tls = parts.scheme == "https"
    return Url(text, is_tls, parts.hostname, port or (443 if is_tls else 80), target)
