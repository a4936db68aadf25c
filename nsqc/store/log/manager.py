"""The logs of one daemon: opened by topic, synced with the disk queues, removed with their topics."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from nsqc.log import Log
from nsqc.loop.slow import promise
from nsqc.store.disk.manager import DiskQueues
from nsqc.store.files import sync_folder
from nsqc.store.log.cursor import Earlier
from nsqc.store.log.names import GONE, SETTLED, Segment, left_of, left_path, split_folder
from nsqc.store.log.recovery import Opened, enter, read_folder, read_folders
from nsqc.store.log.topiclog import TopicLog
from nsqc.store.work import CommitSchedule

if TYPE_CHECKING:
    from nsqc.store.memory import Clock
    from nsqc.store.message import GuidFactory


# ====================================================================== looks
# Reads the folders of logs ahead at a start, on threads.

AT_ONCE = 64  # folders that a thread reads without the interpreter


class Looks:
    """Reads folders ahead, some at once. take() reads a folder itself unless a thread has begun with it."""

    def __init__(self, folders: list[str], power_failed: bool):
        """folders: in the order of take(). power_failed: since the last run."""
        self._power_failed = power_failed
        self._waiting = deque((folders[at:at + AT_ONCE], Future[dict[str, Opened | OSError]]())
                              for at in range(0, len(folders), AT_ONCE))
        self._answers = {folder: answer for some, answer in self._waiting for folder in some}

    def run(self) -> None:
        """For a thread: reads folders until all are read."""
        while self._waiting:
            try:
                folders, answer = self._waiting.popleft()
            except IndexError:
                return  # another thread was faster
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(dict(zip(folders, read_folders(folders, self._power_failed, True), strict=True)))
            except Exception as error:
                answer.set_exception(error)

    def take(self, folder: str) -> Opened:
        """The contents of a folder; read ahead, once only. Raises OSError."""
        answer = self._answers.pop(folder, None)
        if answer is None or answer.cancel():
            return read_folder(folder, self._power_failed, True)
        opened = answer.result().pop(folder)
        if isinstance(opened, OSError):
            raise opened
        return opened


# ====================================================================== progress
# The progress of a log topic's channels, from its journal.

Ranges = list[tuple[int, int]]  # first, end; in order


class Waiting(NamedTuple):
    """A requeued or deferred message."""

    offset: int
    attempts: int
    due_ns: int  # since 1970; 0: at once


class Progress(NamedTuple):
    """The progress of one channel."""

    number: int
    name: str  # "": lost to damage
    cursor: int  # next offset never delivered
    out: Ranges  # below it, unfinished
    skips: Ranges  # at or ahead of it, skipped at delivery
    waiting: list[Waiting]  # in order; not in out; those ahead of the cursor are in skips

    @property
    def oldest(self) -> int:
        """The first unfinished offset."""
        firsts = [self.cursor]
        if self.out:
            firsts.append(self.out[0][0])
        if self.waiting:
            firsts.append(self.waiting[0].offset)
        return min(firsts)


class TopicProgress(NamedTuple):
    """The progress of all channels of a topic, and damage to its files."""

    channels: list[Progress]  # by number
    topic_cursor: int | None  # the first offset still hidden from channels
    files: list[tuple[str, bool]]  # names, and whether they are damaged
    damaged: int  # places with lost frames: finished messages may seem unfinished
    torn_bytes: int  # of an incomplete frame at the end of a file, as after a kill

    @property
    def named(self) -> dict[str, Progress]:
        """The channels by name."""
        return {channel.name: channel for channel in self.channels if channel.name and channel.name != SETTLED.decode()}


def read_progress(folder: str) -> TopicProgress:
    """Reads the journal in a topic's folder. Raises OSError."""
    return progress_of(read_folder(folder).earlier)


def progress_of(earlier: Earlier) -> TopicProgress:
    """Converts a journal that was read."""
    return TopicProgress(
        [Progress(number, name, cursor, out, skips, [Waiting(*entry) for entry in waiting])
         for number, name, cursor, out, skips, waiting in earlier.states()], earlier.topic_cursor,
        [(f"cursors.{number:06}", damaged) for number, damaged in earlier.files], earlier.damaged, earlier.torn_bytes)


# ====================================================================== manager

