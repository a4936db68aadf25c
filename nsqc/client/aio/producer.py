"""Publishes from any number of tasks over one connection: commands of one loop iteration are sent together, and if an
nsqd fails, the next one gets the unacknowledged messages.

Delivery is at least once: messages sent but not acknowledged before a connection broke are sent again.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Unpack

from nsqc.client.aio.connection import Bystander, Connection, in_thread
from nsqc.client.commands import BATCH_BYTES, BATCH_ROWS, WINDOW, Body, Deferred, Many, Publication, Single
from nsqc.client.core import CLOSE_SECONDS
from nsqc.client.errors import ClientError, Closed, ConnectError, NoAnswer, Refused
from nsqc.client.handling import ProducerStats
from nsqc.client.options import ConnectionOptions, Options
from nsqc.client.peers import Backoff, Failover, Tries
from nsqc.client.producer import OWN
from nsqc.client.sending import LINGER_SECONDS, MAX_PENDING_BYTES, Gathered, OnError, Outbox


class Producer:
    """Like nsqc.client.Producer, for the tasks of one event loop: `async with Producer(["127.0.0.1:4150"]) as
    producer`.

    A cancelled publish returns at once; it may or may not have been sent, and others are not affected. Raises
    BadAddress, ValueError, TypeError."""

    def __init__(self, nsqd: str | Iterable[str] = (), *, nsqlookupd: str | Iterable[str] = (), retries: int = 5,
                 backoff: float = 0.1, timeout: float = 10.0, spread: bool = False, poll_interval: float = 60.0,
                 linger: float = LINGER_SECONDS, max_pending_bytes: int = MAX_PENDING_BYTES,
                 on_error: OnError | None = None, **options: Unpack[ConnectionOptions]):
        self._connections: dict[str, Connection] = {}   # by slot: the nsqd, or "" if there is one connection
        self._options = Options("Producer", OWN, timeout, options, publishes=True)
        self._failover = Failover(nsqd, nsqlookupd, retries, Backoff(backoff), spread=spread,
                                  poll_interval=poll_interval)
        self._dialing: dict[str, asyncio.Task[Connection]] = {}
        self._lookup: asyncio.Task[None] | None = None  # of spread publishes
        self._loop: asyncio.AbstractEventLoop | None = None
        self._published = self._retries = self._failed = 0
        self._closed = False
        self._outbox: Outbox[asyncio.Future[None]] = Outbox(self._options, linger, max_pending_bytes, on_error)
        self._sender: asyncio.Task[None] | None = None  # while there is something to send
        self._more = asyncio.Event()                    # messages came, or lingering has ended
        self._room = asyncio.Condition()

    # ------------------------------------------------------------------ publishing

    async def publish(self, topic: str, body: Body, *, id: str | None = None) -> None:
        """Returns when nsqd has it. id: as of nsqc.client.Producer. Raises BadName, BadMessage, ValueError,
        Refused, LookupFailed, PublishFailed, Closed."""
        await self._attempt(Single(self._options, topic, body, id))

    async def publish_many(self, topic: str, bodies: Iterable[Body], *, batch_bytes: int = BATCH_BYTES,
                           batch_rows: int = BATCH_ROWS, window: int = WINDOW, id: str | None = None) -> None:
        """MPUBs of up to batch_bytes and batch_rows, window of them unanswered at a time. bodies: any iterable,
        consumed before anything is sent. If a connection breaks halfway, what was not acknowledged is sent again.
        Raises as publish, and what the iterable raises."""
        many = Many(self._options, topic, bodies, batch_bytes, batch_rows, window, id)
        if many:
            await self._attempt(many)

    async def publish_deferred(self, topic: str, body: Body, delay_ms: int, *, id: str | None = None) -> None:
        """Delivered after delay_ms milliseconds. Raises as publish."""
        await self._attempt(Deferred(self._options, topic, (body,), delay_ms, id))

    async def publish_deferred_many(self, topic: str, bodies: Iterable[Body], delay_ms: int, *,
                                    id: str | None = None) -> None:
        """Raises as publish_many."""
        deferred = Deferred(self._options, topic, bodies, delay_ms, id)
        if deferred:
            await self._attempt(deferred)

    # ------------------------------------------------------------------ sending

    async def send(self, topic: str, body: Body) -> asyncio.Future[None]:
        """Publishes in the background, together with other messages of the topic; the future gets None, or an error as
        of publish(). Waits only while max_pending_bytes are unacknowledged. Messages keep their order, apart from
        retries. Raises BadName, BadMessage, Closed, PublishFailed after the timeout without room."""
        body = self._outbox.checked(topic, body)
        self._check_loop()
        if not self._outbox.has_room(len(body)):
            try:
                async with asyncio.timeout(self._options.timeout), self._room:
                    await self._room.wait_for(lambda: self._closed or self._outbox.has_room(len(body)))
            except TimeoutError:
                raise self._outbox.full(self._options.timeout) from None
        if self._closed:
            raise Closed("the producer is closed")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._outbox.add(topic, body, future):
            self._more.set()
        self._start_sender()
        return future

    async def flush(self, timeout: float | None = None) -> None:
        """As of nsqc.client.Producer."""
        futures = self._outbox.futures()
        if not futures:
            return
        self._outbox.flushing += 1
        self._more.set()
        self._start_sender()
        try:
            _, left = await asyncio.wait(futures, timeout=timeout)
        finally:
            self._outbox.flushing -= 1
        if left:
            raise NoAnswer(f"{len(left)} of {len(futures)} messages have no outcome after {timeout:g} s")

    def _start_sender(self) -> None:
        """Also after the application has cancelled all tasks."""
        if self._sender is None:
            self._sender = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            while (seconds := self._outbox.due()) is not None:
                if seconds:
                    self._more.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(seconds):
                            await self._more.wait()
                    continue
                try:
                    await self._deliver(self._outbox.take())
                finally:
                    self._outbox.done()
                    async with self._room:
                        self._room.notify_all()
        finally:
            self._sender = None

    async def _deliver(self, batch: Gathered[asyncio.Future[None]]) -> None:
        try:
            await self._attempt(batch)
        except Exception as error:
            for part in batch.parts(error):
                await self._deliver(part)
            batch.settle(error, self._outbox.on_error)
        except BaseException:
            batch.settle(Closed("the producer is closed" if self._closed else "the task that sends was cancelled"),
                         self._outbox.on_error)
            raise
        else:
            batch.settle(None, self._outbox.on_error)

    # ------------------------------------------------------------------ the producer itself

    async def connect(self) -> None:
        """Connects now, so that a mistake shows before the first publish. Raises as publish."""
        await self._attempt(Publication(0))

    async def ping(self) -> float:
        """Greets an nsqd over a new connection, for health checks; returns the seconds it took. Raises as publish."""
        began = time.monotonic()
        await self._attempt(Publication(0), fresh=True)
        return time.monotonic() - began

    def stats(self) -> ProducerStats:
        """Counters, and the connections."""
        alive = Counter(connection.address for connection in self._connections.values() if connection.alive)
        return ProducerStats(self._published, self._retries, self._failed, dict(alive),
                             {address: down.reason for address, down in self._failover.down.items()},
                             self._outbox.size)

    async def close(self) -> None:
        """Waits for outstanding answers, and until the messages of send() are sent, within the timeout; then closes the
        connections. Further calls raise Closed. Raises RuntimeError in another event loop."""
        await self._close(self._options.timeout)

    async def _close(self, patience: float) -> None:
        if self._closed:
            return
        self._check_loop()
        with suppress(NoAnswer):
            await self.flush(patience)
        self._closed = True
        async with self._room:
            self._room.notify_all()
        tasks = {*self._dialing.values()} | {task for task in (self._lookup, self._sender) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._outbox.abandon()
        connections = [*self._connections.values()]
        self._connections.clear()
        try:
            await asyncio.gather(*(connection.leave(patience) for connection in connections))
        finally:
            for connection in connections:
                connection.abort()

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Waits for the answers of other tasks, but only briefly if the block raised or was cancelled."""
        await self._close(self._options.timeout if kind is None else min(CLOSE_SECONDS, self._options.timeout))

    def __del__(self) -> None:
        for connection in [*self._connections.values()]:
            if connection.alive:
                warnings.warn(f"unclosed producer to nsqd {connection.address}", ResourceWarning, stacklevel=2,
                              source=self)
                if not connection.loop.is_closed():
                    connection.loop.call_soon_threadsafe(connection.abort)
        self._connections.clear()

    # ------------------------------------------------------------------ fail-over

    async def _attempt(self, publication: Publication, fresh: bool = False) -> None:
        """Publishes; fresh: over a connection that is closed afterwards."""
        if not self._closed:
            self._check_loop()
        tries: Tries | None = None
        while True:
            if self._closed:
                raise Closed("the producer is closed")
            where = Where()
            try:
                connection = self._ready(where, fresh)
                if connection is not None and tries is None:
                    # Without its own timer: the connection ends if nsqd stops answering.
                    await self._publish(connection, publication)
                else:
                    tries = tries or Tries(self._failover, publication, self._options.timeout)
                    await self._publish_slowly(where, connection, publication, tries, fresh)
                self._failover.worked(where.address)
                self._published += publication.total
                return
            except Bystander:
                # Another publish was refused; this does not count as a try.
                self._drop(where)
            except (ConnectError, Refused) as error:
                self._drop(where)
                tries = tries or Tries(self._failover, publication, self._options.timeout)
                await asyncio.sleep(self._failure(tries, error, where))

    async def _publish_slowly(self, where: Where, connection: Connection | None, publication: Publication, tries: Tries,
                              fresh: bool) -> None:
        """An attempt that connects, or is not the first: within the remaining time."""
        patience = tries.patience()
        try:
            async with asyncio.timeout(patience) as limit:
                if connection is None:
                    connection = await self._connected(where, fresh)
                await self._publish(connection, publication, lambda: None if limit.expired() else limit.reschedule(
                    asyncio.get_running_loop().time() + patience))
        except TimeoutError:
            raise NoAnswer(f"{where.address or 'nsqlookupd'}: no answer in time") from None
        finally:
            if fresh and connection is not None:
                connection.abort()

    def _failure(self, tries: Tries, error: ConnectError | Refused, where: Where) -> float:
        """The pause before the next attempt. Raises PublishFailed, Refused."""
        try:
            pause = tries.failed(error, where.address or None)
        except ClientError:
            self._failed += 1
            self._published += tries.publication.acknowledged
            raise
        self._retries += 1
        return pause

    @staticmethod
    async def _publish(connection: Connection, publication: Publication,
                       progressed: Callable[[], None] | None = None) -> None:
        """progressed: called after each answer."""
        due: deque[tuple[asyncio.Future[bytes], int]] = deque()
        try:
            for command in publication.commands(connection.offered):
                if connection.paused:
                    await connection.room()
                publication.submitting(command.end)
                due.append((connection.submit(command.data, command.answers), command.end))
                most = 0 if command.end == publication.total else publication.window - 1
                while len(due) > most:
                    connection.expect_ok(await due[0][0])
                    publication.confirm(due.popleft()[1])
                    if progressed is not None:
                        progressed()
        finally:
            for waiter, _ in due:
                waiter.cancel()
                if not waiter.cancelled():
                    waiter.exception()      # retrieved: the same error is being raised here

    # ------------------------------------------------------------------ the connections

    def _check_loop(self) -> None:
        """Raises RuntimeError in another event loop than the connections'."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError("this Producer is connected in another event loop: create one per loop")
            self._loop, self._lookup, self._sender, self._outbox = loop, None, None, self._outbox.copy()
            self._connections.clear()
            self._dialing.clear()

    def _ready(self, where: Where, fresh: bool) -> Connection | None:
        """The current connection, if it works; with spread, that to the next nsqd."""
        failover = self._failover
        if failover.look_up_due() and failover.addresses:
            self._lookup = asyncio.create_task(self._look_up())
        if failover.spread and failover.addresses:
            where.slot = where.address = failover.target()
        connection = None if fresh else self._connections.get(where.slot)
        if connection is None or not connection.alive:
            return None
        where.connection, where.address = connection, connection.address
        return connection

    async def _connected(self, where: Where, fresh: bool) -> Connection:
        """A new connection, shared by all tasks that wait for it; cancelling one of them does not cancel the dial."""
        if fresh:
            return await self._dial(where)
        dialing = self._dialing.get(where.slot)
        if dialing is None:
            dialing = self._dialing[where.slot] = asyncio.create_task(self._dial_shared(where.slot))
            dialing.add_done_callback(_looked_at)
        await asyncio.wait({dialing})
        if dialing.cancelled():
            raise Closed("the producer is closed")
        error = dialing.exception()
        if error is not None:
            where.address = ""                  # its failure is already counted
            raise type(error)(*error.args)      # each waiter gets its own traceback
        where.connection = dialing.result()
        where.address = where.connection.address
        return where.connection

    async def _dial_shared(self, slot: str) -> Connection:
        where = Where(slot)
        try:
            connection = await self._dial(where)
            self._connections[slot if slot or not self._failover.spread else where.address] = connection
            return connection
        except ConnectError as error:
            if where.address:
                self._failover.failed(where.address, error)     # once for all waiters
            raise
        finally:
            if self._dialing.get(slot) is asyncio.current_task():
                del self._dialing[slot]

    async def _dial(self, where: Where) -> Connection:
        failover = self._failover
        if not where.slot:
            if failover.nsqlookupd:
                await self._look_up()
            where.address = failover.target()
        connection = Connection(where.address, self._options)
        if len(failover.addresses) > 1:
            connection.timeout /= 2     # leaves time for the next nsqd within a call's timeout
        return await connection.open()

    async def _look_up(self) -> None:
        self._failover.addresses = await in_thread(self._failover.look_up, self._options.timeout, self._options.tls,
                                                   self._options.auth_secret)

    def _drop(self, where: Where) -> None:
        if where.connection is not None:
            where.connection.abort()
            if self._connections.get(where.slot) is where.connection:
                del self._connections[where.slot]


class Where:
    """The nsqd of an attempt, as far as known."""

    __slots__ = ("address", "connection", "slot")

    def __init__(self, slot: str = ""):
        self.slot = self.address = slot
        self.connection: Connection | None = None


def _looked_at(dialing: asyncio.Task[Connection]) -> None:
    """Retrieves its exception: all waiters may be cancelled, and asyncio would report it as never retrieved."""
    if not dialing.cancelled():
        dialing.exception()
