"""Targets and queries."""

import pytest

from nsqc.httpd.reply import Request, split_url, unescape


@pytest.mark.parametrize(("url", "path", "query"), [
    (b"/ping", b"/ping", b""),
    (b"/ping?", b"/ping", b""),
    (b"/p%2Fx?a=%2F?b", b"/p/x", b"a=%2F?b"),
    (b"http://host:1/ping?x", b"/ping", b"x"),
    (b"http://host?x=/y", b"", b"x=/y"),
    (b"http://host", b"", b""),
    (b"/a://b", b"/a://b", b""),
    (b"*", b"*", b""),
    (b"http://user:word@[::1]:80/x", b"/x", b""),
    ("/pub?topic=\u00e9".encode(), b"/pub", "topic=\u00e9".encode()),
])
def test_split_url(url, path, query):
    assert split_url(url) == (path, query)


@pytest.mark.parametrize("url", [b"/%", b"/%1", b"/%zz", b"/a%2gb?x"])
def test_bad_escape_in_a_path(url):
    with pytest.raises(ValueError, match="invalid URL escape"):
        split_url(url)


@pytest.mark.parametrize("url", [b"ping", b"", b"?x", b"*x", b"http:/x", b"://x", b"1://x", b"http://a b/", b"http://a<b/x",
                                 b"http://x#y"])
def test_no_target(url):
    with pytest.raises(ValueError, match="invalid URI"):
        split_url(url)


def test_a_target_of_connect():
    assert [Request(b"CONNECT", url).path for url in (b"host:1", b"/x?y")] == [b"", b"/x"]


@pytest.mark.parametrize(("query", "arguments"), [
    (b"", {}),
    (b"&&", {}),
    (b"a=1&b=2&a=3", {b"a": b"1", b"b": b"2"}),
    (b"a&b=&=c", {b"a": b"", b"b": b"", b"": b"c"}),
    (b"a+b=c%2Bd+e&x=y=z", {b"a b": b"c+d e", b"x": b"y=z"}),
])
def test_arguments(query, arguments):
    assert Request(b"GET", b"/x?" + query).arguments() == arguments


@pytest.mark.parametrize("query", [b"a=%", b"%4=a", b"a;b", b"x=1&a=b;c"])
def test_malformed_arguments(query):
    with pytest.raises(ValueError, match="invalid"):
        Request(b"GET", b"/x?" + query).arguments()


def test_unescape():
    assert unescape(b"%41%c3%A4+") == b"A\xc3\xa4 "
