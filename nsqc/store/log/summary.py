"""What a log topic holds, and how far its channels are: for people and scripts."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from nsqc.store.log.due import read_due
from nsqc.store.log.files import LogFiles, Segment, read_folder, time_of
from nsqc.store.log.names import segment_path, topic_of
from nsqc.store.log.progress import Progress, Ranges, TopicProgress, Waiting, read_progress


class Backlog(NamedTuple):
    """What a channel has not finished, of the messages that exist; ranges are in order."""

    out: Ranges  # delivered, and not finished
    ahead: Ranges  # not delivered yet
    waiting: dict[int, Waiting]  # requeued or deferred


class Log(NamedTuple):
    """A log topic, as its files say."""

    topic: str
    files: LogFiles
    progress: TopicProgress
    due: dict[int, int]  # offset to due time of messages that were published with a delay

    def end_for_channels(self, has_channels: bool, paused: bool) -> int:
        """Behind the last message that is for the channels; what follows waits in the topic."""
        cursor, following = self.progress.topic_cursor, self.files.next
        if has_channels and not paused:
            return following
        if cursor is None:
            return following if has_channels else 0
        return min(cursor, following)


def read_log(folder: str) -> Log:
    """Raises OSError."""
    files = read_folder(folder)
    due: dict[int, int] = {}
    for first in files.due:
        due.update(read_due(segment_path(folder, first, "due")).entries)
    return Log(topic_of(folder), files, read_progress(folder), due)


def existing(segments: list[Segment], ranges: Ranges) -> Ranges:
    """What of these offsets the segments have; both are in order."""
    found: Ranges = []
    at = 0
    for first, end in ranges:
        while at < len(segments) and segments[at].end <= first:
            at += 1
        following = at
        while following < len(segments) and segments[following].first < end:
            low, high = max(first, segments[following].first), min(end, segments[following].end)
            if low < high:
                found.append((low, high))
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
    """Of what lies before an offset."""
    segments = log.files.segments
    waiting = {entry.offset: entry for entry in channel.waiting
               if existing(segments, [(entry.offset, entry.offset + 1)])}
    ahead = without([(channel.cursor, end)], channel.skips) if channel.cursor < end else []
    return Backlog(existing(segments, channel.out), existing(segments, ahead), waiting)


def count(ranges: Ranges) -> int:
    """Offsets in ranges."""
    return sum(end - first for first, end in ranges)


def summary(log: Log) -> dict[str, object]:
    """As JSON has it: docs/logs.md. Raises OSError."""
    files, progress, now = log.files, log.progress, time.time_ns()
    segments = [{"first": segment.first, "end": segment.end, "bytes": segment.bytes, "size": segment.size,
                 "first_time": segment.base_ns, "last_time": segment.last_ns} for segment in files.segments]
    channels = []
    for channel in progress.channels:
        out, ahead, waiting = backlog(log, channel, files.next)
        deferred = sum(entry.due_ns > now for entry in waiting.values())
        deferred += sum(due > now and offset >= channel.cursor for offset, due in log.due.items())
        oldest = time_of(files.folder, files.bounds, channel.oldest)
        behind = max(now - oldest, 0) / 1e9 if oldest is not None else 0.0
        channels.append({"name": channel.name or None, "number": channel.number, "cursor": channel.cursor,
                         "oldest": channel.oldest, "unfinished": count(out) + len(waiting), "waiting": len(waiting),
                         "deferred": deferred, "lag": count(ahead), "lag_seconds": round(behind, 3)})
    filled = [segment for segment in files.segments if segment.end > segment.first]
    return {
        "topic": log.topic, "folder": os.path.abspath(files.folder),
        "id": f"{files.id:016x}" if files.id else None,
        "first": filled[0].first if filled else files.next, "next": files.next,
        "messages": sum(segment.end - segment.first for segment in filled),
        "bytes": sum(segment.bytes for segment in filled), "segments": segments, "channels": channels,
        "topic_cursor": progress.topic_cursor,
        "damaged": progress.damaged, "missing_journals": progress.missing, "torn_bytes": progress.torn_bytes,
    }


def as_text(topic: dict[str, object]) -> str:
    """A summary for people."""
    lines = [f"{topic['topic']}: {topic['messages']} messages, offsets {topic['first']} to {topic['next']}, "
             f"{topic['bytes']} bytes ({topic['folder']})"]
    if topic["damaged"] or topic["missing_journals"]:
        lines.append(f"  journals: {topic['damaged']} damaged frames, {topic['missing_journals']} missing")
    lines += table("segment", topic["segments"], ("first", "end", "bytes", "first_time", "last_time"))
    columns = ("name", "cursor", "oldest", "unfinished", "waiting", "deferred", "lag", "lag_seconds")
    lines += table("channel", topic["channels"], columns)
    return "\n".join(lines)


def table(title: str, rows: object, keys: tuple[str, ...]) -> list[str]:
    """Lines with columns as wide as they need to be."""
    assert isinstance(rows, list)
    cells = [[key.replace("_", " ") for key in keys]]
    cells += [[instant(row[key]) if key.endswith("_time") else str(row[key]) for key in keys] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(keys))]
    lines = ["    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
             for row in cells]
    return [f"  {title}s: {len(rows)}", *(lines if rows else [])]


def instant(time_ns: int | None) -> str:
    """In UTC, by seconds."""
    return "-" if time_ns is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_ns // 10**9))
