"""Heads of HTTP/1 requests. tests/httpd/test_smuggling.py tests whole requests at a server."""

import random

import pytest

from nsqc.wire.http import HeadError, check_beginning, head_end, parse_head, skip_empty_lines

LINE = b"POST /pub?topic=t HTTP/1.1\r\n"
HOST = b"Host: a\r\n"


def parsed(*fields: bytes, line: bytes = LINE, host: bytes = HOST):
    return parse_head(line + host + b"".join(field + b"\r\n" for field in fields) + b"\r\n")


def refusal(*fields: bytes, line: bytes = LINE, host: bytes = HOST) -> tuple[int, str]:
    with pytest.raises(HeadError) as error:
        parsed(*fields, line=line, host=host)
    return error.value.status, error.value.reason


def test_everything_that_a_head_says():
    head = parsed(b"content-LENGTH: \t12 ", b"Accept: a", b"ACCEPT:b", b"Origin: http://x", b"Sec-Fetch-Site: none", b"X: y",
                  b"Authorization: Bearer a", b"Authorization: Bearer b")
    assert (head.method, head.target, head.minor, head.length) == (b"POST", b"/pub?topic=t", 1, 12)
    assert (head.host, head.accept, head.origin, head.fetch_site) == (b"a", b"a,b", b"http://x", b"none")
    assert head.authorization == b"Bearer a"
    assert (head.keep_alive, head.expects, head.is_plain_post()) == (True, False, False)
    assert parsed(b"Content-Length: 12", b"Authorization: Bearer a").is_plain_post()


def test_what_a_head_does_not_say():
    head = parsed(line=b"GET / HTTP/1.0\r\n", host=b"")
    assert (head.minor, head.length, head.keep_alive, head.expects) == (0, 0, False, False)
    assert (head.host, head.accept, head.origin, head.fetch_site, head.authorization) == (None, b"", None, None, None)


@pytest.mark.parametrize("field", [b"Content-Length: 0", b"Transfer-Encoding: chunked", b"Expect: 100-continue\r\nContent-Length: 1",
                                   b"Connection: close\r\nContent-Length: 1", b"X: y",
                                   b"Content-Length: 1\r\nOrigin: http://a", b"Content-Length: 1\r\nSec-Fetch-Site: none"])
def test_posts_that_are_not_plain(field):
    assert not parsed(field).is_plain_post()
    assert not parsed(b"Content-Length: 1", line=b"PUT / HTTP/1.1\r\n").is_plain_post()
    assert not parsed(b"Content-Length: 1", line=b"POST / HTTP/1.0\r\n").is_plain_post()


@pytest.mark.parametrize(("fields", "in_1_0", "in_1_1"), [
    ([], False, True), ([b"Connection: keep-alive"], True, True), ([b"Connection: close"], False, False),
    ([b"Connection: x , KEEP-ALIVE,"], True, True), ([b"Connection: close", b"Connection: keep-alive"], False, False),
    ([b"Connection: keep-alivex"], False, True), ([b"Connection:"], False, True), ([b"Connection: ,,close"], False, False),
])
def test_which_connections_stay(fields, in_1_0, in_1_1):
    assert parsed(*fields, line=b"GET / HTTP/1.0\r\n").keep_alive is in_1_0
    assert parsed(*fields, line=b"GET / HTTP/1.1\r\n").keep_alive is in_1_1
    assert parsed(*fields, line=b"GET / HTTP/1.7\r\n").keep_alive is in_1_1


def test_refusals_have_the_words_of_go():
    assert refusal(host=b"") == (400, "missing required Host header")
    assert refusal(host=HOST * 2) == (400, "too many Host headers")
    assert refusal(host=b"Host: a/b\r\n") == (400, "malformed Host header")
    assert refusal(line=b"GET / HTTP/3.0\r\n") == (505, "unsupported protocol version")
    assert refusal(b"Transfer-Encoding: gzip") == (501, "Unsupported transfer encoding")
    assert refusal(b"Expect: tea") == (417, "")
    assert refusal(b"x y: z") == (400, "")


def test_where_a_head_ends():
    for head in (b"A\r\n\r\n", b"A\n\n", b"A\r\n\n", b"A\n\r\n", b"A\r\nB\r\n\r\n", b"A\n\r\r\n\n"):
        assert head_end(head + b"C\n\n", 0) == head_end(bytearray(head), 0) == len(head)
        assert all(head_end(head[:size], 0) == -1 for size in range(len(head)))
        assert head_end(b"\n\n" + head, 2) == len(head) + 2
    for nothing in (-1, 1, 2):
        assert head_end(b"\n", nothing) == -1


def test_empty_lines_before_a_head():
    assert [skip_empty_lines(b"\r\n\nA\r\n", at) for at in range(7)] == [3, 3, 3, 3, 6, 6, 6]


@pytest.mark.parametrize("begun", [b"", b"G", b"GET", b"GET ", b"GET /" + b"x" * 100, b"A" * 100, b"GET / HTTP/1.1", b"GET / HTTP/1.1\r"])
def test_heads_that_may_still_become_valid(begun):
    assert check_beginning(begun) is False
    assert check_beginning(b"GET / HTTP/1.1\r\n" + begun) is True


@pytest.mark.parametrize("begun", [b" ", b"  V2", b"\x16\x03\x01", b"GE\xff", b"GET\t", b"GET /\n", b"GET / HTTP/2.0\r\n", b"\r"])
def test_heads_that_cannot(begun):
    with pytest.raises(HeadError):
        check_beginning(bytearray(begun))


@pytest.mark.parametrize("seed", range(5))
def test_nothing_but_a_head_or_a_refusal_comes_of_any_bytes(seed):
    """Also run under AddressSanitizer; all texts end where their memory does."""
    chance = random.Random(seed)
    whole = LINE + HOST + b"Content-Length: 3\r\nConnection: close, x\r\nAccept: a\r\nOrigin: b\r\n\r\n"
    for _ in range(3000):
        data = bytearray(whole[:chance.randrange(len(whole) + 1)])
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(data) + 1)
            data[at:at + chance.randrange(3)] = chance.choice((b"", b"\n", b"\r\n\r\n", b":", b" ", bytes([chance.randrange(256)])))
        for read in (parse_head, check_beginning):
            try:
                read(bytes(data))
            except HeadError as error:
                assert error.status in (400, 417, 501, 505)
        end = head_end(bytes(data), 0)
        assert -1 <= end <= len(data) and end != 0
