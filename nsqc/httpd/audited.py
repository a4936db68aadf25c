"""Routes with calls in the audit log: records the result if the call changes something or is refused."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Any, cast

from nsqc.access.audit import Audit
from nsqc.access.needs import Need
from nsqc.httpd.reply import ApiError, Reply
from nsqc.httpd.request import Handler, Request, Route

_REFUSALS = (401, 403, 429)
_OK = 200


class Recorder:
    """Records the calls of routes."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def recorded(self, route: Route, need: Need) -> Route:
        """A route whose result is recorded. need: of the call, which the route may refuse."""
        return route._replace(handler=partial(_call, self._audit, need, route.handler))


# Any: a site of any program
def _call(audit: Audit, need: Need, handler: Handler, site: Any, request: Request) -> object:
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
