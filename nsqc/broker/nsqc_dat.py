"""nsqc.dat and nsqc.ids.dat: state that nsqd's files cannot store. nsqd ignores both.

nsqc.ids.dat has a bound of the message ids so far, so ids rise across restarts even if the clock steps back, and
whether the last run ended in a clean stop. nsqc.dat has the delays of deferred messages that a stop wrote to the disk
queues; only a stop writes it. After a kill, a delay counts only if a search of the queue files finds its message, and
it is not due yet. Messages that are not found, or not searched for, are due at once.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Annotated, TypedDict, TypeVar

import msgspec

from nsqc.broker.broker import Broker
from nsqc.log import Log
from nsqc.store.disk import recovery
from nsqc.store.disk.fileio import META, path_of
from nsqc.store.disk.recovery import ODD, Index
from nsqc.store.disk.segment import RECORD_HEAD_BYTES, RECORD_ID_OFFSET
from nsqc.store.files import boot_id, overwrite_file, read_file, replace_file
from nsqc.store.log.names import split_folder
from nsqc.store.message import GuidFactory
from nsqc.wire.outside import Decoder, JSONError

# ====================================================================== nsqc dat

FILE_NAME = "nsqc.dat"
IDS_NAME = "nsqc.ids.dat"
UNIT_BITS = 20  # ids count time in units of 2^20 ns
IDS_BYTES = 256  # of nsqc.ids.dat, padded: overwriting it needs no room
LOST_S = 86_400  # without nsqc.ids.dat, ids start this long after the newest message file: they may be ahead of it
HEARD_S = 60  # the ids of another machine may be ahead of its clock by less
MAX_SEARCHED_BYTES = 512 << 20  # of queue files, after a kill
ID_AT, ID_END = RECORD_ID_OFFSET, RECORD_HEAD_BYTES


# Ranges of numbers in the files: others would overflow later, in messages and deliveries.
Unit = Annotated[int, msgspec.Meta(ge=0, lt=1288834974288 + (1 << 41))]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
Nanoseconds = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class Delays(TypedDict):
    """Delays of deferred messages, by queue name and message id."""

    topics: dict[str, dict[bytes, int]]  # milliseconds
    channels: dict[str, dict[bytes, int]]  # wall-clock nanoseconds


class Ids(msgspec.Struct, gc=False):
    """nsqc.ids.dat. reached_unit: upper bound of all ids so far, 0: unknown; stopped: the run ended with all data on
    disk; boot_id: of the machine's current boot."""

    reached_unit: Unit = 0
    stopped: bool = False
    boot_id: str = ""


class NsqcDat(msgspec.Struct, gc=False):
    """nsqc.dat. Ids are their 16 digits; topic delays in milliseconds, channel times in wall-clock nanoseconds."""

    reached_unit: Unit = 0
    topics: dict[str, dict[str, Milliseconds]] = {}
    channels: dict[str, dict[str, Nanoseconds]] = {}


File = TypeVar("File", Ids, NsqcDat)

decode_ids = Decoder(Ids).decode
_decode_delays = Decoder(NsqcDat).decode


def power_failed(ids: Ids) -> bool:
    """Whether the machine may have stopped before the last run's data was on disk, this file included."""
    return not ids.stopped and (not ids.boot_id or ids.boot_id != boot_id())


def after_loss(data_path: str, heard_ns: int) -> None:
    """For logs that another machine wrote until then: new ids are above its own. Raises OSError."""
    save_ids(data_path, Ids((heard_ns + HEARD_S * 10**9) >> UNIT_BITS, False, boot_id()))


def load_ids(data_path: str, log: Log) -> Ids:
    """nsqc.ids.dat from an earlier run; if that is lost, a bound that is safe for the messages on disk."""
    path = os.path.join(data_path, IDS_NAME)
    ids = read(path, Ids, decode_ids, log)
    if ids.reached_unit == 0 and (newest := newest_message_ns(data_path)):
        ids.reached_unit = (newest + LOST_S * 10**9) >> UNIT_BITS
        log.warn("NSQ: %s has no bound of message ids: new ones begin %d s after the newest file with messages",
                 path, LOST_S)
    return ids


