"""/pub and /mpub. The order of checks, visible to clients, is nsqd's: size, body, topic, the rest.

A body above the limit is cut one byte after it, enough to recognise it as too long.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from nsqc.broker import refusals
from nsqc.broker import topic as room
from nsqc.broker.refusals import INVALID, LimitReached, QuotaReached, of_exception
from nsqc.broker.topic import DRAINING, FULL, NO_SPACE, PENDING, RUNNING, TAKEN, OpenBatch, Topic
from nsqc.httpd.pipeline import Pipeline, Writer
from nsqc.httpd.reply import BOOLEANS, ApiError, Handler, Reply, Request, boolean_in, read_arguments, refusal, v1_error
from nsqc.loop.slow import promise
from nsqc.net.listener import Pace
from nsqc.options.declared import Options
from nsqc.wire.parser import check, has_long_line, is_valid_name

if TYPE_CHECKING:
    from nsqc.httpd.app import App
    from nsqc.httpd.connection import Connection
    from nsqc.httpd.site import ServerState
    from nsqc.store.work import Slicer


# ====================================================================== publish

_Publish = Callable[[], int]                            # returns as Topic.publish()
_Answer = Callable[[int], "str | Awaitable[str]"]       # to such a result

_INTEGER = re.compile(rb"([+-]?)0*([0-9]{1,19})")
_REFUSED_BY_TOPIC = 503
_INT64 = range(-1 << 63, 1 << 63)

_WRITING = (PENDING, RUNNING)  # results that a commit decides
_ID = re.compile(rb"[!-~]{1,64}")  # X-NSQ-Publish-Id


def named_topic(app: App, request: Request, arguments: dict[bytes, bytes]) -> Topic:
    """The request's topic, created if missing."""
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
    """The topic to publish to, unless the daemon is draining. Names are checked first."""
    if app.broker.draining and is_valid_name(arguments.get(b"topic", b"")):
        app.broker.refused(refusals.DRAINING)
        raise ApiError(503, _draining())
    return named_topic(app, request, arguments)


def _draining() -> str:
    return f"FAILED - {refusals.fenced}" if refusals.fenced else "DRAINING"


def _answer(topic: Topic, failure: int) -> str | Awaitable[str]:
    """OK, or a refusal; an awaitable of either while the message is being written."""
    if failure in _WRITING:
        return _after_write(topic, written(topic, failure))
    return _settled(topic, failure)


def _settled(topic: Topic, failure: int) -> str:
    if failure:
        raise ApiError(503, topic_refusal(failure, topic))
    return "OK"


def written(topic: Topic, failure: int = PENDING) -> asyncio.Future[int]:
    """0 or errno, once the last publishes are written. Call it at once: a commit does not wait. failure: PENDING or
    RUNNING."""
    future, settle = promise()
    (topic.when_written if failure == PENDING else topic.when_running_written)(settle)
    return future


async def _after_write(topic: Topic, result: asyncio.Future[int]) -> str:
    return _settled(topic, await result)


def topic_refusal(failure: int, topic: Topic) -> str:
    """The text of a 503 for an errno, NO_SPACE, FULL or DRAINING of a topic, which counts it."""
    topic.refused(failure)
    if failure == DRAINING:
        return _draining()
    if failure == refusals.NOT_SHIPPED:
        return f"FAILED - {refusals.not_shipped}"
    return f"FAILED - {topic.refusal(failure)}" if failure in (NO_SPACE, FULL) else refusal(failure)


def counted(handler: Handler) -> Handler:
    """Has a handler count publishes that it refuses before they reach a topic."""

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


def pub(app: App, request: Request) -> str | Awaitable[str | Named]:
    """Publishes one message: the body."""
    options = app.settings.now
    if request.length > options.message_limit or len(request.body) > options.message_limit:
        raise ApiError(413, "MSG_TOO_BIG")
    if request.broken:
        raise ApiError(500, "INTERNAL_ERROR")
    if not request.body:
        raise ApiError(400, "MSG_EMPTY")
    arguments = read_arguments(app.log, request)
    topic = _open_topic(app, request, arguments)
    defer_ms = _defer_ms(arguments, options.max_req_timeout)
    publish = partial(topic.publish, request.body, defer_ms, _publish_id(request))
    wait = _wait_of(request, topic, options)
    if boolean_in(arguments, b"id"):
        return _named(app, topic, wait, publish)
    return _published(app, wait, publish, partial(_answer, topic))


def _published(app: App, wait: Wait, publish: _Publish, answer: _Answer) -> str | Awaitable[str]:
    """The answer to a publish, now or after a wait."""
    failure = publish()
    if failure == TAKEN or wait.helps(failure):
        return _published_later(app, wait, publish, answer)
    return answer(failure)


async def _published_later(app: App, wait: Wait, publish: _Publish, answer: _Answer) -> str:
    data = answer(await _outcome(app, wait, publish))
    return data if isinstance(data, str) else await data


