"""HTTP listeners: addresses, log lines, the end."""

import re
import socket
import stat
from pathlib import Path

import pytest

from tests.httpd.wire import Closed, request
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS

DURATION = r"[0-9.]+(ns|µs|ms|s)"


def test_requests_are_logged_but_for_publishing(start):
    server = start()
    server.call("GET", "/ping")
    server.call("GET", "/stats?format=json&x=%20")
    server.call("POST", "/pub?topic=t", b"x")
    server.call("POST", "/pub", b"x")
    server.call("POST", "/mpub?topic=t", b"x")
    server.call("GET", "/PING")
    server.call("OPTIONS", "/ping")
    server.call("POST", "/topic/delete?topic=none")
    server.call("POST", "/ping")
    server.call("GET", "/nothing")
    server.wait_for("GET /nothing")
    logged = [m[1] for m in (re.search(rf"INFO: (\d+ .*) \(127\.0\.0\.1:\d+\) {DURATION}$", line)
                             for line in server.log.splitlines()) if m and m[1] != "200 GET /ping"]
    assert logged == [
        "200 GET /stats?format=json&x=%20",
        "404 POST /topic/delete?topic=none",
        "405 POST /ping",
        "404 GET /nothing",
    ]
    server.wait_for(rf"INFO: 200 GET /ping \(127\.0\.0\.1:\d+\) {DURATION}$")


def test_malformed_query_and_odd_binary_are_logged(server):
    assert server.call("POST", "/topic/delete?topic=%zz").json == {"message": "INVALID_REQUEST"}
    assert server.call("POST", "/pub?topic=t;x", b"x").json == {"message": "INVALID_REQUEST"}
    server.wait_for(r'ERROR: failed to parse request params - invalid URL escape "%zz"')
    server.wait_for("ERROR: failed to parse request params - invalid semicolon separator in query")
    server.call("POST", "/mpub?topic=t&binary=yes", bytes((0, 0, 0, 1, 0, 0, 0, 1, 0)))
    server.wait_for("deprecated value 'yes' used for /mpub binary param")


def test_stop_closes_connections_and_the_port(start):
    server = start()
    with server.wire() as idle, server.wire() as half, server.wire() as silent:
        idle.request("GET", "/ping")
        assert idle.reply().status == 200
        half.send(b"POST /pub?topic=t HTTP/1.1\r\n")
        assert server.stop() == 0
        assert all(wire.is_closed() for wire in (idle, half, silent))
    with pytest.raises(ConnectionRefusedError):
        server.wire()
    wait_until(lambda: f"HTTP: closing {server.address}\n" in server.log)


def test_stop_lets_an_answer_in_progress_out(start):
    server = start()
    with server.wire() as wire:
        wire.request("GET", "/debug/pprof/profile?seconds=600")
        while "profile" not in server.call("GET", "/debug/pprof/threadcreate").body.decode().split():
            pass
        assert server.stop() == 0
        reply = wire.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert wire.is_closed()


def test_stop_does_not_wait_for_who_does_not_read(start):
    server = start()
    for number in range(50):
        server.call("POST", f"/topic/create?topic=t{number}")
    with server.wire(receive_buffer=4096) as wire:
        wire.send(request("GET", "/stats?format=json") * 2000)
        assert wire.reply().status == 200
        assert server.stop() == 0
        with pytest.raises((Closed, ConnectionError)):
            for _ in range(2000):
                wire.reply()


def test_address_in_use(start):
    server = start()
    with pytest.raises(AssertionError, match=r"(?i)address already in use"):
        start(f"--http-address={server.address}")


def test_port_can_be_bound_again_at_once(start):
    first = start()
    with first.wire() as wire:
        wire.request("GET", "/ping")
        wire.reply()
        first.stop()
        assert start(f"--http-address={first.address}").call("GET", "/ping").status == 200


def test_every_address_of_the_wildcard(start):
    server = start("--http-address=:0")
    port = int(server.address.rpartition(":")[2])
    hosts = ["127.0.0.1"]
    if socket.has_dualstack_ipv6():
        assert server.address.startswith("[::]:")
        hosts.append("::1")
    for host in hosts:
        with socket.create_connection((host, port), WAIT_SECONDS) as sock:
            sock.sendall(request("GET", "/ping"))
            assert sock.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
    if socket.has_dualstack_ipv6():
        server.wait_for(r"200 GET /ping \(127\.0\.0\.1:\d+\)")
        server.wait_for(r"200 GET /ping \(\[::1\]:\d+\)")


class TestUnixSocket:
    def test_calls(self, start):
        server = start(unix=True)
        assert server.address == str(server.data_path / "http.sock")
        assert server.call("POST", "/pub?topic=t", b"x").body == b"OK"
        assert server.call("GET", "/info").json["http_port"] == -1
        server.wait_for(rf"200 GET /info \(@\) {DURATION}")

    def test_file_goes_with_the_listener(self, start):
        server = start(unix=True)
        path = Path(server.address)
        assert stat.S_ISSOCK(path.stat().st_mode)
        assert server.stop() == 0
        assert not path.exists()

    def test_left_over_file_is_replaced(self, start):
        server = start(unix=True)
        server.kill()
        assert Path(server.address).exists()
        server.start()
        assert server.call("GET", "/ping").status == 200

    def test_socket_in_use_is_left_alone(self, start):
        server = start(unix=True)
        with pytest.raises(AssertionError, match=r"(?i)address already in use"):
            start(f"--http-address={server.address}")
        assert server.call("GET", "/ping").status == 200

    def test_other_files_are_left_alone(self, start, tmp_path):
        path = tmp_path / "mine"
        path.write_text("mine")
        with pytest.raises(AssertionError, match=r"(?i)address already in use"):
            start(f"--http-address={path}")
        assert path.read_text() == "mine"
