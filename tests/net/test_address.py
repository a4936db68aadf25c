"""Addresses and the sockets bound to them."""

import contextlib
import socket

import pytest

from nsqc.net.address import address_text, bind, is_unix, peer_text, port_of, remove


@pytest.mark.parametrize(("address", "text"), [
    ("127.0.0.1:0", "127.0.0.1"),
    ("localhost:0", None),
    ("[127.0.0.1]:0", "127.0.0.1"),
    ("[::1]:0", "[::1]"),
])
def test_bind(address, text):
    if text == "[::1]" and not socket.has_dualstack_ipv6():
        text, address = "127.0.0.1", "127.0.0.1:0"
    with contextlib.closing(bind(address)) as sock:
        host, port = address_text(sock).rsplit(":", 1)
        assert text in (host, None)
        assert port_of(sock) == int(port) > 0


@pytest.mark.parametrize("address", [":0", "0.0.0.0:0", "[::]:0"])
def test_wildcard_takes_both_families(address):
    with contextlib.closing(bind(address)) as sock:
        assert address_text(sock).startswith("[::]:" if socket.has_dualstack_ipv6() else "0.0.0.0:")


def test_not_listening_yet():
    with contextlib.closing(bind("127.0.0.1:0")) as sock, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port_of(sock)))


@pytest.mark.parametrize("address", ["127.0.0.1:65536", "127.0.0.1:http-ish", ":"])
def test_bad_port(address):
    with pytest.raises(ValueError, match="invalid port"):
        bind(address)


@pytest.mark.parametrize("address", ["localhost", "127.0.0.1", "::1", "[::1]", "4150"])
def test_no_port(address):
    with pytest.raises(ValueError, match="missing port"):
        bind(address)


def test_address_of_another_machine():
    with pytest.raises(OSError, match="assign requested address"):
        bind("192.0.2.1:0")


def test_unix(tmp_path):
    path = str(tmp_path / "a:b.sock")
    assert is_unix(path)
    sock = bind(path)
    assert (address_text(sock), port_of(sock)) == (path, -1)
    remove(sock, path)
    sock.close()
    assert list(tmp_path.iterdir()) == []


def test_which_addresses_are_paths():
    assert [is_unix(a) for a in ("/run/x", "x.sock", "./a:b/c", "a:1", ":1", "[::1]:1", "localhost.sock", "./localhost")] == [
        True, True, True, False, False, False, True, True]


def test_peer_text():
    assert peer_text(("127.0.0.1", 5)) == "127.0.0.1:5"
    assert peer_text(("::1", 5, 0, 0)) == "[::1]:5"
    assert peer_text(("::ffff:10.0.0.1", 5, 0, 0)) == "10.0.0.1:5"
    assert peer_text("") == peer_text(None) == "@"
    assert peer_text("/run/client") == "/run/client"
    assert peer_text(b"\0abstract") == "\0abstract"
