"""/readyz: whether clients should be sent to this node."""

from __future__ import annotations

from collections.abc import Awaitable

from nsqc.broker.broker import Broker
from nsqc.httpd.app import App
from nsqc.httpd.probes import readiness
from nsqc.httpd.reply import Reply
from nsqc.httpd.request import Request
from nsqc.net.accepting import not_accepting
from nsqc.net.certdates import concerns

_MOST_TOLD = 10     # logs in the details


def readyz(app: App, request: Request) -> Awaitable[Reply]:
    """200 and {"ready": true}, or 503 and the reasons."""
    return _readyz(app)


async def _readyz(app: App) -> Reply:
    unwritable = await app.writable.reason()
    reasons = [] if app.started else ["starting"]
    if app.drain.closed:
        reasons.append("stopping")
    elif app.drain.reason is not None:
        reasons.append(app.drain.reason)
    refusing = not_accepting(app.limits, app.listeners)
    if refusing is not None:
        reasons.append(refusing)
    health = app.broker.health()
    if health != "OK":
        reasons.append(health.removeprefix("NOK - "))
    if unwritable is not None:
        reasons.append(unwritable)
    return readiness(reasons, [*losses(app.broker), *concerns(app.watched.certificates())])


def losses(broker: Broker) -> list[str]:
    """Topics whose logs have lost messages."""
    logs = [log for log in broker.logs.losers.values() if log.damaged or log.missing] if broker.logs else []
    told = [f"the log of {log.name} has lost messages: {log.damaged} damaged, {log.missing} missing"
            for log in logs[:_MOST_TOLD]]
    return told + ([f"{len(logs) - _MOST_TOLD} more logs have lost messages"] if len(logs) > _MOST_TOLD else [])
