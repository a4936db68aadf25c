"""A worker's treatment of messages apart from calling the handler: when to retry a failed one, when to give it up, when
its handler has taken too long, and when to slow down the whole channel. The policy of both Workers.
"""

from __future__ import annotations

import logging
import math
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from types import FrameType, TracebackType
from typing import Any, NamedTuple, TypeAlias, TypedDict, TypeVar, cast

from nsqc.client.errors import HandlersStuck, HandlerTimeout
from nsqc.client.frames import Message
from nsqc.client.log import Log
from nsqc.client.options import CONNECTION, ConnectionOptions, checked, unknown
from nsqc.wire.outside import JSONError, decode

# ====================================================================== statistics
# Statistics of producers and consumers.

class PeerStats(NamedTuple):
    """A consumer's connection to an nsqd. error: why it is not connected. ready: its current RDY; in_flight: messages
    received over it and not answered."""

    address: str
    is_connected: bool
    error: str
    ready: int
    in_flight: int


class ConsumerStats(NamedTuple):
    """received: messages so far. waiting: those not yet returned by get()."""

    received: int
    waiting: int
    connections: list[PeerStats]


class ProducerStats(NamedTuple):
    """published: acknowledged messages. retries: attempts after a failed one. failed: calls that raised
    PublishFailed or Refused. connections: open ones, by nsqd. down: nsqd that failed last time, with the cause.
    pending_bytes: memory of messages of send() without an outcome."""

    published: int
    retries: int
    failed: int
    connections: dict[str, int]
    down: dict[str, str]
    pending_bytes: int


# ====================================================================== handling

log = Log("nsqc.worker")

# Handlers take a message, or with batch a list, and may return anything, which is ignored; an asyncio worker's may be
# awaitable. Any: therefore
Handler: TypeAlias = Callable[[Any], Any]
H = TypeVar("H", bound=Handler)
T = TypeVar("T")
Middleware: TypeAlias = Callable[[Message], AbstractContextManager[object]]
GivenUp: TypeAlias = Callable[[Message, BaseException | None], Any]     # Any: as above
Call: TypeAlias = Callable[..., Awaitable[object]]      # calls a function of the application, with its arguments

FIRST_SLOWDOWN_SECONDS = 1.0
LONGEST_REQUEUE_SECONDS = 3600.0    # nsqd refuses more: --max-req-timeout
MOST_DOUBLINGS = 30
COROUTINE = 0x80                    # inspect.CO_COROUTINE, without the import of inspect
ENDS = (KeyboardInterrupt, SystemExit)      # end the worker; all other exceptions of a handler are about its message
WATCH_SECONDS = 0.25                # how often the running handlers are checked, if handler_timeout is not short
STUCK_SECONDS = 1.0                 # for the last coroutine to end after its cancellation, before the worker ends
BLOCKED_SECONDS = 1.0               # an event loop that has not run for this long is reported


class GiveUp(Exception):
    """Raised by a handler: the message can never be handled. It is given up at once, regardless of max_attempts."""


class WorkerOptions(TypedDict, total=False):
    """A worker's options for messages. concurrency: calls of the handler at the same time. batch: the handler is called
    with a list of up to this many messages, gathered for up to batch_timeout seconds; None: with one message.
    handler_timeout: seconds after which a running handler counts as stuck: its messages are requeued, a coroutine is
    cancelled, a thread replaced; 0: never. max_stuck: stuck handlers that are replaced; a worker with concurrency more
    of them ends. max_messages: the worker stops after taking this many; 0: never. max_attempts: deliveries after
    which a message is given up; 0: never. on_give_up: called with the message and the handler's exception (None if it
    was delivered too often without one); the message is finished when it returns, and requeued if it raises.
    requeue_delay, max_requeue_delay: seconds until a failed message is redelivered; doubled with each attempt, and
    jittered. max_slowdown: seconds, the longest pause of the whole channel while messages fail; 0: no pauses.
    touch_limit: seconds for which a message is touched to prevent its timeout. stop_timeout: seconds for running
    handlers when the worker stops. middlewares: called with each message, each returns a context manager that surrounds
    the handler."""

    concurrency: int
    batch: int | None
    batch_timeout: float
    handler_timeout: float
    max_stuck: int
    max_messages: int
    max_attempts: int
    on_give_up: GivenUp | None
    requeue_delay: float
    max_requeue_delay: float
    max_slowdown: float
    touch_limit: float
    stop_timeout: float
    middlewares: Iterable[Middleware]


