"""Checks all files in the folder of a log-backed topic: headers, frames, the manifest and the frames of journals."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from typing import NamedTuple

import msgspec

from nsqc.store.files import METADATA, MetadataError, Saved, SavedTopic, decode_saved, read_file, replace_file
from nsqc.store.log import reading
from nsqc.store.log.manager import Progress, Ranges, TopicProgress, Waiting, progress_of
from nsqc.store.log.names import OTHER, TEMPORARY, Segment, first_of, segment_path, topic_of
from nsqc.store.log.recovery import LogError, Opened, has_index, read_folder, read_frames, read_head
from nsqc.wire.outside import Decoder, JSONError

# ====================================================================== topic of a folder
# A topic's part of nsqd.dat, for tools.

_decode_topic = Decoder(SavedTopic).decode


def read_saved(folder: str) -> Saved:
    """Empty if the file does not exist. Raises OSError or MetadataError."""
    path = os.path.join(folder, METADATA)
    try:
        return decode_saved(read_file(path))
    except FileNotFoundError:
        return Saved()
    except JSONError as error:
        raise MetadataError(f"{path} is damaged - {error}") from None


def read_topic(path: str) -> SavedTopic:
    """Reads a file with one topic, as written by an export. Raises OSError or MetadataError."""
    try:
        return _decode_topic(read_file(path))
    except JSONError as error:
        raise MetadataError(f"{path} is damaged - {error}") from None


def saved_topic(folder: str, name: str) -> SavedTopic:
    """A topic, without channels if nsqd.dat lacks it. Raises OSError or MetadataError."""
    topics = read_saved(folder).topics or []
    return next((topic for topic in topics if topic.name == name), SavedTopic(name))


def merge_topic(folder: str, topic: SavedTopic) -> None:
    """Adds a topic and its channels. Raises OSError or MetadataError."""
    saved = read_saved(folder)
    known = saved_topic(folder, topic.name)
    names = {channel.name for channel in topic.channels or ()}
    channels = [*(topic.channels or ()), *(other for other in known.channels or () if other.name not in names)]
    merged = SavedTopic(topic.name, topic.paused or known.paused, channels or None)
    saved.topics = [*(other for other in saved.topics or () if other.name != topic.name), merged]
    replace_file(os.path.join(folder, METADATA), msgspec.json.encode(saved))


# ====================================================================== summary
# Summarizes a log-backed topic and the progress of its channels, for people and scripts.

class Backlog(NamedTuple):
    """Existing messages that a channel has not finished; ranges are in order."""

    out: Ranges  # delivered but not finished
    ahead: Ranges  # not delivered yet
    waiting: dict[int, Waiting]  # requeued or deferred


class Log(NamedTuple):
    """A log-backed topic, according to its files."""

    topic: str
    folder: str
    opened: Opened
    segments: list[Segment]
    progress: TopicProgress
    due: dict[int, int]  # offset to due time of delayed messages that are not due

    @property
    def next(self) -> int:
        """After the last record."""
        return self.opened.next

    def end_for_channels(self, has_channels: bool, paused: bool) -> int:
        """After the last message that channels may read; later ones wait in the topic."""
        cursor = self.progress.topic_cursor
        if has_channels and not paused:
            return self.next
        if cursor is None:
            return self.next if has_channels else 0
        return min(cursor, self.next)


def read_log(folder: str) -> Log:
    """Raises OSError."""
    opened = read_folder(folder)
    return Log(topic_of(folder), os.path.abspath(folder), opened, opened.segments, progress_of(opened.earlier),
               dict(opened.delays))


def existing(segments: list[Segment], ranges: Ranges) -> Ranges:
    """The part of these ranges that exists in segments; both are in order."""
    return overlap(ranges, [(segment.first, segment.end) for segment in segments])


def overlap(ranges: Ranges, others: Ranges) -> Ranges:
    """The offsets in both; each is in order."""
    found, at = [], 0
    for first, end in ranges:
        at = bisect_right(others, first, at, key=lambda other: other[1])
        following = at
        while following < len(others) and others[following][0] < end:
            found.append((max(first, others[following][0]), min(end, others[following][1])))
            following += 1
    return found


def without(ranges: Ranges, gone: Ranges) -> Ranges:
    """The offsets in ranges that are not in gone; both are in order."""
    found: Ranges = []
    at = 0
    for first, end in ranges:
        while at < len(gone) and gone[at][1] <= first:
            at += 1
        following = at
        while first < end and following < len(gone) and gone[following][0] < end:
            if first < gone[following][0]:
                found.append((first, gone[following][0]))
            first = max(first, gone[following][1])
            following += 1
        if first < end:
            found.append((first, end))
    return found


def backlog(log: Log, channel: Progress, end: int) -> Backlog:
    """The unfinished messages before an offset."""
    there = dict(existing(log.segments, [(entry.offset, entry.offset + 1) for entry in channel.waiting]))
    waiting = {entry.offset: entry for entry in channel.waiting if entry.offset in there}
    ahead = without([(channel.cursor, end)], channel.skips) if channel.cursor < end else []
    return Backlog(existing(log.segments, channel.out), existing(log.segments, ahead), waiting)


def count(ranges: Ranges) -> int:
    """Offsets in ranges."""
    return sum(end - first for first, end in ranges)


def time_of(log: Log, offset: int) -> int | None:
    """Publish time of a message or the next existing one, in ns since 1970; None: none. Raises OSError."""
    at = bisect_right(log.segments, offset, key=lambda segment: segment.end)
    for segment in log.segments[at:]:
        if segment.is_remote:
            return segment.made_ns      # about
        with open(segment_path(log.folder, segment.first), "rb", buffering=0) as file:
            found = reading.time_of(file.fileno(), segment, max(offset, segment.first), 0)
        if found is not None:
            return found
    return None


def summary(log: Log) -> dict[str, object]:
    """In its JSON form: docs/logs.md. Raises OSError."""
    opened, progress, now = log.opened, log.progress, time.time_ns()
    segments = [{"first": segment.first, "end": segment.end, "bytes": segment.bytes, "size": segment.size,
                 "first_time": time_of(log, segment.first), "last_time": time_of(log, segment.end - 1),
                 "missing": segment.lost} for segment in log.segments]
    channels = []
    for channel in progress.channels:
        out, ahead, waiting = backlog(log, channel, log.next)
        deferred = sum(entry.due_ns > now for entry in waiting.values())
        deferred += sum(due > now and offset >= channel.cursor for offset, due in log.due.items())
        oldest = time_of(log, channel.oldest)
        behind = max(now - oldest, 0) / 1e9 if oldest is not None else 0.0
        channels.append({"name": channel.name or None, "number": channel.number, "cursor": channel.cursor,
                         "oldest": channel.oldest, "unfinished": count(out) + len(waiting), "waiting": len(waiting),
                         "deferred": deferred, "lag": count(ahead), "lag_seconds": round(behind, 3)})
    return {
        "topic": log.topic, "folder": log.folder, "id": f"{opened.id:016x}" if opened.id else None,
        "first": log.segments[0].first if log.segments else log.next, "next": log.next,
        "messages": sum(segment.end - segment.first for segment in log.segments),
        "missing": opened.lost + sum(segment.lost for segment in log.segments),
        "bytes": sum(segment.bytes for segment in log.segments), "segments": segments, "channels": channels,
        "topic_cursor": progress.topic_cursor,
        "journal": {"damaged": progress.damaged, "torn_bytes": progress.torn_bytes},
    }


def as_text(topic: dict[str, object]) -> str:
    """A summary for people."""
    lines = [f"{topic['topic']}: {topic['messages']} messages, offsets {topic['first']} to {topic['next']}, "
             f"{topic['bytes']} bytes ({topic['folder']})"]
    journal = topic["journal"]
    assert isinstance(journal, dict)
    if topic["missing"]:
        lines.append(f"  missing: {topic['missing']} messages")
    if journal["damaged"]:
        lines.append(f"  journal: damaged at {journal['damaged']} place{'s' * (journal['damaged'] != 1)}")
    lines += table("segment", topic["segments"], ("first", "end", "bytes", "first_time", "last_time"))
    columns = ("name", "cursor", "oldest", "unfinished", "waiting", "deferred", "lag", "lag_seconds")
    lines += table("channel", topic["channels"], columns)
    return "\n".join(lines)


def table(title: str, rows: object, keys: tuple[str, ...]) -> list[str]:
    """Lines with aligned columns."""
    assert isinstance(rows, list)
    cells = [[key.replace("_", " ") for key in keys]]
    cells += [[instant(row[key]) if key.endswith("_time") else str(row[key]) for key in keys] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(keys))]
    lines = ["    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
             for row in cells]
    return [f"  {title}s: {len(rows)}", *(lines if rows else [])]


def instant(time_ns: int | None) -> str:
    """In UTC, with seconds."""
    return "-" if time_ns is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ns // 10**9))


# ====================================================================== check

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


def check_manifest(folder: str, opened: Opened, segments: list[Segment]) -> list[Finding]:
    """Checks that it exists and is sound. After a kill, the first segment may lack one."""
    path = os.path.join(folder, "manifest")
    if opened.has_manifest:
        text = f"is older than the newest {plural(opened.unlisted, 'segment')}: a start adds them"
        return [Finding(path, text, opened.unlisted > 1)] if opened.unlisted else []
    if os.path.lexists(path):
        return [Finding(path, "is damaged")] if os.path.isfile(path) else []
    return [Finding(path, "is missing", segments[-1].sequence > 1)] if segments else []


def check_names(folder: str, opened: Opened, segments: list[Segment]) -> list[Finding]:
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


def check_head(path: str, log_id: int, first: int, known: dict[int, Segment]) -> list[Finding]:
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


def check_segment(folder: str, segment: Segment) -> tuple[int, list[Finding]]:
    """(sound records, findings) in its frames. Raises OSError."""
    path = segment_path(folder, segment.first)
    if segment.is_remote:
        return 0, [Finding(path, f"only the bucket has {plural(segment.end - segment.first, 'message')}", False)]
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


def check_missing(folder: str, opened: Opened, segments: list[Segment]) -> list[Finding]:
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
