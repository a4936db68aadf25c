"""Exports log-backed topics as nsqd's own files: the unfinished messages of each channel, and nothing else.

A kill at any moment is safe: the next run finishes the export or starts it over. All files are first made in a staging
folder; renaming that commits the export. After that, files only have to be moved to their final places.
"""

from __future__ import annotations

import os
import shutil
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import BinaryIO, NamedTuple

import msgspec

from nsqc.log import Log as Logger
from nsqc.store.disk import recovery
from nsqc.store.disk.fileio import META, file_name
from nsqc.store.disk.recovery import open_queue, queue_files
from nsqc.store.files import METADATA, SavedChannel, SavedTopic, replace_file, sync_folder
from nsqc.store.log import reading
from nsqc.store.log.check import (
    Backlog,
    Log,
    backlog,
    count,
    existing,
    merge_topic,
    overlap,
    plural,
    read_log,
    read_topic,
    saved_topic,
    without,
)
from nsqc.store.log.manager import Progress, Ranges
from nsqc.store.log.names import RemoteError, Segment, segment_path, topic_of
from nsqc.store.log.recovery import read_frames

# ====================================================================== plan
# Plans nsqd's queues for a log-backed topic: the unfinished messages of a channel, in the order of delivery.

class Chunk(NamedTuple):
    """Messages to copy: all sound, and from one segment."""

    first: int
    end: int
    attempts: int


class QueuePlan(NamedTuple):
    """A queue for nsqd."""

    name: str  # TOPIC or TOPIC:CHANNEL
    chunks: list[Chunk]
    messages: int
    lost: int  # unfinished and damaged
    deferred: int  # not due yet
    bytes: int  # estimated size of the copies


class Sources:
    """The sound messages of a log. Reads each of them once."""

    def __init__(self, log: Log):
        self.log = log
        self.sound: Ranges = []
        self._bytes = 0
        for segment in log.segments:
            if segment.is_remote:
                raise RemoteError(log.folder, segment)
            _, size, damage = read_frames(segment_path(log.folder, segment.first), segment)
            self.sound += without([(segment.first, segment.end)], [(first, end) for _, first, end in damage])
            self._bytes += size

    def bytes_of(self, messages: int) -> int:
        """Estimates the bytes of this many messages in files of disk queues."""
        return self._bytes * messages // max(count(self.sound), 1)


def plan_queue(name: str, sources: Sources, backlog: Backlog, now_ns: int) -> QueuePlan:
    """First delivered and waiting messages, then undelivered ones, each by offset."""
    again = [Chunk(first, end, 1) for first, end in overlap(backlog.out, sources.sound)]
    waiting = [(offset, offset + 1) for offset in backlog.waiting]
    again += [Chunk(first, end, backlog.waiting[first].attempts) for first, end in overlap(waiting, sources.sound)]
    chunks = sorted(again) + [Chunk(first, end, 0) for first, end in overlap(backlog.ahead, sources.sound)]
    messages = sum(chunk.end - chunk.first for chunk in chunks)
    wanted = count(backlog.out) + len(backlog.waiting) + count(backlog.ahead)
    deferred = sum(entry.due_ns > now_ns for entry in backlog.waiting.values())
    deferred += sum(1 for first, end in backlog.ahead for offset, due_ns in sources.log.due.items()
                    if first <= offset < end and due_ns > now_ns)
    return QueuePlan(name, chunks, messages, wanted - messages, deferred, sources.bytes_of(messages))


# ====================================================================== export

STAGING = "export"  # in the topic's folder, or appended to the topic's name in another one
UNDECIDED = ".tmp"  # appended to that until it is complete
EXPORTED = ".exported"  # appended to the folder's name when the export is done
FILE_BYTES = 100 << 20  # size at which a queue begins another file
LARGEST_FILE = 2**31 - 1
READ_BYTES = WRITE_BYTES = 1 << 20
ATTEMPTS_AT = 12  # position in a record

