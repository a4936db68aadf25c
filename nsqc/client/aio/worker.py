"""Runs a handler for each message of a channel as tasks of an event loop. Plain functions run in threads, so that they
do not block it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Unpack

from nsqc.client.aio.connection import in_thread
from nsqc.client.aio.consumer import Consumer
from nsqc.client.core import CLOSE_SECONDS
from nsqc.client.errors import HandlerTimeout
from nsqc.client.frames import Message
from nsqc.client.handling import (
    ENDS,
    WATCH_SECONDS,
    AllOptions,
    H,
    Handler,
    Handling,
    Run,
    Watch,
    WorkerStats,
    includes,
    split,
    trace_of_coroutine,
)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Like nsqc.client.Worker, on an event loop: `await worker.run()`. The handler is a coroutine function, or a plain
    function, each call of which runs in a thread. concurrency: messages handled at the same time.

    on_hung: called on another thread when a coroutine has blocked the event loop for longer than handler_timeout. Only
    the end of the process cures that: nsqc worker ends it.

    Raises BadName, BadAddress, ValueError, TypeError.
    """

    def __init__(self, topic: str, channel: str, nsqd: str | Iterable[str] = (), *, handler: Handler | None = None,
                 **options: Unpack[AllOptions]):
        own, consuming = split(options)
        self._handling = Handling(topic, channel, own, self.stop, self._expired)
        self._handling.cancelled = (asyncio.CancelledError,)
        self._consumer = Consumer(topic, channel, nsqd, touch_limit=own.touch_limit, **consuming)
        self._consumer.serve_at_least(own.concurrency * (own.batch or 1))
        self.on_hung: Callable[[], object] = lambda: None
        self._handler = handler
        self._has_run = False
        self._free = asyncio.Semaphore(own.concurrency)
        self._changed = asyncio.Event()     # the slowdown has changed, or the worker stops
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[Run, asyncio.Task[None]] = {}
        self._failing: set[asyncio.Task[None]] = set()      # answer messages of stuck handlers

    def __call__(self, handler: H) -> H:
        """Sets the handler: @worker."""
        self._handler = handler
        return handler

    # ------------------------------------------------------------------ running

    async def run(self) -> None:
        """Handles messages until stop(), or in the main thread SIGTERM or SIGINT; then waits for running handlers,
        requeues all other messages at once, and closes. A second signal does not wait. Raises as Consumer.get(), and a
        handler's KeyboardInterrupt or SystemExit."""
        if self._handler is None:
            raise TypeError("the worker has no handler: pass one, or use the worker as a decorator")
        if self._has_run:
            raise RuntimeError("a worker runs once: create another one")
        self._has_run = True
        self._loop = asyncio.get_running_loop()
        caught = self._catch_signals()
        taking = asyncio.create_task(self._take())
        stopped = asyncio.create_task(self._stop.wait())
        watch = Watch(self._handling, self._loop.call_soon_threadsafe, self.on_hung)
        try:
            self._handling.say(logging.INFO, "working, %d at a time", self._handling.options.concurrency)
            await asyncio.wait({taking, stopped}, return_when=asyncio.FIRST_COMPLETED)
            self._restore_signals(caught)
            await self._wind_down(taking)
        finally:
            self._restore_signals(caught)
            watch.end()
            self._handling.is_ending = True
            leftover = [task for task in (taking, stopped, *self._tasks.values(), *self._failing) if not task.done()]
            for task in leftover:
                task.cancel()
            if leftover:
                await asyncio.wait(leftover, timeout=CLOSE_SECONDS)     # a stuck coroutine may ignore it
            await self._consumer.close()
        self._handling.say(logging.INFO, "stopped")
        if self._handling.error is not None:
            raise self._handling.error
        if not taking.cancelled():
            taking.result()

    def stop(self) -> None:
        """Ends run(). Thread-safe."""
        if self._loop is None:
            self._stop.set()
        else:
            with suppress(RuntimeError):    # the loop is closed
                self._loop.call_soon_threadsafe(self._stop.set)

    def stats(self) -> WorkerStats:
        """Counters so far."""
        return self._handling.stats(self._consumer.stats())

    def _catch_signals(self) -> list[int]:
        caught: list[int] = []
        # Only in the main thread, and not on every loop.
        with suppress(ValueError, RuntimeError, NotImplementedError):
            for number in STOP_SIGNALS:
                asyncio.get_running_loop().add_signal_handler(number, self.stop)
                caught.append(number)
        return caught

    @staticmethod
    def _restore_signals(caught: list[int]) -> None:
        while caught:
            asyncio.get_running_loop().remove_signal_handler(caught.pop())

    async def _wind_down(self, taking: asyncio.Task[None]) -> None:
        """Takes no more messages, and waits for the handlers."""
        self._stop.set()
        self._changed.set()
        self._consumer.hand_back()
        taking.cancel()
        await asyncio.wait({taking})
        options = self._handling.options
        if self._handling.running:
            self._handling.say(logging.INFO, "stopping, handlers at work: %d", self._handling.running)
            deadline = time.monotonic() + options.stop_timeout
            while (left := deadline - time.monotonic()) > 0 and (
                    tasks := [task for run, task in self._tasks.items() if not run.is_stuck]):
                await asyncio.wait(tasks, timeout=min(left, WATCH_SECONDS))
        if self._failing:
            await asyncio.wait(self._failing, timeout=options.stop_timeout)
        if self._handling.running:
            self._handling.say(logging.ERROR, "handlers still at work after %g s: %d; their messages are requeued",
                               options.stop_timeout, self._handling.running)

    async def _take(self) -> None:
        """Starts a task per call of the handler, up to the allowed concurrency."""
        while True:
            await self._free.acquire()
            messages: list[Message] = []
            try:
                await self._gather(messages)
                if not messages:
                    return
                await self._allowed()
            except asyncio.CancelledError:
                for message in messages:
                    message.requeue()
                raise
            self._handling.slowdown.tried()
            run = self._handling.begin(messages)
            self._tasks[run] = asyncio.create_task(self._work(run))
            self._tasks[run].add_done_callback(partial(self._done, run))

    async def _gather(self, messages: list[Message]) -> None:
        """Takes a message, or up to a batch; none when the worker stops."""
        options = self._handling.options
        until: float | None = None
        while len(messages) < (options.batch or 1):
            message = await self._consumer.get(None if until is None else max(until - time.monotonic(), 0))
            if message is None:
                return
            messages.append(message)
            until = until or time.monotonic() + options.batch_timeout

    async def _allowed(self) -> None:
        """Waits until another message may be handled."""
        slowdown = self._handling.slowdown
        while not slowdown.allows(time.monotonic()):
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(slowdown.pause(time.monotonic()) or None):
                    await self._changed.wait()

    # ------------------------------------------------------------------ one call

    def _done(self, run: Run, _: asyncio.Task[None]) -> None:
        del self._tasks[run]
        if self._handling.end(run):
            self._free.release()

    async def _work(self, run: Run) -> None:
        """Raises nothing: SystemExit of a task would stop the loop before messages are requeued."""
        assert self._handler is not None
        try:
            self._ended(await self._handling.handle(run, self._handler, partial(self._call, run)))
        except BaseException as error:
            self._broke(run, error)

    def _broke(self, run: Run, error: BaseException) -> None:
        if includes(error, ENDS):
            self._handling.error = self._handling.error or error
            self._stop.set()
        for message in run.messages:
            if not message.answered:
                # A future that raises GeneratorExit closes the coroutines that await it: on_give_up was cut short.
                self._handling.requeue(message, error, run.began)

    async def _call(self, run: Run, function: Callable[..., object], *arguments: object) -> None:
        if inspect.iscoroutinefunction(function):
            result: object = function(*arguments)
        elif function is not self._handler:     # on_give_up
            result = function(*arguments)
        else:
            result = await in_thread(contextvars.copy_context().run, self._in_thread, run, *arguments)
        if inspect.isawaitable(result):     # also of a callable object, or a partial
            task = asyncio.current_task()
            run.cancel = task.cancel if task is not None else None
            await result

    def _in_thread(self, run: Run, *arguments: object) -> object:
        assert self._handler is not None
        run.thread = threading.get_ident()
        return self._handler(*arguments)

    def _expired(self, run: Run, error: HandlerTimeout) -> None:
        """A handler is stuck. Called on another thread."""
        if self._loop is not None:
            with suppress(RuntimeError):    # the loop is closed
                self._loop.call_soon_threadsafe(self._replace, run, error)

    def _replace(self, run: Run, error: HandlerTimeout) -> None:
        if run.cancel is not None and run in self._tasks:
            error = error.with_traceback(trace_of_coroutine(self._tasks[run].get_coro()))
            run.cancel()
        if run.is_replaced:
            self._free.release()
        failing = asyncio.create_task(self._fail(run, error))
        self._failing.add(failing)
        failing.add_done_callback(self._failing.discard)

    async def _fail(self, run: Run, error: HandlerTimeout) -> None:
        try:
            self._ended(await self._handling.fail(run, error, partial(self._call, Run([]))))
        except BaseException as failure:
            self._broke(run, failure)

    def _ended(self, succeeded: bool | None) -> None:
        if self._handling.paced(succeeded):
            self._changed.set()
            self._limit()

    def _limit(self) -> None:
        """Applies the slowdown to the connections, and again when its pause ends."""
        now = time.monotonic()
        limit = self._handling.slowdown.limit(now)
        self._consumer.throttle(limit, limit is not None)
        if pause := self._handling.slowdown.pause(now):
            asyncio.get_running_loop().call_later(pause, self._limit)
