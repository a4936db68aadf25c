"""Ships the changes of a node's logs: one thread, one commit at a time, until another writer's commit has its number.

    logs --wake--> Shipper --note--> logs                   what is new, as one commit
                   Shipper --create--> bucket               repeated, unchanged, until its outcome is known
                   Shipper --shipped--> logs                waiters are released
                   Shipper --commit--> Checkpointer         a second thread: packs, puts checkpoints, deletes

Of a backlog, data objects are put in parallel, and the next commit is noted and its objects begun while one is put.

A commit's bytes are frozen before the first attempt. Whatever goes wrong is repeated, except one thing: another commit
has the number. Then the node is another's, and this process is fenced for ever: it ships, checkpoints and deletes no
more.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from nsqc.bucket.checkpoint import Map, Packer, new_name, pack
from nsqc.bucket.commit import (
    INLINE_BYTES,
    Commit,
    Frames,
    LogNews,
    checkpoint_name,
    commit_name,
    crc_of,
    decode_commit,
    encode_commit,
)
from nsqc.bucket.store import BucketError, Data, Gone, Missing, Unclear, in_thread
from nsqc.bucket.takeover import Owned

LINGER_SECONDS = 0.25
IDLE_SECONDS = 10.0
MOST_NEWS = 24 << 20            # bytes of frames in one commit with its data objects; two of them are in memory
MOST_LOGS = 1000                # in one commit: encoding and decoding it takes milliseconds
CHECKPOINT_BYTES = 64 << 20     # of commits, or 16 times the last checkpoint
CHECKPOINT_COMMITS = 2000
DELETE_AFTER = 86400.0          # seconds from a checkpoint to the deletion of what it no longer names
DELETIONS, DELETED_AT_ONCE = 8, 1000            # threads, and names that they are given
PAUSE_SECONDS = 1.0             # after the store's own patience has ended, or a file could not be read
T = TypeVar("T")


class News(NamedTuple):
    """What happened since the last note. Frames have no object."""

    logs: Sequence[LogNews] = ()
    metadata: bytes | None = None
    more: bool = False          # there is more: the next note follows at once
    data: dict[tuple[int, int, int], Data] = {}        # of the frames: by log, salt and position


class Prepared(NamedTuple):
    """A commit, but for its number."""

    news: News
    logs: list[LogNews]         # whose frames have their places
    payload: list[Data]
    puts: list[Future[None]]    # of data objects


class Logs(Protocol):
    """What the shipper needs of a node's logs. Called on its threads, one note at a time."""

    def resume(self, whole: Map) -> None:
        """Called once, before the first note: what the bucket has. Notes begin with what it lacks."""

    def note(self, most_bytes: int, most_logs: int) -> News:
        """What is new: taken in one step of the loop, first where the channels are, then where the logs end.

        At most about most_bytes of frames, and most_logs logs. If it takes several notes, those with the frames come
        before those with the channels. Frames are whole batches, cut to INLINE_BYTES unless one batch is larger.
        Raises OSError; the next call continues.
        """

    def shipped(self, news: News) -> None:
        """A commit with this is in the bucket."""

    def kept(self, ends: list[tuple[int, int]]) -> None:
        """Called by the thread of checkpoints: one has all that the logs have before these offsets (ids, offsets)."""

    def fenced(self, reason: str) -> None:
        """Another process owns the node: refuse publishes, stop delivering, end. Called once, and nothing after it."""


class Status(NamedTuple):
    number: int                 # of the last commit in the bucket
    checkpoint: int
    waiting_bytes: int          # that are not known to be in the bucket, as woken
    waiting_seconds: float      # since the oldest of them
    commits: int                # by this process
    bytes: int                  # put by this process, in commits and data objects
    errors: int                 # failed attempts
    error: str                  # the last one, if the current commit has not landed since
    fenced: str                 # why; empty: it is not
    checkpoint_time: int        # when the newest checkpoint was put, unix seconds; 0: not by this process