Report = Callable[[str], None]


class ExportError(Exception):
    """Says why a topic cannot be exported."""


class Export:
    """One topic, exported from its folder to the folder with nsqd's files."""

    def __init__(self, folder: str, out: str, report: Report, logger: Logger):
        self.folder = os.path.abspath(folder)
        self.data_path = os.path.dirname(self.folder)
        self.out = os.path.abspath(out)
        self.in_place = os.path.realpath(self.out) == os.path.realpath(self.data_path)
        self.topic = topic_of(self.folder)
        # In the topic's folder, so that both disappear together.
        self.staging = os.path.join(self.folder, STAGING) if self.in_place else f"{self.out}/{self.topic}.{STAGING}"
        self.undecided = self.staging + UNDECIDED
        self.report = report
        self.logger = logger

    def run(self) -> None:
        """Raises OSError or ExportError; it can be run again after that."""
        for path in self.staging, self.undecided:
            if os.path.islink(path):
                raise ExportError(f"{path} is a link, and files would be moved from where it leads: remove it")
        if not os.path.isdir(self.staging):
            self._stage()
        self._settle()

    def _stage(self) -> None:
        """Makes all files in the staging folder, near their final places."""
        if os.path.isdir(self.undecided):
            shutil.rmtree(self.undecided)
        log = read_log(self.folder)
        if log.progress.damaged:
            self.report(f"{self.topic}: its journal is damaged: messages that were finished may come again")
        known, sources = saved_topic(self.data_path, self.topic), Sources(log)
        plans = [plan_queue(name, sources, its, time.time_ns()) for name, its in self._backlogs(log, known).items()]
        starts = [self._start(plan.name) for plan in plans]
        for plan in plans:
            self._describe(plan)
        os.mkdir(self.undecided)
        for plan, start in zip(plans, starts, strict=True):
            self._write(plan, start, log.segments)
        names = {channel.name for channel in known.channels or ()}
        channels = [*(known.channels or ()), *(SavedChannel(name) for name in log.progress.named if name not in names)]
        topic = SavedTopic(self.topic, known.paused, channels or None)
        replace_file(os.path.join(self.undecided, METADATA), msgspec.json.encode(topic))
        sync_folder(self.undecided)
        os.rename(self.undecided, self.staging)
        sync_folder(os.path.dirname(self.staging))

    def _backlogs(self, log: Log, known: SavedTopic) -> dict[str, Backlog]:
        """Queue name to its unfinished messages."""
        channels = log.progress.named
        names = list(dict.fromkeys([*(channel.name for channel in known.channels or ()), *channels]))
        end = log.end_for_channels(bool(names), known.paused)
        # For a channel missing from the journal: it was created last, or the journal is damaged.
        begin = 0 if log.progress.damaged else end if channels else log.progress.topic_cursor or 0
        backlogs = {}
        for name in names:
            channel = channels.get(name) or Progress(0, name, begin, [], [], [])
            backlogs[f"{self.topic}:{name}"] = backlog(log, channel, end)
        waits = existing(log.segments, [(end, log.next)]) if end < log.next else []
        backlogs[self.topic] = Backlog([], waits, {})
        return backlogs

    def _start(self, name: str) -> recovery.Positions | None:
        """The positions of a queue of this name; None: no such queue. Raises ExportError if it must stay unchanged."""
        files = queue_files(self.out, name)
        if files and not self.in_place:
            raise ExportError(f"{self.out} has files of the queue {name} already")
        return open_queue(self.out, name, LARGEST_FILE, self.logger, files).positions if files else None

    def _describe(self, plan: QueuePlan) -> None:
        if not plan.messages and not plan.lost:
            return
        text = f"{plan.name}: {plural(plan.messages, 'message')}, about {plural(plan.bytes, 'byte')} to be copied"
        if plan.lost:
            text += f"; damaged and left out: {plural(plan.lost, 'message')}"
        if plan.deferred:
            text += f"; due at once, since nsqd's files have no delays: {plural(plan.deferred, 'deferred message')}"
        self.report(text)

    # ---------------------------------------------------------------------- files

    def _write(self, plan: QueuePlan, start: recovery.Positions | None, segments: list[Segment]) -> None:
        """Writes the data files of a queue, numbered after the existing ones, and its positions."""
        if not plan.chunks:
            return
        number, read, depth = 0, (0, 0), 0
        if start is not None:
            number, depth = start.write_number + (start.write_at > 0), start.depth
            read = start.read if start.read < start.write else (number, 0)
        pieces = copied(self.folder, segments, plan.chunks)
        piece = next(pieces, None)
        while piece is not None:
            with self._made(plan.name, number) as out:
                while piece is not None and out.tell() < FILE_BYTES:
                    out.write(piece)
                    piece = next(pieces, None)
                out.flush()
                os.fsync(out.fileno())
            number += 1
        # An empty file to write to, so that the others stay unchanged.
        replace_file(os.path.join(self.undecided, file_name(plan.name, number)), b"")
        replace_file(os.path.join(self.undecided, file_name(plan.name, META)),
                     recovery.encode(depth + plan.messages, *read, number, 0))

    def _made(self, name: str, number: int) -> BinaryIO:
        path = os.path.join(self.undecided, file_name(name, number))
        return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb", WRITE_BYTES)

    def _settle(self) -> None:
        """Moves the files to their final places, and ends the log if that is in the same data path."""
        names = sorted(os.listdir(self.staging), key=lambda name: ("meta" in name, name))
        for name in names:
            if name != METADATA:
                self._move(name)
        sync_folder(self.out)
        path = os.path.join(self.staging, METADATA)
        if os.path.exists(path):
            merge_topic(self.out, read_topic(path))
        if self.in_place:
            done = free_name(self.folder + EXPORTED)
            os.rename(self.folder, done)
            sync_folder(self.out)
            shutil.rmtree(os.path.join(done, STAGING))
        else:
            shutil.rmtree(self.staging)
            sync_folder(self.out)
        self.report(f"{self.topic}: exported to {self.out}")

    def _move(self, name: str) -> None:
        """Moves a file. Positions replace existing ones. A data file has a free number, or replaces an empty file."""
        source, target = os.path.join(self.staging, name), os.path.join(self.out, name)
        if not name.endswith("meta.dat") and os.path.lexists(target) and os.path.getsize(target):
            raise ExportError(f"{target} exists: was a daemon running since? remove {self.staging} to start over")
        os.rename(source, target)