async def _outcome(app: App, wait: Wait, publish: _Publish) -> int:
    """The result of a publish that waits for room, or for another client's publish with the same id."""
    failure = publish()
    while failure == TAKEN or wait.helps(failure):
        await (_next_slice(app.broker.slicer) if failure == TAKEN else wait.room())
        failure = publish()
    return failure


class Named(msgspec.Struct, frozen=True, gc=False):
    """The id of a message, for cancelling it; None: a duplicate, not stored again."""

    id: str | None


async def _named(app: App, topic: Topic, wait: Wait, publish: _Publish) -> Named:
    """Publishes a message; returns its id."""
    before = 0

    def attempt() -> int:
        nonlocal before
        before = topic.message_count
        return publish()

    failure = await _outcome(app, wait, attempt)
    names: list[bytes | None] = [None]
    result = None
    if topic.message_count == before:
        result = written(topic, failure) if failure in _WRITING else None
    elif not topic.in_log:
        names = [topic.last_id()]
        result = written(topic) if failure == PENDING else None
    else:
        result = _named_when_written(topic, topic.last_index(), names)
    _settled(topic, failure if result is None else await result)
    return Named(None if names[0] is None else names[0].decode())


def _named_when_written(topic: Topic, index: int, names: list[bytes | None]) -> asyncio.Future[int]:
    """0 or errno, once the last publishes to a log are written; appends the id of one of them to names. Looks it up at
    once: the next write replaces it."""
    future, settle = promise()

    def look_up(failure: int) -> None:
        names[0] = topic.log.id_written(index) if failure == 0 and topic.log is not None else None
        settle(failure)

    topic.when_written(look_up)
    return future


async def _next_slice(slicer: Slicer) -> None:
    begun, settle = promise()
    slicer.call(settle)
    await begun


def _publish_id(request: Request) -> bytes | None:
    """The client's id for a publish, if any."""
    if request.publish_id is not None and not _ID.fullmatch(request.publish_id):
        raise ApiError(400, "INVALID_PUBLISH_ID")
    return request.publish_id


def _defer_ms(arguments: dict[bytes, bytes], limit_ns: int) -> int:
    """Delay of the messages in milliseconds, at most limit_ns (nanoseconds)."""
    text = arguments.get(b"defer")
    if text is None:
        return 0
    match = _INTEGER.fullmatch(text)
    value = int(match[1] + match[2]) if match else -1
    if value not in _INT64 or value < 0 or value * 1_000_000 > limit_ns:
        raise ApiError(400, "INVALID_DEFER")
    return value


def mpub(app: App, request: Request) -> str | Awaitable[str]:
    """Many messages, one per line, or, with `binary`, in the format of the TCP command."""
    options = app.settings.now
    if request.length > options.max_body_size:
        raise ApiError(413, "BODY_TOO_BIG")
    arguments = read_arguments(app.log, request)
    topic = _open_topic(app, request, arguments)
    defer_ms = _defer_ms(arguments, options.max_req_timeout)
    publish_id = _publish_id(request)
    batch = (_checked_batch(request, options, defer_ms) if _is_binary(app, arguments)
             else OpenBatch.lines(_checked_lines(request, options), defer_ms))
    if publish_id is not None:
        topic.set_id(batch, publish_id)
    wait = _wait_of(request, topic, options)
    return _published(app, wait, partial(topic.publish_batch, batch), partial(_with_rest, app, topic, batch))


def _is_binary(app: App, arguments: dict[bytes, bytes]) -> bool:
    value = arguments.get(b"binary")
    if value is None:
        return False
    binary = BOOLEANS.get(value)
    if binary is None:
        app.log.warn("deprecated value '%s' used for /mpub binary param", value.decode("latin-1"))
        return True
    return binary


def _checked_batch(request: Request, options: Options, defer_ms: int) -> OpenBatch:
    """A binary body, if all its messages are complete and within the size limit."""
    end = check(request.body, options.message_limit, options.max_body_size)
    if end < 0:
        raise ApiError(413, "BAD_BODY" if end == -1 else "BAD_MESSAGE")
    if len(request.body) > options.max_body_size:
        raise ApiError(413, "BODY_TOO_BIG")
    return OpenBatch.sized(bytes(request.body), end, defer_ms)


def _checked_lines(request: Request, options: Options) -> bytes:
    """A text body, if all its lines are within the size limit."""
    body = bytes(request.body)
    # nsqd reads line by line. So a line that is too long is detected before the end of the body. The limit on the body
    # is detected before the length of the last line, since only the end of the body ends that.
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


def _with_rest(app: App, topic: Topic, batch: OpenBatch, failure: int) -> str | Awaitable[str]:
    if batch.open:
        return _rest(app, topic, batch, [written(topic)] if failure == PENDING else [])
    return _answer(topic, failure)


