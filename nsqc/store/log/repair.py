"""Mends the folder of a log topic, of which no daemon may be running.

What is replaced or cut off is kept as NAME.bad. No intact record is lost, and no channel leaves one out: what cannot be
told apart from unfinished messages is delivered again.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

from nsqc.store.badfiles import bad_name, keep_bad
from nsqc.store.files import replace_file, sync_folder
from nsqc.store.log.compact import compact_folder
from nsqc.store.log.due import read_due
from nsqc.store.log.files import UNBOUNDED, Segment, read_folder, with_following
from nsqc.store.log.format import INDEX_HEAD, checksum
from nsqc.store.log.names import segment_path, topic_of
from nsqc.store.log.notfiles import not_files, put_away
from nsqc.store.log.progress import Progress, Ranges, TopicProgress, read_progress
from nsqc.store.log.rebuild import Builder, Rebuilt, has_bad_entries, lacks_entries
from nsqc.store.log.scan import BAD_ENTRY, BLANK, scan_segment
from nsqc.store.log.topicfile import saved_topic

JOURNAL_MAGIC = b"NSQCJNL1"
RESET, NAME, OUT = 4, 5, 7  # operations: see nsqc/store/log/ops.pxd

Report = Callable[[str], None]


class Repair:
    """One folder. dry_run: only reports what it would do."""

    def __init__(self, folder: str, report: Report, dry_run: bool = False):
        self.folder = folder
        self.report = report
        self.dry_run = dry_run
        self.is_torn = False  # blank entries never reached the disk, and nothing vouches for their records
        self.steps = 0

    def run(self) -> int:
        """The number of things that were mended. Raises OSError; then it can be run again."""
        for name in not_files(self.folder):
            if self._step(os.path.join(self.folder, name), "is not a file, renamed to .bad"):
                put_away(self.folder, name)
        files = read_folder(self.folder)
        progress = read_progress(self.folder)
        unsure: Ranges = []
        for segment, below in with_following(files):
            unsure += self.mend_segment(segment, below)
        for first in files.due:
            self._due(segment_path(self.folder, first, "due"))
        self.mend_journals(progress, unsure)
        return self.steps

    def _step(self, path: str, text: str) -> bool:
        """Reports a step; whether to take it."""
        self.steps += 1
        self.report(f"{path}: {text}")
        return not self.dry_run

    def mend_segment(self, segment: Segment, below: int) -> Ranges:
        """Mends the index, then cuts off what does not count; the offsets that are unsure now. Raises OSError."""
        dat, idx = segment_path(self.folder, segment.first, "dat"), segment_path(self.folder, segment.first, "idx")
        rebuilt = None
        if needs_index(self.folder, segment, below):
            rebuilt = Builder(self.folder, segment, below, self.is_torn).build()
            self._index(idx, rebuilt)
        end, data_bytes = (rebuilt.end, rebuilt.bytes) if rebuilt else (segment.end, segment.bytes)
        if segment.size > data_bytes and end < below and segment.first + segment.entries <= below:
            self._cut(dat, data_bytes, segment.size - data_bytes)
        return rebuilt.unsure if rebuilt else []

    def _index(self, path: str, rebuilt: Rebuilt) -> None:
        text = f"made again: {rebuilt.kept} entries kept, {rebuilt.made} made from their records"
        if rebuilt.lost:
            text += f", {rebuilt.lost} messages lost"
        for first, end in rebuilt.unsure:
            text += f"; messages {first} to {end - 1} may have had other offsets and come again"
        if self._step(path, text):
            if os.path.exists(path):
                keep_bad(path)
            replace_file(path, rebuilt.data)

    def _cut(self, path: str, size: int, rest: int) -> None:
        """Cuts off the end of a file, which is kept."""
        if self._step(path, f"{rest} bytes cut off behind its last message"):
            with open(path, "rb") as file:
                file.seek(size)
                tail = file.read()
            replace_file(bad_name(path), tail)
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.ftruncate(descriptor, size)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _due(self, path: str) -> None:
        due = read_due(path)
        text = f"{len(due.entries)} due times kept, {due.damaged} lost: those messages are due at once"
        if (due.damaged or due.torn) and self._step(path, text):
            keep_bad(path)
            replace_file(path, due.sound)

    def mend_journals(self, progress: TopicProgress, unsure: Ranges) -> None:
        """Makes unsure offsets unfinished, and damaged journals again. Raises OSError or MetadataError."""
        following = max([0, *(file.number for file in progress.files)]) + 1
        sections: list[bytes] = []
        if unsure and progress.channels:
            sections = [section for channel in progress.channels for section in unsure_sections(channel, unsure)]
            self._step(self.folder, f"messages of unsure offsets made unfinished for {len(progress.channels)} channels")
        if progress.damaged or progress.missing:
            sections += self._unknown_sections(progress)
        if sections and not self.dry_run:
            self._write_journal(following, sections)
            following += 1
        if not (progress.damaged or progress.missing):
            return
        text = f"journals made again from what can be understood: {len(progress.named)} channels"
        if self._step(self.folder, text):
            # Before the snapshot that says to begin with it.
            self._write_journal(following, [])
            compact_folder(self.folder, following)

    def _unknown_sections(self, progress: TopicProgress) -> list[bytes]:
        """Channels of nsqd.dat that the journals do not name any more: they begin with the first message there is."""
        saved = saved_topic(os.path.dirname(os.path.abspath(self.folder)), topic_of(self.folder))
        number = max([0, *(channel.number for channel in progress.channels)])
        sections = []
        for channel in saved.channels or ():
            if channel.name not in progress.named:
                self._step(self.folder, f"channel {channel.name} is lost: all messages come again")
                number += 1
                name = channel.name.encode()
                ops = bytes([RESET]) + offset_after(0, 0) + bytes([NAME]) + varint(len(name)) + name
                sections.append(struct.pack(">IIq", number, len(ops), 0) + ops)
        return sections

    def _write_journal(self, number: int, sections: list[bytes]) -> None:
        head = JOURNAL_MAGIC + struct.pack(">I", number)
        head += struct.pack(">I", checksum(head))
        frames = b"".join(struct.pack(">II", len(payload), checksum(payload)) + payload for payload in sections)
        replace_file(os.path.join(self.folder, f"cursors.{number:06}.journal"), head + frames)
        sync_folder(self.folder)


def mend_indexes(folder: str, report: Report, torn_from: int) -> None:
    """For a start: makes indexes again that are missing, or whose head or last entries are damaged. Costs some reads
    for each segment as long as there are none.

    torn_from: segments from this offset on may have any part of what was written, as a power failure has left them.
    What never reached the disk is no damage, nor is anything in the last one. Raises OSError or MetadataError.
    """
    repair, unsure = Repair(folder, report), []
    for segment, below in with_following(read_folder(folder)):
        repair.is_torn = segment.first >= torn_from
        if repair.is_torn and below == UNBOUNDED:
            continue
        if segment.size and is_index_lost(folder, segment, below, repair.is_torn):
            unsure += repair.mend_segment(segment, below)
    if unsure:
        repair.mend_journals(read_progress(folder), unsure)


def is_index_lost(folder: str, segment: Segment, below: int, is_torn: bool) -> bool:
    """Whether entries are damaged that a record may have had. Raises OSError."""
    if segment.base_ns is None:
        return not is_torn or has_head(folder, segment.first)
    known = min(segment.first + segment.entries, below)
    if lacks_entries(segment, below) and not is_torn:
        return True
    if segment.intact == known:
        return False
    # A batch whose writing was interrupted has sound entries.
    dat, idx = segment_path(folder, segment.first, "dat"), segment_path(folder, segment.first, "idx")
    runs, _ = scan_segment(dat, idx, segment.first, known)
    # A start behind a power failure leaves blank entries only before intact records.
    lost = (BAD_ENTRY,) if is_torn else (BAD_ENTRY, BLANK)
    return any(kind in lost and end > segment.intact for kind, _, end in runs)


def has_head(folder: str, first: int) -> bool:
    """Whether the head of an index has reached the disk, damaged or not. Raises OSError."""
    try:
        with open(segment_path(folder, first, "idx"), "rb") as file:
            return any(file.read(INDEX_HEAD))
    except (FileNotFoundError, IsADirectoryError):
        return True  # its name was on the disk before its first record counted: somebody has removed it


def needs_index(folder: str, segment: Segment, below: int) -> bool:
    """Whether entries are missing or damaged, or there are too many. Raises OSError."""
    if segment.base_ns is None:
        return True
    known = min(segment.first + segment.entries, below)
    if known > segment.end and not segment.first + segment.entries >= below:
        return True
    if lacks_entries(segment, below):
        return True
    idx = segment_path(folder, segment.first, "idx")
    runs, _ = scan_segment(segment_path(folder, segment.first, "dat"), idx, segment.first, known)
    return has_bad_entries(segment, runs)


# ---------------------------------------------------------------------- operations of journals


def varint(value: int) -> bytes:
    """LEB128."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def offset_after(offset: int, last: int) -> bytes:
    """The zigzag difference."""
    change = offset - last
    return varint(2 * change if change >= 0 else -2 * change - 1)


def unsure_sections(channel: Progress, unsure: Ranges) -> list[bytes]:
    """What makes these offsets unfinished in a channel.

    If it has finished any of them ahead of its cursor, it begins again with its oldest unfinished message: nothing else
    takes that back.
    """
    ops, last = bytearray(), 0
    if any(first < high and low < end for first, end in channel.skips for low, high in unsure):
        ops = bytearray([RESET]) + offset_after(min(channel.oldest, unsure[0][0]), 0)
    else:
        for first, end in unsure:
            end = min(end, channel.cursor)
            if first < end:
                ops += bytes([OUT]) + offset_after(first, last) + varint(end - first)
                last = end
    return [struct.pack(">IIq", channel.number, len(ops), 0) + bytes(ops)] if ops else []
