"""Runs a handler for each message of a channel: in threads, with retries, a channel-wide slowdown, and a graceful
stop."""

from __future__ import annotations

import logging
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Unpack

from nsqc.client.connection import Waker
from nsqc.client.consumer import Consumer
from nsqc.client.errors import HandlerTimeout
from nsqc.client.frames import Message
from nsqc.client.handling import (
    WATCH_SECONDS,
    AllOptions,
    H,
    Handler,
    Handling,
    Run,
    Watch,
    WorkerStats,
    completed,
    is_coroutine,
    split,
)

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
        self._handling = Handling(topic, channel, own, self.stop, self._expired)
        self._consumer = Consumer(topic, channel, nsqd, touch_limit=own.touch_limit, **consuming)
        self._consumer.serve_at_least(own.concurrency * (own.batch or 1))
        self._handler = handler
        self._has_run = False
        self._turn = threading.Lock()           # held by the thread that waits for the next message
        self._changed = threading.Condition()   # protects counts and slowdown
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self._started = 0
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
        if is_coroutine(self._handler):
            raise TypeError("the handler is a coroutine function, which this worker cannot await: use "
                            "nsqc.client.aio.Worker")
        if self._has_run:
            raise RuntimeError("a worker runs once: create another one")
        self._has_run = True
        self._waker = Waker()
        before = self._catch_signals()
        options = self._handling.options
        watch = Watch(self._handling)
        try:
            for _ in range(options.concurrency):
                self._start(self._work)
            self._handling.say(logging.INFO, "working, %d at a time", options.concurrency)
            self._supervise(self._waker)
            self._restore_signals(before)
            self._wind_down()
        finally:
            self._restore_signals(before)
            self._stopping = True
            watch.end()
            self._consumer.close()
        self._handling.say(logging.INFO, "stopped")
        if self._handling.error is not None:
            raise self._handling.error

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
                self._consumer.throttle(limit, limit is not None)
            select.select([waker], [], [], pause or None)
            waker.calm()

    def _wind_down(self) -> None:
        """Takes no more messages, and waits for the handlers that are not stuck."""
        with self._changed:
            self._changed.notify_all()
        self._consumer.hand_back()
        handling = self._handling
        if handling.running:
            handling.say(logging.INFO, "stopping, handlers at work: %d", handling.running)
        deadline = time.monotonic() + handling.options.stop_timeout
        for thread in list(self._threads):
            while handling.is_needed(thread.ident) and thread.is_alive() and time.monotonic() < deadline:
                thread.join(min(max(deadline - time.monotonic(), 0), WATCH_SECONDS))
        if handling.running:
            handling.say(logging.ERROR, "handlers still at work after %g s: %d; their messages are requeued",
                         handling.options.stop_timeout, handling.running)

    # ------------------------------------------------------------------ the threads

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        self._started += 1
        thread = threading.Thread(target=target, args=arguments, name=f"nsqc worker {self._started}", daemon=True)
        thread.start()
        self._threads = [*(other for other in self._threads if other.is_alive()), thread]

    def _work(self) -> None:
        try:
            while (run := self._next()) is not None:
                run.thread = threading.get_ident()
                try:
                    assert self._handler is not None
                    self._ended(completed(self._handling.handle(run, self._handler, call)))
                finally:
                    goes_on = self._handling.end(run)
                if not goes_on:
                    return
        except BaseException as error:      # any exception: run() raises it
            self._handling.error = self._handling.error or error
        self.stop()     # also if the handler has closed the worker

    def _next(self) -> Run | None:
        """The next call of the handler; None when the worker stops."""
        with self._turn:
            messages = [] if self._stopping else self._gathered()
            if not messages:
                return None
            with self._changed:
                slowdown = self._handling.slowdown
                while not self._stopping and not slowdown.allows(time.monotonic()):
                    self._changed.wait(slowdown.pause(time.monotonic()) or None)
                if not self._stopping:
                    slowdown.tried()
                    return self._handling.begin(messages)
        for message in messages:
            message.requeue()
        return None

    def _gathered(self) -> list[Message]:
        """A message, or up to a batch; none when the worker stops."""
        first = self._consumer.get()
        if first is None:
            return []
        messages, options = [first], self._handling.options
        until = time.monotonic() + options.batch_timeout
        while len(messages) < (options.batch or 1):
            message = self._consumer.get(max(until - time.monotonic(), 0))
            if message is None:
                break
            messages.append(message)
        return messages

    def _expired(self, run: Run, error: HandlerTimeout) -> None:
        """A thread is stuck."""
        self._start(self._replace, run, error)

    def _replace(self, run: Run, error: HandlerTimeout) -> None:
        try:
            self._ended(completed(self._handling.fail(run, error, call)))
        except BaseException as failure:    # of on_give_up: it ends the worker
            self._handling.error = self._handling.error or failure
            self.stop()
        if run.is_replaced:
            self._work()

    def _ended(self, succeeded: bool | None) -> None:
        with self._changed:
            changed = self._handling.paced(succeeded)
            self._changed.notify_all()
        if changed:
            self._wake()

    def _wake(self) -> None:
        if self._waker is not None:
            self._waker.wake()


async def call(function: Callable[..., object], *arguments: object) -> None:
    """Calls a function of the application, without waiting for anything else."""
    function(*arguments)
