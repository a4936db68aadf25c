"""Log topics as nsqd's own files: what is unfinished, for each channel, and nothing else.

A kill at any moment leaves something that is finished or started over by doing it again. Everything is made in a
staging folder first; renaming that is the decision. From then on its files only have to be moved to where they belong.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable

import msgspec

from nsqc.log import Log as Logger
from nsqc.store.disk import positions
from nsqc.store.disk.index import queue_files
from nsqc.store.disk.names import META, file_name
from nsqc.store.disk.recovery import open_queue
from nsqc.store.files import replace_file, sync_folder
from nsqc.store.log.exportplan import Chunk, QueuePlan, Sources, plan_queue
from nsqc.store.log.format import LARGEST_SEGMENT
from nsqc.store.log.names import segment_path, topic_of
from nsqc.store.log.progress import Progress
from nsqc.store.log.segmentfile import SegmentFile
from nsqc.store.log.summary import Backlog, Log, backlog, existing, read_log
from nsqc.store.log.topicfile import FILE_NAME, SavedChannel, SavedTopic, merge_topic, read_topic, saved_topic

STAGING = "export"  # in the topic's folder, or behind the topic's name in another one
UNDECIDED = ".tmp"  # behind that, while it is being made
EXPORTED = ".exported"  # behind the folder's name, when it is done
MOVE_BYTES = 1 << 20  # of a copy at a time
ATTEMPTS = slice(12, 14)  # of a record

Report = Callable[[str], None]


class ExportError(Exception):
    """A topic cannot be exported; says why."""


class Export:
    """One topic, from its folder to the folder with nsqd's files."""

    def __init__(self, folder: str, out: str, report: Report, logger: Logger):
        self.folder = os.path.abspath(folder)
        self.data_path = os.path.dirname(self.folder)
        self.out = os.path.abspath(out)
        self.in_place = os.path.realpath(self.out) == os.path.realpath(self.data_path)
        self.topic = topic_of(self.folder)
        # With the folder, so that both are gone at once.
        self.staging = os.path.join(self.folder, STAGING) if self.in_place else f"{self.out}/{self.topic}.{STAGING}"
        self.undecided = self.staging + UNDECIDED
        self.report = report
        self.logger = logger

    def run(self) -> None:
        """Raises OSError or ExportError; then it can be run again."""
        if not os.path.isdir(self.staging):
            self._stage()
        self._settle()

    def _stage(self) -> None:
        """Makes all files, beside where they belong."""
        if os.path.isdir(self.undecided):
            shutil.rmtree(self.undecided)
        log = read_log(self.folder)
        if log.progress.damaged or log.progress.missing:
            raise ExportError(f"{self.folder}: its journals are damaged: run nsqc log repair first")
        known = saved_topic(self.data_path, self.topic)
        sources = Sources(log)
        if sources.unindexed:
            raise ExportError(f"{sources.unindexed[0]}: damaged: run nsqc log repair first")
        plans = [self._plan(sources, name, its) for name, its in self._backlogs(log, known).items()]
        can_link = self._can_link(log)
        for plan in plans:
            self._describe(plan, can_link)
        os.mkdir(self.undecided)
        for plan in plans:
            self._write(plan, can_link)
        names = {channel.name for channel in known.channels or ()}
        channels = [*(known.channels or ()), *(SavedChannel(name) for name in log.progress.named if name not in names)]
        topic = SavedTopic(self.topic, known.paused, channels or None)
        replace_file(os.path.join(self.undecided, FILE_NAME), msgspec.json.encode(topic))
        sync_folder(self.undecided)
        os.rename(self.undecided, self.staging)
        sync_folder(os.path.dirname(self.staging))

    def _backlogs(self, log: Log, known: SavedTopic) -> dict[str, Backlog]:
        """Queue name to what is unfinished in it."""
        channels = log.progress.named
        names = list(dict.fromkeys([*(channel.name for channel in known.channels or ()), *channels]))
        end = log.end_for_channels(bool(names), known.paused)
        backlogs = {}
        for name in names:
            channel = channels.get(name) or new_channel(name, end if channels else log.progress.topic_cursor or 0)
            backlogs[f"{self.topic}:{name}"] = backlog(log, channel, end)
        waits = existing(log.files.segments, [(end, log.files.next)]) if end < log.files.next else []
        backlogs[self.topic] = Backlog([], waits, {})
        return backlogs

    def _plan(self, sources: Sources, name: str, its: Backlog) -> QueuePlan:
        files = queue_files(self.out, name)
        if files and not self.in_place:
            raise ExportError(f"{self.out} has files of the queue {name} already")
        start = open_queue(self.out, name, LARGEST_SEGMENT, self.logger, files).positions if files else None
        return plan_queue(name, sources, its, start is not None and start.read < start.write, time.time_ns())

    def _can_link(self, log: Log) -> bool:
        """Whether the file system has links, and the folder is on the same one."""
        segments = log.files.segments
        probe = os.path.join(self.out, f".{self.topic}.link.tmp")
        if not segments:
            return True
        try:
            os.link(segment_path(self.folder, segments[0].first, "dat"), probe)
        except OSError:
            return False
        os.unlink(probe)
        return True

    def _describe(self, plan: QueuePlan, can_link: bool) -> None:
        copied = plan.copied + (0 if can_link else plan.linked)
        links = sum(part.segment is not None for part in plan.parts) if can_link else 0
        if not plan.parts and not plan.lost:
            return
        text = (f"{plan.name}: {plural(plan.messages, 'message')}, {plural(links, 'segment')} linked, "
                f"{plural(copied, 'byte')} to be copied")
        if plan.lost:
            text += f"; damaged and left out: {plural(plan.lost, 'message')}"
        if plan.deferred:
            text += f"; due at once, since nsqd's files have no delays: {plural(plan.deferred, 'deferred message')}"
        self.report(text)

    # ---------------------------------------------------------------------- files

    def _write(self, plan: QueuePlan, can_link: bool) -> None:
        """The data files of a queue, behind those that it has, and its positions."""
        if not plan.parts:
            return
        files = queue_files(self.out, plan.name)
        number, read, depth = 0, (0, plan.read_at), 0
        if files:
            start = open_queue(self.out, plan.name, LARGEST_SEGMENT, self.logger, files).positions
            number, depth = start.write_number + (start.write_at > 0), start.depth
            read = start.read if start.read < start.write else (number, plan.read_at)
        for part in plan.parts:
            path = os.path.join(self.undecided, file_name(plan.name, number))
            number += 1
            if part.segment is None:
                self._copy(path, part.chunks)
            elif can_link:
                os.link(segment_path(self.folder, part.segment.first, "dat"), path)
            else:
                segment = part.segment
                self._copy(path, [Chunk(segment, segment.first, segment.end, 0)])
        # An empty file to write to: nsqd must not append to a segment.
        replace_file(os.path.join(self.undecided, file_name(plan.name, number)), b"")
        replace_file(os.path.join(self.undecided, file_name(plan.name, META)),
                     positions.encode(depth + plan.messages, *read, number, 0))

    def _copy(self, path: str, chunks: list[Chunk]) -> None:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as out:
            for chunk in chunks:
                with SegmentFile(self.folder, *chunk.segment.bounds) as file:
                    copy_chunk(file, chunk, out.write)
            out.flush()
            os.fsync(out.fileno())

    def _settle(self) -> None:
        """Moves the files to where they belong, and ends the log if that is in the same data path."""
        names = sorted(os.listdir(self.staging), key=lambda name: ("meta" in name, name))
        for name in names:
            if name != FILE_NAME:
                self._move(name)
        sync_folder(self.out)
        path = os.path.join(self.staging, FILE_NAME)
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
        """Positions replace those there are. A data file has a number that was free; an empty one is replaced, too."""
        source, target = os.path.join(self.staging, name), os.path.join(self.out, name)
        if not name.endswith("meta.dat") and os.path.lexists(target) and os.path.getsize(target):
            raise ExportError(f"{target} exists: was a daemon running since? remove {self.staging} to start over")
        os.rename(source, target)


