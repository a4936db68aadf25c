"""Checks all files in the folder of a log-backed topic: headers, frames, the manifest and the frames of journals."""

from __future__ import annotations

import os
from typing import NamedTuple

from nsqc.store.log.names import OTHER, TEMPORARY, first_of, segment_path
from nsqc.store.log.offline import has_index, read_frames, read_head
from nsqc.store.log.progress import TopicProgress, progress_of
from nsqc.store.log.recovery import LogError, Opened, SegmentState, read_folder


class Finding(NamedTuple):
    """A deviation from the written data."""

    path: str
    text: str
    is_fault: bool = True  # False: normal after a kill; a start repairs it


class Verdict(NamedTuple):
    """The result for a folder."""

    records: int  # sound ones
    findings: list[Finding]


def check_folder(folder: str) -> Verdict:
    """Checks a whole folder. Raises OSError if files cannot be read."""
    records = 0
    try:
        opened = read_folder(folder)
        segments = opened.segments
        findings = check_manifest(folder, opened, segments) + check_names(folder, opened, segments)
        for segment in segments:
            sound, found = check_segment(folder, segment)
            records += sound
            findings += found
    except LogError as error:
        return Verdict(records, [Finding(error.filename, error.strerror or "")])
    findings += check_missing(folder, opened, segments)
    return Verdict(records, findings + check_progress(folder, progress_of(opened.earlier)))


def check_manifest(folder: str, opened: Opened, segments: list[SegmentState]) -> list[Finding]:
    """Checks that it exists and is sound. After a kill, the first segment may lack one."""
    path = os.path.join(folder, "manifest")
    if opened.has_manifest:
        text = f"is older than the newest {plural(opened.unlisted, 'segment')}: a start adds them"
        return [Finding(path, text, opened.unlisted > 1)] if opened.unlisted else []
    if os.path.lexists(path):
        return [Finding(path, "is damaged")] if os.path.isfile(path) else []
    return [Finding(path, "is missing", segments[-1].sequence > 1)] if segments else []


def check_names(folder: str, opened: Opened, segments: list[SegmentState]) -> list[Finding]:
    """Checks segment headers; reports segments that do not count, and foreign files."""
    known = {segment.first: segment for segment in segments}
    findings = []
    for name in sorted(os.listdir(folder)):
        path, first = os.path.join(folder, name), first_of(name)
        temporary = TEMPORARY.fullmatch(name)
        if first is None and not temporary and not OTHER.fullmatch(name):
            findings.append(Finding(path, "is not a file of a log", False))
        elif not os.path.isfile(path):
            findings.append(Finding(path, "is not a file"))
        elif temporary:
            findings.append(Finding(path, "its writing was interrupted", False))
        elif first is not None:
            findings += check_head(path, opened.id, first, known)
    return findings


def check_head(path: str, log_id: int, first: int, known: dict[int, SegmentState]) -> list[Finding]:
    """Checks the header of a segment, and says why the segment does not count."""
    sound, its_id, sequence, its_first = read_head(path)
    if first in known:
        if sound == 2:
            return []
        return [Finding(path, "one of the two copies of its header is damaged" if sound
                        else "its header is lost, and known from elsewhere")]
    if not sound:
        return [Finding(path, "its header is lost, and with it all its messages")]
    if its_id != log_id or its_first != first:
        return [Finding(path, "is not a segment of this log", False)]
    return [Finding(path, f"its number, {sequence}, is not above those before it: its messages do not count")]


def check_segment(folder: str, segment: SegmentState) -> tuple[int, list[Finding]]:
    """(sound records, findings) in its frames. Raises OSError."""
    path = segment_path(folder, segment.first)
    records, _, damage = read_frames(path, segment)
    findings = [Finding(path, f"damaged at byte {at}: {lost_between(first, end)}") for at, first, end in damage]
    if segment.size > segment.position and not has_index(path, segment.salt):
        text = f"{segment.size - segment.position} bytes after its last message do not count"
        findings.append(Finding(path, text, False))
    return records, findings


def lost_between(first: int, end: int) -> str:
    """Describes offsets of lost messages."""
    if first == end:
        return "no message is lost"
    return f"message {first} is lost" if first + 1 == end else f"messages {first} to {end - 1} are lost"


def check_missing(folder: str, opened: Opened, segments: list[SegmentState]) -> list[Finding]:
    """Reports missing segments."""
    findings = [Finding(folder, f"{plural(segment.lost, 'message')} before offset {segment.first} are gone, with their "
                                "segments") for segment in segments if segment.lost]
    if opened.lost:
        findings.append(Finding(folder, f"the newest segment is gone, with at least {plural(opened.lost, 'message')} "
                                        f"from offset {opened.next} on"))
    elif segments and opened.resume_at == opened.earlier.reached > opened.next:
        text = f"messages from offset {opened.next} on are gone: a channel is at offset {opened.resume_at}"
        findings.append(Finding(folder, text))
    return findings


def check_progress(folder: str, progress: TopicProgress) -> list[Finding]:
    """Checks the journal."""
    findings = [Finding(os.path.join(folder, name), "is damaged") for name, damaged in progress.files
                if damaged and os.path.isfile(os.path.join(folder, name))]
    if progress.torn_bytes:
        findings.append(Finding(folder, f"{progress.torn_bytes} bytes at the end of a journal are half a frame", False))
    for channel in progress.channels:
        if not channel.name:
            findings.append(Finding(folder, f"the name of channel number {channel.number} is lost"))
    return findings


def plural(number: int, word: str) -> str:
    """1 message, 2 messages."""
    return f"{number} {word}{'' if number == 1 else 's'}"
