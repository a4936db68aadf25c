"""The rights of users: everything, or the grants of the access file."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable
from typing import TYPE_CHECKING

from nsqc.access.needs import CHANNEL, GRANTS, NODE, STATS, TOPIC, Need
from nsqc.admin.attention import Concern, Concerns
from nsqc.admin.fleet import Moment, NodeRow
from nsqc.admin.upstream import Pace
from nsqc.httpd.reply import ApiError, Request

if TYPE_CHECKING:
    from nsqc.access.keeper import Subject


# ====================================================================== people
# Permissions on the admin server: nsqadmin's header and users, read-only mode, and CSRF tokens of browsers.

COOKIE, TOKEN_HEADER = "nsqc_csrf", "X-CSRF-Token"
TOKEN_BYTES = 24
MOST_TOKEN = 64     # characters


class People:
    """The rules of one server; by default, everything is permitted."""

    def __init__(self, header: str = "", admins: Iterable[str] = (), read_only: bool = False, extended: bool = True
                 ) -> None:
        """header: names the user. admins: if any, only these users may make changes. extended: everybody may read
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

def token_in(request: Request, cookie: str = COOKIE) -> str:
    """The token in a cookie of a browser; empty without one."""
    for part in request.header("Cookie").split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie and len(value) <= MOST_TOKEN:
            return value
    return ""


def new_token() -> str:
    """A token for a browser that has none."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def cookie_of(request: Request, path: str, token: str, cookie: str = COOKIE) -> str:
    """The header that gives a browser a token; an empty one removes it."""
    secure = request.caller.who[2] or request.header("X-Forwarded-Proto") == "https"
    more = ("" if token else "; Max-Age=0") + ("; Secure" if secure else "")
    return f"Set-Cookie: {cookie}={token}; Path={path}; HttpOnly; SameSite=Strict{more}\r\n"


def check_token(request: Request) -> None:
    """Raises ApiError if a browser sends a change without its token. Programs send neither Origin nor Sec-Fetch-Site,
    and no page can have a browser send such a request for it."""
    if not request.from_page and not request.header("Sec-Fetch-Site"):
        return
    cookie = token_in(request)
    if not cookie or not hmac.compare_digest(cookie.encode(), request.header(TOKEN_HEADER).encode()):
        raise ApiError(403, "CSRF_TOKEN - get one from /api/v1/session")


# ---------------------------------------------------------------------- sessions

SESSION = "nsqc_session"
SESSION_S = 12 * 3600.0
MOST_SESSIONS = 10_000


class Sessions:
    """The tokens of users who have signed in, by the random id in a cookie. In memory only: a restart ends them. A
    request of a session is checked as one with the token itself, so revoking the token ends the session."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[bytes, float]] = {}     # Authorization, and the end in monotonic seconds

    def open(self, request: Request) -> str:
        """Begins a session with the token that a request shows; returns its id."""
        if len(self._open) >= MOST_SESSIONS:
            del self._open[next(iter(self._open))]
        key = new_token()
        self._open[key] = request.authorization or b"", time.monotonic() + SESSION_S
        return key

    def close(self, request: Request) -> None:
        """Ends the session of a request."""
        self._open.pop(token_in(request, SESSION), None)

    def apply(self, request: Request) -> None:
        """Lets a request of a session act with its token, unless it shows one."""
        if request.authorization is None and self._open:
            request.authorization = self.authorization_of(request)

    def authorization_of(self, request: Request) -> bytes | None:
        """The token of its session, if it has one."""
        found = self._open.get(token_in(request, SESSION))
        return found[0] if found is not None and time.monotonic() < found[1] else None


# ====================================================================== rights

MOST_VIEWS = 8      # users with different grants whose view of a moment is kept