class Settings(NamedTuple):
    """A checked copy, with defaults."""

    concurrency: int = 1
    batch: int | None = None
    batch_timeout: float = 0.2
    handler_timeout: float = 0.0
    max_stuck: int = 10
    max_messages: int = 0
    max_attempts: int = 0
    on_give_up: GivenUp | None = None
    requeue_delay: float = 1.0
    max_requeue_delay: float = 900.0
    max_slowdown: float = 120.0
    touch_limit: float = 900.0
    stop_timeout: float = 30.0
    middlewares: tuple[Middleware, ...] = ()


OWN = Settings._fields


class WorkerStats(NamedTuple):
    """Message counts by outcome. running: running handlers; stuck: those beyond handler_timeout. slowdown: seconds
    until the channel resumes; 0: not slowed down."""

    finished: int
    failed: int
    given_up: int
    running: int
    stuck: int
    slowdown: float
    consumer: ConsumerStats


def settings(given: WorkerOptions) -> Settings:
    """Raises TypeError, ValueError."""
    # Any: options differ in type
    values: dict[str, Any] = {**given, "middlewares": tuple(given.get("middlewares", ()))}
    found = Settings(**values)
    checked(**{name: value for name, value in found._asdict().items() if name not in ("on_give_up", "middlewares")})
    for name, value in (("on_give_up", found.on_give_up), *(("a middleware", each) for each in found.middlewares)):
        if value is not None and not callable(value):
            raise TypeError(f"{name} is {value!r}; it takes a function")
    return found


class ConsumingOptions(ConnectionOptions, total=False):
    """Options of a Consumer."""

    nsqlookupd: str | Iterable[str]
    max_in_flight: int | None
    connections: int
    poll_interval: float
    backoff: float
    timeout: float


class AllOptions(WorkerOptions, ConsumingOptions, total=False):
    """Options of a Worker, and of its Consumer."""


def split(options: AllOptions) -> tuple[Settings, ConsumingOptions]:
    """The options of a worker, and those for its consumer. Raises TypeError, ValueError."""
    # Any: options differ in type
    own: dict[str, Any] = {}
    consuming: dict[str, Any] = {}      # Any: as above
    known = {*OWN, *ConsumingOptions.__annotations__, *CONNECTION, "handler"}
    for name, value in options.items():
        if name not in known:
            unknown("Worker", name, known)
        (own if name in OWN else consuming)[name] = value
    return settings(cast(WorkerOptions, own)), cast(ConsumingOptions, consuming)


class Slowdown:
    """Go-nsq's backoff of a whole channel. A failed message pauses it; after the pause one message at a time is tried.
    Each success shortens the next pause, down to none, and each failure lengthens it. longest: seconds; 0: no pauses.
    Times are of time.monotonic()."""

    def __init__(self, longest: float, jitter: Callable[[], float] = random.random):
        self._longest, self._jitter = longest, jitter
        self._level = 0
        self.since = 0.0            # when the first of the pauses began; 0: none
        self._resumes_at = 0.0
        self._testing = False       # one message is being tried

    def ended(self, succeeded: bool | None, now: float) -> bool:
        """A message was handled; None: given up, which says nothing about the next one. Returns whether anything
        changed. Results of messages already being handled when the pause began do not count."""
        if succeeded is None:
            was_testing, self._testing = self._testing, False
            return was_testing
        if not self._longest or now < self._resumes_at or (succeeded and not self._level):
            return False
        self._level += -1 if succeeded else 1
        self.since = (self.since or now) if self._level else 0.0
        self._testing = False
        pause = min(FIRST_SLOWDOWN_SECONDS * 2 ** min(self._level - 1, MOST_DOUBLINGS), self._longest)
        self._resumes_at = now + pause * (0.5 + self._jitter() / 2) if self._level else now
        return True

    def tried(self) -> None:
        """A message is being handled."""
        self._testing = self._level > 0

    def pause(self, now: float) -> float:
        """Seconds until the pause ends."""
        return max(self._resumes_at - now, 0.0) if self._level else 0.0

    def allows(self, now: float) -> bool:
        """Whether another message may be handled now."""
        return not self._level or (now >= self._resumes_at and not self._testing)

    def limit(self, now: float) -> int | None:
        """Limit for messages in flight; None: no limit."""
        if not self._level:
            return None
        return 1 if now >= self._resumes_at else 0


