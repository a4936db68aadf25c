"""Reads logs over HTTP."""

import struct

from tests.support.daemon import batch

LINES = "Accept: application/x-ndjson\r\n"
LARGEST = 64 * 1024 * 1024


class Record:
    """A record of a body."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.timestamp, self.attempts, self.id = struct.unpack_from(">qH16s", data, 4)
        self.body = data[30:]


def records(data):
    """The records that a body consists of."""
    found = []
    while data:
        size = 4 + struct.unpack_from(">i", data)[0]
        assert len(data) >= size >= 30
        found.append(Record(data[:size]))
        data = data[size:]
    return found


def bodies(data):
    return [record.body for record in records(data)]


def read(daemon, topic, query="", headers=""):
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
        part = records(reply.body)
        assert len(part) == count == after - first
        found += part
        following = after
    return found


def waiting(daemon):
    """How many readers wait."""
    return daemon.call("GET", "/debug/pprof/goroutine").body.count(b"_until_readable")
