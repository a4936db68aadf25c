"""The hot path of a daemon's HTTP API: plain publishes, answered in the order of all requests."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from nsqc.broker.refusals import LimitReached
from nsqc.httpd.pipeline import Pipeline
from nsqc.httpd.publish import topic_refusal
from nsqc.httpd.reply import Reply, v1_error
from nsqc.httpd.writer import Writer
from nsqc.net.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from nsqc.broker.topic import Topic
    from nsqc.httpd.app import App
    from nsqc.httpd.connection import Connection
    from nsqc.httpd.request import Request
    from nsqc.httpd.site import ServerState


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
