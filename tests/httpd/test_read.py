"""GET /topic/read: its results, and when it waits."""

import base64
import json
import os
import time

import pytest

from tests.httpd.conftest import HttpDaemon
from tests.httpd.reading import FRAMES, LARGEST, LINES, bodies, follow, offsets, publish, read, records, waiting
from tests.support.daemon import wait_until

SMALL_SEGMENTS = "--max-bytes-per-file=100000"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A daemon that keeps its topics in logs, for tests that do not affect each other."""
    daemon = HttpDaemon(tmp_path_factory.mktemp("node") / "data", "--topic-storage=log", "--log-retain-time=1h",
                        SMALL_SEGMENTS)
    yield daemon
    assert daemon.stop() == 0


# ---------------------------------------------------------------------- results

def test_frames_as_they_lie_in_the_file(node):
    publish(node, "plain", [b"one", b"two", b"\xff" * 100])
    reply = read(node, "plain")
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/vnd.nsqc.frames"
    assert offsets(reply) == (0, 3, 3)
    assert reply.headers["x-nsq-damaged"] == "0"
    assert bodies(reply) == [b"one", b"two", b"\xff" * 100]
    segment = (node.data_path / "plain.log" / f"{0:020d}.log").read_bytes()
    assert reply.body == segment[int(reply.headers["x-nsq-log-position"]):]
    assert bytes.fromhex(reply.headers["x-nsq-log-salt"]) == segment[40:48]


def test_lines_of_json(node):
    publish(node, "lines", [b"text", b'"\n\x01', b"\xff\xfe"])
    raw = records(read(node, "lines"))
    reply = read(node, "lines", headers=LINES)
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert offsets(reply) == (0, 3, 3)
    lines = [json.loads(line) for line in reply.body.splitlines()]
    assert [list(line) for line in lines[1:]] == [["offset", "timestamp", "id", "attempts", "body"],
                                                 ["offset", "timestamp", "id", "attempts", "body_base64"]]
    assert [line["offset"] for line in lines] == [0, 1, 2]
    assert [(line["timestamp"], line["id"]) for line in lines] == [(one.timestamp, one.id.decode()) for one in raw]
    assert [line.get("body") for line in lines] == ["text", '"\n\x01', None]
    assert base64.b64decode(lines[2]["body_base64"]) == b"\xff\xfe"


@pytest.mark.parametrize("accept, lines", [
    ("application/vnd.nsqc.frames", False), ("text/html, Application/VND.nsqc.Frames;q=0.5", False), ("*/*", True),
    ("application/vnd.nsqc.frames2", True), ("", True), ("application/vnd.nsqc.frames;q=0, */*", True),
    ("application/vnd.nsqc.frames; Q=0.0", True), ("application/vnd.nsqc.frames;q=0.01", False)])
def test_the_accept_header(node, accept, lines):
    publish(node, "accept", [b"x"])
    reply = read(node, "accept", "&offset=0", headers=f"Accept: {accept}\r\n")
    assert (reply.headers["content-type"] == "application/x-ndjson") is lines


def test_several_accept_headers(node):
    publish(node, "accepts", [b"x"])
    reply = read(node, "accepts", headers=f"Accept: text/html\r\n{FRAMES}")
    assert reply.headers["content-type"] == "application/vnd.nsqc.frames"


def test_bounds(node):
    publish(node, "bounds", [b"%03d" % number for number in range(100)])
    assert bodies(read(node, "bounds", "&offset=10&max_messages=3")) == [b"010", b"011", b"012"]
    assert offsets(read(node, "bounds", f"&offset=99&max_messages=5&max_bytes={LARGEST}")) == (99, 100, 1)
    # Records of 7 bytes, at least one; of frames, at least one.
    assert offsets(read(node, "bounds", "&offset=10&max_bytes=21", headers=LINES)) == (10, 13, 3)
    assert offsets(read(node, "bounds", "&offset=10&max_bytes=1", headers=LINES)) == (10, 11, 1)
    assert offsets(read(node, "bounds", "&offset=10&max_bytes=1")) == (10, 100, 90)
    assert len(read(node, "bounds", "&max_bytes=14", headers=LINES).body.splitlines()) == 2


def test_the_default_bound_is_a_megabyte(start):
    daemon = start("--topic-storage=log", "--log-retain-time=1h", "--max-body-size=10000000")
    publish(daemon, "default", [b"x" * 1000] * 2000)
    assert 1_000_000 < len(read(daemon, "default").body) <= 1_048_576


def test_by_time(node):
    publish(node, "times", [b"a"])
    time.sleep(0.05)
    publish(node, "times", [b"b", b"c"])
    stamps = [record.timestamp for record in records(read(node, "times"))]
    assert stamps[0] < stamps[1]

    def first(when):
        reply = read(node, "times", f"&time={when}")
        assert reply.status == 200
        return offsets(reply)[:2]

    assert first(0) == first("1970-01-01T00:00:00Z") == first(stamps[0]) == first("1969-06-01T00:00:00Z") == (0, 3)
    assert first(stamps[0] + 1) == first(stamps[1]) == (1, 3)
    assert first(stamps[2] + 1) == first(2**63 - 1) == first("9999-12-31T23:59:60.999999999-23:59") == (3, 3)
    seconds, fraction = divmod(stamps[1], 10**9)
    for shift, zone in ((0, "Z"), (3600, "%2B01:00"), (3600, "+01:00"), (-5400, "-01:30")):
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds + shift))
        assert first(f"{text}.{fraction:09d}{zone}") == (1, 3), zone
        assert first(f"{text}.{fraction - 10**7 if fraction >= 10**7 else 0:09d}{zone}") == (1, 3)


def test_over_several_segments(node):
    messages = [b"%05d" % number + b"x" * 500 for number in range(2000)]
    for at in range(0, 2000, 50):
        publish(node, "segments", messages[at:at + 50])
    assert len(list((node.data_path / "segments.log").glob("*.log"))) > 5
    assert [record.body for record in follow(node, "segments", 2000)] == messages
    # One answer has records of one segment.
    first = offsets(read(node, "segments", f"&max_bytes={LARGEST}"))[1]
    assert first < 2000
    assert offsets(read(node, "segments", f"&offset={first - 1}&max_bytes={LARGEST}")) == (first - 1, first, 1)
    # The segment is found by time, too.
    stamps = [record.timestamp for record in follow(node, "segments", 2000)]
    for number in range(0, 2000, 77):
        found = read(node, "segments", f"&time={stamps[number]}&max_messages=1")
        assert offsets(found)[0] == stamps.index(stamps[number])


@pytest.mark.parametrize("damage", ["noise", "removed"])
def test_by_time_if_indexes_are_damaged(start, damage):
    daemon = start("--topic-storage=log", "--log-retain-time=1h", "--max-bytes-per-file=4096")
    for at in range(0, 400, 10):
        publish(daemon, "noise", [b"%03d" % number + b"x" * 500 for number in range(at, at + 10)])
    stamps = [record.timestamp for record in follow(daemon, "noise", 400)]
    segments = sorted((daemon.data_path / "noise.log").glob("*.log"))
    assert len(segments) > 10
    for segment in (*segments[2:5], segments[-3]):
        with segment.open("r+b") as file:
            end = file.seek(-10, os.SEEK_END)
            if damage == "removed":
                file.truncate(end)
            else:
                file.write(b"\xff" * 10)
    for number in (*range(0, 400, 7), 399):
        assert offsets(read(daemon, "noise", f"&time={stamps[number]}&max_messages=1"))[0] == stamps.index(stamps[number])
    assert offsets(read(daemon, "noise", f"&time={stamps[399] + 1}"))[:2] == (400, 400)


def test_the_end(node):
    publish(node, "end", [b"x"] * 3)
    for headers in ("", LINES):
        reply = read(node, "end", "&offset=3", headers)
        assert (reply.status, reply.body, offsets(reply)) == (200, b"", (3, 3, 0))
    reply = read(node, "end", "&offset=4")
    assert (reply.status, reply.json) == (416, {"message": "OFFSET_BEYOND_END", "next_offset": 3})
    assert reply.headers["x-nsq-next-offset"] == "3"


def test_a_topic_without_messages(node):
    node.call("POST", "/topic/create?topic=empty")
    reply = read(node, "empty")
    assert (reply.status, reply.body, offsets(reply)) == (200, b"", (0, 0, 0))
    assert offsets(read(node, "empty", "&time=2026-01-01T00:00:00Z")) == (0, 0, 0)
    assert read(node, "empty", "&offset=1").status == 416


def test_what_retention_has_removed(start):
    daemon = start("--topic-storage=log", SMALL_SEGMENTS)
    daemon.call("POST", "/topic/create?topic=kept")
    daemon.call("POST", "/channel/create?topic=kept&channel=c")
    for _ in range(10):
        publish(daemon, "kept", [b"x" * 1000] * 50)
    daemon.call("POST", "/channel/empty?topic=kept&channel=c")
    first = wait_until(lambda: daemon.call("GET", "/topic/log?topic=kept").json["first_offset"], "retention")
    assert 0 < first < 500
    for query in ("&offset=0", f"&offset={first - 1}", "&offset=0&wait_ms=60000"):
        reply = read(daemon, "kept", query)
        assert (reply.status, reply.json) == (410, {"message": "OFFSET_GONE", "first_offset": first})
        assert reply.headers["x-nsq-first-offset"] == str(first)
    assert offsets(read(daemon, "kept"))[0] == first
    assert offsets(read(daemon, "kept", "&time=0"))[0] == first


# ---------------------------------------------------------------------- arguments

@pytest.mark.parametrize("query, status, message", [
    ("", 400, "MISSING_ARG_TOPIC"),
    ("topic=", 400, "INVALID_ARG_TOPIC"),
    ("topic=a%20b", 400, "INVALID_ARG_TOPIC"),
    ("topic=..%2F..", 400, "INVALID_ARG_TOPIC"),
    ("topic=absent", 404, "TOPIC_NOT_FOUND"),
    ("topic=args;offset=1", 400, "INVALID_REQUEST"),
    ("topic=args&offset=%zz", 400, "INVALID_REQUEST"),
    *((f"topic=args&offset={value}", 400, "INVALID_ARG_OFFSET") for value in (
        "", "-1", "1.0", "1e3", "0x10", "%20%201", "1_000", "%D9%A1", "%EF%BC%91", "9223372036854775808", "9" * 5000)),
    ("topic=args&offset=9223372036854775807", 416, "OFFSET_BEYOND_END"),
    *((f"topic=args&time={value}", 400, "INVALID_ARG_TIME") for value in (
        "", "-1", "now", "1e9", "2026-13-01T00:00:00Z", "2026-02-30T00:00:00Z", "2025-02-29T00:00:00Z",
        "2026-01-01", "2026-01-01T24:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00.1234567890Z",
        "2026-01-01T00:00:00%2B24:00", "%D9%A2026-01-01T00:00:00Z", "9" * 30)),
    ("topic=args&offset=0&time=0", 400, "INVALID_ARG_TIME"),
    *((f"topic=args&max_messages={value}", 400, "INVALID_ARG_MAX_MESSAGES") for value in ("0", "-1", "x")),
    *((f"topic=args&max_bytes={value}", 400, "INVALID_ARG_MAX_BYTES") for value in ("0", "-1", str(LARGEST + 1))),
    *((f"topic=args&wait_ms={value}", 400, "INVALID_ARG_WAIT_MS") for value in ("-1", "60001", "1.5")),
])
def test_arguments_that_are_refused(node, query, status, message):
    publish(node, "args", [b"x"])
    reply = node.call("GET", f"/topic/read?{query}")
    assert (reply.status, reply.json["message"]) == (status, message)


def test_the_first_of_repeated_arguments_counts(node):
    publish(node, "repeated", [b"a", b"b"])
    assert offsets(read(node, "repeated", "&offset=1&offset=x&max_messages=1&max_messages=0")) == (1, 2, 1)


def test_other_methods(node):
    for method in ("POST", "HEAD", "PUT"):
        assert node.call(method, "/topic/read?topic=t").status == 405


def test_a_topic_in_memory(start):
    daemon = start()
    for topic in ("memory", "memory%23ephemeral"):
        daemon.call("POST", f"/topic/create?topic={topic}")
    reply = read(daemon, "memory")
    assert reply.status == 400
    assert reply.json["message"].startswith("NO_LOG: memory is kept in memory; its rule has to say storage = \"log\"")
    assert read(daemon, "memory%23ephemeral").json["message"].startswith("NO_LOG: memory#ephemeral is ephemeral")


# ---------------------------------------------------------------------- waiting

def test_a_publish_ends_the_wait(node):
    publish(node, "poll", [b"before"])
    with node.wire() as wire:
        wire.request("GET", "/topic/read?topic=poll&offset=1&wait_ms=60000", headers=FRAMES)
        wait_until(lambda: waiting(node) == 1)
        client = node.connect()
        client.pub("poll", b"after")
        reply = wire.reply()
        assert (offsets(reply), bodies(reply)) == ((1, 2, 1), [b"after"])
        # Existing records are returned without waiting.
        wire.request("GET", "/topic/read?topic=poll&offset=0&wait_ms=60000")
        assert offsets(wire.reply()) == (0, 2, 2)
        client.close()
    assert waiting(node) == 0


def test_a_wait_that_ends_without_messages(node):
    publish(node, "vain", [b"x"])
    began = time.monotonic()
    reply = read(node, "vain", "&offset=1&wait_ms=300")
    assert time.monotonic() - began > 0.29      # a timer may be a fraction of a millisecond early
    assert (reply.status, reply.body, offsets(reply)) == (200, b"", (1, 1, 0))
    assert offsets(read(node, "vain", "&time=9999-01-01T00:00:00Z&wait_ms=1")) == (1, 1, 0)


def test_a_client_that_leaves_ends_its_wait(node):
    publish(node, "leave", [b"x"])
    with node.wire() as wire:
        wire.request("GET", "/topic/read?topic=leave&offset=1&wait_ms=60000")
        wait_until(lambda: waiting(node) == 1)
    wait_until(lambda: waiting(node) == 0)


def test_a_topic_that_is_deleted_ends_the_wait(node):
    publish(node, "deleted", [b"x"])
    with node.wire() as wire:
        wire.request("GET", "/topic/read?topic=deleted&offset=1&wait_ms=60000")
        wait_until(lambda: waiting(node) == 1)
        assert node.call("POST", "/topic/delete?topic=deleted").status == 200
        reply = wire.reply()
        assert (reply.status, reply.json) == (404, {"message": "TOPIC_NOT_FOUND"})


def test_a_stop_ends_the_wait(start):
    daemon = start("--topic-storage=log")
    daemon.call("POST", "/topic/create?topic=stop")
    with daemon.wire() as wire:
        wire.request("GET", "/topic/read?topic=stop&wait_ms=60000")
        wait_until(lambda: waiting(daemon) == 1)
        assert daemon.stop() == 0
        reply = wire.reply()
        assert (reply.status, reply.body) == (200, b"")


def test_a_thousand_readers_wait(node):
    publish(node, "crowd", [b"x"])
    wires = [node.wire() for _ in range(1000)]
    try:
        for wire in wires:
            wire.request("GET", "/topic/read?topic=crowd&offset=1&wait_ms=60000", headers=FRAMES)
        wait_until(lambda: waiting(node) == 1000)
        publish(node, "crowd", [b"for all"])
        for wire in wires:
            reply = wire.reply()
            assert (offsets(reply), bodies(reply)) == ((1, 2, 1), [b"for all"])
    finally:
        for wire in wires:
            wire.sock.close()