class Run:
    """One call of the handler, from the moment its messages are taken until its thread or task is free again."""

    def __init__(self, messages: list[Message]):
        self.messages = messages
        self.began = time.monotonic()
        self.thread: int | None = None      # that runs the handler
        self.cancel: Callable[[], object] | None = None     # of a coroutine
        self.is_settled = False     # by the handler's end or by the timeout, whichever is first
        self.is_stuck = False       # the timeout was first
        self.is_replaced = False    # while it is stuck another call may run in its place
        self.is_reported = False    # half of the time is over


class Handling:
    """Shared by both workers: the running handlers, answers to messages, and log lines about them. stop: ends the
    worker. expired: called on the thread of a Watch when a handler has exceeded handler_timeout: fail() has to follow.
    """

    def __init__(self, topic: str, channel: str, options: Settings, stop: Callable[[], None],
                 expired: Callable[[Run, HandlerTimeout], None]):
        self.options = options
        self.slowdown = Slowdown(options.max_slowdown)
        self.cancelled: tuple[type[BaseException], ...] = ()    # of coroutines
        self.is_ending = False      # remaining coroutines are being cancelled
        self.error: BaseException | None = None     # ends the worker
        self._stop, self._expired = stop, expired
        self._runs: set[Run] = set()
        self._stuck = self._lost = 0    # stuck handlers, and those of them that are not replaced
        self._all_lost_at = math.inf    # the last check before the latter became all
        self._taken = 0
        self._counts = dict.fromkeys(("finished", "failed", "given_up"), 0)
        self._lock = threading.Lock()
        self._place = {"nsq_topic": topic, "nsq_channel": channel}
        self._name = f"{topic}/{channel}"

    # ------------------------------------------------------------------ running handlers

    @property
    def running(self) -> int:
        """Handlers that have not returned, without those that are stuck."""
        return len(self._runs) - self._stuck

    def is_needed(self, thread: int | None) -> bool:
        """Whether a thread may still answer messages: not if it is stuck."""
        return not any(run.is_stuck and run.thread == thread for run in list(self._runs))

    def begin(self, messages: list[Message]) -> Run:
        """The handler is about to be called with these."""
        run = Run(messages)
        with self._lock:
            self._runs.add(run)
            self._taken += len(messages)
        if 0 < self.options.max_messages <= self._taken:
            self._stop()
        return run

    def end(self, run: Run) -> bool:
        """The thread or task is free again. Returns whether it, and not a replacement, takes the next messages."""
        with self._lock:
            self._runs.discard(run)
            self._stuck -= run.is_stuck
            self._lost -= run.is_stuck and not run.is_replaced
        return not run.is_replaced

    def check(self, now: float) -> None:
        """Reports handlers that take long, and ends those that take too long, and the worker if all do. For one
        thread."""
        limit = self.options.handler_timeout
        if self._lost < self.options.concurrency:
            self._all_lost_at = now
        elif now - self._all_lost_at >= STUCK_SECONDS:
            self.error = self.error or HandlersStuck(f"{self._name}: every handler is stuck: {self._stuck} have not "
                                                     f"returned within {limit:g} s")
            self._stop()
        for run in list(self._runs) if limit else ():
            seconds = now - run.began
            if seconds >= limit:
                self._expire(run)
            elif seconds >= limit / 2 and not (run.is_reported or run.is_settled):
                run.is_reported = True
                for message in run.messages:
                    log.warning("%s: message %s has been handled for %.1f s; handler_timeout is %g s", self._name,
                                message.id.decode(), seconds, limit, extra=self._fields(message, "slow", run.began))

    def _expire(self, run: Run) -> None:
        with self._lock:
            if run.is_settled:
                return
            run.is_settled = run.is_stuck = True
            self._stuck += 1
            run.is_replaced = self._stuck <= self.options.max_stuck
            self._lost += not run.is_replaced
        for message in run.messages:
            message.connection.forget(message.id)       # a blocked event loop cannot requeue it, but stops touching it
        error = HandlerTimeout(f"the handler has not returned within {self.options.handler_timeout:g} s")
        self._expired(run, error.with_traceback(trace_of(run.thread)))

    async def handle(self, run: Run, handler: Handler, call: Call) -> bool | None:
        """Calls the handler, and answers its messages. Returns the argument of Slowdown.ended(). Raises exceptions
        that end the worker."""
        spent = [message for message in run.messages if self.is_spent(message)]
        given_up = [await self._give_up(run, message, None, call) for message in spent]
        run.messages = [message for message in run.messages if message not in spent]
        if not run.messages:
            return None if all(given_up) else False
        try:
            with ExitStack() as surrounding:
                for middleware in self.options.middlewares:
                    for message in run.messages:
                        surrounding.enter_context(middleware(message))
                await call(handler, run.messages if self.options.batch else run.messages[0])
        except BaseException as error:
            self._raise_end(run.messages, error)
            return await self.fail(run, error, call) if self._settle(run, error) else None
        if not self._settle(run, None):
            return None
        for message in run.messages:
            self.finish(message, run.began)
        return True

    async def fail(self, run: Run, error: BaseException, call: Call) -> bool | None:
        """The handler or a middleware has raised, or the time is up. Returns the argument of Slowdown.ended()."""
        hopeless = True
        for message in run.messages:
            if message.answered and (run.is_stuck or len(run.messages) > 1):
                continue
            if not self.gives_up(message, error):
                self.requeue(message, error, run.began)
                hopeless = False
            elif not (await self._give_up(run, message, error, call) and includes(error, GiveUp)):
                hopeless = False
        return None if hopeless else False

    def _settle(self, run: Run, error: BaseException | None) -> bool:
        """Whether the end of a handler decides about its messages: not if the timeout was first."""
        with self._lock:
            was_settled, run.is_settled = run.is_settled, True
        if was_settled and not isinstance(error, self.cancelled):
            for message in run.messages:
                log.warning("%s: the handler of message %s has %s after %.1f s, too late: the message was requeued "
                            "and may be handled twice", self._name, message.id.decode(),
                            "returned" if error is None else f"raised {described(error)}", seconds_since(run.began),
                            extra=self._fields(message, "late", run.began))
        return not was_settled

    async def _give_up(self, run: Run, message: Message, error: BaseException | None, call: Call) -> bool:
        """Whether on_give_up has returned; otherwise the message is requeued."""
        try:
            if self.options.on_give_up is not None:
                await call(self.options.on_give_up, message, error)
        except BaseException as failure:
            self._raise_end([message], failure)
            self.requeue(message, failure, run.began)
            return False
        self.gave_up(message, error, run.began)
        return True

    def _raise_end(self, messages: list[Message], error: BaseException) -> None:
        """Raises an exception that ends the worker, or its coroutine while it stops, and requeues the messages."""
        if includes(error, ENDS) or (self.is_ending and isinstance(error, self.cancelled)):
            self._stop()    # first: no other thread may take the messages again
            for message in messages:
                message.requeue()
            raise error

    # ------------------------------------------------------------------ answers

    def is_spent(self, message: Message) -> bool:
        """Whether it was delivered too often already, perhaps to processes that crashed on it."""
        return bool(self.options.max_attempts) and message.attempts > self.options.max_attempts

    def gives_up(self, message: Message, error: BaseException) -> bool:
        """Whether a message whose handler has raised this is given up."""
        is_last = bool(self.options.max_attempts) and message.attempts >= self.options.max_attempts
        return is_last or includes(error, GiveUp)

    def finish(self, message: Message, began: float) -> None:
        """The handler has returned. Raises nothing: after a lost connection nsqd delivers the message again."""
        self._count("finished")
        message.finish()
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s: message %s finished after %.3f s", self._name, message.id.decode(), seconds_since(began),
                      extra=self._fields(message, "finished", began))

    def requeue(self, message: Message, error: BaseException, began: float) -> None:
        """The handler has raised."""
        self._count("failed")
        delay = self.requeue_delay(message.attempts)
        message.requeue(round(delay * 1000))
        log.warning("%s: message %s failed at attempt %d, again in %.1f s: %s", self._name, message.id.decode(),
                    message.attempts, delay, described(error), exc_info=error,
                    extra=self._fields(message, "failed", began))

    def paced(self, succeeded: bool | None) -> bool:
        """Slowdown.ended() with its log lines: the first pause, and the end of all."""
        now, slowdown = time.monotonic(), self.slowdown
        before = slowdown.since
        changed = slowdown.ended(succeeded, now)
        if slowdown.since and not before:
            self.say(logging.WARNING, "backing off after a failure: no message for %.1f s, then one at a time until "
                     "they succeed", slowdown.pause(now))
        elif before and not slowdown.since:
            self.say(logging.INFO, "no longer backing off, after %.1f s", now - before)
        return changed

    def requeue_delay(self, attempts: int) -> float:
        """Seconds until a message delivered this often is redelivered: jittered by up to half."""
        options = self.options
        longest: float = min(options.requeue_delay * 2 ** min(attempts - 1, MOST_DOUBLINGS), options.max_requeue_delay,
                             LONGEST_REQUEUE_SECONDS)
        return longest * (0.5 + random.random() / 2)

    def gave_up(self, message: Message, error: BaseException | None, began: float) -> None:
        """on_give_up has returned."""
        self._count("given_up")
        message.finish()
        log.error("%s: message %s given up at attempt %d: %s", self._name, message.id.decode(), message.attempts,
                  described(error) if error is not None else "it was never answered", exc_info=error,
                  extra=self._fields(message, "given_up", began))

    def _fields(self, message: Message, outcome: str, began: float) -> dict[str, object]:
        return {**self._place, "nsq_message": message.id.decode(), "nsq_attempts": message.attempts,
                "nsq_outcome": outcome, "nsq_seconds": round(seconds_since(began), 6)}

    def say(self, level: int, text: str, *arguments: object, error: BaseException | None = None) -> None:
        """Logs a line about the worker."""
        log.log(level, f"%s: {text}", self._name, *arguments, exc_info=error, extra=self._place)

    def stats(self, consumer: ConsumerStats) -> WorkerStats:
        """The numbers so far."""
        return WorkerStats(**self._counts, running=len(self._runs), stuck=self._stuck,
                           slowdown=self.slowdown.pause(time.monotonic()), consumer=consumer)

    def _count(self, outcome: str) -> None:
        with self._lock:
            self._counts[outcome] += 1