def newest_message_ns(data_path: str) -> int:
    """The latest modification time of the files with messages, in ns since 1970; 0: there are none."""
    newest = 0
    for entry in os.scandir(data_path):
        with suppress(OSError):  # it is reported when it is opened
            if split_folder(entry.name)[0] and entry.is_dir():
                found = [*os.scandir(entry.path)]
            else:
                found = [entry] if ".diskqueue." in entry.name else []
            newest = max([newest, *(file.stat().st_mtime_ns for file in found)])
    return newest


def load(data_path: str, index: Index, ids: Ids, log: Log) -> NsqcDat:
    """The state of an earlier run, if any. Call it before the queues are opened."""
    saved = read(os.path.join(data_path, FILE_NAME), NsqcDat, _decode_delays, log)
    saved.reached_unit = max(saved.reached_unit, ids.reached_unit)
    if not ids.stopped and (saved.topics or saved.channels):
        drop_gone(saved, index, log)
        try:
            save(data_path, saved)
        except OSError as error:
            log.error("NSQ: failed to write %s - %s", FILE_NAME, error)
    return saved


def read(path: str, form: type[File], decode: Callable[[bytes], File], log: Log) -> File:
    """One of the two files; empty if missing or unusable."""
    try:
        return decode(read_file(path))
    except FileNotFoundError:
        return form()
    except (OSError, JSONError) as error:
        log.error("NSQ: %s cannot be used, deferred messages may lose their delays - %s", path, error)
        return form()


def save(data_path: str, saved: NsqcDat) -> None:
    """Writes nsqc.dat. Raises OSError."""
    replace_file(os.path.join(data_path, FILE_NAME), msgspec.json.encode(saved))


def save_ids(data_path: str, ids: Ids) -> None:
    """Writes nsqc.ids.dat, durably. On a full disk it is overwritten in place, in one sector. Raises OSError."""
    path, data = os.path.join(data_path, IDS_NAME), msgspec.json.encode(ids).ljust(IDS_BYTES)
    try:
        replace_file(path, data)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        overwrite_file(path, data)


# ---------------------------------------------------------------------- after a kill


def drop_gone(saved: NsqcDat, index: Index, log: Log) -> None:
    """Keeps only the delays of messages that are still on disk and not due yet."""
    now_ns = time.time_ns()
    budget = MAX_SEARCHED_BYTES
    before = count_delays(saved)
    for queues in (saved.channels, saved.topics):
        for queue, delays in list(queues.items()):
            pending = {digits: value for digits, value in delays.items() if queues is saved.topics or value > now_ns}
            on_disk: set[str] = set()
            if pending:
                on_disk, budget = find_on_disk(index, queue, pending, budget)
            queues[queue] = {digits: value for digits, value in pending.items() if digits in on_disk}
            if not queues[queue]:
                del queues[queue]
    log.info("NSQ: was killed: of %d delays in %s, %d belong to messages that wait on disk", before, FILE_NAME,
             count_delays(saved))
    if budget <= 0:
        log.warn("NSQ: too much is on disk to search for all deferred messages after a kill; those not found are due")


def count_delays(saved: NsqcDat) -> int:
    """The total over all queues."""
    return sum(map(len, [*saved.topics.values(), *saved.channels.values()]))


def find_on_disk(index: Index, queue: str, wanted: dict[str, int], budget: int) -> tuple[set[str], int]:
    """The wanted ids among a queue's unread records, and the remaining search budget in bytes."""
    files = index.queues.get(queue, {})
    has_meta = files.get(META, ODD) != ODD
    meta = recovery.read(path_of(index.folder, queue, META)) if has_meta else None
    read_number, read_at = meta[1:3] if meta is not None else (0, 0)
    digits = {text.encode("utf-8", "replace"): text for text in wanted}
    on_disk: set[str] = set()
    for number in sorted(number for number, size in files.items() if number != META and size > 0):
        if number < read_number or len(on_disk) == len(digits):
            continue
        size = files[number] - (read_at if number == read_number else 0)
        if size <= 0:
            continue
        if budget < size:
            return on_disk, 0
        budget -= size
        search_file(path_of(index.folder, queue, number), files[number] - size, digits, on_disk)
    return on_disk, budget


def search_file(path: str, at: int, digits: dict[bytes, str], on_disk: set[str]) -> None:
    """Adds the ids in a data file from an offset on, up to its end or the first damage."""
    import mmap  # here: only needed after a kill

    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            size = len(data)
            while at + ID_END <= size:
                text = digits.get(data[at + ID_AT:at + ID_END])
                if text is not None:
                    on_disk.add(text)
                length = int.from_bytes(data[at:at + 4], "big", signed=True)
                if length < ID_END - 4:
                    return
                at += 4 + length
    except (OSError, ValueError):
        return