LEAST_SEGMENTS = 8  # at least this many per bounded log
LEAST_SEGMENT = 1 << 20
LOOKING = 2  # threads that read folders at a start
LEAST_EACH = 32  # folders per thread
RETRY_S = 1.0  # after a failed removal of a folder


class Shipping(Protocol):
    """Ships logs to a bucket."""

    def opened(self, log: TopicLog) -> None: ...

    def gone(self, log: TopicLog, following: int) -> None:
        """It is deleted. following: where the topic's next log continues."""

    def confirm(self, call: Callable[[int], object]) -> None:
        """Calls call(0) once the bucket has all changes so far; or an errno, if that takes too long."""


class History(Protocol):
    """Fetches segments whose frames are in the bucket only."""

    def fetch(self, folder: str, segment: Segment, call: Callable[[str], object]) -> bool:
        """Whether a segment is there, and stays for a moment; else call(why) follows: "" once it is, or why it cannot
        be fetched."""

    async def fetched(self, folder: str, segment: Segment) -> None:
        """Returns once a segment, which was not there, is. Raises OSError with the reason why it cannot be fetched."""

    def forget(self, folder: str, first: int) -> None:
        """Nobody needs a segment any more, or its file was removed."""

    def offload(self, log: TopicLog, most_bytes: int) -> None:
        """Has the disk keep no more than most_bytes of a log, as far as the bucket keeps the rest."""


