"""Reads logs over HTTP."""

import struct
from typing import NamedTuple

from tests.support.daemon import batch

LINES = "Accept: application/x-ndjson\r\n"
FRAMES = "Accept: application/vnd.nsqc.frames\r\n"
LARGEST = 64 * 1024 * 1024
HEAD = struct.Struct(">4x4xI4xHHIIIQQQQ")  # of a frame, without its magic and checksums


class Record(NamedTuple):
    """A record of an answer."""

    offset: int
    timestamp: int
    id: bytes
    body: bytes


def records(reply):
    """The records that an answer in frames covers."""
    data, found = reply.body, []
    first, following, _ = offsets(reply)
    at = 0
    while at < len(data):
        assert data[at:at + 4] == b"nqFR"
        _, _, _, count, _, _, offset, time_ns, id_, _ = HEAD.unpack_from(data, at)
        record = at + 64
        for number in range(count):
            size = int.from_bytes(data[record:record + 4], "big")
            sequence = (id_ >> 22 << 12 | id_ & 0xFFF) + number
            number_id = sequence >> 12 << 22 | id_ & 0x3FF000 | sequence & 0xFFF
            found.append(Record(offset + number, time_ns, b"%016x" % number_id, data[record + 4:record + 4 + size]))
            record += 4 + size
        at += frame_bytes(data, at)
    assert at == len(data)
    return [record for record in found if first <= record.offset < following]


def frame_bytes(data, at):
    """The frame at a position, with its head and padding."""
    return (64 + int.from_bytes(data[at + 8:at + 12], "big") + 7) // 8 * 8


def bodies(reply):
    return [record.body for record in records(reply)]


def read(daemon, topic, query="", headers=FRAMES):
    return daemon.call("GET", f"/topic/read?topic={topic}{query}", headers=headers)


def offsets(reply):
    """First offset, next offset, messages."""
    return tuple(int(reply.headers[f"x-nsq-{name}"]) for name in ("first-offset", "next-offset", "messages"))


def publish(daemon, topic, messages):
    """All of them, in one batch."""
    reply = daemon.call("POST", f"/mpub?topic={topic}&binary=true", batch(*messages))
    assert reply.status == 200, reply


def follow(daemon, topic, end, query=""):
    """All records from the beginning to an offset, by as many calls as it takes."""
    found = []
    following = 0
    while following < end:
        reply = read(daemon, topic, f"&offset={following}{query}")
        first, after, count = offsets(reply)
        assert first == following and after > following
        part = records(reply)
        assert len(part) == count == after - first
        found += part
        following = after
    return found


def waiting(daemon):
    """The number of waiting readers."""
    return daemon.call("GET", "/debug/pprof/goroutine").body.count(b"_until_readable")
