"""Requests to answers, in the order of the requests.

An answer that has to wait (a pause that goes to disk first, a profile), or a client that does not read its answers,
blocks the connection: requests that have already arrived are queued, and at most one more read is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Protocol, cast

from nsqc.httpd.app import App, ServerState
from nsqc.httpd.publish import refusal
from nsqc.httpd.reply import ApiError, Reply, v1_error
from nsqc.httpd.request import Request
from nsqc.httpd.streaming import Feeder, Stream
from nsqc.httpd.writer import Writer

if TYPE_CHECKING:
    import asyncio

    from nsqc.broker.topic import Topic


class Source(Protocol):
    """The connection that requests come from."""

    def unblocked(self) -> None:
        """Everything queued is answered: input may be taken again, or the connection end."""


class Pipeline:
    """Calls handlers one at a time and sends what they return."""

    __slots__ = ("_app", "_broker", "_commit", "_dates", "_feeder", "_queue", "_request", "_source", "_state",
                 "_write_paused", "blocked", "closing", "ended", "unread", "writer")

    def __init__(self, app: App, state: ServerState, writer: Writer, source: Source) -> None:
        self.writer = writer
        self.blocked = False                    # an answer waits, or the client does not read
        self.closing = False                    # takes no more requests, ends behind the answers that are due
        self.ended = False                      # the last answer has been sent
        self.unread = False                     # closing before the client has sent everything
        self._app = app
        self._broker = app.broker
        self._dates = app.dates
        self._state = state
        self._source = source
        self._write_paused = False
        self._request: Request | None = None    # its handler waits
        self._feeder: Feeder | None = None      # the body of its answer is being sent
        self._commit = False                    # a plain publish waits to be written
        self._queue: deque[Request | bytes] = deque()

    # ------------------------------------------------------------------ requests

    def publish(self, name: bytes, body: bytes) -> None:
        """Publishes one message and answers: all of a plain publish, however it was recognised."""
        try:
            topic = self._broker.topic(name) or self._broker.get_topic(name)
            failure = topic.publish(body)
        except Exception as error:
            self._send(self._failed(v1_error, error))
            return
        if failure < 0:
            self._await_commit(topic)
        else:
            self._answer_publish(topic, failure)

    def handle(self, request: Request) -> None:
        """Answers a request, or queues it."""
        if self.blocked:
            self._queue.append(request)
            return
        route = request.route
        try:
            data = route.handler(self._app, request)
            if hasattr(data, "__await__"):
                # One more read may come, or nobody would notice that the client has left.
                self._request = request
                self.blocked = True
                task = self._state.loop.create_task(cast("Coroutine[object, object, object]", data))
                task.add_done_callback(self._handled)
                return
            reply = data if isinstance(data, Reply) else route.reply(data)
        except Exception as error:
            reply = self._failed(route.error, error)
        self._finish(request, reply)

    def interim(self, line: bytes) -> None:
        """Sends a line that precedes an answer, in its turn."""
        if self.blocked:
            self._queue.append(line)
        else:
            self.writer.out.append(line)

    def is_busy(self) -> bool:
        """Whether an answer is due."""
        return self._commit or self._request is not None or bool(self._queue)

    def drop(self) -> None:
        """Notifies a handler that is still waiting that nobody wants its answer any more."""
        if self._request is not None and self._request.dropped is not None:
            self._request.dropped()

    # ------------------------------------------------------------------ flow

    def pause(self) -> None:
        """The client does not read its answers: nothing more is read from it."""
        self._write_paused = self.blocked = True
        if self._feeder is not None:
            self._feeder.paused = True

    def resume(self) -> None:
        """The client reads again."""
        self._write_paused = False
        if self._feeder is not None:
            self._feeder.resume()
        elif self._request is None and not self._commit:
            self._unblock()

    def end(self) -> None:
        """Closes the connection behind the last answer."""
        self.closing = self.ended = True
        self._queue.clear()
        self.writer.end(self.unread)

    def abandon(self) -> None:
        """The connection is gone. What handlers are doing they still finish."""
        self.closing = self.ended = True
        self._queue.clear()
        self.drop()
        if self._feeder is not None:
            self._feeder.stop()
            self._feeder = None
        self._request = None
        self._commit = False

    def _unblock(self) -> None:
        self.blocked = False
        while self._queue and not self.blocked:
            item = self._queue.popleft()
            if isinstance(item, bytes):
                self.writer.out.append(item)
            else:
                self.handle(item)
        self.writer.flush()
        self._source.unblocked()

    # ------------------------------------------------------------------ answers

    def _answer_publish(self, topic: Topic, failure: int) -> None:
        if failure:
            self._send(v1_error(503, refusal(failure, topic)))
            return
        dates = self._dates
        if monotonic() >= dates.until:
            dates.refresh()
        self.writer.out.append(dates.published)

    def _await_commit(self, topic: Topic) -> None:
        """A plain publish is answered once it is written; what follows it waits."""
        self.writer.flush()
        self._commit = True
        self.blocked = True
        topic.when_written(partial(self._committed, topic))

    def _committed(self, topic: Topic, failure: int) -> None:
        if not self._commit:
            return  # the client has left
        self._commit = False
        self._answer_publish(topic, failure)
        if self._write_paused or self.ended:
            self.writer.flush()
        else:
            self._unblock()

    def _handled(self, task: asyncio.Task[object]) -> None:
        """A handler that had to wait has finished."""
        request = self._request
        if request is None:
            # The client has left. The work is done; a failure is still worth a line.
            if not task.cancelled() and (lost := task.exception()) is not None:
                self._failed(v1_error, lost)
            return
        self._request = None
        try:
            data = task.result()
            reply = data if isinstance(data, Reply) else request.route.reply(data)
        except Exception as error:
            reply = self._failed(request.route.error, error)
        self._finish(request, reply)
        if self._feeder is None and not self._write_paused:
            self._unblock()

    def _fed(self, task: asyncio.Task[None]) -> None:
        """A body that was sent piece by piece has been sent, or cannot be."""
        error = None if task.cancelled() else task.exception()
        request = self._request
        if error is not None:
            self._app.log.error("cannot send the rest of an answer - %s", error)
        if request is None:
            return  # the client has left
        self._request = self._feeder = None
        if error is not None:
            # The client sees that less has come than was announced.
            self.closing = self.ended = True
            self.writer.transport.abort()
            return
        if not request.keep_alive:
            self.end()
        if not self._write_paused:
            self._unblock()

    def _failed(self, form: Callable[[int, str], Reply], error: BaseException) -> Reply:
        """The answer to an exception. A refusal of the system, such as no file for a new topic, is named."""
        if isinstance(error, ApiError):
            return form(error.status, error.text)
        self._app.log.error("panic in HTTP handler - %r", error)
        if isinstance(error, OSError) and error.errno:
            return form(503, refusal(error.errno))
        return v1_error(500, "INTERNAL_ERROR")

    def _finish(self, request: Request, reply: Reply) -> None:
        if request.route.logged:
            self._app.log_request(request, reply.status)
        stays = request.keep_alive and not self._state.closing
        head = request.method == b"HEAD"
        data = reply.render(self._app.date(), http10=request.http10, close=not stays and not request.http10,
                            keep=stays and request.http10, head=head)
        if reply.stream is not None and not head and not self.writer.transport.is_closing():
            request.keep_alive = stays
            self._feed(request, data, reply.stream)
            return
        self.writer.add(data, [] if head else reply.parts)
        if not stays:
            self.end()

    def _feed(self, request: Request, head: bytes, stream: Stream) -> None:
        """Begins to send an answer whose body comes piece by piece; what follows it waits."""
        self.blocked = True
        self._request = request
        request.dropped = None
        self._feeder = Feeder(self._app.readers, self.writer.transport, self._state.tls, stream)
        self._feeder.paused = self._write_paused
        self.writer.add(head, [])
        self.writer.flush()
        self._state.loop.create_task(self._feeder.run()).add_done_callback(self._fed)

    def _send(self, reply: Reply) -> None:
        """Sends an answer to a plain publish: in HTTP/1.1, on a connection that stays open."""
        self.writer.add(reply.render(self._app.date()), reply.parts)
