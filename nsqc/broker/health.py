"""The answer to /ping: whether queues can be written; notices when they are writable again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress

from nsqc.broker.channel import Channel
from nsqc.broker.topic import Topic
from nsqc.log import Log

RETRY_S = 0.25
PROBE_BYTES = 65536


class WriteHealth:
    """Collects failed writes, retries them, and reports when all have healed.

    A channel that cannot write keeps its messages and is retried here until it can. A topic that could not write has
    refused the messages and has nothing to retry, so a probe file shows when there is room again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, log: Log,
                 failing_sync: Callable[[], str | None], low_space: Callable[[], str | None] = lambda: None):
        """failing_sync: why syncs fail; None while they succeed. low_space: the same for free space on the disk."""
        self._loop = loop
        self._workers = workers
        self._data_path = data_path
        self._log = log
        self._failing_sync = failing_sync
        self._low_space = low_space
        self._stuck: dict[Channel, None] = {}
        self._refusing: Topic | None = None
        self._reason: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.failing = False  # a write has failed, and not all have healed

    def health(self) -> str:
        """OK, or NOK and the reason."""
        reason = self._reason or self._failing_sync() or self._low_space()
        return "OK" if reason is None else f"NOK - {reason}"

    def failed(self, topic: Topic, channel: Channel | None, error: int) -> None:
        """A topic, or one of its channels, could not write its queue; error is the errno."""
        name = topic.name.decode() if channel is None else f"{topic.name.decode()}:{channel.name.decode()}"
        reason = f"failed to write {name} - {os.strerror(error)}"
        if reason != self._reason:
            self._log.error("DISKQUEUE(%s): write failed - %s", name, os.strerror(error))
        self._reason = reason
        self.failing = True
        if channel is None:
            self._refusing = topic
        else:
            self._stuck[channel] = None
        self._watch()

    def healed(self, topic: Topic | None, channel: Channel | None) -> bool:
        """A failed queue was written. Both None: another one was; as with nsqd, that clears the error of a topic.

        Returns whether others still fail.
        """
        if channel is not None:
            self._stuck.pop(channel, None)
        elif topic is None or self._refusing is topic:
            self._refusing = None
        self._settle()
        return self.failing

    def forget(self, channel: Channel) -> None:
        """The channel is deleted; forgets its failure."""
        if channel in self._stuck:
            del self._stuck[channel]
            self._settle()

    def close(self) -> None:
        """Stops watching."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _settle(self) -> None:
        if self.failing and not self._stuck and self._refusing is None:
            self._log.info("DISKQUEUE: writes succeed again")
            self._reason = None
            self.failing = False

    def _watch(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = self._loop.call_later(RETRY_S, self._retry)

    def _retry(self) -> None:
        self._timer = None
        for channel in list(self._stuck):
            channel.retry()
        if self._refusing is not None and not self._stuck:
            topic = self._refusing
            probe = self._loop.run_in_executor(self._workers, probe_error, self._data_path, topic.probe_path)
            probe.add_done_callback(lambda done: self._probed(topic, done))
        if self.failing:
            self._watch()

    def _probed(self, topic: Topic, done: asyncio.Future[OSError | None]) -> None:
        if not done.cancelled() and done.exception() is None and done.result() is None and self._refusing is topic:
            self._refusing = None
            self._settle()


def probe_error(data_path: str, queue_file: str) -> OSError | None:
    """The error of writing a file in data_path, or of opening queue_file for writing; None: both work."""
    import tempfile  # only here, and on a thread

    try:
        with suppress(FileNotFoundError):  # not created here: the queue may be creating it
            os.close(os.open(queue_file, os.O_RDWR))
        descriptor, path = tempfile.mkstemp(prefix="nsqc-probe-", suffix=".tmp", dir=data_path)
        try:
            if os.write(descriptor, bytes(PROBE_BYTES)) < PROBE_BYTES:
                return OSError("short write")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            with suppress(OSError):
                os.unlink(path)
    except OSError as error:
        return error
    return None
