"""/pub and /mpub. Checks come in the original's order, which clients can see: size, body, topic, the rest.

A body that is above the limit arrives cut one byte behind it, so its length alone tells.
"""

import asyncio
import errno
import os
import re
from collections.abc import Callable
from typing import Any

from nsqc.broker.topic import PENDING
from nsqc.httpd.reply import ApiError
from nsqc.httpd.request import Request, read_arguments
from nsqc.wire.mpub import check, has_long_line
from nsqc.wire.names import is_valid_name

_INTEGER = re.compile(rb"([+-]?)0*([0-9]{1,19})")
_INT64 = range(-1 << 63, 1 << 63)
_BOOLEANS = {b"true": True, b"1": True, b"false": False, b"0": False}


def plain_target(url: bytes) -> bytes | None:
    """The topic of a publish that asks for nothing else: `/pub?topic=NAME` with a valid name that needs no escape."""
    head, _, name = url.partition(b"?topic=")
    return name if head == b"/pub" and is_valid_name(name) else None


def wanted_topic(app: Any, arguments: dict[bytes, bytes]) -> Any:
    """The topic a publish is for, made where it does not exist."""
    name = arguments.get(b"topic")
    if name is None:
        raise ApiError(400, "MISSING_ARG_TOPIC")
    if not is_valid_name(name):
        raise ApiError(400, "INVALID_TOPIC")
    return app.broker.get_topic(name)


def accepted(topic: Any, failure: int) -> Any:
    """OK, why a message could not be taken, or, while it is being written, an awaitable of these."""
    if failure == PENDING:
        return _answer(topic, _written(topic))
    if failure:
        raise ApiError(503, refusal(failure))
    return "OK"


def _written(topic: Any) -> "asyncio.Future[int]":
    """0 or errno, once what has just been published is written. To be asked for at once: a commit does not wait."""
    future = asyncio.get_running_loop().create_future()
    topic.when_written(lambda error: future.done() or future.set_result(error))
    return future


async def _answer(topic: Any, written: "asyncio.Future[int]") -> Any:
    return accepted(topic, await written)


def refusal(failure: int) -> str:
    """What stands for an errno in a 503: nsqd's word where the daemon stops, else the cause."""
    return "EXITING" if failure == errno.ESHUTDOWN else f"FAILED - {os.strerror(failure)}"


def pub(app: Any, request: Request) -> str:
    """One message: the body."""
    options = app.settings.now
    if request.length > options.message_limit or len(request.body) > options.message_limit:
        raise ApiError(413, "MSG_TOO_BIG")
    if request.broken:
        raise ApiError(500, "INTERNAL_ERROR")
    if not request.body:
        raise ApiError(400, "MSG_EMPTY")
    arguments = read_arguments(app, request)
    topic = wanted_topic(app, arguments)
    defer_ms = 0
    if b"defer" in arguments:
        defer_ms = _defer_ms(arguments[b"defer"], options.max_req_timeout)
    return accepted(topic, topic.publish(request.body, defer_ms))


def _defer_ms(text: bytes, limit_ns: int) -> int:
    """Milliseconds to hold a message back, at most limit_ns (nanoseconds)."""
    found = _INTEGER.fullmatch(text)
    value = int(found[1] + found[2]) if found else -1
    if value not in _INT64 or value < 0 or value * 1_000_000 > limit_ns:
        raise ApiError(400, "INVALID_DEFER")
    return value


def mpub(app: Any, request: Request) -> str:
    """Many messages, one a line, or with `binary` in the form of the TCP command."""
    options = app.settings.now
    if request.length > options.max_body_size:
        raise ApiError(413, "BODY_TOO_BIG")
    arguments = read_arguments(app, request)
    topic = wanted_topic(app, arguments)
    if _is_binary(app, arguments):
        return _publish_binary(app, topic, request, options)
    lines = _checked_lines(request, options)
    return _in_slices(app, topic, lambda at, left: topic.publish_lines(lines, at))


def _is_binary(app: Any, arguments: dict[bytes, bytes]) -> bool:
    value = arguments.get(b"binary")
    if value is None:
        return False
    known = _BOOLEANS.get(value)
    if known is None:
        app.log.warn("deprecated value '%s' used for /mpub binary param", value.decode("latin-1"))
        return True
    return known


def _publish_binary(app: Any, topic: Any, request: Request, options: Any) -> Any:
    count = check(request.body, options.message_limit, options.max_body_size)
    if count < 0:
        raise ApiError(413, "BAD_BODY" if count == -1 else "BAD_MESSAGE")
    if len(request.body) > options.max_body_size:
        raise ApiError(413, "BODY_TOO_BIG")
    body = bytes(request.body)

    def publish(at: int, left: int) -> tuple[int, int, int]:
        return topic.publish_batch(body, at, left)

    return _in_slices(app, topic, publish)


def _in_slices(app: Any, topic: Any, publish: Callable[[int, int], tuple[int, int, int]]) -> Any:
    """Publishes many messages: as many as fit into a slice at once, the rest in the slices to come."""
    failure, at, left = publish(0, -1)
    if left == 0 or failure > 0:
        return accepted(topic, failure)
    return _rest(app, topic, publish, [_written(topic)] if failure == PENDING else [], at, left)


async def _rest(app: Any, topic: Any, publish: Callable[[int, int], tuple[int, int, int]],
                writes: list["asyncio.Future[int]"], at: int, left: int) -> str:
    done = asyncio.get_running_loop().create_future()
    failure = 0

    def go_on() -> bool:
        nonlocal failure, at, left
        try:
            failure, at, left = publish(at, left)
            if failure == PENDING:
                writes.append(_written(topic))
        except Exception as error:
            done.set_exception(error)
            return False
        if left and failure <= 0:
            if not topic.full:
                return True
            topic.when_written(lambda _: app.broker.slicer.call(go_on))
            return False
        done.set_result(None)
        return False

    app.broker.slicer.call(go_on)
    await done
    failures = [failure, *await asyncio.gather(*writes)]
    return accepted(topic, max(failures))


def _checked_lines(request: Request, options: Any) -> bytes:
    """A text body, with no line that is too long."""
    body = bytes(request.body)
    # nsqd reads line by line: a line that is too long counts before the end of the body, a limit on which counts before
    # the length of the last line, which only the end of the body ends.
    last = body.rfind(b"\n") + 1
    limit = options.message_limit
    if has_long_line(body, last, limit):
        raise ApiError(413, "MSG_TOO_BIG")
    if request.broken:
        raise ApiError(500, "INTERNAL_ERROR")
    if len(body) > options.max_body_size:
        raise ApiError(413, "BODY_TOO_BIG")
    if len(body) - last > limit:
        raise ApiError(413, "MSG_TOO_BIG")
    return body
