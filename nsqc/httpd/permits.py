"""The part of the gate for an access file and an audit log: programs without these do not import it."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Awaitable
from functools import partial
from typing import Any, NamedTuple, cast

from nsqc.access.audit import Audit
from nsqc.access.keeper import Access, Subject, TooManyWrong
from nsqc.access.needs import CHANNEL, NODE, PUBLISH, PUBLISHING, Need
from nsqc.broker.refusals import QUOTA, UNAUTHORIZED
from nsqc.httpd.gate import Caller, Doing
from nsqc.httpd.reply import ApiError, Handler, Reply, Request, Route, unauthorized, v1_error
from nsqc.wire.parser import is_valid_name

# ====================================================================== permits
# Applies the access file to HTTP clients: identifies the user, and checks the requirements of routes.
#
# A known token costs a look-up; a new one is checked by a thread while its request waits. A call is permitted when its
# handler begins, not when its head arrives: the rules may change in between.

_CHALLENGE = 'WWW-Authenticate: Basic realm="nsqc"\r\n'
_LEAST_BYTES = 5        # of a message in a binary batch, including its size


class Refusal(NamedTuple):
    """Why a call is refused: for the client, and, with nsqc.broker.refusals' reason, for the count of publishes."""

    status: int
    text: str
    reason: str = UNAUTHORIZED


class Unusable(Exception):
    """An Authorization header without a token."""


class Permits:
    """Decides by the access file."""

    def __init__(self, access: Access) -> None:
        self._access = access

    # ------------------------------------------------------------------ for the reader

    def may_publish(self, authorization: bytes | None, topic: bytes, caller: Caller) -> bool:
        """Whether a plain publish can take the fast path: its client is known, permitted and has no rate or time
        limits."""
        subject = self._known(authorization, caller)
        if subject is None or subject.account is not None or subject.servers is not None:
            return False
        name = topic.decode()
        if not subject.reason(PUBLISHING, name):
            return False
        caller.doing = Doing(subject, PUBLISHING, name, "")
        return True

    def admit(self, route: Route, request: Request, caller: Caller) -> Route:
        """The route with a handler that checks permissions first."""
        if not route.need.grants:
            return route
        subject = self._known(request.authorization, caller)
        if (not self._is_possible(request.authorization) if subject is None
                else self._refusal(subject, route.need, request) is not None):
            # Its body is not read.
            route = route._replace(body_limit=None, reads_body=False)
        return route._replace(handler=partial(self._call, route, caller))

    def has_lost(self, caller: Caller) -> bool:
        """Whether the client has lost the grant for its current or last call."""
        doing = caller.doing
        if doing is None or not doing.need.grants:
            return False
        return not self._access.renewed(doing.subject).reason(doing.need, doing.topic, doing.channel)

    # ------------------------------------------------------------------ handlers

    def _call(self, route: Route, caller: Caller, site: object, request: Request) -> object:
        subject = self._known(request.authorization, caller)
        if subject is not None:
            return self._permitted(subject, route, caller, site, request)
        return self._check_and_call(route, caller, site, request)

    async def _check_and_call(self, route: Route, caller: Caller, site: object, request: Request) -> object:
        try:
            token, name = token_of(request.authorization)
            subject = await self._access.check(token or b"", caller.who)
        except Unusable:
            return _refuse(route, site, request, Refusal(
                401, "UNAUTHORIZED - Authorization must be Bearer TOKEN, or Basic with a token as the password"))
        except TooManyWrong:
            return _refuse(route, site, request, Refusal(
                429, "TOO_MANY_WRONG_TOKENS - from this address; try again later"))
        if subject is None or not _is(subject, name):
            return _refuse(route, site, request, Refusal(401, "UNAUTHORIZED - the token is not known"))
        data = self._permitted(subject, route, caller, site, request)
        return await data if hasattr(data, "__await__") else data

    def _permitted(self, subject: Subject, route: Route, caller: Caller, site: object, request: Request) -> object:
        request.user = subject.name
        if (refusal := self._refusal(subject, route.need, request)) is not None:
            return _refuse(route, site, request, refusal)
        if reason := caller.use(subject.account):
            return _refuse(route, site, request, Refusal(429, f"QUOTA - {reason}", QUOTA))
        topic, channel = names_of(request)
        caller.doing = Doing(subject, route.need, topic, channel)
        account = subject.account
        request.subject = subject
        request.may_create = None if account is None else account.create
        if account is not None and account.is_metered and route.need.grants == (PUBLISH,):
            wait, reason = account.publish(_messages(request), len(request.body))
            if reason:
                return _refuse(route, site, request, Refusal(429, f"QUOTA - {reason}", QUOTA))
            if wait > 0:
                return self._call_later(wait, subject, route, site, request)
        return route.handler(site, request)

    async def _call_later(self, wait: float, subject: Subject, route: Route, site: object, request: Request) -> object:
        await asyncio.sleep(wait)
        if (refusal := self._refusal(self._access.renewed(subject), route.need, request)) is not None:
            return _refuse(route, site, request, refusal)
        data = route.handler(site, request)
        return await data if hasattr(data, "__await__") else data

    # ------------------------------------------------------------------ decisions

    def _known(self, authorization: bytes | None, caller: Caller) -> Subject | None:
        """None: the token must be checked first, or is missing."""
        if authorization is None:
            return self._access.known(None, caller.who)
        try:
            token, name = token_of(authorization)
        except Unusable:
            return None
        subject = self._access.known(token, caller.who)
        return subject if subject is not None and _is(subject, name) else None

    def _is_possible(self, authorization: bytes | None) -> bool:
        """Whether a token that is not known may turn out to be right."""
        try:
            return self._access.is_possible(token_of(authorization)[0] or b"")
        except Unusable:
            return False

    def _refusal(self, subject: Subject, need: Need, request: Request) -> Refusal | None:
        """Why a call is not permitted; None: permitted."""
        topic, channel = names_of(request)
        if subject.reason(need, topic, channel):
            return None
        wanted = " or ".join(need.grants)
        if not subject.is_known:
            return Refusal(401, f"UNAUTHORIZED - this call needs a token with the grant {wanted}: "
                           "Authorization: Bearer TOKEN")
        return Refusal(403, f"FORBIDDEN - user {subject.name} has no grant {wanted} for "
                       f"{target_of(need, topic, channel)}")


