"""Segments whose frames are in the bucket only: fetched whole while somebody reads them.

A fetched segment is a file beside its header, `FIRST.fetched`, with its frames and an index at the places that they
have in a segment: so the readers of local segments read it unchanged. Of all logs together these files take no more
than allowed, but at least the one that is read; the one that was not used for the longest time goes first. None
outlives the process.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from nsqc.bucket.commit import DamagedError, Frames
from nsqc.bucket.store import Bucket, BucketError, in_thread
from nsqc.store.log.names import Segment, frames_path
from nsqc.store.log.segment import index_frames, make_remote

if TYPE_CHECKING:
    from nsqc.store.log.topiclog import TopicLog

FETCHES = 2                     # at once: one that is waited for, and one ahead
READ_BYTES = 4 << 20            # in one call of the store
HOLD_S = 0.2                    # in which a fetched segment is not removed: its readers get on
COPY_AT = 2048                  # of the second copy of a segment's header
Key = tuple[str, int]           # folder of the log, first offset of the segment


def fetch_frames(bucket: Bucket, parts: Sequence[Frames], path: str, head: bytes = b"") -> None:
    """Writes the frames of a segment, checked, and their index to a file, with the header if that is given. Raises
    BucketError or OSError; then the file is as before."""
    temporary = f"{path}.tmp"           # a reader may look for the file meanwhile
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "r+b", buffering=0) as file:
            for at in (0, COPY_AT):
                os.pwrite(file.fileno(), head, at)
            for part in parts:
                file.seek(part.position)
                for at in range(0, part.length, READ_BYTES):
                    rest = memoryview(bucket.get_part(part.object, part.at + at, min(READ_BYTES, part.length - at)))
                    while rest:
                        rest = rest[file.write(rest):]
            sound = index_frames(file.fileno(), parts[0].salt,
                                 [(part.position, part.length, part.first, part.end) for part in parts])
            if sound < len(parts):
                part = parts[sound]
                raise DamagedError(f"{part.object}: messages {part.first} to {part.end - 1} are damaged")
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


class Fetched:
    """A segment that is fetched, or that somebody waits for."""

    def __init__(self, key: Key, log: TopicLog, segment: Segment) -> None:
        self.key, self.log, self.segment = key, log, segment
        self.size = segment.position
        self.runs = self.is_ready = self.is_used = False
        self.touched = 0.0              # monotonic: when it became ready, or was last used
        self.calls: list[Callable[[str], object]] = []


class History:
    """The remote segments of a daemon's logs. All methods are called on the loop, where answers are given, too."""

    def __init__(self, call_on_loop: Callable[[Callable[[], object]], object], say: Callable[[str], object],
                 most_bytes: int) -> None:
        """call_on_loop: thread-safe. most_bytes: of all fetched segments."""
        self.call_on_loop = call_on_loop
        self.say = say
        self.most_bytes = most_bytes
        self.bucket: Bucket             # of the node; set with the next one, before the first fetch
        self.parts: Callable[[int, int], list[Frames]]      # of a log's segment, by sequence; thread-safe
        self.logs: dict[str, TopicLog] = {}                 # by folder
        self.kept: dict[int, int] = {}          # by id of a log: offset before which a checkpoint has everything
        self.files: OrderedDict[Key, Fetched] = OrderedDict()       # oldest use first
        self.leaving: dict[Key, int] = {}       # files that are being removed, and their sizes
        self.size = 0                           # of files, those included that are being written or removed
        self.running = self.fetches = self.failures = 0     # now; and since the start

    # ------------------------------------------------------------------ readers

    def fetch(self, folder: str, segment: Segment, call: Callable[[str], object]) -> bool:
        """Whether a segment is there, and stays for a moment; else call(why) follows: "" once it is, or why it cannot
        be fetched."""
        entry = self._entry(folder, segment)
        self.files.move_to_end(entry.key)
        entry.touched = time.monotonic()
        if not entry.is_ready:
            entry.calls.append(call)
            self._start()
        elif not entry.is_used:
            self._use(entry)
        return entry.is_ready

    async def fetched(self, folder: str, segment: Segment) -> None:
        """Returns once a segment, which was not there, is. Raises OSError with the reason why it cannot be fetched."""
        log = self.logs.get(folder)
        found = None if log is None else log.segment_at(segment.first)
        if found is None or found.salt != segment.salt:
            raise OSError("the log was deleted, or retention has removed these messages")
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if not os.path.exists(frames_path(folder, segment)):
            self.forget(folder, segment.first)      # somebody removed it
        if not self.fetch(folder, segment, lambda why: None if answer.done() else answer.set_result(why)):
            why = await answer
            if why:
                raise OSError(why)

    def forget(self, folder: str, first: int) -> None:
        """The file of a segment is not needed, or somebody removed it."""
        entry = self.files.get((folder, first))
        if entry is not None and entry.is_ready:
            self._remove(entry)

    def _entry(self, folder: str, segment: Segment) -> Fetched:
        key = folder, segment.first
        if key not in self.files:
            self.files[key] = Fetched(key, self.logs[folder], segment)
        return self.files[key]

    def _use(self, entry: Fetched) -> None:
        """It is read: fetches the next segment, if both have room."""
        entry.is_used = True
        following = entry.log.segment_at(entry.segment.end)
        if (following is not None and following.is_remote
                and entry.size + following.position <= self.most_bytes):
            self._entry(entry.key[0], following)
            self._start()

    # ------------------------------------------------------------------ files

    def _start(self) -> None:
        for entry in [entry for entry in self.files.values() if not (entry.runs or entry.is_ready)]:
            if self.running == FETCHES or entry.key in self.leaving or not self._has_room(entry.size):
                return
            entry.runs = True
            self.running += 1
            self.size += entry.size
            self._run(partial(self._fetch, entry), partial(self._ended, entry))

    def _has_room(self, size: int) -> bool:
        """Whether a file of that size may be written now; else makes room, and _start() follows."""
        excess = self.size + size - self.most_bytes
        if excess <= 0 or self.size == 0:
            return True
        excess -= sum(self.leaving.values())
        now = time.monotonic()
        for entry in [*self.files.values()]:
            if excess > 0 and entry.is_ready and now - entry.touched > HOLD_S:
                excess -= entry.size
                self._remove(entry)
        if not self.running and not self.leaving:
            asyncio.get_running_loop().call_later(HOLD_S, self._start)
        return False

    def _fetch(self, entry: Fetched) -> None:
        log_id = entry.log.id
        parts = self.parts(int(log_id, 16), entry.segment.sequence) if log_id else []
        if not parts:
            raise BucketError(f"the bucket lacks messages {entry.segment.first} to {entry.segment.end - 1} of topic "
                              f"{entry.log.name}")
        fetch_frames(self.bucket, parts, frames_path(entry.key[0], entry.segment))

    def _ended(self, entry: Fetched, why: str) -> None:
        self.running -= 1
        entry.runs, entry.is_ready, entry.touched = False, not why, time.monotonic()
        calls, entry.calls = entry.calls, []
        self.fetches += 1
        if why:
            self.failures += 1
            del self.files[entry.key]
            self.size -= entry.size
        elif self.logs.get(entry.key[0]) is not entry.log:
            self._remove(entry)
        elif calls:
            self._use(entry)
        for call in calls:
            call(why)
        self._start()

    def _remove(self, entry: Fetched) -> None:
        del self.files[entry.key]
        self.leaving[entry.key] = entry.size
        entry.log.forget_fetched(entry.segment.first)
        self._run(partial(os.unlink, frames_path(entry.key[0], entry.segment)), partial(self._removed, entry.key))

    def _removed(self, key: Key, why: str) -> None:
        self.size -= self.leaving.pop(key)
        self._start()

    def _run(self, call: Callable[[], object], ended: Callable[[str], object]) -> None:
        """Runs a call on a thread, then the other one on the loop, with why it failed."""
        def run() -> None:
            why = ""
            try:
                call()
            except Exception as error:
                why = str(error) or repr(error)
            with suppress(RuntimeError):        # the loop is closed
                self.call_on_loop(partial(ended, why))

        in_thread(run)

    # ------------------------------------------------------------------ logs

    def opened(self, log: TopicLog) -> None:
        self.logs[log.folder] = log
        log.history = self

    def gone(self, log: TopicLog) -> None:
        """It is deleted."""
        log.history = None
        self.logs.pop(log.folder, None)
        for entry in [entry for entry in self.files.values() if entry.log is log and entry.is_ready]:
            self._remove(entry)

    def offload(self, log: TopicLog, most_bytes: int) -> None:
        """Makes the oldest segments of a log remote, until this disk has no more than most_bytes of it, as far as a
        checkpoint has them."""
        firsts = log.offload(most_bytes, self.kept.get(int(log.id, 16), 0)) if log.id else []
        if firsts:
            failed: list[int] = []
            self._run(partial(self._make_remote, log.folder, firsts, failed), lambda why: log.offloaded(failed))

    def _make_remote(self, folder: str, firsts: list[int], failed: list[int]) -> None:
        for first in firsts:
            try:
                make_remote(folder, first)
            except OSError as error:
                failed.append(first)
                self.say(f"the segment of {folder} at offset {first} stays on this disk: {error}")
