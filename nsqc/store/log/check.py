"""Looks at everything in the folder of a log topic: each record, index entry, due time and journal frame."""

from __future__ import annotations

import os
from typing import NamedTuple

from nsqc.store.log.due import read_due
from nsqc.store.log.files import UNBOUNDED, LogFiles, Segment, read_folder
from nsqc.store.log.format import INDEX_ENTRY, INDEX_HEAD
from nsqc.store.log.gaps import missing_ranges
from nsqc.store.log.names import segment_path
from nsqc.store.log.notfiles import not_files
from nsqc.store.log.progress import TopicProgress, read_progress
from nsqc.store.log.scan import BAD_RECORD, BLANK, SOUND, scan_segment
from nsqc.store.log.segmentfile import SegmentFile


class Finding(NamedTuple):
    """Something that is not as it was written."""

    path: str
    text: str
    is_fault: bool  # not so: what a kill leaves behind, and a start deals with


class Verdict(NamedTuple):
    """Of a folder."""

    records: int  # that are sound
    findings: list[Finding]


def check_folder(folder: str) -> Verdict:
    """Reads all of it. Raises OSError if files cannot be read."""
    files = read_folder(folder)
    findings = [Finding(os.path.join(folder, name), "is not a file", True) for name in not_files(folder)]
    records = 0
    for at, segment in enumerate(files.segments):
        below = files.segments[at + 1].first if at + 1 < len(files.segments) else UNBOUNDED
        sound, found = check_segment(folder, segment, below)
        records += sound
        findings += found
    findings += check_order(files)
    for first in files.due:
        findings += check_due(segment_path(folder, first, "due"))
    findings += check_progress(folder, read_progress(folder), files.next)
    return Verdict(records, findings)


def check_segment(folder: str, segment: Segment, below: int) -> tuple[int, list[Finding]]:
    """(sound records, findings) of a segment that ends before an offset. Raises OSError."""
    dat, idx = segment_path(folder, segment.first, "dat"), segment_path(folder, segment.first, "idx")
    if not os.path.isfile(idx):
        return 0, [Finding(idx, f"is missing; {messages(segment.end - segment.first)} in the segment", True)]
    findings, sound = [], 0
    if segment.base_ns is None:
        findings.append(Finding(idx, "its head is damaged", True))
    runs, _ = scan_segment(dat, idx, segment.first, min(segment.first + segment.entries, below))
    for kind, first, end in runs:
        if kind == SOUND:
            sound += max(min(end, segment.end) - first, 0)
        elif kind == BAD_RECORD and (first < segment.end or begins_within(folder, segment, first)):
            text = f"{plural(end - first, 'record', 'records')} damaged, from offset {first} on"
            findings.append(Finding(dat, text, True))
        elif kind != BAD_RECORD and first < segment.end:
            # In the last segment, entries behind its last message may never have been whole.
            what = "never written" if kind == BLANK else "damaged"
            text = f"{plural(end - first, 'entry', 'entries')} {what}, from offset {first} on"
            findings.append(Finding(idx, text, True))
    if segment.size > segment.bytes:
        text = f"{segment.size - segment.bytes} bytes behind its last message do not count"
        findings.append(Finding(dat, text, False))
    behind = os.path.getsize(idx) - INDEX_HEAD - INDEX_ENTRY * (segment.end - segment.first)
    if behind > 0:
        findings.append(Finding(idx, f"{behind} bytes behind its last message do not count", False))
    return sound, findings


def begins_within(folder: str, segment: Segment, offset: int) -> bool:
    """Whether the record of a sound entry begins in the data. Raises OSError."""
    with SegmentFile(folder, *segment.bounds) as file:
        entry = file.entry(offset)
    return entry is not None and entry.position < segment.size


def check_order(files: LogFiles) -> list[Finding]:
    """Segments that are not in order or missing, and files without a segment."""
    findings = [Finding(os.path.join(files.folder, name), "has no .dat", False) for name in files.orphans]
    findings += [Finding(os.path.join(files.folder, name), "is not a segment of this log", False)
                 for name in files.strays]
    for segment, following in zip(files.segments, files.segments[1:], strict=False):
        if segment.first + segment.entries > following.first:
            findings.append(Finding(segment_path(files.folder, segment.first, "dat"),
                                    f"reaches into the segment of offset {following.first}", False))
    for first, end in missing_ranges((segment.first, segment.end) for segment in files.segments):
        text = f"messages {first} to {end - 1} are gone, with their segment or its end"
        findings.append(Finding(files.folder, text, True))
    return findings


def check_due(path: str) -> list[Finding]:
    """Of a .due file. Raises OSError."""
    due = read_due(path)
    findings = []
    if due.damaged:
        findings.append(Finding(path, f"{plural(due.damaged, 'entry', 'entries')} damaged", True))
    if due.torn:
        findings.append(Finding(path, f"{due.torn} bytes at its end are half an entry", False))
    return findings


def check_progress(folder: str, progress: TopicProgress, following: int) -> list[Finding]:
    """Of snapshots and journals."""
    findings = []
    for file in progress.files:
        path = os.path.join(folder, file.name)
        if file.kind == "temporary":
            findings.append(Finding(path, "its writing was interrupted", False))
        elif file.damaged:
            findings.append(Finding(path, "is damaged", True))
    for file in progress.strays:
        findings.append(Finding(os.path.join(folder, file.name), "is not a journal of this log", False))
    if progress.damaged:
        lost = f"{plural(progress.damaged, 'frame or operation', 'frames or operations')} of journals cannot be used, "
        findings.append(Finding(folder, f"{lost}{progress.damaged_bytes} bytes", True))
    if progress.missing:
        findings.append(Finding(folder, f"{plural(progress.missing, 'journal is', 'journals are')} missing", True))
    if progress.torn_bytes:
        findings.append(Finding(folder, f"{progress.torn_bytes} bytes at the end of a journal are half a frame", False))
    for channel in progress.channels:
        if not channel.name:
            findings.append(Finding(folder, f"the name of channel number {channel.number} is lost", True))
        elif channel.cursor > following:
            findings.append(Finding(folder, f"channel {channel.name} is at {channel.cursor}, the next message will be "
                                            f"{following}", False))
    return findings


def plural(number: int, one: str, many: str) -> str:
    """1 entry, 2 entries."""
    return f"{number} {one if number == 1 else many}"


def messages(number: int) -> str:
    """Likewise."""
    return plural(number, "message", "messages")