# ---------------------------------------------------------------------- the delays


def restore(broker: Broker, saved: NsqcDat) -> None:
    """Hands the delays to their topics and channels."""
    for name, delays in saved.topics.items():
        topic = broker.topic(name.encode())
        if topic is not None:
            topic.restore_delays(as_bytes(delays))
    for name, delays in saved.channels.items():
        topic_name, _, channel_name = name.partition(":")
        topic = broker.topic(topic_name.encode())
        channel = None if topic is None else topic.channel(channel_name.encode())
        if channel is not None:
            channel.restore_delays(as_bytes(delays))


def collect(reached_unit: int, delays: Delays) -> NsqcDat:
    """nsqc.dat from the result of Broker.close()."""
    return NsqcDat(reached_unit,
                   {name: as_text(times) for name, times in delays["topics"].items()},
                   {name: as_text(times) for name, times in delays["channels"].items()})


def as_bytes(delays: dict[str, int]) -> dict[bytes, int]:
    """With ids in the form of queues."""
    return {digits.encode("latin-1", "replace"): value for digits, value in delays.items()}


def as_text(delays: dict[bytes, int]) -> dict[str, int]:
    """With ids in the form of JSON."""
    return {digits.decode("latin-1"): value for digits, value in delays.items()}


# ====================================================================== saved ids
# The upper bound of message ids, saved in nsqc.ids.dat: ids rise after any stop, kill and clock step.

LEAD_UNITS = (10 * 10**9) >> UNIT_BITS  # the saved bound is this far ahead of the ids or the clock
FOLLOWED_UNITS = LEAD_UNITS // 2  # of these: then the bound is raised
RETRY_S = 1.0


class SavedIds:
    """Keeps a bound on disk that no id exceeds: it is written before the first id, and raised well before ids reach it.

    While the bound cannot be raised, ids use the rest of it, which has millions; then publishes are refused.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, data_path: str, guids: GuidFactory,
                 log: Log):
        self._loop = loop
        self._workers = workers
        self._data_path = data_path
        self._guids = guids
        self._log = log
        self._boot_id = boot_id()
        self._writing = False
        self._retry_at = 0.0  # loop time

    def begin(self) -> None:
        """Before the first id, and before any message moves: the contents of nsqc.dat are only true until then. Raises
        OSError."""
        bound = self._next_bound()
        save_ids(self._data_path, Ids(bound, False, self._boot_id))
        self._set_bound(bound)

    def tick(self) -> None:
        """Raises the bound if necessary. Called every 0.1 s."""
        if self._guids.is_low and not self._writing and self._loop.time() >= self._retry_at:
            self._writing = True
            bound = self._next_bound()
            written = self._loop.run_in_executor(self._workers, self._write, bound, False)
            written.add_done_callback(lambda done: self._written(bound, done))

    def write_stopped(self) -> None:
        """The last write of a stop: everything is on disk, and nsqc.dat is true."""
        if (error := self._write(self._guids.reached, stopped=True)) is not None:
            self._log.error("%s", failure(error))

    def _next_bound(self) -> int:
        return max(self._guids.reached, time.time_ns() >> UNIT_BITS) + LEAD_UNITS

    def _set_bound(self, bound: int) -> None:
        self._guids.set_bound(bound, bound - LEAD_UNITS + FOLLOWED_UNITS)

    def _write(self, bound: int, stopped: bool) -> OSError | None:
        """Runs on a worker thread; returns its error."""
        try:
            save_ids(self._data_path, Ids(bound, stopped, self._boot_id))
        except OSError as error:
            return error
        return None

    def _written(self, bound: int, done: asyncio.Future[OSError | None]) -> None:
        self._writing = False
        error = done.exception() or done.result()
        if error is None:
            self._set_bound(bound)
            if self._guids.reason:
                self._log.info("NSQ: %s can be written again", IDS_NAME)
            self._guids.reason = ""
            return
        self._retry_at = self._loop.time() + RETRY_S
        if not self._guids.reason:
            self._log.error("%s; publishes are refused once the saved bound of message ids is reached", failure(error))
        self._guids.reason = failure(error)


def failure(error: BaseException) -> str:
    """For the log and for publishers."""
    return f"NSQ: failed to write {IDS_NAME} - {error}"
