"""/pub and /mpub. The order of checks, which clients can see, is nsqd's: size, body, topic, the rest.

A body above the limit is cut one byte behind it, which suffices to recognise it as too long.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nsqc.broker import refusals
from nsqc.broker.refusals import INVALID, QuotaReached, of_exception
from nsqc.broker.topic import DRAINING, FULL, NO_SPACE, PENDING, Topic
from nsqc.broker.topicstate import OpenBatch
from nsqc.httpd.reply import ApiError, refusal
from nsqc.httpd.request import BOOLEANS, Handler, Request, read_arguments
from nsqc.options.declared import Options
from nsqc.wire.mpub import check, has_long_line
from nsqc.wire.names import is_valid_name

if TYPE_CHECKING:
    from nsqc.httpd.app import App

_INTEGER = re.compile(rb"([+-]?)0*([0-9]{1,19})")
_REFUSED_BY_TOPIC = 503
_INT64 = range(-1 << 63, 1 << 63)

REFUSED = "DRAINING"  # publishes of a node that drains

# Publishes messages from an offset, so many at most (-1: all that are announced); returns the result for those it took,
# the next offset, and how many are left.
_PublishSlice = Callable[[int, int], tuple[int, int, int]]


def named_topic(app: App, request: Request, arguments: dict[bytes, bytes]) -> Topic:
    """The topic that a request names, created if missing."""
    name = arguments.get(b"topic")
    if name is None:
        raise ApiError(400, "MISSING_ARG_TOPIC")
    if not is_valid_name(name):
        raise ApiError(400, "INVALID_TOPIC")
    topic = app.broker.topic(name)
    if topic is None:
        request.made += 1
        if request.may_create is not None and (reason := request.may_create(name.decode(), app.has_topic)):
            raise QuotaReached(reason)
        topic = app.broker.get_topic(name)
    return topic


def _open_topic(app: App, request: Request, arguments: dict[bytes, bytes]) -> Topic:
    """The topic to publish to, unless the daemon drains. Names are checked first."""
    if app.broker.draining and is_valid_name(arguments.get(b"topic", b"")):
        app.broker.refused(refusals.DRAINING)
        raise ApiError(503, REFUSED)
    return named_topic(app, request, arguments)


def accepted(topic: Topic, failure: int) -> str | Awaitable[str]:
    """OK, or a refusal; an awaitable of either while the message is being written."""
    if failure == PENDING:
        return _after_write(topic, _written(topic))
    return _settled(topic, failure)


def _settled(topic: Topic, failure: int) -> str:
    if failure:
        raise ApiError(503, topic_refusal(failure, topic))
    return "OK"


def _written(topic: Topic) -> asyncio.Future[int]:
    """0 or errno, once what was just published is written. Must be called at once: a commit does not wait."""
    future = asyncio.get_running_loop().create_future()

    def written(failure: int) -> None:
        if not future.done():
            future.set_result(failure)

    topic.when_written(written)
    return future


async def _after_write(topic: Topic, written: asyncio.Future[int]) -> str:
    return _settled(topic, await written)


def topic_refusal(failure: int, topic: Topic) -> str:
    """The text of a 503 for an errno, NO_SPACE, FULL or DRAINING of a topic, which counts it."""
    topic.refused(failure)
    if failure == DRAINING:
        return REFUSED
    return f"FAILED - {topic.refusal(failure)}" if failure in (NO_SPACE, FULL) else refusal(failure)


def counted(handler: Handler) -> Handler:
    """Has a handler of publishes count those that it refuses before they come to a topic."""

    def call(app: App, request: Request) -> object:
        try:
            return handler(app, request)
        except ApiError as error:
            if error.status != _REFUSED_BY_TOPIC:
                app.broker.refused(INVALID)
            raise
        except Exception as error:
            app.broker.refused(of_exception(error))
            raise

    return call


def pub(app: App, request: Request) -> str | Awaitable[str]:
    """One message: the body."""
    options = app.settings.now
    if request.length > options.message_limit or len(request.body) > options.message_limit:
        raise ApiError(413, "MSG_TOO_BIG")
    if request.broken:
        raise ApiError(500, "INTERNAL_ERROR")
    if not request.body:
        raise ApiError(400, "MSG_EMPTY")
    arguments = read_arguments(app.log, request)
    topic = _open_topic(app, request, arguments)
    defer_ms = 0
    if b"defer" in arguments:
        defer_ms = _defer_ms(arguments[b"defer"], options.max_req_timeout)
    return accepted(topic, topic.publish(request.body, defer_ms))


def _defer_ms(text: bytes, limit_ns: int) -> int:
    """Milliseconds to defer a message, at most limit_ns (nanoseconds)."""
    match = _INTEGER.fullmatch(text)
    value = int(match[1] + match[2]) if match else -1
    if value not in _INT64 or value < 0 or value * 1_000_000 > limit_ns:
        raise ApiError(400, "INVALID_DEFER")
    return value


def mpub(app: App, request: Request) -> str | Awaitable[str]:
    """Many messages, one a line, or, with `binary`, in the format of the TCP command."""
    options = app.settings.now
    if request.length > options.max_body_size:
        raise ApiError(413, "BODY_TOO_BIG")
    arguments = read_arguments(app.log, request)
    topic = _open_topic(app, request, arguments)
    whole = OpenBatch()
    if _is_binary(app, arguments):
        batch = _checked_batch(request, options)
        return _in_slices(app, topic, lambda at, left: topic.publish_batch(batch, at, left, whole))
    lines = _checked_lines(request, options)
    return _in_slices(app, topic, lambda at, left: topic.publish_lines(lines, at, whole))


def _is_binary(app: App, arguments: dict[bytes, bytes]) -> bool:
    value = arguments.get(b"binary")
    if value is None:
        return False
    binary = BOOLEANS.get(value)
    if binary is None:
        app.log.warn("deprecated value '%s' used for /mpub binary param", value.decode("latin-1"))
        return True
    return binary


def _checked_batch(request: Request, options: Options) -> bytes:
    """A binary body whose messages are all complete and not too long."""
    count = check(request.body, options.message_limit, options.max_body_size)
    if count < 0:
        raise ApiError(413, "BAD_BODY" if count == -1 else "BAD_MESSAGE")
    if len(request.body) > options.max_body_size:
        raise ApiError(413, "BODY_TOO_BIG")
    return bytes(request.body)


def _checked_lines(request: Request, options: Options) -> bytes:
    """A text body with no line that is too long."""
    body = bytes(request.body)
    # nsqd reads line by line. So a line that is too long is found before the end of the body; the limit on the body is
    # found before the length of the last line, which only the end of the body ends.
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


def _in_slices(app: App, topic: Topic, publish: _PublishSlice) -> str | Awaitable[str]:
    """Publishes many messages: as many as fit into a slice at once, the rest in later slices."""
    failure, at, left = publish(0, -1)
    if left == 0 or failure > 0:
        return accepted(topic, failure)
    return _rest(app, topic, publish, [_written(topic)] if failure == PENDING else [], at, left)


async def _rest(app: App, topic: Topic, publish: _PublishSlice, writes: list[asyncio.Future[int]], at: int,
                left: int) -> str:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    failure = 0

    def next_slice() -> bool:
        """Whether another slice should follow in this or the next iteration."""
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
            topic.when_written(lambda _: app.broker.slicer.call(next_slice))
            return False
        done.set_result(None)
        return False

    app.broker.slicer.call(next_slice)
    await done
    # If the last slice is pending, its result is among the writes.
    return _settled(topic, max(0, failure, *await asyncio.gather(*writes)))
