"""A daemon's logs and its bucket: restored before the broker opens them, shipped while it runs.

Of a segment only the header is restored: its frames are fetched when somebody reads them (fetch.py). A new segment
follows, at the first offset that was never handed out. A journal is restored as one file with its state. Small files of
the data path (topics, channels, rules) travel as the commits' metadata.

Frames of a round are in the same commit as the positions of channels that were noted with them, or in an earlier one:
a finished or moved message never refers to a missing one.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import msgspec

from nsqc.bucket.checkpoint import Head, LogMap, Map, fold_journal
from nsqc.bucket.commit import (
    PIECE_BYTES,
    DamagedError,
    Frames,
    LogNews,
    Records,
    ends_before,
    pack_journal,
    unpack_journal,
)
from nsqc.bucket.commit import head_numbers as numbers_of
from nsqc.bucket.fetch import History, fetch_frames
from nsqc.bucket.ship import News, Shipper, Status
from nsqc.bucket.store import Data, Unclear, open_bucket, settle
from nsqc.bucket.takeover import Journal, Owned, take_over
from nsqc.store.files import read_file, replace_file
from nsqc.store.log.frame import whole_batches
from nsqc.store.log.journal import fold
from nsqc.store.log.names import (
    FRAMES_AT,
    MOST_OFFSET,
    TEMPORARY,
    Extent,
    Point,
    folders_in,
    left_path,
    segment_path,
)
from nsqc.store.log.names import News as LogState
from nsqc.store.log.recovery import read_folder
from nsqc.store.log.segment import write_segments

if TYPE_CHECKING:
    from nsqc.store.log.topiclog import TopicLog

HEAD_BYTES = 128                # of one copy of a segment's header
RESTORES = 8                    # logs at once
LOGS_AT_ONCE = 256              # noted in one step of the loop
METADATA_BYTES = 16 << 20       # of all small files
READ_BYTES = PIECE_BYTES        # of frames
T = TypeVar("T")
Say: TypeAlias = Callable[[str], object]       # gets lines for people


# ====================================================================== restoring


class Restorer:
    """Writes what a data path lacks of logs: the frames stay in the bucket, unless a start needs them."""

    def __init__(self, owned: Owned, data_path: str, kept: set[str] | None, power_failed: bool) -> None:
        """kept: topics of this node's own files: a log of another topic was deleted here; None: there are no such
        files. Raises OSError."""
        self.owned = owned
        self.data_path = data_path
        self.kept = kept
        self.power_failed = power_failed
        self.folders = folders_in(data_path)
        self.messages = 0

    def run(self) -> None:
        """Raises BucketError or OSError: then it is incomplete, and a next call completes it."""
        head = self.owned.whole.head
        with ThreadPoolExecutor(RESTORES) as threads:
            for count in threads.map(lambda item: self.restore(*item), self.owned.whole.logs.items()):
                self.messages += count
        if self.kept is None:
            for topic, offset in head.left.items():
                with open(left_path(self.data_path, topic, offset), "wb"):
                    pass
            for name, data in unpack_metadata(head.metadata).items():
                replace_file(os.path.join(self.data_path, name), data)
        os.sync()

    def restore(self, log_id: int, log: LogMap) -> int:
        """One log; returns the messages that the disk lacked. For log and journal, the higher sequence counts."""
        if self.kept is not None and log.topic not in self.kept:
            return 0
        path, end, last, number, reserved = self.folders.get(log.topic, ""), 0, 0, 1, log.reserved
        if not path:
            path = os.path.join(self.data_path, f"{log.topic}.log")
            os.mkdir(path, 0o700)
        elif self.owned.had_files:
            opened = read_folder(path, self.power_failed)
            if opened.id not in (0, log_id):
                return 0        # it was replaced by another one
            files, reserved = opened.earlier.journal, max(reserved, opened.resume_at)
            end, last, number = opened.next if opened.segments else 0, files[4] - 1, max([0, *files[0]]) + 1
            for name in os.listdir(path):
                if TEMPORARY.fullmatch(name):
                    os.unlink(os.path.join(path, name))
        if log.cursors and log.cursors[-1].last > last:
            replace_file(os.path.join(path, f"cursors.{number:06}"), fold(unpack_journal(log.cursors), number)[1],
                         durable=False)
        lacking = [part for part in log.frames if part.end > end]
        if lacking:
            self.restore_segments(path, log, lacking[0].segment, reserved)
        return sum(part.end - max(part.first, end) for part in lacking)

    def restore_segments(self, path: str, log: LogMap, oldest: int, reserved: int) -> None:
        """oldest: sequence number of the first one. reserved: offsets below this one may have been used."""
        heads = {numbers_of(head)[0]: head for head in log.heads}
        frames: dict[int, list[Frames]] = {number: [] for number in sorted(heads) if number >= oldest}
        for part in log.frames:
            if part.segment >= oldest:
                if part.segment not in frames:
                    raise DamagedError(f"the header of segment {part.segment} of {log.topic} is missing")
                frames[part.segment].append(part)
        numbers, last = [*frames], log.frames[-1]
        write_segments(path, [heads[number] for number in numbers], last.position + last.length, last.end, log.due_ns,
                       log.time_ns, max(reserved, last.end), log.key)
        now_ns = time.time_ns()
        for number, following in zip(numbers, [*numbers[1:], 0], strict=True):
            due_ns, time_ns = ends_before(heads[following]) if following else (log.due_ns, log.time_ns)
            # With deferred messages that are not due, or ids of publishes that are still remembered.
            if frames[number] and (due_ns > now_ns or (log.dedupe_ns and time_ns >= now_ns - log.dedupe_ns)):
                fetch_frames(self.owned.bucket, frames[number], segment_path(path, numbers_of(heads[number])[1]),
                             heads[number])


def unpack_metadata(data: bytes) -> dict[str, bytes]:
    """Names of small files, and their contents. Raises DamagedError."""
    try:
        files = METADATA.decode(data) if data else {}
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DamagedError(f"the metadata is damaged: {error}") from None
    if any(name != os.path.basename(name) or name in ("", ".", "..") for name in files):
        raise DamagedError("the metadata has a name that is not that of a file")
    return files


METADATA = msgspec.msgpack.Decoder(dict[str, bytes])


# ====================================================================== shipping


class Round(NamedTuple):
    """What is new in the logs of a daemon."""

    news: deque[LogNews]                        # of logs that are gone
    frames: deque[tuple[LogNews, Extent]]       # oldest first; what is known of their log
    states: deque[tuple[LogNews, LogState]]     # where the channels are


class NodeLogs:
    """The logs of a daemon, for the shipper. opened(), gone() and changed() are called on the loop."""

    def __init__(self, call_on_loop: Callable[[Callable[[], object]], object], data_path: str, files: Sequence[str],
                 fenced: Callable[[str], object], say: Say, cache_bytes: int) -> None:
        """call_on_loop: thread-safe. files: names of the small files. fenced: called on the loop. cache_bytes: of
        fetched segments."""
        self.call_on_loop = call_on_loop
        self.data_path = data_path
        self.files = files
        self.on_fenced = fenced
        self.say = say
        self.wake: Callable[[int], object] = lambda size: None
        # Of the loop.
        self.history = History(call_on_loop, say, cache_bytes)
        self.all: dict[TopicLog, None] = {}
        self.dirty: dict[TopicLog, None] = {}
        self.dropped: list[LogNews] = []
        self.by_id: dict[int, TopicLog] = {}
        # Who waits for the changes so far: asked when (monotonic, ns), and whom to call; those of the current round.
        self.unconfirmed: list[tuple[int, Callable[[int], object]]] = []
        self.confirming: list[tuple[int, Callable[[int], object]]] = []
        self.refusal = 0        # errno, once fenced
        # Of the shipper's thread.
        self.points: dict[int, Point] = {}
        self.trims: dict[int, int] = {}         # first offsets, as last noted
        self.round = Round(deque(), deque(), deque())
        self.data: dict[tuple[int, int, int], Data] = {}       # of the current note
        self.noted: dict[int, LogNews] = {}     # by the note that is being made, or that failed on the way
        self.journals_kept = False              # the files of journals are those that the bucket's were read from
        self.metadata = b""
        self.seen: list[tuple[int, int, int]] = []   # states of the small files, as last read

    # ------------------------------------------------------------------ the loop

    def opened(self, log: TopicLog) -> None:
        self.all[log] = self.dirty[log] = None
        log.recorder.changed = partial(self.changed, log)
        self.history.opened(log)

    def changed(self, log: TopicLog, size: int) -> None:
        self.dirty[log] = None
        self.wake(size)

    def gone(self, log: TopicLog, following: int) -> None:
        """The log is deleted. following: where the topic's next log continues; 0: at the beginning."""
        log.recorder.changed = None
        log.shipped(MOST_OFFSET)        # nobody waits for it any more
        self.history.gone(log)
        self.all.pop(log, None)
        self.dirty.pop(log, None)
        if log.id is not None:
            self.by_id.pop(int(log.id, 16), None)
            self.history.kept.pop(int(log.id, 16), None)
            self.dropped.append(LogNews(int(log.id, 16), log.name, reserved=following, dropped=True))
            self.wake(0)

    def change_all(self) -> None:
        """For a stop."""
        self.dirty.update(self.all)

    def confirm(self, call: Callable[[int], object]) -> None:
        if self.refusal:
            call(self.refusal)
            return
        self.unconfirmed.append((time.monotonic_ns(), call))
        self.wake(0)

    def give_up(self, error: int, seconds: float) -> None:
        """Fails the publishes and changes that have waited for longer."""
        until = time.monotonic_ns() - int(seconds * 1e9)
        for log in self.all:
            log.unshipped(error, until)
        for asked, call in (*self.unconfirmed, *self.confirming):
            if asked < until:
                call(error)

    def refuse(self, error: int) -> None:
        """Another process owns the node: fails all that wait, now and later."""
        self.refusal = error
        self.give_up(error, -1.0)

    def _is_shipped(self, ends: list[tuple[int, int]], is_all: bool = False) -> None:
        """is_all: the round ends."""
        for log_id, end in ends:
            if (log := self.by_id.get(log_id)) is not None:
                log.shipped(end)
        if is_all:
            confirmed, self.confirming = self.confirming, []
            for _, call in confirmed:
                call(0)

    # ------------------------------------------------------------------ the thread

    def step(self, call: Callable[[], T]) -> T:
        """The result of a call on the loop."""
        answer: Future[T] = Future()
        self.call_on_loop(partial(settle, answer, call))
        return answer.result()

    def resume(self, whole: Map) -> None:
        ends = []
        for log_id, log in whole.logs.items():
            number, at = 0, 0
            if self.journals_kept and log.cursors:
                number, at, data = unpack_journal(log.cursors)[-1]
                at += len(data)
            point = Point(log_id, number, at, 0, 0, FRAMES_AT, 0)
            if log.frames:
                last = log.frames[-1]
                point = point._replace(sequence=last.segment, salt=last.salt, position=last.position + last.length,
                                       next=last.end)
                ends.append((log_id, last.end))
            self.points[log_id] = point
        self.metadata = whole.head.metadata
        known = self.step(self._identify)
        self.round.news.extend(LogNews(log_id, log.topic, dropped=True) for log_id, log in whole.logs.items()
                               if log_id not in known)
        self.step(lambda: self._is_shipped(ends))
        self.kept(ends)

    def _identify(self) -> set[int]:
        self.by_id.update((int(log.id, 16), log) for log in self.all if log.id is not None)
        return {*self.by_id}

    def note(self, most_bytes: int, most_logs: int) -> News:
        if not self.noted:      # else the last call failed on its way: this one ships what that has
            self.data = {}
            self.take(self.noted, most_bytes, most_logs)
        metadata = self.changed_metadata()
        logs, self.noted = self.noted, {}
        return News([*logs.values()], metadata, any(self.round), self.data)

    def take(self, logs: dict[int, LogNews], most_bytes: int, most_logs: int) -> None:
        """Moves what a note may have from the round, or from the next one. Raises OSError."""
        if not any(self.round):
            self.collect()
        size = 0
        while self.round.news and len(logs) < most_logs:
            news = self.round.news.popleft()
            logs[news.id] = news
        while self.round.frames and size < most_bytes and len(logs) < most_logs:
            size += self.take_frames(logs)
        while self.round.states and not self.round.frames and size < most_bytes and len(logs) < most_logs:
            size += self.take_state(logs)

    def collect(self) -> None:
        """Notes what is new: in one step, or, if there are many logs, first all positions, then all ends."""
        batch, dropped = self.step(self._begin)
        self.round.news.extend(dropped)
        first: dict[TopicLog, LogState] = {}
        for at in range(0, len(batch), LOGS_AT_ONCE):
            first.update(self.step(partial(self._since, batch[at:at + LOGS_AT_ONCE])))
        ends = first
        if len(batch) > LOGS_AT_ONCE:
            batch = [*first, *self.step(lambda: [log for log in self.dirty if log not in first])]
            ends = {}
            for at in range(0, len(batch), LOGS_AT_ONCE):
                ends.update(self.step(partial(self._since, batch[at:at + LOGS_AT_ONCE])))
        for log, found in ends.items():
            log_id = found.point.id
            before = self.points.get(log_id)
            state = first.get(log)
            journal = state.point if state is not None else before
            self.points[log_id] = found.point._replace(file=journal.file if journal else 0,
                                                       file_at=journal.file_at if journal else 0)
            news = LogNews(log_id, log.name, reserved=found.reserved, key=found.key, time_ns=found.time_ns,
                           due_ns=found.due_ns, dedupe_ns=found.dedupe_ns)
            self.round.frames.extend((news, extent) for extent in found.frames)
            if state is not None:
                self.round.states.append((news, state))

    def _begin(self) -> tuple[list[TopicLog], list[LogNews]]:
        batch, self.dirty = [*self.dirty], {}
        dropped, self.dropped = self.dropped, []
        self.confirming += self.unconfirmed
        self.unconfirmed = []
        return batch, dropped

    def _since(self, logs: Sequence[TopicLog]) -> dict[TopicLog, LogState]:
        """Of those that have written something, and still exist."""
        found = {}
        for log in logs:
            if log in self.all and log.id is not None:
                log_id = int(log.id, 16)
                self.by_id[log_id] = log
                found[log] = log.since(self.points.get(log_id))
        return found

    def take_frames(self, logs: dict[int, LogNews]) -> int:
        """Moves the next frames from the round to a note; returns their bytes. Raises OSError."""
        news, extent = self.round.frames[0]
        try:
            data, end, head = read_extent(extent)
        except FileNotFoundError:       # retention removed them
            self.round.frames.popleft()
            return 0
        self.round.frames.popleft()
        if not data:
            self.say(f"messages {extent.first} to {extent.end - 1} of topic {news.topic} are damaged and not shipped")
            return 0
        part = Frames(extent.sequence, extent.salt, extent.position, len(data), extent.first, end)
        if part.length < extent.length:
            self.round.frames.appendleft((news, extent._replace(
                position=extent.position + part.length, length=extent.length - part.length, first=end)))
        self.data[news.id, part.salt, part.position] = data
        news = logs.get(news.id, news)
        logs[news.id] = msgspec.structs.replace(news, frames=[*news.frames, part],
                                               heads=[*news.heads, head] if head else news.heads)
        return part.length

    def take_state(self, logs: dict[int, LogNews]) -> int:
        """Likewise for the positions of a log's channels, and its numbers."""
        news, state = self.round.states[0]
        log_id = news.id
        news = logs.get(log_id, news)
        cursors, size = list[Records](), 0
        try:
            parts = [read_journal(extent) for extent in state.journal]
        except FileNotFoundError:       # compacted meanwhile: the next round begins with a state
            self.points[log_id] = self.points[log_id]._replace(file=0)
            self.step(partial(self._note_again, log_id))
        else:
            if parts:
                cursors = [fold_journal(parts) if state.is_state else Records(False, state.last, pack_journal(parts))]
                size = len(cursors[0].data)
        self.round.states.popleft()
        # The first offset that was noted before: by now, the journal has it.
        trimmed = self.trims.get(log_id, 0)
        self.trims[log_id] = state.first
        if cursors or news.frames or trimmed:
            logs[log_id] = msgspec.structs.replace(news, cursors=cursors, trimmed=trimmed)
        return size

    def _note_again(self, log_id: int) -> None:
        self.unconfirmed, self.confirming = self.confirming + self.unconfirmed, []
        if (log := self.by_id.get(log_id)) is not None:
            self.changed(log, 0)

    def changed_metadata(self) -> bytes | None:
        """The small files, if they have changed. Raises OSError."""
        seen, files = [], {}
        for name in self.files:
            with suppress(FileNotFoundError):
                status = os.stat(os.path.join(self.data_path, name))
                seen.append((status.st_ino, status.st_mtime_ns, status.st_size))
        if seen == self.seen:
            return None
        for name in self.files:
            with suppress(FileNotFoundError):
                files[name] = read_file(os.path.join(self.data_path, name))
        self.seen = seen
        metadata = msgspec.msgpack.encode(files)
        if len(metadata) > METADATA_BYTES:
            self.say(f"the files of topics and rules have {len(metadata):,} bytes, too many for a commit: not shipped")
            return None
        if metadata == self.metadata:
            return None
        self.metadata = metadata
        return metadata

    def shipped(self, news: News) -> None:
        ends = [(log.id, log.frames[-1].end) for log in news.logs if log.frames]
        if ends or not news.more:
            self.call_on_loop(partial(self._is_shipped, ends, not news.more))

    def kept(self, ends: list[tuple[int, int]]) -> None:
        self.call_on_loop(partial(self.history.kept.update, ends))

    def fenced(self, reason: str) -> None:
        self.call_on_loop(partial(self.on_fenced, reason))