async def _rest(app: App, topic: Topic, batch: OpenBatch, writes: list[asyncio.Future[int]]) -> str:
    """Publishes the rest of a batch in later slices."""
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def next_slice() -> bool:
        """Whether another slice should follow in this or the next iteration."""
        try:
            failure = topic.publish_batch(batch)
            if failure in _WRITING:
                writes.append(written(topic, failure))
        except Exception as error:
            topic.drop_batch(batch)
            done.set_exception(error)
            return False
        if not batch.open:
            done.set_result(max(0, failure))    # the writes have their own results
            return False
        if not topic.full:
            return True
        topic.when_written(lambda _: app.broker.slicer.call(next_slice))
        return False

    app.broker.slicer.call(next_slice)
    return _settled(topic, max(await done, *await asyncio.gather(*writes), 0))


# ---------------------------------------------------------------------- --publish-wait

class Wait:
    """The wait of one publish, until it succeeds, fails for another reason, or times out."""

    def __init__(self, topic: Topic | None, wait_ns: int) -> None:
        """wait_ns: --publish-wait."""
        self._topic = topic
        self._until_ns = time.monotonic_ns() + wait_ns
        self._wake: Callable[..., None] = lambda: None

    def helps(self, failure: int) -> bool:
        """Whether to retry the publish that just failed, after room()."""
        return (failure in (FULL, NO_SPACE) and self._topic is not None and room.helps(self._topic, failure == FULL)
                and time.monotonic_ns() < self._until_ns)

    async def room(self) -> None:
        """Waits until there may be room for the last refused publish. Call it right after that refusal."""
        assert self._topic is not None
        woken, self._wake = promise()
        waiting = room.Room(self._topic, self._until_ns, self._wake)
        try:
            await woken
        finally:
            waiting.leave()

    def give_up(self) -> None:
        """The client has left, or the daemon is stopping: the next attempt is the last."""
        self._topic = None
        self._wake()


_NO_WAIT = Wait(None, 0)


def _wait_of(request: Request, topic: Topic, options: Options) -> Wait:
    if options.publish_wait == 0:
        return _NO_WAIT
    wait = Wait(topic, options.publish_wait)
    request.when_dropped(wait.give_up)
    return wait


# ====================================================================== publishing
# The hot path of a daemon's HTTP API: plain publishes, answered in the order of all requests.

class PublishPipeline(Pipeline):
    """A pipeline with a fast path for plain publishes, and a rate limit for clients that create topics and channels."""

    __slots__ = ("_broker", "_dates", "_pace", "_settings")

    def __init__(self, app: App, state: ServerState, writer: Writer, connection: Connection) -> None:
        super().__init__(app, state, writer, connection)
        self._broker = app.broker
        self._dates = app.dates
        self._settings = app.settings
        self._pace: Pace | None = None      # None: nothing created yet

    def publish(self, name: bytes, body: bytes) -> bool:
        """The fast path of nsqc.httpd.publish.pub(), for existing topics; declines a publish that may wait for room."""
        topic = self._broker.topic(name)
        if topic is None:
            return False
        failure = topic.publish(body)
        if failure < 0:
            self._await_commit(topic)
        elif failure and self._settings.now.publish_wait:
            return False
        else:
            self._answer_publish(topic, failure)
        return True

    def _answer_publish(self, topic: Topic, failure: int) -> None:
        if failure:
            reply = v1_error(503, topic_refusal(failure, topic))
            self.writer.add(reply.render(self._app.date()), reply.parts)
            return
        dates = self._dates
        if monotonic() >= dates.until:
            dates.refresh()
        self.writer.out.append(dates.published)

    def _await_commit(self, topic: Topic) -> None:
        """Answers a plain publish once it is written; later requests wait."""
        self.writer.flush()
        self._commit = True
        self.blocked = True
        topic.when_written(partial(self._committed, topic))

    def _committed(self, topic: Topic, failure: int) -> None:
        if not self._commit:
            return  # the client has left
        self._commit = False
        self._answer_publish(topic, failure)
        if self._waits() or self.ended:
            self.writer.flush()
        else:
            self._unblock()

    def _finish(self, request: Request, reply: Reply) -> None:
        super()._finish(request, reply)
        if request.made and not self.ended:
            self._spend(request.made)

    def _spend(self, made: int) -> None:
        """Makes the client wait if it creates topics and channels faster than permitted."""
        if self._pace is None:
            self._pace = Pace()
        seconds = self._pace.spend(made, self._settings.now.max_create_rate, monotonic())
        if seconds > 0:
            self._broker.creations_delayed += 1
            self.pace(seconds)

    def _failed(self, form: Callable[[int, str], Reply], error: BaseException) -> Reply:
        return form(503, f"FAILED - {error}") if isinstance(error, LimitReached) else super()._failed(form, error)