class Shipper:
    """Owns the node's chain. start() and stop() are called by the same thread, wake() by any."""

    def __init__(self, owned: Owned, logs: Logs, *, linger: float = LINGER_SECONDS, idle: float = IDLE_SECONDS,
                 delete_after: float = DELETE_AFTER, checkpoint_commits: int = CHECKPOINT_COMMITS,
                 checkpoint_bytes: int = CHECKPOINT_BYTES) -> None:
        head = owned.whole.head
        self.bucket = owned.bucket
        self.bucket.on_error = self.failed
        self.logs = logs
        self.linger = linger
        self.idle = idle
        self.host = owned.host
        self.cluster, self.epoch, self.writer = head.cluster, head.epoch, head.writer
        self.number, self.crc = head.number, head.crc       # of the last commit that is known to be there
        self.tried = head.number                            # the last number that was tried
        self.claim = commit_name(head.number)               # which nobody deletes
        self.looked = time.monotonic()                      # when it was seen
        self.fence = ""
        self.checkpoints = Checkpointer(self, owned, delete_after, checkpoint_commits, checkpoint_bytes)
        self.commits = self.bytes = self.errors = 0
        self.error = ""
        self.lock = threading.Condition()
        self.waiting_bytes = 0
        self.waiting_since = 0.0        # monotonic; 0: nothing waits
        self.shipping_bytes = 0         # the same of what the current commit has
        self.shipping_since = 0.0
        self.began = 0.0                # monotonic: of the last commit; the next one follows a linger later, or at once
        self.ending = False
        self.thread = threading.Thread(target=self.run, name="bucket", daemon=True)

    # ------------------------------------------------------------------ other threads

    def start(self) -> None:
        self.thread.start()
        self.checkpoints.thread.start()

    def wake(self, added_bytes: int = 0) -> None:
        """Something is new."""
        with self.lock:
            self.waiting_bytes += added_bytes
            if not self.waiting_since:
                self.waiting_since = time.monotonic()
                self.lock.notify()
            elif self.waiting_bytes >= INLINE_BYTES:
                self.lock.notify()

    def stop(self, patience: float) -> bool:
        """Ships the rest, marks the stop and puts a checkpoint. Returns whether all of that is in the bucket; after
        `patience` seconds the rest is not."""
        end = time.monotonic() + patience
        with self.lock:
            self.ending = True
            self.lock.notify()
        self.thread.join(patience)
        self.checkpoints.end()
        self.checkpoints.thread.join(max(0.0, end - time.monotonic()))
        self.bucket.stopping.set()      # ends repeats
        return not (self.thread.is_alive() or self.checkpoints.thread.is_alive() or self.fence)

    def status(self) -> Status:
        since = self.shipping_since or self.waiting_since
        return Status(self.number, self.checkpoints.newest, self.waiting_bytes + self.shipping_bytes,
                      time.monotonic() - since if since else 0.0, self.commits, self.bytes, self.errors, self.error,
                      self.fence, self.checkpoints.put_time)

    # ------------------------------------------------------------------ the thread

    def run(self) -> None:
        self.logs.resume(self.checkpoints.whole)
        more, ahead = True, None
        while not self.fence:
            ends = self.wait(more)
            prepared = self.prepare() if ahead is None else ahead.result()
            if prepared is None:
                return
            more = prepared.news.more
            ahead = in_thread(self.prepare) if more else None
            ends = ends and not more
            if not self.ship(prepared, ends) or ends:
                return

    def wait(self, more: bool) -> bool:
        """Until a commit is due. Returns whether it is the last one."""
        idle_at = time.monotonic() + self.idle
        with self.lock:
            while not (more or self.ending):
                now = time.monotonic()
                due = max(self.waiting_since, self.began + self.linger) if self.waiting_since else idle_at
                if now >= due or self.waiting_bytes >= INLINE_BYTES:
                    break
                self.lock.wait(due - now)
            if not more:        # what was written since the round began is not in it
                self.shipping_bytes, self.shipping_since = self.waiting_bytes, self.waiting_since
                self.waiting_bytes, self.waiting_since = 0, 0.0
            self.began = time.monotonic()
            return self.ending

    def prepare(self) -> Prepared | None:
        """Notes what is new: frames are in the payload, up to INLINE_BYTES, or put in data objects. None: given up."""
        return self.surely(lambda: self.gather(self.logs.note(MOST_NEWS, MOST_LOGS)))

    def gather(self, news: News) -> Prepared:
        is_inline = sum(map(len, news.data.values())) <= INLINE_BYTES
        puts: list[Future[None]] = []
        packer = Packer(lambda name, data: puts.append(in_thread(partial(self.put_data, name, data))),
                        "" if is_inline else new_name())
        logs = []
        for log in news.logs:
            frames: list[Frames] = []
            for part in log.frames:
                packer.add(frames, part, news.data.pop((log.id, part.salt, part.position)))
            logs.append(replace(log, frames=frames))
        if is_inline:
            return Prepared(news, logs, packer.parts, puts)
        packer.flush()
        return Prepared(news, logs, [], puts)

    def ship(self, prepared: Prepared, is_stop: bool) -> bool:
        """Puts one commit, for as long as it takes. Returns whether it is there: false once fenced or given up."""
        news, logs, payload, puts = prepared
        try:
            for put in puts:
                put.result()
        except BucketError:
            return False
        commit = Commit(self.number + 1, self.cluster, self.epoch, self.writer, self.crc, time.time_ns(), self.host,
                        is_stop=is_stop, metadata=news.metadata, logs=logs)
        data = encode_commit(commit, payload)
        if time.monotonic() - self.looked >= self.idle and self.surely(self.look) is None:
            return False
        self.tried = commit.number
        outcome = self.surely(lambda: (self.bucket.create(commit_name(commit.number), data),))
        if outcome is None:
            return False
        if outcome[0] is not None:
            self.fenced(commit.number, outcome[0])
            return False
        self.number, self.crc = commit.number, crc_of(data)
        self.commits, self.error = self.commits + 1, ""
        self.count(len(data))
        if news.more:       # the rest of a backlog lags on
            shipped = sum(part.length for log in news.logs for part in log.frames)
            self.shipping_bytes = max(0, self.shipping_bytes - shipped)
        else:
            self.shipping_since = self.shipping_bytes = 0
        self.logs.shipped(news)
        self.checkpoints.take(*decode_commit(commit.number, data), len(data))
        return True

    def look(self) -> bool:
        """Raises Gone if somebody removed the node's objects: what follows would be a chain without its beginning."""
        try:
            self.bucket.get(self.claim)
        except Missing:
            raise Gone(f"{self.claim} is gone: the objects of this node were removed from the bucket") from None
        self.looked = time.monotonic()
        return True

    def put_data(self, name: str, data: Data) -> None:
        if self.surely(lambda: (self.bucket.create(name, data),)) is None:
            raise Unclear(f"{name}: given up")
        self.count(len(data))

    def count(self, put_bytes: int) -> None:
        with self.lock:
            self.bytes += put_bytes

    def surely(self, call: Callable[[], T]) -> T | None:
        """Repeats a call until it succeeds; None if the process gives up meanwhile."""
        while True:
            try:
                return call()
            except (BucketError, OSError) as error:
                self.failed(error)
                if self.fence or self.bucket.stopping.wait(PAUSE_SECONDS):
                    return None

    def failed(self, error: Exception) -> None:
        self.errors, self.error = self.errors + 1, str(error)

    def fenced(self, number: int, found: bytes) -> None:
        try:
            other, _ = decode_commit(number, found)
            who = f"{other.host or 'another process'}, epoch {other.epoch}"
        except BucketError as error:
            who = str(error)
        self.fence = f"{commit_name(number)} was written by {who}: this process no longer owns the node"
        self.checkpoints.end()
        self.logs.fenced(self.fence)


