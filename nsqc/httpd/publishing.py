"""Plain publishes in the order of all requests: the hot path of a daemon's HTTP API."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from nsqc.broker.refusals import DRAINING, LimitReached, of_exception
from nsqc.httpd.pipeline import Pipeline, Source
from nsqc.httpd.publish import REFUSED, outcome, topic_refusal
from nsqc.httpd.publishwait import Wait
from nsqc.httpd.reply import ApiError, Reply, v1_error
from nsqc.httpd.writer import Writer
from nsqc.net.pace import Pace

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from nsqc.broker.topic import Topic
    from nsqc.httpd.app import App
    from nsqc.httpd.request import Request
    from nsqc.httpd.site import ServerState


class PublishPipeline(Pipeline):
    """A pipeline that publishes, too."""

    __slots__ = ("_broker", "_dates", "_pace", "_settings", "_wait")

    def __init__(self, app: App, state: ServerState, writer: Writer, source: Source) -> None:
        super().__init__(app, state, writer, source)
        self._broker = app.broker
        self._dates = app.dates
        self._settings = app.settings
        self._pace: Pace | None = None      # None: nothing created yet
        self._wait: Wait | None = None      # for a plain publish that waits for room

    def publish(self, name: bytes, body: bytes) -> None:
        """Handles a plain publish, however it was recognised: publishes the message and answers."""
        try:
            topic = self._broker.topic(name) or self._new_topic(name)
            failure = topic.publish(body)
        except Exception as error:
            self._broker.refused(DRAINING if self._broker.draining else of_exception(error))
            self._send(self._failed(v1_error, error))
            return
        if failure < 0:
            self._await_commit(topic)
        elif failure and self._settings.now.publish_wait and self._await_room(topic, body, failure):
            return
        else:
            self._answer_publish(topic, failure)

    def _new_topic(self, name: bytes) -> Topic:
        if self._broker.draining:
            raise ApiError(503, REFUSED)
        self._spend(1)
        return self._broker.get_topic(name)

    def _spend(self, made: int) -> None:
        """Makes the client wait if it creates topics and channels faster than permitted."""
        if self._pace is None:
            self._pace = Pace()
        seconds = self._pace.spend(made, self._settings.now.max_create_rate, monotonic())
        if seconds > 0:
            self._broker.creations_delayed += 1
            self.pace(seconds)

    def _finish(self, request: Request, reply: Reply) -> None:
        super()._finish(request, reply)
        if request.made and not self.ended:
            self._spend(request.made)

    def _failed(self, form: Callable[[int, str], Reply], error: BaseException) -> Reply:
        return form(503, f"FAILED - {error}") if isinstance(error, LimitReached) else super()._failed(form, error)

    def _answer_publish(self, topic: Topic, failure: int) -> None:
        if failure:
            self._send(v1_error(503, topic_refusal(failure, topic)))
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

    def _await_room(self, topic: Topic, body: bytes, failure: int) -> bool:
        """Whether a refused plain publish will be retried, and answered, later."""
        wait = Wait(topic, self._settings.now.publish_wait)
        if not wait.helps(failure):
            return False
        self.writer.flush()
        self._wait, self._commit, self.blocked = wait, True, True
        work = outcome(self._broker.slicer, topic, wait, partial(topic.publish, body))
        self._state.loop.create_task(work).add_done_callback(partial(self._room_awaited, topic))
        return True

    def _room_awaited(self, topic: Topic, task: asyncio.Task[int]) -> None:
        self._committed(topic, task.result())

    def drop(self) -> None:
        super().drop()
        if self._wait is not None:
            self._wait.give_up()

    def _committed(self, topic: Topic, failure: int) -> None:
        self._wait = None
        if not self._commit:
            return  # the client has left
        self._commit = False
        self._answer_publish(topic, failure)
        if self._waits() or self.ended:
            self.writer.flush()
        else:
            self._unblock()

    def _send(self, reply: Reply) -> None:
        """Answers a plain publish: in HTTP/1.1, on a connection that stays open."""
        self.writer.add(reply.render(self._app.date()), reply.parts)