class Rights:
    """The rights of one user. A grant covers the same topics as in the daemon's own calls."""

    def __init__(self, subject: Subject | None) -> None:
        """subject: None: there is no access file."""
        self._subject = subject
        self.sees_all = subject is None or bool(subject.reason(Need((STATS,), NODE)))

    def may(self, grant: str, topic: str = "", channel: str = "") -> bool:
        """Whether a grant covers a topic or a channel; without either, the fleet as a whole."""
        if self._subject is None:
            return True
        return bool(self._subject.reason(Need((grant,), scope_of(topic, channel)), topic, channel))

    def has(self, *grants: str) -> bool:
        """Whether one of these grants covers anything."""
        return self._subject is None or any(user.scopes.get(grant) for user in self._subject.users for grant in grants)

    def require(self, grant: str, topic: str = "", channel: str = "") -> None:
        """Raises ApiError if the grant does not cover it, whether it exists or not."""
        if not self.may(grant, topic, channel):
            what = f"{topic}/{channel}" if channel else f"topic {topic}" if topic else "the whole fleet ('*')"
            name = "" if self._subject is None else self._subject.name
            raise ApiError(403, f"FORBIDDEN - user {name} has no grant {grant} for {what}")

    @property
    def is_known(self) -> bool:
        """Whether the user is more than anonymous."""
        return self._subject is None or self._subject.is_known

    @property
    def listed(self) -> list[str]:
        """The grants, for the user."""
        users = () if self._subject is None else self._subject.users
        found = {grant: sorted({scope.text for user in users for scope in user.scopes.get(grant, ())})
                 for grant in GRANTS}
        return [f"{grant} {', '.join(texts)}" for grant, texts in found.items() if texts]

    @property
    def key(self) -> tuple[str, ...]:
        """A key for the visible topics: equal for users who see the same ones."""
        users = () if self._subject is None else self._subject.users
        return tuple(sorted({scope.text for user in users for scope in user.scopes.get(STATS, ())}))


def scope_of(topic: str, channel: str) -> str:
    """The object of a call, see nsqc.access.needs."""
    return CHANNEL if channel else TOPIC if topic else NODE


def rights_of(request: Request) -> Rights:
    """The rights of the client of a request that was admitted."""
    return Rights(request.subject)


class Views:
    """A moment as users with some grants see it: with their topics only."""

    def __init__(self) -> None:
        self._moment: Moment | None = None
        self._views: dict[tuple[str, ...], Moment] = {}

    async def of(self, moment: Moment, rights: Rights) -> Moment:
        """The moment as a user sees it."""
        if rights.sees_all:
            return moment
        if moment is not self._moment:
            self._moment, self._views = moment, {}
        known = self._views.get(rights.key)
        if known is not None:
            return known
        view = await narrowed(moment, rights)
        if moment is self._moment:
            if len(self._views) >= MOST_VIEWS:
                del self._views[next(iter(self._views))]
            self._views[rights.key] = view
        return view


async def narrowed(moment: Moment, rights: Rights) -> Moment:
    """The topics that a user sees, and their sums; of nodes, the fields of /info."""
    pace = Pace()
    view = Moment()
    view.at = moment.at
    for name, row in moment.topics.items():
        if rights.may(STATS, name):
            view.topics[name] = row
        if pace.over():
            await pace.rest()
    for address, node in moment.nodes.items():
        view.nodes[address] = NodeRow(
            address, node.tcp, node.hostname, node.version, node.nsqc, node.listed, node.error, node.missing_since,
            start_time=node.start_time, topics=-1, channels=-1, clients=-1, depth=-1, in_flight=-1, messages=-1)
    view.feeders = {name: seen for name, rows in moment.feeders.items()
                    if (seen := [row for row in rows if row.topic in view.topics])}
    view.sum_up()
    return view


def concerns_for(concerns: Concerns, rights: Rights) -> Concerns:
    """Those about topics that a user sees."""
    if rights.sees_all:
        return concerns
    listed: list[Concern] = [each for each in concerns.listed if each.topic and rights.may(STATS, each.topic)]
    counts = dict.fromkeys(concerns.counts, 0)
    for each in listed:
        counts[each.severity] += 1
    return Concerns(listed, counts)


async def meter(request: Request, size: int) -> None:
    """Counts a publish towards the user's quota, and waits until its rate allows it. size: of the body, bytes. Raises
    ApiError."""
    account = None if request.subject is None else request.subject.account
    if account is None or not account.is_metered:
        return
    wait, reason = account.publish(1, size)
    if reason:
        raise ApiError(429, f"QUOTA - {reason}")
    await asyncio.sleep(wait)