def copied(folder: str, segments: list[Segment], chunks: list[Chunk]) -> Iterator[bytes]:
    """The records of chunks, in pieces. Raises OSError or ExportError."""
    firsts = [segment.first for segment in segments]
    for at, its in groupby(chunks, lambda chunk: bisect_right(firsts, chunk.first) - 1):
        segment = segments[at]
        with open(segment_path(folder, segment.first), "rb", buffering=0) as file:
            for first, end, attempts in its:
                while first < end:
                    begin, next_, _, data = reading.records(file.fileno(), segment, first, 0, end, READ_BYTES, False)
                    if begin != first or next_ == first:
                        raise ExportError(f"{file.name}: changes while it is read")
                    yield with_attempts(data, attempts) if attempts else data
                    first = next_


def with_attempts(records: bytes, attempts: int) -> bytes:
    """Records of a disk queue, with this number of attempts."""
    data, at = bytearray(records), 0
    while at < len(data):
        data[at + ATTEMPTS_AT:at + ATTEMPTS_AT + 2] = attempts.to_bytes(2, "big")
        at += 4 + int.from_bytes(data[at:at + 4], "big")
    return bytes(data)


def free_name(path: str) -> str:
    """The path, with a number appended if it exists."""
    name, number = path, 0
    while os.path.lexists(name):
        number += 1
        name = f"{path}.{number}"
    return name