class Logs:
    """Opens the logs in a data path."""

    def __init__(self, data_path: str | os.PathLike[str], disks: DiskQueues, power_failed: bool, max_bytes: int,
                 loop: asyncio.AbstractEventLoop, workers: Executor, log: Log, longest_delay_ns: int = 2**63 - 1,
                 stopped: bool = False):
        """max_bytes: of a segment. workers: for removals. longest_delay_ns: upper bound for an earlier run's delays.
        stopped: the last run synced all its data."""
        self._data_path = os.fspath(data_path)
        self._disks = disks
        self._power_failed = power_failed
        self._max_bytes = max_bytes
        self._loop = loop
        self._workers = workers
        self._log = log
        self._longest_delay_ns = longest_delay_ns
        self._stopped = stopped
        self.losers: dict[str, TopicLog] = {}  # logs with lost messages, by topic
        self.shipping: Shipping | None = None  # set before the first log is opened, if they go to a bucket
        self._removals: set[asyncio.Future[OSError | None]] = set()
        self._names: dict[str, int] = {}  # folders in use or being removed: topic to the highest number
        self._left: dict[str, int] = {}  # topics that switched from their logs: where numbering continues
        self._found = self._list()
        self._looks = Looks([], power_failed)

    def _list(self) -> set[str]:
        """The topics that have a log; completes interrupted removals."""
        folders: dict[str, list[tuple[bool, int]]] = {}  # by topic: whether it is a real folder, not a link; its number
        gone = []
        with os.scandir(self._data_path) as entries:
            for entry in entries:
                topic, offset = left_of(entry.name)
                if topic:
                    self._left[topic] = max(self._left.get(topic, 0), offset)
                    continue
                topic, number = split_folder(entry.name.removesuffix(GONE))
                # A link: the operator has moved the folder to another disk.
                if not topic or not entry.is_dir():
                    continue
                if entry.name.endswith(GONE):
                    gone.append(entry.path)
                else:
                    folders.setdefault(topic, []).append((not entry.is_symlink(), number))
        for topic, its in folders.items():
            chosen = max(its)
            self._names[topic] = chosen[1]
            for is_folder, number in set(its) - {chosen}:
                if is_folder:
                    gone.append(self.folder_of(topic, number))
                else:
                    self._log.error("LOG(%s): %s is a link and is left alone: the topic's log is %s", topic,
                                    self.folder_of(topic, number), self.folder_of(topic, chosen[1]))
        for path in gone:
            self._left_alone(path, remove_tree(path))
        return set(self._names)

    def _left_alone(self, link: str, target: str | None) -> None:
        if target is not None:
            self._log.warn("LOG: %s was a link and is removed; the folder it led to, %s, is left alone", link, target)

    def look(self, topics: Iterable[str]) -> None:
        """Starts threads that read the folders of an earlier run, for topics that are about to be opened in this order.
        """
        self._looks = Looks([self.folder_of(topic, self._names[topic]) for topic in topics if topic in self._found],
                            self._power_failed)
        with suppress(RuntimeError):  # no thread can be started: each folder is read when it is opened
            for _ in range(min(LOOKING, len(self._found) // LEAST_EACH)):
                self._workers.submit(self._looks.run)

    def folder_of(self, topic: str, number: int = 0) -> str:
        """The folder of a topic's log."""
        return f"{self._data_path}/{topic}.log{f'~{number}' if number else ''}"

    def names(self) -> list[str]:
        """Topics with logs of an earlier run that are not open yet."""
        return sorted(self._found)

    def has(self, topic: str) -> bool:
        """Whether an earlier run left a log of this topic that is not open yet."""
        return topic in self._found

    def open(self, topic: str, clock: Clock, schedule: CommitSchedule, guids: GuidFactory,
             ) -> tuple[TopicLog, Opened | None]:
        """The log of a topic, with its contents from an earlier run. Raises OSError."""
        opened = None
        # A folder that appeared since the start may be a restored backup: a new log would overwrite it.
        is_known = topic in self._found
        if is_known or (topic not in self._names and os.path.isdir(self.folder_of(topic))):
            self._found.discard(topic)
            self._names.setdefault(topic, 0)
            with suppress(FileNotFoundError):
                opened = self._looks.take(self.folder_of(topic, self._names[topic]))
        number = self._names.setdefault(topic, 0)
        log = TopicLog(topic, self.folder_of(topic, number), self._disks.pool, self._disks.syncer, self._log, clock,
                       schedule, guids, opened)
        log.longest_delay_ns = self._longest_delay_ns
        log.losers = self.losers
        if opened is not None:
            opened.resume_at = max(opened.resume_at, self._left.get(topic, 0))
            self._report(topic, opened)
            enter(log, opened)
            if self._stopped and is_known:
                log.was_synced()
            elif log.segment_numbers[1]:
                log.sync_from(-1 if is_known else 0)
        elif (left := self._left.get(topic, 0)) > 0:
            log.continue_at(left)
        if self.shipping is not None:
            self.shipping.opened(log)
        return log, opened

    def _report(self, topic: str, opened: Opened) -> None:
        """Logs damage and losses."""
        if opened.earlier.damaged:
            self._log.error("LOG(%s): the journal is damaged: messages that were finished may come again", topic)
        if opened.unlisted:
            self._log.warn("LOG(%s): the manifest is older than %d segments, which count: the daemon was killed, or "
                           "the folder is a copy from an earlier moment", topic, opened.unlisted)
        remote = sum(segment.end - segment.first for segment in opened.segments if segment.is_remote)
        if remote and self.shipping is None:
            self._log.error("LOG(%s): only the bucket has %d of its messages: start with --bucket to read them", topic,
                            remote)
        for segment in opened.segments:
            if segment.lost:
                self._log.error("LOG(%s): %d messages before offset %d are gone, with their segments", topic,
                                segment.lost, segment.first)
            if segment.damaged:
                self._log.error("LOG(%s): %d damaged messages between offsets %d and %d are skipped", topic,
                                segment.damaged, segment.first, segment.end)
        if opened.lost:
            self._log.error("LOG(%s): at least %d messages from offset %d on are gone, with the newest segment; new "
                            "ones begin at offset %d", topic, opened.lost, opened.next, opened.resume_at)
        if opened.had:
            self._log.error("LOG(%s): %d messages from offset %d on are gone: channels have had them", topic,
                            opened.had, opened.next)

    def segment_bytes(self, *bounds: int) -> int:
        """Size of segments: retention removes whole segments, so a bounded log has several. bounds: 0: none."""
        return min([self._max_bytes, *(max(bound // LEAST_SEGMENTS, min(LEAST_SEGMENT, bound))
                                       for bound in bounds if bound > 0)])

    def leave(self, log: TopicLog) -> None:
        """Prepares for the removal of a log: the topic's next log has another folder, and begins at 0."""
        self._next_folder(log)
        self._unmark(log.name)
        if self.shipping is not None:
            self.shipping.gone(log, 0)

    def remove(self, log: TopicLog) -> None:
        """Removes a deleted log that leave() was called for, with its files. See removed()."""
        self._begin(self._loop.create_task(self._remove(log, [])))

    def abandon(self, log: TopicLog) -> None:
        """Removes the deleted log that a topic has switched from, with its files. If the topic gets a log again, its
        numbering continues. See removed()."""
        self._next_folder(log)
        if self.shipping is not None:
            self.shipping.gone(log, log.following)
        # Remove the old mark after creating the new one; both are the same if nothing was published in between.
        offsets = [log.following]
        if self._left.get(log.name, log.following) != log.following:
            offsets.append(self._left[log.name])
        self._left[log.name] = log.following
        marks = [left_path(self._data_path, log.name, offset) for offset in offsets]
        self._begin(self._loop.create_task(self._remove(log, marks)))

    def forget(self, topic: str) -> None:
        """Deletes a topic without a log: its next log begins at 0."""
        self._unmark(topic)

    def _next_folder(self, log: TopicLog) -> None:
        self._names[log.name] = self._names.get(log.name, 0) + 1

    def _unmark(self, topic: str) -> None:
        if (offset := self._left.pop(topic, None)) is not None:
            mark = left_path(self._data_path, topic, offset)
            self._begin(self._loop.run_in_executor(self._workers, remove_file, mark))

    def _begin(self, removal: asyncio.Future[OSError | None]) -> None:
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)

    async def _remove(self, log: TopicLog, marks: list[str]) -> OSError | None:
        while log.busy:
            await asyncio.sleep(0.001)
        return await self._try_to_remove(log.folder, marks)

    async def _try_to_remove(self, folder: str, marks: list[str], again: bool = False) -> OSError | None:
        """Returns why a folder cannot be removed; then retries."""
        try:
            target = await self._loop.run_in_executor(self._workers, self._remove_folder, folder, marks)
            self._left_alone(folder, target)
        except OSError as error:
            if not again:
                self._log.error("LOG: failed to remove %s - %s", folder, error)
            self._loop.call_later(RETRY_S, lambda: self._begin(self._loop.create_task(
                self._try_to_remove(folder, marks, again=True))))
            return error
        if again:
            self._log.info("LOG: %s is removed", folder)
        return None

    def _remove_folder(self, folder: str, marks: list[str]) -> str | None:
        """marks: a file to create first, and one that it replaces. Returns as remove_tree(). Raises OSError."""
        gone = folder + GONE
        try:
            for mark in marks[:1]:
                os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
                sync_folder(self._data_path)
            for mark in marks[1:]:
                remove_file(mark)
            remove_tree(gone)
            os.rename(folder, gone)
            sync_folder(self._data_path)
            return remove_tree(gone)
        except FileNotFoundError:
            return None  # nothing was ever written

    async def recorded(self, log: TopicLog) -> None:
        """Waits until all progress of channels so far is in the journal. Raises OSError if it cannot be written; it is
        retried."""
        written, settle = promise()
        log.recorder.when_written(settle)
        await written
        if log.recorder.refused:
            raise OSError(log.recorder.refused, os.strerror(log.recorder.refused))

    async def shipped(self) -> int:
        """Waits until the bucket, if any, has all changes so far. Returns 0, or why it is not known to have them."""
        if self.shipping is None:
            return 0
        result, settle = promise()
        self.shipping.confirm(settle)
        return int(await result)

    async def removed(self) -> None:
        """Waits until the files of all logs deleted so far are gone. Raises OSError if some cannot be removed; that is
        retried."""
        failed = None
        while self._removals:
            done, _ = await asyncio.wait(self._removals)
            failed = next(filter(None, (removal.result() for removal in done)), failed)
        if failed is not None:
            raise failed


def remove_file(path: str) -> OSError | None:
    """Removes a file if possible; it only records where numbering continues."""
    with suppress(OSError):
        os.unlink(path)
    return None


def remove_tree(path: str) -> str | None:
    """Removes a folder and its contents, as far as possible. Of a link, only the link: it may lead to anything. Then
    returns where it leads."""
    if os.path.islink(path):
        target = os.path.realpath(path)
        with suppress(OSError):
            os.unlink(path)
        return target
    import shutil  # here: only needed to remove a log

    shutil.rmtree(path, ignore_errors=True)
    return None
