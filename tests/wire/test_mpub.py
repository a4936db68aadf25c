"""Bodies of multi-publishes that arrive whole, over HTTP."""

import struct

from nsqc.wire.parser import check


def body(count: int, *sizes_and_bytes: bytes) -> bytes:
    return struct.pack(">i", count) + b"".join(struct.pack(">i", len(b)) + b for b in sizes_and_bytes)


def test_finds_the_end_of_the_messages():
    assert check(body(2, b"a", b"bc"), 10, 100) == 4 + 5 + 6


def test_trailing_bytes_are_left_alone():
    assert check(body(1, b"a") + b"more", 10, 100) == 4 + 5


def test_messages_fill_the_limit_without_their_sizes():
    assert check(body(2, b"a" * 30, b"b" * 30), 30, 60) == 4 + 2 * 34
    assert check(body(3, b"a" * 30, b"b" * 30, b"c"), 30, 60) == -2


def test_bad_bodies():
    assert check(b"", 10, 100) == -1
    assert check(body(0), 10, 100) == -1
    assert check(body(-1), 10, 100) == -1
    assert check(body(20, b"a"), 10, 100) == -1, "20 messages of at least 5 bytes do not fit into 100"
    assert check(body(1), 10, 100) == -2
    assert check(body(1, b"a" * 11), 10, 100) == -2
    assert check(body(2, b"a"), 10, 100) == -2
    assert check(body(1, b""), 10, 100) == -2
