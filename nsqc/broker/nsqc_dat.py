"""nsqc.dat and nsqc.ids.dat: what nsqd's files have no room for. nsqd ignores both.

nsqc.ids.dat says how far message ids have come, so that they rise across restarts whatever the clock does, and whether
the last run came to a stop. nsqc.dat has the delays of deferred messages that a stop has written to the disk queues. It
is written at a stop only. After a kill, a delay counts only if its message is really still there and its time is still
to come: the queue files are looked through for it. A message that is not found, or not looked for, is simply due.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import Any

import msgspec

from nsqc.store.disk import positions
from nsqc.store.disk.index import ODD, Index
from nsqc.store.disk.names import META, path_of
from nsqc.store.disk.segment import RECORD_HEAD_BYTES, RECORD_ID_OFFSET
from nsqc.store.files import read_file, replace_file

FILE_NAME = "nsqc.dat"
IDS_NAME = "nsqc.ids.dat"
UNIT_BITS = 20  # ids count time in units of 2^20 ns
MAX_LOOKED_BYTES = 512 << 20  # of queue files, after a kill
ID_AT, ID_END = RECORD_ID_OFFSET, RECORD_HEAD_BYTES


class Ids(msgspec.Struct, gc=False):
    """nsqc.ids.dat. reached_unit: no id has come further; stopped: the run has ended with all it had written."""

    reached_unit: int = 0
    stopped: bool = False


class NsqcDat(msgspec.Struct, gc=False):
    """nsqc.dat. Ids are their 16 digits; topic delays in milliseconds, channel times in wall-clock nanoseconds."""

    reached_unit: int = 0
    topics: dict[str, dict[str, int]] = {}
    channels: dict[str, dict[str, int]] = {}


def load(data_path: str, index: Index, log: Any) -> NsqcDat:
    """What an earlier run has left; empty where it left nothing. Before the queues are opened."""
    found = read(os.path.join(data_path, FILE_NAME), NsqcDat, log)
    ids = read(os.path.join(data_path, IDS_NAME), Ids, log)
    found.reached_unit = max(found.reached_unit, ids.reached_unit)
    if not ids.stopped and (found.topics or found.channels):
        drop_gone(found, index, log)
        try:
            save(data_path, found)
        except OSError as error:
            log.error("NSQ: failed to write %s - %s", FILE_NAME, error)
    return found


def read(path: str, form: Any, log: Any) -> Any:
    """One of the two files; empty where it is not there or cannot be used."""
    try:
        return msgspec.json.decode(read_file(path), type=form)
    except FileNotFoundError:
        return form()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        log.error("NSQ: %s cannot be used, deferred messages may lose their delays - %s", path, error)
        return form()


def save(data_path: str, nsqc_dat: NsqcDat) -> None:
    """Writes nsqc.dat. Raises OSError."""
    replace_file(os.path.join(data_path, FILE_NAME), msgspec.json.encode(nsqc_dat))


def save_ids(data_path: str, ids: Ids, durable: bool) -> None:
    """Writes nsqc.ids.dat. Raises OSError."""
    replace_file(os.path.join(data_path, IDS_NAME), msgspec.json.encode(ids), durable)


# ---------------------------------------------------------------------- after a kill


def drop_gone(nsqc_dat: NsqcDat, index: Index, log: Any) -> None:
    """Leaves the delays of messages that are still on disk and not due yet."""
    now_ns = time.time_ns()
    budget = MAX_LOOKED_BYTES
    before = sum(map(len, [*nsqc_dat.topics.values(), *nsqc_dat.channels.values()]))
    for kept in (nsqc_dat.channels, nsqc_dat.topics):
        for queue, delays in list(kept.items()):
            left = {digits: value for digits, value in delays.items() if kept is nsqc_dat.topics or value > now_ns}
            found: set[str] = set()
            if left:
                found, budget = still_there(index, queue, left, budget)
            kept[queue] = {digits: value for digits, value in left.items() if digits in found}
            if not kept[queue]:
                del kept[queue]
    left = sum(map(len, [*nsqc_dat.topics.values(), *nsqc_dat.channels.values()]))
    log.info("NSQ: was killed: of %d delays in %s, %d belong to messages that wait on disk", before, FILE_NAME, left)
    if budget <= 0:
        log.warn("NSQ: too much is on disk to look for all deferred messages after a kill; those not found are due now")


def still_there(index: Index, queue: str, wanted: dict[str, int], budget: int) -> tuple[set[str], int]:
    """Which of the wanted ids stand in the unread records of a queue, and what is left of the bytes to look at."""
    files = index.queues.get(queue, {})
    has_meta = files.get(META, ODD) != ODD
    meta = positions.read(path_of(index.folder, queue, META)) if has_meta else None
    read_number, read_at = meta[1:3] if meta is not None else (0, 0)
    digits = {text.encode("utf-8", "replace"): text for text in wanted}
    found: set[str] = set()
    for number in sorted(number for number, size in files.items() if number != META and size > 0):
        if number < read_number or len(found) == len(digits):
            continue
        size = files[number] - (read_at if number == read_number else 0)
        if size <= 0:
            continue
        if budget < size:
            return found, 0
        budget -= size
        look_through(path_of(index.folder, queue, number), files[number] - size, digits, found)
    return found, budget


def look_through(path: str, at: int, digits: dict[bytes, str], found: set[str]) -> None:
    """Adds those that a data file has from an offset on, up to its end or the first damage."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            size = len(data)
            while at + ID_END <= size:
                text = digits.get(data[at + ID_AT:at + ID_END])
                if text is not None:
                    found.add(text)
                length = int.from_bytes(data[at:at + 4], "big", signed=True)
                if length < ID_END - 4:
                    return
                at += 4 + length
    except (OSError, ValueError):
        return


# ---------------------------------------------------------------------- the delays


def restore(broker: Any, nsqc_dat: NsqcDat) -> None:
    """Hands the delays to the topics and channels they belong to."""
    for name, delays in nsqc_dat.topics.items():
        topic = broker.topic(name.encode())
        if topic is not None:
            topic.restore_delays(as_bytes(delays))
    for name, delays in nsqc_dat.channels.items():
        topic_name, _, channel_name = name.partition(":")
        topic = broker.topic(topic_name.encode())
        channel = topic and topic.channel(channel_name.encode())
        if channel is not None:
            channel.restore_delays(as_bytes(delays))


def collect(reached_unit: int, delays: dict[str, dict[str, dict[bytes, int]]]) -> NsqcDat:
    """The file for what Broker.close() has returned."""
    return NsqcDat(reached_unit,
                   {name: as_text(found) for name, found in delays["topics"].items()},
                   {name: as_text(found) for name, found in delays["channels"].items()})


def as_bytes(delays: dict[str, int]) -> dict[bytes, int]:
    """Ids as the queues have them."""
    return {digits.encode("latin-1"): value for digits, value in delays.items()}


def as_text(delays: dict[bytes, int]) -> dict[str, int]:
    """Ids as JSON can have them."""
    return {digits.decode("latin-1"): value for digits, value in delays.items()}