def token_of(authorization: bytes | None) -> tuple[bytes | None, str]:
    """The token in an Authorization header, and its user name, if any. Raises Unusable."""
    if authorization is None:
        return None, ""
    scheme, _, value = authorization.partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip(), ""
    if scheme.lower() != b"basic":
        raise Unusable
    try:
        name, colon, token = b64decode(value.strip(), validate=True).partition(b":")
    except (NotBase64, ValueError):
        raise Unusable from None
    if not colon:
        raise Unusable
    return token, name.decode("utf-8", "replace")


def _is(subject: Subject, name: str) -> bool:
    """Whether a client is the user that it names, if any."""
    return not name or subject.name == name


def names_of(request: Request) -> tuple[str, str]:
    """The topic and channel of a request, as its handler reads them; empty if missing or invalid."""
    try:
        arguments = request.arguments()
    except ValueError:
        return "", ""
    topic, channel = arguments.get(b"topic", b""), arguments.get(b"channel", b"")
    return (topic.decode() if is_valid_name(topic) else "", channel.decode() if is_valid_name(channel) else "")


def target_of(need: Need, topic: str, channel: str) -> str:
    """The node, topic or channel of a call, in words."""
    if need.of == NODE or not topic:
        return "the whole node ('*')"
    return f"{topic}/{channel}" if need.of == CHANNEL and channel else f"topic {topic}"


# Any: a site of any program
def _refuse(route: Route, site: Any, request: Request, refusal: Refusal) -> Reply:
    """The answer; publishes are counted with other refusals."""
    request.refusal = refusal.text
    if route.need.grants == (PUBLISH,):
        site.broker.refused(refusal.reason)
    if refusal.status != 401:
        return v1_error(refusal.status, refusal.text)
    # The pages have forms of their own: with the challenge, browsers would open a dialog.
    return unauthorized(refusal.text, site.https_port, "" if request.header("X-Requested-With") else _CHALLENGE)


def _messages(request: Request) -> int:
    """Approximate number of messages in a publish."""
    if request.path == b"/pub":
        return 1
    try:
        is_binary = request.arguments().get(b"binary", b"false") not in (b"false", b"0")
    except ValueError:
        return 1
    if not is_binary:
        return request.body.count(b"\n") + 1
    return max(1, min(int.from_bytes(request.body[:4], "big"), len(request.body) // _LEAST_BYTES))


# ====================================================================== audited
# Routes with calls in the audit log: records the result if the call changes something or is refused.

_REFUSALS = (401, 403, 429)
_OK = 200


class Recorder:
    """Records the calls of routes."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def recorded(self, route: Route, need: Need) -> Route:
        """A route whose result is recorded. need: of the call, which the route may refuse."""
        return route._replace(handler=partial(_call, self._audit, need, route.handler))


def _call(audit: Audit, need: Need, handler: Handler, site: object, request: Request) -> object:
    if need.changes and audit.is_full:
        raise ApiError(503, "AUDIT_UNAVAILABLE - the audit log cannot be written, so nothing may be changed")
    try:
        data = handler(site, request)
    except Exception as error:
        _failed(audit, need, request, error)
        raise
    if hasattr(data, "__await__"):
        return _awaited(audit, need, cast("Awaitable[object]", data), request)
    _returned(audit, need, request, data)
    return data


async def _awaited(audit: Audit, need: Need, work: Awaitable[object], request: Request) -> object:
    try:
        data = await work
    except Exception as error:
        _failed(audit, need, request, error)
        raise
    _returned(audit, need, request, data)
    return data


def _returned(audit: Audit, need: Need, request: Request, data: object) -> None:
    status = data.status if isinstance(data, Reply) else _OK
    if (need.changes and audit.wants_changes) or request.refusal:
        _record(audit, request, f"{status} {request.refusal or ('OK' if status == _OK else '')}".rstrip())


def _failed(audit: Audit, need: Need, request: Request, error: Exception) -> None:
    status = error.status if isinstance(error, ApiError) else 500
    if (need.changes and audit.wants_changes) or status in _REFUSALS:
        text = error.text if isinstance(error, ApiError) else type(error).__name__
        _record(audit, request, f"{status} {text}")


def _record(audit: Audit, request: Request, result: str) -> None:
    target = request.query.decode("latin-1") or request.param
    audit.record(request.user, request.remote, f"{request.method.decode('latin-1')} {request.path.decode('latin-1')}",
                 target, result)
