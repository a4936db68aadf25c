"""Runs a handler for each message of a channel as tasks of an event loop. Plain functions run in threads, so that they
do not block it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from typing import Unpack

from nsqc.client.aio.connection import in_thread
from nsqc.client.aio.consumer import Consumer
from nsqc.client.frames import Message
from nsqc.client.handling import ENDS, AllOptions, GiveUp, H, Handler, Handling, WorkerStats, includes, split

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Like nsqc.client.Worker, on an event loop: `await worker.run()`. The handler is a coroutine function, or a plain
    function, each call of which runs in a thread. concurrency: messages handled at the same time.

    Raises BadName, BadAddress, ValueError, TypeError.
    """

    def __init__(self, topic: str, channel: str, nsqd: str | Iterable[str] = (), *, handler: Handler | None = None,
                 **options: Unpack[AllOptions]):
        own, consuming = split(options)
        self._handling = Handling(topic, channel, own)
        self._consumer = Consumer(topic, channel, nsqd, touch_limit=own.touch_limit, **consuming)
        self._consumer.serve_at_least(own.concurrency)
        self._handler = handler
        self._has_run = False
        self._free = asyncio.Semaphore(own.concurrency)
        self._changed = asyncio.Event()     # the slowdown has changed, or the worker stops
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: BaseException | None = None    # a handler's, of ENDS
        self._is_ending = False     # run() cancels the remaining handlers

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
        try:
            self._handling.say(logging.INFO, "working, %d at a time", self._handling.options.concurrency)
            await asyncio.wait({taking, stopped}, return_when=asyncio.FIRST_COMPLETED)
            self._restore_signals(caught)
            await self._wind_down(taking)
        finally:
            self._restore_signals(caught)
            self._is_ending = True
            leftover = [task for task in (taking, stopped, *self._tasks) if not task.done()]
            for task in leftover:
                task.cancel()
            await asyncio.gather(*leftover, return_exceptions=True)
            await self._consumer.close()
        self._handling.say(logging.INFO, "stopped")
        if self._error is not None:
            raise self._error
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
        if self._tasks:
            self._handling.say(logging.INFO, "stopping, handlers at work: %d", len(self._tasks))
            await asyncio.wait(self._tasks, timeout=options.stop_timeout)
        if self._tasks:
            self._handling.say(logging.ERROR, "handlers still at work after %g s: %d; their messages are requeued",
                               options.stop_timeout, len(self._tasks))

    async def _take(self) -> None:
        """Starts a task per message, up to the allowed concurrency."""
        while True:
            await self._free.acquire()
            message = await self._consumer.get()
            if message is None:
                return
            try:
                await self._allowed()
            except asyncio.CancelledError:
                message.requeue()
                raise
            self._handling.slowdown.tried()
            self._handling.running += 1
            task = asyncio.create_task(self._work(message))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    async def _allowed(self) -> None:
        """Waits until another message may be handled."""
        slowdown = self._handling.slowdown
        while not slowdown.allows(time.monotonic()):
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(slowdown.pause(time.monotonic()) or None):
                    await self._changed.wait()

    # ------------------------------------------------------------------ one message

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._handling.running -= 1
        self._free.release()

    async def _work(self, message: Message) -> None:
        """Raises nothing: SystemExit of a task would stop the loop before messages are requeued."""
        try:
            await self._handle(message)
        except BaseException as error:
            if includes(error, ENDS):
                self._error = self._error or error
                self._stop.set()
            elif not message.answered:
                # A future that raises GeneratorExit closes the coroutines that await it: on_give_up was cut short.
                self._handling.requeue(message, error, time.monotonic())

    async def _handle(self, message: Message) -> None:
        handling, began = self._handling, time.monotonic()
        try:
            if handling.is_spent(message):
                self._ended(None if await self._give_up(message, None, began) else False)
                return
            with ExitStack() as surrounding:
                for middleware in handling.options.middlewares:
                    surrounding.enter_context(middleware(message))
                await self._call(message)
        except BaseException as error:
            self._ended(await self._failed(message, error, began))
        else:
            handling.finish(message, began)
            self._ended(succeeded=True)

    async def _call(self, message: Message) -> None:
        assert self._handler is not None
        if inspect.iscoroutinefunction(self._handler):
            await self._handler(message)
            return
        result = await in_thread(contextvars.copy_context().run, self._handler, message)
        if inspect.isawaitable(result):     # a callable object, or a partial
            await result

    async def _failed(self, message: Message, error: BaseException, began: float) -> bool | None:
        """The handler or a middleware has raised. Returns the argument of Slowdown.ended()."""
        self._raise_end(message, error)
        if not self._handling.gives_up(message, error):
            self._handling.requeue(message, error, began)
            return False
        given_up = await self._give_up(message, error, began)
        return None if given_up and includes(error, GiveUp) else False

    async def _give_up(self, message: Message, error: BaseException | None, began: float) -> bool:
        """Whether on_give_up has returned; otherwise the message is requeued."""
        try:
            if self._handling.options.on_give_up is not None:
                result = self._handling.options.on_give_up(message, error)
                if inspect.isawaitable(result):
                    await result
        except BaseException as failure:
            self._raise_end(message, failure)
            self._handling.requeue(message, failure, began)
            return False
        self._handling.gave_up(message, error, began)
        return True

    def _raise_end(self, message: Message, error: BaseException) -> None:
        """Raises an exception that ends the worker, or this task when the worker stops, and requeues its message."""
        if includes(error, ENDS) or (self._is_ending and isinstance(error, asyncio.CancelledError)):
            message.requeue()
            raise error

    def _ended(self, succeeded: bool | None) -> None:
        slowdown = self._handling.slowdown
        if slowdown.ended(succeeded, time.monotonic()):
            self._changed.set()
            self._limit()

    def _limit(self) -> None:
        """Applies the slowdown to the connections, and again when its pause ends."""
        now = time.monotonic()
        self._consumer.throttle(self._handling.slowdown.limit(now))
        if pause := self._handling.slowdown.pause(now):
            asyncio.get_running_loop().call_later(pause, self._limit)
