"""Summarizes a log-backed topic and the progress of its channels, for people and scripts."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from typing import NamedTuple

from nsqc.store.log import reading
from nsqc.store.log.names import segment_path, topic_of
from nsqc.store.log.progress import Progress, Ranges, TopicProgress, Waiting, progress_of
from nsqc.store.log.recovery import Opened, SegmentState, read_folder


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
    segments: list[SegmentState]
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


def existing(segments: list[SegmentState], ranges: Ranges) -> Ranges:
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
        with open(segment_path(log.folder, segment.first), "rb", buffering=0) as file:
            found = reading.time_of(file.fileno(), segment.bounds, max(offset, segment.first), 0)
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
