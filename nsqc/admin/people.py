"""Permissions on the admin server: nsqadmin's header and users, read-only mode, and CSRF tokens of browsers."""

from __future__ import annotations

import hmac
import secrets
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable

from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request

COOKIE, TOKEN_HEADER = "nsqc_csrf", "X-CSRF-Token"
TOKEN_BYTES = 24
MOST_TOKEN = 64     # characters


class People:
    """The rules of one server; by default, everything is permitted."""

    def __init__(self, header: str = "", admins: Iterable[str] = (), read_only: bool = False, extended: bool = True
                 ) -> None:
        """header: names the user. admins: who alone may change something, if any. extended: everybody may read
        messages."""
        self._header = header
        self._admins = frozenset(admins)
        self._read_only = read_only
        self._extended = extended

    def user_of(self, request: Request) -> str:
        """The name of the user: by the access file, or as the proxy in front says; empty: unknown."""
        return request.user or self._proxied(request)

    def may_change(self, request: Request) -> bool:
        """As nsqadmin has it: everybody, or the users of --admin-user."""
        if self._read_only:
            return False
        return not self._admins or self._proxied(request) in self._admins

    def may_extend(self, request: Request) -> bool:
        """Whether a client may read messages, and use features that nsqadmin does not have."""
        return self._extended or self._proxied(request) in self._admins or request.caller.is_local

    def _proxied(self, request: Request) -> str:
        return request.sole_header(self._header) if self._header else ""

    def check_change(self, request: Request) -> None:
        """Raises ApiError for a client that may change nothing."""
        if self._read_only:
            raise ApiError(403, "READ_ONLY")
        if not self.may_change(request):
            raise ApiError(403, "FORBIDDEN")

    def check_extended(self, request: Request) -> None:
        """Raises ApiError for a client that may not read messages."""
        if not self.may_extend(request):
            raise ApiError(403, "NOT_LOCAL - this is for clients on the admin server's own machine: start it with "
                                "--http-extended-api=all, --admin-user or --access-file")


def basic_user(request: Request) -> str:
    """The user of HTTP Basic authentication, as nsqadmin's notifications name it."""
    scheme, _, value = (request.authorization or b"").partition(b" ")
    if scheme.lower() != b"basic":
        return ""
    try:
        return b64decode(value.strip(), validate=True).partition(b":")[0].decode("utf-8", "replace")
    except (NotBase64, ValueError):
        return ""


# ---------------------------------------------------------------------- CSRF

def token_in(request: Request) -> str:
    """The token in the cookie of a browser; empty without one."""
    for part in request.header("Cookie").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE and len(value) <= MOST_TOKEN:
            return value
    return ""


def new_token() -> str:
    """A token for a browser that has none."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def cookie_of(token: str, path: str, secure: bool) -> str:
    """The header that gives a browser its token."""
    return f"Set-Cookie: {COOKIE}={token}; Path={path}; HttpOnly; SameSite=Strict{'; Secure' if secure else ''}\r\n"


def check_token(request: Request) -> None:
    """Raises ApiError if a browser sends a change without its token. Programs send neither Origin nor Sec-Fetch-Site,
    and no page can have a browser send such a request for it."""
    if not request.from_page and not request.header("Sec-Fetch-Site"):
        return
    cookie = token_in(request)
    if not cookie or not hmac.compare_digest(cookie.encode(), request.header(TOKEN_HEADER).encode()):
        raise ApiError(403, "CSRF_TOKEN - get one from /api/v1/session")
