"""Consumes a channel of several nsqd on an event loop: get() takes messages straight from the connections; one task
maintains the connections."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Unpack

from nsqc.client.aio.connection import Connection, in_thread
from nsqc.client.core import CLOSE_SECONDS
from nsqc.client.errors import ClientError, ConnectError, LookupFailed
from nsqc.client.frames import Message
from nsqc.client.log import Log
from nsqc.client.lookup import lookup
from nsqc.client.options import ConnectionOptions
from nsqc.client.peers import TICK_SECONDS, BaseConsumer, Peer

log = Log("nsqc.client")

HOG_SECONDS = 0.01      # messages are handed out this long before the loop regains control


class Consumer(BaseConsumer[Connection]):
    """Like nsqc.client.Consumer, for one event loop: `async with Consumer(...) as consumer`, `async for message in
    consumer`. Several tasks may take messages from one consumer. finish(), requeue() and touch() of a message do not
    wait.

    The event loop answers heartbeats, reconnects and touches: run long computations and blocking calls in threads
    (asyncio.to_thread). get() may be cancelled at any time: received messages stay for the next call. Leaving the
    context requeues all unanswered messages at once. Raises BadName, BadAddress, ValueError, TypeError; from iterating,
    as nsqc.client.Consumer."""

    def __init__(self, topic: str, channel: str, nsqd: str | Iterable[str] = (), *,
                 nsqlookupd: str | Iterable[str] = (), max_in_flight: int | None = None, connections: int = 1,
                 poll_interval: float = 60.0, backoff: float = 0.1, touch_limit: float = 0.0, timeout: float = 10.0,
                 **options: Unpack[ConnectionOptions]):
        super().__init__(topic, channel, nsqd, nsqlookupd, max_in_flight, connections, poll_interval, backoff,
                         touch_limit, timeout, options)
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._keeper: asyncio.Task[None] | None = None
        self._dialing: dict[Peer[Connection], asyncio.Task[None]] = {}
        self._check = asyncio.Event()               # wakes the keeper
        self._yield_at = 0.0

    # ------------------------------------------------------------------ messages

    def __aiter__(self) -> Consumer:
        return self

    async def __anext__(self) -> Message:
        """The next message, until close() or stop(). Raises as get()."""
        message = await self.get()
        if message is None:
            raise StopAsyncIteration
        return message

    async def get(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none arrives within timeout seconds, or after close() or stop(). Raises as
        nsqc.client.Consumer."""
        self._begin()
        if self._stopping:
            return None
        if time.monotonic() > self._yield_at:
            # Waiting messages must not keep the loop from heartbeats, writing and other tasks.
            await asyncio.sleep(0)
            self._yield_at = time.monotonic() + HOG_SECONDS
        if not self._arrived and not self._collect():
            if timeout is None:
                await self._wait()
            else:
                try:
                    async with asyncio.timeout(timeout):
                        await self._wait()
                except TimeoutError:
                    return None
        return self._arrived.popleft() if self._arrived else None

    async def _wait(self) -> None:
        """Waits for a message, close() or stop()."""
        while not self._closed and not self._stopping:
            if self._error is not None:
                error, self._error = self._error, None
                self._check.set()
                raise error
            if self._arrived or self._collect():
                return
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            finally:
                if waiter.cancelled():
                    self._waiting = deque(other for other in self._waiting if other is not waiter)
            self._yield_at = time.monotonic() + HOG_SECONDS

    def _collect(self) -> bool:
        """Turns received rows into messages; returns whether there are any."""
        for peer, connection in self._peers.connected:
            if connection.inflow.rows:
                self._take(peer, connection)
        return bool(self._arrived)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    # ------------------------------------------------------------------ flow

    def throttle(self, most: int | None, backs_off: bool = False) -> None:
        """Limits the messages in flight until further notice, 0 for none; None: no limit besides the options.
        backs_off: because of failures, as nsqc's statistics then show."""
        self._peers.cap, self._peers.backs_off = most, backs_off
        self._check.set()

    def stop(self) -> None:
        """Ends iterations, and get() returns None, for example as a signal handler of the loop. close() does the
        rest."""
        self._stopping = True
        self._wake()

    def hand_back(self) -> None:
        """stop(), and requeues at once the messages that get() has not returned, for other consumers. Messages that it
        has returned can still be answered."""
        self.throttle(0)
        while self._arrived:
            self._arrived.popleft().requeue()
        self.stop()

    # ------------------------------------------------------------------ connections

    def _begin(self) -> None:
        if self._keeper is None and not self._closed:
            self._keeper = asyncio.create_task(self._keep())
        elif self._keeper is not None and self._keeper.get_loop() is not asyncio.get_running_loop():
            raise RuntimeError("this Consumer belongs to another event loop")

    async def _keep(self) -> None:
        """Maintains the connections until close()."""
        try:
            while True:
                self._check.clear()
                now = time.monotonic()
                if self._peers.look_up_due(now):
                    await self._look_up(now)
                if self._error is None:
                    for peer in self._peers.due(now):
                        if peer not in self._dialing:
                            self._dialing[peer] = asyncio.create_task(self._connect(peer))
                self._look_after(now)
                try:
                    async with asyncio.timeout(TICK_SECONDS):
                        await self._check.wait()
                except TimeoutError:
                    pass
        except Exception as error:
            self._fail(error)
            raise
        finally:
            if not self._closed:
                # The loop ends, and the application has not closed this consumer.
                self._closed = True
                warnings.warn(f"unclosed consumer of {self.topic}/{self.channel}", ResourceWarning, stacklevel=1,
                              source=self)
                for _, connection in self._peers.connected:
                    connection.abort()
                self._wake()

    def _look_after(self, now: float) -> None:
        """Updates RDY, touches, and requeues."""
        if self._stopping:
            self._collect()
        # The connection may end here: _lost() is called for it.
        for peer, connection, ready in self._peers.shares(now):
            with suppress(ConnectError):
                connection.ready(ready, self._peers.backs_off)
                peer.ready, peer.backs_off = ready, self._peers.backs_off
        for _, connection in self._peers.connected:
            self._report_late(connection)
            with suppress(ConnectError):
                connection.look_after(now, self._touch_limit)

    async def _look_up(self, now: float) -> None:
        first = not self._peers.looked_up
        try:
            addresses = await in_thread(lookup, self.topic, self._peers.nsqlookupd, self._options.timeout,
                                        self._options.tls, self._options.auth_secret)
        except LookupFailed as error:
            if first:
                self._fail(error)
                return
            log.warning("%s; continuing with the known nsqd", error)
            self._peers.asked(now)
            return
        self._peers.asked(now)
        self._peers.found(addresses)

    async def _connect(self, peer: Peer[Connection]) -> None:
        connection = Connection(peer.address, self._options, self._wake,
                                lambda _, error: self._lost(peer, connection, error))
        connection.tolerant = True
        try:
            await connection.open()
            await connection.subscribe(self.topic, self.channel)
        except ClientError as error:
            self._failed(peer, error)
        except Exception as error:
            self._failed(peer, error)
            self._fail(error)
        except BaseException:
            connection.abort()
            raise
        else:
            peer.connected(connection)
            self._check.set()
        finally:
            del self._dialing[peer]

    def _lost(self, peer: Peer[Connection], lost: Connection, error: Exception) -> None:
        """Drops a connection and its messages that the application has not received: nsqd delivers them again."""
        if peer.connection is not lost or self._closed:
            return
        self._arrived = deque(message for message in self._arrived if message.connection is not lost)
        self._failed(peer, error)
        self._check.set()

    def _failed(self, peer: Peer[Connection], error: Exception) -> None:
        super()._failed(peer, error)
        if self._error is not None:
            self._wake()

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._wake()

    # ------------------------------------------------------------------ closing

    async def close(self) -> None:
        """Requeues all unanswered messages at once, for other consumers, and closes. Pending get() calls return
        None."""
        if self._closed:
            return
        if self._keeper is not None and self._keeper.get_loop() is not asyncio.get_running_loop():
            raise RuntimeError("this Consumer belongs to another event loop")
        self._closed = True
        self._arrived.clear()
        self._wake()
        tasks = {*self._dialing.values()} | ({self._keeper} if self._keeper is not None else set())
        for task in tasks:
            task.cancel()
        connections = [connection for _, connection in self._peers.connected]
        try:
            if tasks:
                await asyncio.wait(tasks)
            await asyncio.gather(*(connection.leave(CLOSE_SECONDS) for connection in connections))
        finally:
            for connection in connections:
                connection.abort()

    async def __aenter__(self) -> Consumer:
        self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
