"""Chunked bodies, in pieces of any size. tests/httpd/smuggling.py has refusals as well."""

import random

import pytest

from nsqc.wire.http import Chunks

BODY = b"3;x\r\nabc\r\n00a \r\n0123456789\r\n0\r\nA: b\r\nC:\r\n\r\n"


def decoded(data: bytes, size: int, keep: bool = True) -> tuple[bytes, bool, int]:
    """The body, whether it is complete, and how many bytes it has consumed, of pieces of this size."""
    chunks, body, taken = Chunks(), bytearray(), 0
    while taken < len(data) and not chunks.done:
        piece = b"#" + data[taken:taken + size]
        taken += chunks.feed(piece, 1, body if keep else None) - 1
    return bytes(body), chunks.done, taken


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
def test_pieces_of_all_sizes(size):
    assert decoded(BODY + b"GET /", size) == (b"abc0123456789", True, len(BODY))
    assert decoded(BODY + b"GET /", size, keep=False) == (b"", True, len(BODY))


def test_a_body_is_complete_behind_its_last_byte_only():
    for size in range(len(BODY)):
        assert decoded(BODY[:size], 1)[1:] == (False, size)


def test_a_complete_body_takes_no_more():
    chunks = Chunks()
    assert chunks.feed(b"0\r\n\r\n", 0, bytearray()) == 5
    assert chunks.feed(b"GET", 0, bytearray()) == 0


def test_many_chunks_and_long_ones():
    content = bytes(range(256)) * 1000
    one_by_one = b"".join(b"1\r\n%c\r\n" % byte for byte in content) + b"0\r\n\r\n"
    assert decoded(one_by_one, 65536) == (content, True, len(one_by_one))
    at_once = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
    assert decoded(at_once, 1000) == (content, True, len(at_once))


@pytest.mark.parametrize("data", [
    b"\r\n", b"g\r\n", b"-1\r\n", b"1\n", b"1\r\r", b"1\r\nab", b"1\r\na\n", b"1 1\r\n", b"1 ;\r\n", b"1;\n", b"1;\x00", b"1" * 16 + b"\r\n",
    b"1;" + b"x" * 5000, b"1" + b" " * 5000, b"0\r\nA\r\n", b"0\r\n:\r\n", b"0\r\n A: b\r\n", b"0\r\nA : b\r\n", b"0\r\nA: b\n", b"0\r\nA: \x00",
    b"0\r\n\n", b"0\r\n\rx", b"0\r\n" + b"A: b\r\n" * 3000,
])
@pytest.mark.parametrize("size", [1, 10000])
def test_malformed(data, size):
    with pytest.raises(ValueError, match=r"chunk|trailer"):
        decoded(data, size)


@pytest.mark.parametrize("seed", range(5))
def test_any_bytes_in_any_pieces(seed):
    """Also run under AddressSanitizer: the result does not depend on the pieces."""
    chance = random.Random(seed)
    for _ in range(2000):
        data = bytearray(BODY)
        for _ in range(chance.randrange(3)):
            data[chance.randrange(len(data))] = chance.choice(b"0123;\r\n :AG\xff\x00")
        results = []
        for size in (1, 4, 1000):
            try:
                results.append(decoded(bytes(data), size))
            except ValueError as error:
                results.append(str(error))
        assert results[0] == results[1] == results[2]
