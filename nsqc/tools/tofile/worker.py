"""Two threads for the disk: one writes rounds of messages, the other syncs written ones meanwhile."""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from nsqc.tools.feed import Delivery
    from nsqc.tools.tofile.archive import Archive


class Round(NamedTuple):
    """One round of writing: deliveries by topic. close: all files, afterwards. begun: time.monotonic()."""

    deliveries: dict[str, list[Delivery]]
    close: bool
    begun: float


class Outcome(NamedTuple):
    """Deliveries of a topic that were synced, or the error that prevented it."""

    topic: str
    deliveries: list[Delivery]
    begun: float
    error: OSError | None


class Written(NamedTuple):
    """A pending sync. epoch: of Archive.store()."""

    topic: str
    deliveries: list[Delivery]
    begun: float
    archive: Archive
    epoch: int


class Worker:
    """done: called on one of the threads when a round is written, and when something is finished. finished: taken by
    the owner."""

    def __init__(self, archive_of: Callable[[str], Archive], done: Callable[[], None]):
        self._archive_of, self._done = archive_of, done
        self._archives: dict[str, Archive] = {}     # of the writing thread
        self._given, self._to_sync = threading.Semaphore(0), threading.Semaphore(0)
        self._round: Round | None = None
        self._written: deque[Written] = deque()
        self._under_way = 0             # unwritten rounds, and pending syncs
        self._count = threading.Lock()
        self.finished: deque[Outcome] = deque()
        for work in (self._write_rounds, self._sync_written):
            threading.Thread(target=work, daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether it accepts no round now."""
        return self._round is not None

    @property
    def is_idle(self) -> bool:
        """Whether all work is in `finished`."""
        return not self._under_way

    def begin(self, work: Round) -> None:
        """Starts a round; only if it is not busy."""
        self._add(1)
        self._round = work
        self._given.release()

    def _add(self, count: int) -> None:
        with self._count:
            self._under_way += count

    # ------------------------------------------------------------------ writing

    def _write_rounds(self) -> None:
        while True:
            self._given.acquire()
            for archive in list(self._archives.values()):
                archive.mend()
            work = self._round
            if work is None:
                continue        # only to mend
            for topic in {*work.deliveries, *self._archives}:
                self._write(topic, work)
            self._round = None
            self._add(-1)
            self._to_sync.release()
            self._done()

    def _write(self, topic: str, work: Round) -> None:
        deliveries = work.deliveries.get(topic, [])
        try:
            archive = self._archives.get(topic)
            if archive is None:
                archive = self._archives[topic] = self._archive_of(topic)
            epoch = archive.store(delivery.batch for delivery in deliveries) if deliveries else 0
            if work.close:
                archive.close()
            elif not deliveries:
                archive.tick()
        except (OSError, MemoryError) as error:
            self.finished.append(Outcome(topic, deliveries, work.begun, as_os_error(error)))
            return
        if deliveries:
            self._add(1)
            self._written.append(Written(topic, deliveries, work.begun, archive, epoch))

    # ------------------------------------------------------------------ syncing

    def _sync_written(self) -> None:
        while True:
            self._to_sync.acquire()
            # One sync for everything written to a file during the previous one.
            groups: dict[Archive, list[Written]] = {}
            while self._written:
                written = self._written.popleft()
                groups.setdefault(written.archive, []).append(written)
            for archive, parts in groups.items():
                self._sync(archive, parts)
                self._done()

    def _sync(self, archive: Archive, parts: list[Written]) -> None:
        for part in parts:
            error: OSError | None = None
            try:
                archive.sync(part.epoch)
            except OSError as failure:
                error = failure
                self._given.release()       # the writing thread mends it
            self.finished.append(Outcome(part.topic, part.deliveries, part.begun, error))
            self._add(-1)


def as_os_error(error: OSError | MemoryError) -> OSError:
    """Converts the error, with a text for the user."""
    return error if isinstance(error, OSError) else OSError(errno.ENOMEM, "out of memory")
