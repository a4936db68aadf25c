"""URLs to send messages to."""

from __future__ import annotations

from base64 import b64encode
from typing import NamedTuple
from urllib.parse import quote_plus, unquote, urlsplit

from nsqc.client.httpaddress import without_login
from nsqc.tools.errors import UsageError

PLACEHOLDER = "%s"


class Url(NamedTuple):
    """text: for people, without the login. target: the path with its arguments, for the request line; for GET with %s
    for the message. login: user:password."""

    text: str
    is_tls: bool
    host: str
    port: int
    target: str
    login: str = ""

    @property
    def authority(self) -> str:
        """The Host header's value."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_tls else 80) else f"{host}:{self.port}"

    @property
    def authorization(self) -> str:
        """The header for the login; empty without one."""
        return f"Authorization: Basic {b64encode(self.login.encode()).decode()}" if self.login else ""

    def with_body(self, body: bytes) -> str:
        """A GET's target with the message in it."""
        before, _, after = self.target.partition(PLACEHOLDER)
        return before + quote_plus(body) + after


def read_url(text: str) -> Url:
    """Raises UsageError."""
    shown = without_login(text) if "://" in text else text
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise UsageError(f"{shown}: is not a URL; a port is a number, and a slash in a password must be %2F") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{shown}: is not a URL such as http://127.0.0.1:8080/messages")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or not target.isprintable() or " " in target:
        raise UsageError(f"{shown}: has characters not allowed in a URL")
    is_tls = parts.scheme == "https"
    login, at, _ = parts.netloc.rpartition("@")
    return Url(shown, is_tls, parts.hostname, port or (443 if is_tls else 80), target, unquote(login) if at else "")
