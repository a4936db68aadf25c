"""Listeners: where they listen, what they log, how they end."""

import re
import socket
import stat
from pathlib import Path

import pytest

from tests.httpd.wire import Closed, request

DURATION = r"[0-9.]+(ns|µs|ms|s)"


def test_requests_are_logged_but_for_publishing(start):
    daemon = start()
    daemon.call("GET", "/ping")
    daemon.call("GET", "/stats?format=json&x=%20")
    daemon.call("POST", "/pub?topic=t", b"x")
    daemon.call("POST", "/pub", b"x")
    daemon.call("POST", "/mpub?topic=t", b"x")
    daemon.call("GET", "/PING")
    daemon.call("OPTIONS", "/ping")
    daemon.call("POST", "/topic/delete?topic=none")
    daemon.call("POST", "/ping")
    daemon.call("GET", "/nothing")
    daemon.wait_for("GET /nothing")
    logged = [m[1] for m in (re.search(rf"INFO: (\d+ .*) \(127\.0\.0\.1:\d+\) {DURATION}$", line)
                             for line in daemon.lines) if m and m[1] != "200 GET /ping"]
    assert logged == [
        "200 GET /stats?format=json&x=%20",
        "404 POST /topic/delete?topic=none",
        "405 POST /ping",
        "404 GET /nothing",
    ]
    daemon.wait_for(rf"INFO: 200 GET /ping \(127\.0\.0\.1:\d+\) {DURATION}$")


def test_malformed_query_and_odd_binary_are_logged(daemon):
    assert daemon.call("POST", "/topic/delete?topic=%zz").json == {"message": "INVALID_REQUEST"}
    assert daemon.call("POST", "/pub?topic=t;x", b"x").json == {"message": "INVALID_REQUEST"}
    daemon.wait_for(r'ERROR: failed to parse request params - invalid URL escape "%zz"')
    daemon.wait_for("ERROR: failed to parse request params - invalid semicolon separator in query")
    daemon.call("POST", "/mpub?topic=t&binary=yes", bytes((0, 0, 0, 1, 0, 0, 0, 1, 0)))
    daemon.wait_for("deprecated value 'yes' used for /mpub binary param")


def test_stop_closes_connections_and_the_port(start):
    daemon = start()
    with daemon.connect() as idle, daemon.connect() as half, daemon.connect() as silent:
        idle.request("GET", "/ping")
        assert idle.reply().status == 200
        half.send(b"POST /pub?topic=t HTTP/1.1\r\n")
        assert daemon.stop() == 0
        assert all(wire.is_closed() for wire in (idle, half, silent))
    with pytest.raises(ConnectionRefusedError):
        daemon.connect()
    assert any(f"HTTP: closing {daemon.address}" in line for line in daemon.lines)


def test_stop_lets_an_answer_in_progress_out(start):
    daemon = start()
    with daemon.connect() as wire:
        wire.request("GET", "/debug/pprof/profile?seconds=600")
        while "profile" not in daemon.call("GET", "/debug/pprof/threadcreate").body.decode().split():
            pass
        assert daemon.stop() == 0
        reply = wire.reply()
        assert (reply.status, reply.headers["connection"]) == (200, "close")
        assert wire.is_closed()


def test_stop_does_not_wait_for_who_does_not_read(start):
    daemon = start()
    for number in range(50):
        daemon.call("POST", f"/topic/create?topic=t{number}")
    with daemon.connect(receive_buffer=4096) as wire:
        wire.send(request("GET", "/stats?format=json") * 2000)
        assert wire.reply().status == 200
        assert daemon.stop() == 0
        with pytest.raises((Closed, ConnectionError)):
            for _ in range(2000):
                wire.reply()


def test_address_in_use(start, tmp_path):
    daemon = start()
    with pytest.raises(AssertionError, match=r"(?i)address already in use"):
        start(f"--http-address={daemon.address}")


def test_port_can_be_bound_again_at_once(start):
    first = start()
    with first.connect() as wire:
        wire.request("GET", "/ping")
        wire.reply()
        first.stop()
        assert start(f"--http-address={first.address}").call("GET", "/ping").status == 200


def test_every_address_of_the_wildcard(start):
    daemon = start("--http-address=:0")
    port = int(daemon.address.rpartition(":")[2])
    hosts = ["127.0.0.1"]
    if socket.has_dualstack_ipv6():
        assert daemon.address.startswith("[::]:")
        hosts.append("::1")
    for host in hosts:
        with socket.create_connection((host, port), 20) as sock:
            sock.sendall(request("GET", "/ping"))
            assert sock.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
    if socket.has_dualstack_ipv6():
        daemon.wait_for(r"200 GET /ping \(127\.0\.0\.1:\d+\)")
        daemon.wait_for(r"200 GET /ping \(\[::1\]:\d+\)")


class TestUnixSocket:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "http.sock"

    def test_calls(self, start, path):
        daemon = start(f"--http-address={path}")
        assert daemon.address == str(path)
        assert daemon.call("POST", "/pub?topic=t", b"x").body == b"OK"
        assert daemon.call("GET", "/info").json["http_port"] == -1
        daemon.wait_for(rf"200 GET /info \(@\) {DURATION}")

    def test_file_goes_with_the_listener(self, start, path):
        daemon = start(f"--http-address={path}")
        assert stat.S_ISSOCK(path.stat().st_mode)
        daemon.stop()
        assert not path.exists()

    def test_left_over_file_is_replaced(self, start, path):
        daemon = start(f"--http-address={path}")
        daemon.process.kill()
        daemon.process.wait(20)
        assert path.exists()
        assert start(f"--http-address={path}").call("GET", "/ping").status == 200

    def test_socket_in_use_is_left_alone(self, start, path):
        daemon = start(f"--http-address={path}")
        with pytest.raises(AssertionError, match=r"(?i)address already in use"):
            start(f"--http-address={path}")
        assert daemon.call("GET", "/ping").status == 200

    def test_other_files_are_left_alone(self, start, path):
        path.write_text("mine")
        with pytest.raises(AssertionError, match=r"(?i)address already in use"):
            start(f"--http-address={path}")
        assert Path(path).read_text() == "mine"