# ====================================================================== checkpoints


class Unneeded(NamedTuple):
    """What may be deleted: at a time, and once a commit of ours is there that proves that we owned the node."""

    due: float                  # monotonic
    proof: int                  # number of a commit that was begun when the checkpoint was known to be there
    objects: list[str]
    commits_from: int
    commits_to: int             # exclusive


class Checkpointer:
    """A second thread with its own map: applies commits, packs, puts checkpoints and deletes, while others ship."""

    def __init__(self, shipper: Shipper, owned: Owned, delete_after: float, every_commits: int,
                 every_bytes: int) -> None:
        self.shipper = shipper
        self.bucket = shipper.bucket
        self.whole = owned.whole        # used by this thread alone once there are commits
        self.delete_after = delete_after
        self.every_commits, self.every_bytes = every_commits, every_bytes
        self.newest = owned.base        # number of the newest checkpoint
        self.size = self.put_time = 0   # its bytes and when it was put, if this process put it
        self.lock = threading.Condition()
        self.taken: list[tuple[Commit, int]] = []       # commits, each with its CRC, since the newest checkpoint
        self.taken_bytes = 0
        self.ending = False
        self.unneeded: deque[Unneeded] = deque()
        self.note_unneeded()
        self.thread = threading.Thread(target=self.run, name="bucket-checkpoint", daemon=True)

    def take(self, commit: Commit, crc: int, size: int) -> None:
        with self.lock:
            self.taken.append((commit, crc))
            self.taken_bytes += size + sum(part.length for log in commit.logs for part in log.frames
                                           if part.object.startswith("data/"))
            if self.is_due():
                self.lock.notify()

    def end(self) -> None:
        with self.lock:
            self.ending = True
            self.lock.notify()

    def is_due(self) -> bool:
        return len(self.taken) >= self.every_commits or self.taken_bytes >= max(self.every_bytes, 16 * self.size)

    def run(self) -> None:
        while True:
            with self.lock:
                if not (self.ending or self.is_due()):
                    self.lock.wait(min(60.0, self.delete_after))
                due, ends = self.is_due() or (self.ending and bool(self.taken)), self.ending
                commits = [*self.taken] if due else []
                if due:
                    self.taken.clear()
                    self.taken_bytes = 0
            if self.shipper.fence or (due and not self.put(commits)) or ends:
                return
            self.delete()

    # ------------------------------------------------------------------ putting

    def put(self, commits: list[tuple[Commit, int]]) -> bool:
        """Makes and puts a checkpoint. Returns whether it is there: false once fenced or given up."""
        for commit, crc in commits:
            self.whole.apply(commit, crc)
        self.whole.fold()
        data = self.shipper.surely(self.make)
        if data is None or self.shipper.fence:
            return False
        name = checkpoint_name(self.whole.head.number)
        outcome = self.shipper.surely(lambda: (self.bucket.create(name, data),))
        if outcome is None or outcome[0] is not None:       # another's: then its owner's commit fences us, too
            return False
        self.newest, self.size, self.put_time = self.whole.head.number, len(data), int(time.time())
        self.shipper.count(len(data))
        self.note_unneeded()
        self.shipper.logs.kept([(log.id, log.frames[-1].end) for commit, _ in commits for log in commit.logs
                                if log.frames and not log.dropped])
        return True

    def parts(self, log_id: int, segment: int) -> list[Frames]:
        """What a checkpoint has of a segment. For any thread."""
        log = self.whole.logs.get(log_id)
        return [part for part in [*log.frames] if part.segment == segment] if log is not None else []

    def make(self) -> bytes:
        """Packs, and encodes. Raises BucketError; then nothing has changed."""
        pack(self.whole, self.read, self.shipper.put_data)
        if self.newest and (earlier := checkpoint_name(self.newest)) not in self.whole.head.unneeded:
            self.whole.head.unneeded.append(earlier)
        return self.whole.encode()

    def read(self, part: Frames) -> bytes:
        return self.bucket.get_part(part.object, part.at, part.length)

    # ------------------------------------------------------------------ deleting

    def note_unneeded(self) -> None:
        """What the newest checkpoint has no more use for: objects, and the commits up to it."""
        head = self.whole.head
        known = {name for entry in self.unneeded for name in entry.objects}
        start = self.unneeded[-1].commits_to if self.unneeded else head.commits_from
        self.unneeded.append(Unneeded(time.monotonic() + self.delete_after, self.shipper.tried + 1,
                                      [name for name in head.unneeded if name not in known], start,
                                      max(start, self.newest + 1)))

    def delete(self) -> None:
        """Deletes what is due. The next checkpoint no longer lists it."""
        while self.unneeded:
            entry = self.unneeded[0]
            if time.monotonic() < entry.due or self.shipper.number < entry.proof or self.shipper.fence:
                return
            head = self.whole.head
            try:
                claims = {*head.claims}
                names = chain(entry.objects, (commit_name(number) for number in range(
                    entry.commits_from, entry.commits_to) if number not in claims))
                with ThreadPoolExecutor(DELETIONS) as threads:
                    while some := [*islice(names, DELETED_AT_ONCE)]:
                        deque(threads.map(self.bucket.delete, some), maxlen=0)      # raises what one of them raised
            except BucketError as error:
                self.shipper.failed(error)
                return
            deleted = {*entry.objects}
            head.unneeded = [name for name in head.unneeded if name not in deleted]
            head.commits_from = entry.commits_to
            head.claims = [number for number in head.claims if number >= entry.commits_to]
            self.unneeded.popleft()
