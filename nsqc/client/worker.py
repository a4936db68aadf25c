"""Runs a handler for each message of a channel: in threads, with retries, a channel-wide slowdown, and a graceful
stop."""

from __future__ import annotations

import logging
import select
import signal
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from types import FrameType
from typing import Any, Unpack

from nsqc.client.connection import Waker
from nsqc.client.consumer import Consumer
from nsqc.client.frames import Message
from nsqc.client.handling import ENDS, AllOptions, GiveUp, H, Handler, Handling, WorkerStats, includes, split

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Calls a handler with each message; if it returns, the message is finished, if it raises, requeued.
    KeyboardInterrupt and SystemExit, also in a group of exceptions, requeue the message and end the worker.

    handler: given here, or by using the worker as a decorator. concurrency: threads that run it. All other options:
    nsqc.client.handling.WorkerOptions, and those of a Consumer; max_in_flight=None means one message per thread, and at
    least one per connection. run() works until stop(), SIGTERM or SIGINT. Raises BadName, BadAddress, ValueError,
    TypeError.
    """

    def __init__(self, topic: str, channel: str, nsqd: str | Iterable[str] = (), *, handler: Handler | None = None,
                 **options: Unpack[AllOptions]):
        own, consuming = split(options)
        self._handling = Handling(topic, channel, own)
        self._consumer = Consumer(topic, channel, nsqd, touch_limit=own.touch_limit, **consuming)
        self._consumer.serve_at_least(own.concurrency)
        self._handler = handler
        self._has_run = False
        self._turn = threading.Lock()           # held by the thread that waits for the next message
        self._changed = threading.Condition()   # protects counts and slowdown
        self._stopping = False
        self._error: BaseException | None = None    # ended a thread
        # Of the thread of run(), created there: a forked child must not share it. Signal handlers may use nothing else.
        self._waker: Waker | None = None

    def __call__(self, handler: H) -> H:
        """Sets the handler: @worker."""
        self._handler = handler
        return handler

    # ------------------------------------------------------------------ running

    def run(self) -> None:
        """Handles messages until stop(), or in the main thread SIGTERM or SIGINT; then waits for running handlers,
        requeues all other messages at once, and closes. A second signal does not wait. Raises as Consumer.get(), and a
        handler's KeyboardInterrupt or SystemExit."""
        if self._handler is None:
            raise TypeError("the worker has no handler: pass one, or use the worker as a decorator")
        if self._has_run:
            raise RuntimeError("a worker runs once: create another one")
        self._has_run = True
        self._waker = Waker()
        before = self._catch_signals()
        options = self._handling.options
        threads = [threading.Thread(target=self._work, name=f"nsqc worker {number}", daemon=True)
                   for number in range(options.concurrency)]
        try:
            for thread in threads:
                thread.start()
            self._handling.say(logging.INFO, "working, %d at a time", options.concurrency)
            self._supervise(self._waker)
            self._restore_signals(before)
            self._wind_down(threads)
        finally:
            self._restore_signals(before)
            self._stopping = True
            self._consumer.close()
        self._handling.say(logging.INFO, "stopped")
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Ends run(). For any thread, and for signal handlers."""
        self._stopping = True
        self._wake()

    def stats(self) -> WorkerStats:
        """Counters so far."""
        return self._handling.stats(self._consumer.stats())

    def close(self) -> None:
        """Closes a worker that is not running; ends one that is."""
        self.stop()
        self._consumer.close()

    def _catch_signals(self) -> dict[int, Any]:    # Any: as of signal.signal()
        if threading.current_thread() is not threading.main_thread():
            return {}

        def stop(number: int, frame: FrameType | None) -> None:
            self.stop()
        return {number: signal.signal(number, stop) for number in STOP_SIGNALS}

    @staticmethod
    def _restore_signals(before: dict[int, Any]) -> None:   # Any: as above
        while before:
            number, action = before.popitem()
            signal.signal(number, action)

    def _supervise(self, waker: Waker) -> None:
        """Until stop(): applies the slowdown to the connections."""
        limit: int | None = None
        while not self._stopping:
            with self._changed:
                now = time.monotonic()
                wanted, pause = self._handling.slowdown.limit(now), self._handling.slowdown.pause(now)
                self._changed.notify_all()
            if wanted != limit:
                limit = wanted
                self._consumer.throttle(limit)
            select.select([waker], [], [], pause or None)
            waker.calm()

    def _wind_down(self, threads: list[threading.Thread]) -> None:
        """Takes no more messages, and waits for the handlers."""
        with self._changed:
            self._changed.notify_all()
        self._consumer.hand_back()
        if self._handling.running:
            self._handling.say(logging.INFO, "stopping, handlers at work: %d", self._handling.running)
        deadline = time.monotonic() + self._handling.options.stop_timeout
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        if self._handling.running:
            self._handling.say(logging.ERROR, "handlers still at work after %g s: %d; their messages are requeued",
                               self._handling.options.stop_timeout, self._handling.running)

    # ------------------------------------------------------------------ the threads

    def _work(self) -> None:
        try:
            while (message := self._next()) is not None:
                try:
                    self._handle(message)
                finally:
                    with self._changed:
                        self._handling.running -= 1
        except BaseException as error:      # any exception: run() raises it
            self._error = self._error or error
        self.stop()     # also if the handler has closed the worker

    def _next(self) -> Message | None:
        """The next message; None when the worker stops."""
        with self._turn:
            message = None if self._stopping else self._consumer.get()
            if message is None:
                return None
            with self._changed:
                slowdown = self._handling.slowdown
                while not self._stopping and not slowdown.allows(time.monotonic()):
                    self._changed.wait(slowdown.pause(time.monotonic()) or None)
                if not self._stopping:
                    slowdown.tried()
                    self._handling.running += 1
                    return message
        message.requeue()
        return None

    def _handle(self, message: Message) -> None:
        handling, began = self._handling, time.monotonic()
        try:
            if handling.is_spent(message):
                self._ended(None if self._give_up(message, None, began) else False)
                return
            assert self._handler is not None
            with ExitStack() as surrounding:
                for middleware in handling.options.middlewares:
                    surrounding.enter_context(middleware(message))
                self._handler(message)
        except BaseException as error:
            self._ended(self._failed(message, error, began))
        else:
            handling.finish(message, began)
            self._ended(succeeded=True)

    def _failed(self, message: Message, error: BaseException, began: float) -> bool | None:
        """The handler or a middleware has raised. Returns the argument of Slowdown.ended()."""
        self._raise_end(message, error)
        if not self._handling.gives_up(message, error):
            self._handling.requeue(message, error, began)
            return False
        given_up = self._give_up(message, error, began)
        return None if given_up and includes(error, GiveUp) else False

    def _give_up(self, message: Message, error: BaseException | None, began: float) -> bool:
        """Whether on_give_up has returned; otherwise the message is requeued."""
        try:
            if self._handling.options.on_give_up is not None:
                self._handling.options.on_give_up(message, error)
        except BaseException as failure:
            self._raise_end(message, failure)
            self._handling.requeue(message, failure, began)
            return False
        self._handling.gave_up(message, error, began)
        return True

    def _raise_end(self, message: Message, error: BaseException) -> None:
        """Raises an exception that ends the worker, and requeues its message."""
        if includes(error, ENDS):
            self.stop()     # first: no other thread may take the message again
            message.requeue()
            raise error

    def _ended(self, succeeded: bool | None) -> None:
        with self._changed:
            changed = self._handling.slowdown.ended(succeeded, time.monotonic())
            self._changed.notify_all()
        if changed:
            self._wake()

    def _wake(self) -> None:
        if self._waker is not None:
            self._waker.wake()

