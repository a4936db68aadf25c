"""/drain: shows, starts, changes and undoes a drain (nsqc.broker.drain)."""

from __future__ import annotations

from nsqc.broker.drain import DrainState
from nsqc.httpd.app import App
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request, boolean_in, read_arguments
from nsqc.options.declared import LONGEST
from nsqc.options.durations import parse_duration

_MS = 1_000_000
_DIGITS = 18


def get(app: App, request: Request) -> DrainState:
    """Whether the node is draining, and its progress."""
    return app.drain.state()


def post(app: App, request: Request) -> DrainState:
    """Begins a drain, or changes the running one."""
    arguments = read_arguments(app.log, request)
    keep = boolean_in(arguments, b"keep")
    timeout = None if b"timeout" not in arguments else _duration(arguments[b"timeout"])
    if app.drain.closed:
        raise ApiError(503, "EXITING")
    app.drain.begin(timeout, keep)
    return app.drain.state()


def delete(app: App, request: Request) -> DrainState:
    """Undoes a drain."""
    if app.drain.closed:
        raise ApiError(503, "EXITING")
    app.drain.undo()
    return app.drain.state()


def _duration(text: bytes) -> int:
    """Nanoseconds, from a duration such as 30s, or from milliseconds, like `defer` of /pub."""
    try:
        is_number = text.isdigit() and len(text) <= _DIGITS
        timeout = int(text) * _MS if is_number else parse_duration(text.decode())
    except ValueError:
        raise ApiError(400, "INVALID_ARG_TIMEOUT") from None
    if not 0 <= timeout <= LONGEST:
        raise ApiError(400, "INVALID_ARG_TIMEOUT")
    return timeout
