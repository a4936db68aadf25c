"""The futures of Producer.send(). Imported by the first send(): concurrent.futures is slow to import."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING

from nsqc.client.errors import Closed
from nsqc.client.log import Log

log = Log("nsqc.client")


class Sent(Future[None]):
    """A concurrent.futures.Future that cannot be cancelled, as its message may be in transit. All futures of a producer
    share one condition, which halves the time of send() and of the outcomes."""

    def __init__(self, condition: threading.Condition):
        # As of Future.__init__, whose own condition would be the most expensive part.
        self._condition = condition
        self._state = RUNNING
        self._result = self._exception = None
        self._waiters = []
        self._done_callbacks: list[Callable[[Future[None]], object]] = []

    def _invoke_callbacks(self) -> None:
        """Logs whatever a callback raises: the other messages need their outcomes."""
        for callback in self._done_callbacks:
            try:
                callback(self)
            except BaseException as error:
                log.log(logging.ERROR, "a callback of a message has raised", exc_info=error)

    def forked(self) -> None:
        """In a forked child: whoever waits gets an error. Callbacks are the parent's."""
        if self._state != FINISHED:
            self._state, self._exception = FINISHED, Closed("the message was sent before a fork: only the parent knows "
                                                            "its outcome")

    @staticmethod
    def finish(condition: threading.Condition, futures: Iterable[Sent]) -> None:
        """set_result(None) for all of them, which share this condition."""
        with condition:
            for future in futures:
                future._state = FINISHED
                for waiter in future._waiters:
                    waiter.add_result(future)
            condition.notify_all()
        for future in futures:
            if future._done_callbacks:
                future._invoke_callbacks()
