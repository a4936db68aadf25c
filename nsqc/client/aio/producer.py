"""Publishing from any number of tasks over one connection: commands of one loop iteration leave together, and if an
nsqd fails, the next one gets what was not acknowledged.

Delivery is at least once: what was sent but not acknowledged before a connection broke is sent again.
"""

from __future__ import annotations

import asyncio
import warnings
from collections import deque
from collections.abc import Iterable
from typing import Unpack

from nsqc.client.aio.connection import Bystander, Connection
from nsqc.client.aio.threads import in_thread
from nsqc.client.backoff import Backoff
from nsqc.client.commands import BATCH_BYTES, BATCH_ROWS, WINDOW, Body, Deferred, Many, Publication, Single
from nsqc.client.core import CLOSE_SECONDS
from nsqc.client.errors import Closed, ConnectError, Refused
from nsqc.client.failover import Failover, Tries
from nsqc.client.options import ConnectionOptions, Options
from nsqc.client.producer import OWN


class Producer:
    """Like nsqc.client.Producer, for the tasks of one event loop: `async with Producer(["127.0.0.1:4150"]) as
    producer`.

    A cancelled publish may or may not have been sent; others are not affected. Raises BadAddress, ValueError,
    TypeError.
    """

    def __init__(self, nsqd: str | Iterable[str] = (), *, nsqlookupd: str | Iterable[str] = (), retries: int = 5,
                 backoff: float = 0.1, timeout: float = 10.0, **options: Unpack[ConnectionOptions]):
        self._connection: Connection | None = None
        self._options = Options("Producer", OWN, timeout, options)
        self._failover = Failover(nsqd, nsqlookupd, retries, Backoff(backoff))
        self._dialing: asyncio.Task[Connection] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def publish(self, topic: str, body: Body) -> None:
        """Returns when nsqd has it. Raises BadName, BadMessage, Refused, LookupFailed, PublishFailed."""
        await self._attempt(Single(self._options, topic, body))

    async def publish_many(self, topic: str, bodies: Iterable[Body], *, batch_bytes: int = BATCH_BYTES,
                           batch_rows: int = BATCH_ROWS, window: int = WINDOW) -> None:
        """MPUBs of up to batch_bytes and batch_rows, window of them unanswered at a time. bodies: any iterable,
        consumed before anything is sent. If a connection breaks halfway, everything is sent again. Raises as publish,
        and what the iterable raises."""
        many = Many(self._options, topic, bodies, batch_bytes, batch_rows, window)
        if many:
            await self._attempt(many)

    async def publish_deferred(self, topic: str, body: Body, delay_ms: int) -> None:
        """Delivered after delay_ms milliseconds. Raises as publish."""
        await self._attempt(Deferred(self._options, topic, (body,), delay_ms))

    async def publish_deferred_many(self, topic: str, bodies: Iterable[Body], delay_ms: int) -> None:
        """Raises as publish_many."""
        deferred = Deferred(self._options, topic, bodies, delay_ms)
        if deferred:
            await self._attempt(deferred)

    async def close(self) -> None:
        """Waits for outstanding answers and closes the connection; the next publish connects again. Raises RuntimeError
        in another event loop."""
        await self._close(self._options.timeout)

    async def _close(self, patience: float) -> None:
        self._ready()
        dialing, self._dialing = self._dialing, None
        if dialing is not None:
            dialing.cancel()
            await asyncio.wait({dialing})
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.leave(patience)
        self._loop = None

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Waits for the answers of other tasks, but only briefly if the block has raised or was cancelled."""
        await self._close(self._options.timeout if kind is None else min(CLOSE_SECONDS, self._options.timeout))

    def __del__(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.alive:
            warnings.warn(f"unclosed producer to nsqd {connection.address}", ResourceWarning, stacklevel=2, source=self)
            if not connection.loop.is_closed():
                connection.loop.call_soon_threadsafe(connection.abort)

    # ------------------------------------------------------------------ fail-over

    async def _attempt(self, publication: Publication) -> None:
        tries = Tries(self._failover)
        while True:
            connection = self._ready()
            try:
                if connection is None:
                    connection = await self._connected()
                await self._publish(connection, publication)
                return
            except Bystander:
                # Another publish was refused; this one counts no try.
                self._drop(connection)
            except (ConnectError, Refused) as error:
                self._drop(connection)
                await asyncio.sleep(tries.failed(error, connection.address if connection is not None else None))

    @staticmethod
    async def _publish(connection: Connection, publication: Publication) -> None:
        due: deque[asyncio.Future[bytes]] = deque()
        try:
            for command, answers in publication:
                if connection.paused:
                    await connection.room()
                due.append(connection.submit(command, answers))
                while len(due) >= publication.window:
                    connection.expect_ok(await due.popleft())
            while due:
                connection.expect_ok(await due.popleft())
        finally:
            for waiter in due:
                waiter.cancel()
                if not waiter.cancelled():
                    waiter.exception()      # retrieved: the same error is being raised here

    # ------------------------------------------------------------------ the connection

    def _ready(self) -> Connection | None:
        """The current connection, if it works. Raises RuntimeError in another event loop than the connection's."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._loop.is_closed():
                raise RuntimeError("this Producer is connected in another event loop: close() it there, or make one "
                                   "for each loop")
            self._loop, self._connection, self._dialing = loop, None, None
        connection = self._connection
        return connection if connection is not None and connection.alive else None

    async def _connected(self) -> Connection:
        """A new connection, shared by all tasks that wait for it; cancelling one of them does not cancel the dial."""
        dialing = self._dialing
        if dialing is None:
            dialing = self._dialing = asyncio.create_task(self._dial())
        await asyncio.wait({dialing})
        if dialing.cancelled():
            raise Closed("the producer was closed")
        error = dialing.exception()
        if error is not None:
            raise type(error)(*error.args)      # each waiter gets its own traceback
        return dialing.result()

    async def _dial(self) -> Connection:
        try:
            if self._failover.nsqlookupd:
                self._failover.addresses = await in_thread(self._failover.look_up, self._options.timeout,
                                                                self._options.tls)
            address = self._failover.target()
            try:
                self._connection = await Connection(address, self._options).open()
            except ConnectError:
                self._failover.move_on(address)
                raise
            return self._connection
        finally:
            if self._dialing is asyncio.current_task():
                self._dialing = None

    def _drop(self, connection: Connection | None) -> None:
        if connection is not None:
            connection.abort()
            if self._connection is connection:
                self._connection = None