def new_channel(name: str, begin: int) -> Progress:
    """A channel that was created last, before the journal had it."""
    return Progress(0, name, begin, [], [], [])


def copy_chunk(file: SegmentFile, chunk: Chunk, write: Callable[[bytes], int]) -> None:
    """Writes records with their attempts. Raises OSError or ExportError."""
    begin, last = file.locate(chunk.first), file.locate(chunk.end - 1)
    if begin is None or last is None:
        raise ExportError(f"{file.path}: changes while it is read")
    at, end = begin[0], sum(last)
    while at < end:
        data = bytearray(file.read(at, min(MOVE_BYTES, end - at)))
        position = 0
        while position + 4 <= len(data):
            length = 4 + int.from_bytes(data[position:position + 4], "big")
            if position + length > len(data):
                break
            data[position + ATTEMPTS.start:position + ATTEMPTS.stop] = chunk.attempts.to_bytes(2, "big")
            position += length
        if position == 0:
            located = file.length_at(at)
            if located is None:
                raise ExportError(f"{file.path}: damaged at {at}")
            data = bytearray(file.read(at, located))
            data[ATTEMPTS] = chunk.attempts.to_bytes(2, "big")
            position = located
        write(bytes(data[:position]))
        at += position


def plural(number: int, word: str) -> str:
    """1 message, 2 messages."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def free_name(path: str) -> str:
    """The path, or with a number behind it."""
    name, number = path, 0
    while os.path.lexists(name):
        number += 1
        name = f"{path}.{number}"
    return name