class Watch:
    """A thread that checks the running handlers, and whether an event loop runs. post: runs a function on that loop
    soon; None: no loop. hung: called when a coroutine has blocked the loop for longer than handler_timeout."""

    def __init__(self, handling: Handling, post: Callable[[Callable[[], None]], object] | None = None,
                 hung: Callable[[], object] = lambda: None):
        self._handling, self._post, self._hung = handling, post, hung
        self._ended = threading.Event()
        self._asked_at = 0.0        # when the loop was asked to run beat(); 0: it has
        self._is_reported = self._is_hung = False
        self._loop_thread = threading.get_ident()
        limit = handling.options.handler_timeout
        self._seconds = min(limit / 8, WATCH_SECONDS) if limit else WATCH_SECONDS
        if limit or post is not None:
            threading.Thread(target=self._run, name="nsqc watch", daemon=True).start()

    def end(self) -> None:
        """Ends the thread."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            now = time.monotonic()
            self._handling.check(now)
            if self._post is not None:
                try:
                    self._check_loop(now, self._post)
                except RuntimeError:    # the loop is closed
                    return

    def _check_loop(self, now: float, post: Callable[[Callable[[], None]], object]) -> None:
        if not self._asked_at:
            self._asked_at = now
            post(self._beat)
            return
        seconds, limit = now - self._asked_at, self._handling.options.handler_timeout
        if seconds >= BLOCKED_SECONDS and not self._is_reported:
            self._is_reported = True
            where = TimeoutError("the event loop is blocked here").with_traceback(trace_of(self._loop_thread))
            self._handling.say(logging.WARNING, "a coroutine has blocked the event loop for %.1f s: run such code in a "
                               "thread", seconds, error=where)
        if 0 < limit <= seconds - STUCK_SECONDS and not self._is_hung:
            self._is_hung = True
            self._handling.say(logging.ERROR, "a coroutine has blocked the event loop for %.1f s, longer than "
                               "handler_timeout: the worker cannot cancel it, and handles nothing until it returns",
                               seconds)
            self._hung()

    def _beat(self) -> None:
        if self._is_reported:
            self._handling.say(logging.WARNING, "the event loop runs again after %.1f s", seconds_since(self._asked_at))
        self._asked_at, self._is_reported, self._is_hung = 0.0, False, False


def trace_of(thread: int | None) -> TracebackType | None:
    """The stack of a running thread from the handler on, as of an exception raised there."""
    frame: FrameType | None = None if thread is None else sys._current_frames().get(thread)
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return traced(frames)


def trace_of_coroutine(coroutine: object) -> TracebackType | None:
    """The same of a coroutine that waits."""
    frames: list[FrameType] = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append(frame)
        coroutine = getattr(coroutine, "cr_await", None)
    return traced(frames[::-1])


def traced(frames: Iterable[FrameType]) -> TracebackType | None:
    """A traceback of frames, the innermost first, without those that have called Handling.handle()."""
    trace: TracebackType | None = None
    for frame in frames:
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
        if frame.f_code is Handling.handle.__code__:
            break
    return trace


def completed(call: Coroutine[object, object, T]) -> T:
    """Runs a coroutine that never waits; its result."""
    try:
        call.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise RuntimeError("it waits")


def described(error: BaseException) -> str:
    """An exception in one line."""
    kind = type(error).__name__
    try:
        text = str(error)
    except BaseException:       # of the application's class
        return f"{kind} (its __str__ fails)"
    return f"{kind}: {text}" if text else kind


def includes(error: BaseException, kinds: type[BaseException] | tuple[type[BaseException], ...]) -> bool:
    """Whether an exception is of these kinds, or a group with such an exception."""
    return isinstance(error, kinds) or (isinstance(error, BaseExceptionGroup) and error.subgroup(kinds) is not None)


def seconds_since(began: float) -> float:
    """Seconds since a time of time.monotonic()."""
    return time.monotonic() - began


def is_coroutine(function: object) -> bool:
    """Whether it is a coroutine function."""
    code = getattr(function, "__code__", None)
    return code is not None and bool(code.co_flags & COROUTINE)


# Any: JSON, and as Handler
def json_handler(handler: Callable[[Any, Message], Any]) -> Handler:
    """Wraps a function, or coroutine function, that takes a decoded JSON body and the message, as a handler. A body
    that is not JSON is given up."""
    if is_coroutine(handler):
        async def handle_async(message: Message) -> None:
            await handler(decoded(message), message)
        return wraps(handler)(handle_async)

    def handle(message: Message) -> None:
        handler(decoded(message), message)
    return wraps(handler)(handle)


def decoded(message: Message) -> Any:   # Any: JSON
    """The body's JSON. Raises GiveUp."""
    try:
        return decode(message.payload)
    except JSONError as error:
        raise GiveUp(f"the body is not JSON: {error}") from None