def read_extent(extent: Extent) -> tuple[Data, int, bytes]:
    """(frames of a segment: all, or those that fit into READ_BYTES, or one batch, and none if they are damaged; the
    offset after them; the header, if the segment begins with them). Raises OSError."""
    with open(extent.path, "rb") as file:
        most = READ_BYTES
        while True:
            data = os.pread(file.fileno(), min(most, extent.length), extent.position)
            length, end = whole_batches(data, extent.salt, extent.position, extent.first)
            if length or len(data) >= extent.length or len(data) < most:
                break
            most *= 2
        head = os.pread(file.fileno(), HEAD_BYTES, 0) if extent.position == FRAMES_AT else b""
        return memoryview(data)[:length], end, head        # a copy would keep the loop from running for milliseconds


def read_journal(extent: Extent) -> tuple[int, int, bytes]:
    """Raises OSError."""
    with open(extent.path, "rb") as file:
        file.seek(extent.position)
        return extent.salt, extent.position, file.read(extent.length)


# ====================================================================== the node


class Node:
    """The owner of a node's chain in a bucket, from its start to its end."""

    def __init__(self, uri: str, name: str, data_path: str, host: str, say: Say) -> None:
        """Raises ValueError for a URI that cannot be one, and BucketError."""
        self.name = name
        self.data_path = data_path
        self.host = host
        self.say = say
        self.stopping = threading.Event()
        self.root = open_bucket(uri, stopping=self.stopping)
        self.owned: Owned
        self.logs: NodeLogs
        self.shipper: Shipper | None = None

    def take_over(self, force: bool, power_failed: bool, topics_of: Callable[[bytes], set[str]]) -> Head:
        """Claims the node, and restores what the data path lacks; returns once both are done. For a thread.

        force: without a look for a living owner. topics_of: the topics in nsqd.dat. Raises BucketError, OSError.
        """
        journal = Journal.read(self.data_path)
        while True:
            try:
                self.owned = take_over(self.root, self.name, journal, self.host, force=force, say=self.say,
                                       has_files=bool(folders_in(self.data_path)))
                break
            except Unclear as error:
                self.say(f"{error}; waiting for the bucket")
                if self.stopping.wait(1.0):
                    raise
        kept = None
        if self.owned.had_files:
            with suppress(FileNotFoundError):
                kept = topics_of(read_file(os.path.join(self.data_path, "nsqd.dat")))
        restorer = Restorer(self.owned, self.data_path, kept, power_failed)
        restorer.run()
        journal.restored()
        if restorer.messages:
            self.say(f"restored {restorer.messages:,} messages: they are in the bucket, and fetched when they are read")
        return self.owned.whole.head

    def ship(self, linger: float, patience: float) -> None:
        """Begins to ship. patience: of readers with the bucket, seconds."""
        self.logs.journals_kept = self.owned.had_files
        self.shipper = Shipper(self.owned, self.logs, linger=linger)
        self.logs.wake = self.shipper.wake
        self.logs.history.parts = self.shipper.checkpoints.parts
        self.logs.history.bucket = self.owned.bucket.patient(patience)
        self.shipper.start()

    @property
    def epoch(self) -> int:
        return self.shipper.epoch if self.shipper else 0

    def status(self) -> Status:
        assert self.shipper is not None
        return self.shipper.status()

    def stop(self, patience: float) -> bool:
        """Ships the rest, for a thread; see Shipper.stop()."""
        return self.shipper is None or self.shipper.stop(patience)
