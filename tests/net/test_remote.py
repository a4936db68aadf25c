"""Addresses to connect to, and the servers that URLs stand for."""

import pytest

from nsqc.net.address import join_address, split_address
from nsqc.net.url import Server, parse_server


@pytest.mark.parametrize("text, expected", [
    ("h:1", ("h", 1)), ("[::1]:65535", ("::1", 65535)), (":4160", ("localhost", 4160)),
])
def test_addresses(text, expected):
    assert split_address(text) == expected


@pytest.mark.parametrize("text", ["", "h", "h:", "h:x", "h:65536", "h:0", "h:-1", "a/b:1", "a b:1", "h:١"])
def test_what_is_not_an_address(text):
    with pytest.raises(ValueError, match=r"^address "):
        split_address(text)


def test_join():
    assert join_address("h", 1) == "h:1"
    assert join_address("::1", 1) == "[::1]:1"


@pytest.mark.parametrize("text, server, name", [
    ("h:80", Server(False, "h:80", "h:80", "/auth", ""), "http://h:80/auth"),
    ("http://h", Server(False, "h", "h:80", "/", ""), "http://h/"),
    ("https://h/a b?x=1", Server(True, "h", "h:443", "/a%20b?x=1", ""), "https://h/a%20b"),
    ("http://u%40x:p@[::1]:81/q", Server(False, "[::1]:81", "[::1]:81", "/q", "u@x:p"), "http://[::1]:81/q"),
])
def test_servers(text, server, name):
    assert parse_server(text) == server
    assert server.name == name


@pytest.mark.parametrize("text", [
    "", "h:x", "h:0", "h:65536", "ftp://h", "http:/h", "https//h", "http://", "http://a b", "http://[::1", "http://<h>",
])
def test_what_is_not_a_server(text):
    with pytest.raises(ValueError, match="is neither HOST:PORT nor an http or https URL"):
        parse_server(text)
