"""A worker's treatment of messages apart from running the handler: when to retry a failed one, when to give it up, and
when to slow down the whole channel. The policy of both Workers.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, NamedTuple, TypeAlias, TypedDict, TypeVar, cast

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
    PublishFailed or Refused. connections: open ones, by nsqd. down: nsqd that failed last time, with the cause."""

    published: int
    retries: int
    failed: int
    connections: dict[str, int]
    down: dict[str, str]


# ====================================================================== handling

log = Log("nsqc.worker")

# Any: handlers may return anything, which is ignored; an asyncio worker's may be awaitable.
Handler: TypeAlias = Callable[[Message], Any]
H = TypeVar("H", bound=Handler)
Middleware: TypeAlias = Callable[[Message], AbstractContextManager[object]]
GivenUp: TypeAlias = Callable[[Message, BaseException | None], Any]     # Any: as above

FIRST_SLOWDOWN_SECONDS = 1.0
LONGEST_REQUEUE_SECONDS = 3600.0    # nsqd refuses more: --max-req-timeout
MOST_DOUBLINGS = 30
COROUTINE = 0x80                    # inspect.CO_COROUTINE, without the import of inspect
ENDS = (KeyboardInterrupt, SystemExit)      # end the worker; all other exceptions of a handler are about its message


class GiveUp(Exception):
    """Raised by a handler: the message can never be handled. It is given up at once, regardless of max_attempts."""


class WorkerOptions(TypedDict, total=False):
    """A worker's options for messages. concurrency: messages handled at the same time. max_attempts: deliveries after
    which a message is given up; 0: never. on_give_up: called with the message and the handler's exception (None if it
    was delivered too often without one); the message is finished when it returns, and requeued if it raises.
    requeue_delay, max_requeue_delay: seconds until a failed message is redelivered; doubled with each attempt, and
    jittered. max_slowdown: seconds, the longest pause of the whole channel while messages fail; 0: no pauses.
    touch_limit: seconds for which a message is touched to prevent its timeout. stop_timeout: seconds for running
    handlers when the worker stops. middlewares: called with each message, each returns a context manager that surrounds
    the handler."""

    concurrency: int
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
    """Message counts by outcome. running: running handlers. slowdown: seconds until the channel resumes; 0: not slowed
    down."""

    finished: int
    failed: int
    given_up: int
    running: int
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


class Handling:
    """Shared by both workers: answers to messages, and log lines about them."""

    def __init__(self, topic: str, channel: str, options: Settings):
        self.options = options
        self.running = 0            # running handlers; counted by the worker
        self.slowdown = Slowdown(options.max_slowdown)
        self._counts = dict.fromkeys(("finished", "failed", "given_up"), 0)
        self._lock = threading.Lock()
        self._place = {"nsq_topic": topic, "nsq_channel": channel}
        self._name = f"{topic}/{channel}"

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
        log.error("%s: message %s given up after %d attempts: %s", self._name, message.id.decode(), message.attempts,
                  described(error) if error is not None else "it was never answered", exc_info=error,
                  extra=self._fields(message, "given_up", began))

    def _fields(self, message: Message, outcome: str, began: float) -> dict[str, object]:
        return {**self._place, "nsq_message": message.id.decode(), "nsq_attempts": message.attempts,
                "nsq_outcome": outcome, "nsq_seconds": round(seconds_since(began), 6)}

    def say(self, level: int, text: str, *arguments: object) -> None:
        """Logs a line about the worker."""
        log.log(level, f"%s: {text}", self._name, *arguments, extra=self._place)

    def stats(self, consumer: ConsumerStats) -> WorkerStats:
        """The numbers so far."""
        return WorkerStats(**self._counts, running=self.running, slowdown=self.slowdown.pause(time.monotonic()),
                           consumer=consumer)

    def _count(self, outcome: str) -> None:
        with self._lock:
            self._counts[outcome] += 1


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


# Any: JSON, and as Handler
def json_handler(handler: Callable[[Any, Message], Any]) -> Handler:
    """Wraps a function, or coroutine function, that takes a decoded JSON body and the message, as a handler. A body
    that is not JSON is given up."""
    code = getattr(handler, "__code__", None)
    if code is not None and code.co_flags & COROUTINE:
        async def handle_async(message: Message) -> None:
            await handler(decoded(message), message)
        return wraps(handler)(handle_async)

    def handle(message: Message) -> None:
        handler(decoded(message), message)
    return wraps(handler)(handle)


def decoded(message: Message) -> Any:   # Any: JSON
    """The body's JSON. Raises GiveUp."""
    try:
        return decode(message.body)
    except JSONError as error:
        raise GiveUp(f"the body is not JSON: {error}") from None
