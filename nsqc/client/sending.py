"""Messages accepted by Producer.send(): gathered by topic, sent together, each with an outcome of its own. The core of
both Producers, without I/O, threads or locks: a Producer adds, takes and settles."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

from nsqc.client import frames
from nsqc.client.commands import BATCH_BYTES, BATCH_ROWS, WINDOW, Body, Many, Publication, topic_name
from nsqc.client.errors import ClientError, Closed, PublishFailed, Refused
from nsqc.client.log import Log
from nsqc.client.options import MIB, Options, checked

log = Log("nsqc.client")

LINGER_SECONDS = 0.005
MAX_PENDING_BYTES = 32 * MIB
MESSAGE_BYTES = 300     # memory of a waiting message besides its body: mostly its future
# About single messages of a batch: the others are sent without them.
OF_A_MESSAGE = ("E_BAD_MESSAGE", "E_BAD_BODY")
OnError: TypeAlias = Callable[[str, bytes, Exception], object]


class Outcome(Protocol):
    """A future, of threads or of asyncio."""

    def done(self) -> bool:
        """Whether it has an outcome, or is cancelled."""

    def set_result(self, result: None, /) -> None:
        """nsqd has the message."""

    def set_exception(self, error: Exception, /) -> None:
        """The message has failed."""

    def exception(self) -> BaseException | None:
        """The error; marks it as seen."""


F = TypeVar("F", bound=Outcome)


class Gathered(Many, Generic[F]):
    """The messages of several calls on one topic, with their futures."""

    def __init__(self, options: Options, topic: str, bodies: Sequence[bytes], futures: Sequence[F]):
        self.topic, self.futures, self.size = topic, futures, sum(map(len, bodies)) + MESSAGE_BYTES * len(bodies)
        self.window, self._options = WINDOW, options
        self._name, self._bodies = topic_name(topic), tuple(bodies)
        self._rows, self._limit = BATCH_ROWS, min(BATCH_BYTES, options.max_body_size)
        Publication.__init__(self, len(bodies))

    def parts(self, error: Exception) -> Iterator[Gathered[F]]:
        """Halves of the messages that are not acknowledged, to send again without each other, if the error may be about
        one of them; otherwise none."""
        at, end = self.acknowledged, self.total
        if isinstance(error, Refused) and error.code in OF_A_MESSAGE and end > 1:
            middle = (at + end + 1) // 2
            for first, last in ((at, middle), (middle, end)):
                if last > first:
                    yield Gathered(self._options, self.topic, self._bodies[first:last], self.futures[first:last])
            self.total = at     # the parts have the others

    def settle(self, error: Exception | None, on_error: OnError | None) -> None:
        """Gives each message its outcome; error: why some were not acknowledged. Logs whatever on_error raises: the
        other messages need theirs."""
        acknowledged = self.total if error is None else self.acknowledged
        for future in self.futures[:acknowledged]:
            if not future.done():
                future.set_result(None)
        if error is None or acknowledged >= self.total:
            return
        for at in range(acknowledged, self.total):
            own = own_error(error, at < self.sent)
            future = self.futures[at]
            if not future.done():
                future.set_exception(own)
                future.exception()
            if on_error is not None:
                try:
                    on_error(self.topic, self._bodies[at], own)
                except BaseException as failure:
                    log.log(logging.ERROR, "on_error has raised", exc_info=failure)
        if on_error is None:
            log.log(logging.ERROR, "topic %s: messages not published: %d: %s", self.topic,
                    self.total - acknowledged, error)


def own_error(error: Exception, was_sent: bool) -> Exception:
    """The error of one message of a batch."""
    if isinstance(error, PublishFailed):
        return PublishFailed(error.text, 0, int(was_sent), int(not was_sent))
    return type(error)(*error.args) if isinstance(error, ClientError) else error


class Queue(Generic[F]):
    """The messages of one topic."""

    __slots__ = ("bodies", "futures", "since", "size")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.futures: list[F] = []
        self.since, self.size = time.monotonic(), 0


class Outbox(Generic[F]):
    """Messages until they are acknowledged. linger: seconds for which they wait for others of their topic, up to a full
    batch. max_pending_bytes: of all of them, with MESSAGE_BYTES for each; more have to wait. on_error: called with
    topic, body and error of a message that was not published; None: a line is logged. Raises TypeError, ValueError."""

    def __init__(self, options: Options, linger: float, max_pending_bytes: int, on_error: OnError | None):
        checked(linger=linger, max_pending_bytes=max_pending_bytes)
        if on_error is not None and not callable(on_error):
            raise TypeError(f"on_error is {on_error!r}; it takes a function")
        self.size = 0                   # bytes of memory
        self.flushing = 0               # calls that wait for all messages: none of them lingers
        self.on_error = on_error
        self._options, self._linger, self._most = options, linger, max_pending_bytes
        self._queues: dict[str, Queue[F]] = {}      # the oldest first
        self._is_full = False           # a batch is complete
        self._taken: Gathered[F] | None = None

    def checked(self, topic: str, body: Body) -> bytes:
        """The body as bytes. Raises BadName, BadMessage, TypeError."""
        if topic not in self._queues:
            topic_name(topic)
        return frames.checked(body, self._options.max_msg_size)

    def has_room(self, size: int) -> bool:
        """Whether a body of this size may be added."""
        return not self.size or self.size + size + MESSAGE_BYTES <= self._most

    def full(self, timeout: float) -> PublishFailed:
        """The error of a message that has waited for room in vain."""
        return PublishFailed(f"no room within {timeout:g} s: max_pending_bytes is {self._most}, and nsqd does not "
                             "acknowledge messages fast enough", unsent=1)

    def add(self, topic: str, body: bytes, future: F) -> bool:
        """Adds a checked message. Returns whether there may be something to send earlier than before."""
        queue = self._queues.get(topic)
        is_new = queue is None
        if queue is None:
            queue = self._queues[topic] = Queue()
        queue.bodies.append(body)
        queue.futures.append(future)
        queue.size += len(body)
        self.size += len(body) + MESSAGE_BYTES
        if not self._is_full and (queue.size >= BATCH_BYTES or len(queue.bodies) >= BATCH_ROWS):
            self._is_full = is_new = True
        return is_new

    def due(self) -> float | None:
        """Seconds until a batch is to be sent; None: no message waits."""
        if not self._queues:
            return None
        if self._is_full or self.flushing:
            return 0.0
        return max(next(iter(self._queues.values())).since + self._linger - time.monotonic(), 0.0)

    def take(self) -> Gathered[F]:
        """All messages of the topic that has waited longest. done() has to follow."""
        topic, queue = next(iter(self._queues.items()))
        del self._queues[topic]
        self._is_full = any(other.size >= BATCH_BYTES for other in self._queues.values())
        self._taken = Gathered(self._options, topic, queue.bodies, queue.futures)
        return self._taken

    def done(self) -> None:
        """The batch taken last has its outcomes."""
        if self._taken is not None:
            self.size -= self._taken.size
            self._taken = None

    def futures(self) -> list[F]:
        """Of all messages without an outcome."""
        taken = self._taken.futures if self._taken is not None else ()
        return [*taken, *(future for queue in self._queues.values() for future in queue.futures)]

    def copy(self) -> Outbox[F]:
        """An empty one with the same options."""
        return Outbox(self._options, self._linger, self._most, self.on_error)

    def abandon(self) -> None:
        """The producer is closed: the messages that wait are not sent."""
        while self._queues:
            self.take().settle(Closed("the producer is closed"), self.on_error)
            self.done()
