"""The HTTP API in cases that the recorded scenarios do not cover."""

import json
import signal
import socket
import time

import pytest

from tests.support.daemon import wait_until
from tests.support.lookupd import HOST, Node
from tests.support.patience import WAIT_SECONDS

MANY = 3000


def topic(number: int) -> str:
    return f"topic-{number:06}-{'x' * 40}"


@pytest.fixture
def full(lookupd):
    """A server whose lists take many slices and exceed a socket's buffer, and its node."""
    server = lookupd()
    node = Node(server, "a.example")
    for start in range(0, MANY, 500):
        node.ok(*(f"REGISTER {topic(n)} c" for n in range(start, start + 500)))
    return server, node


def test_a_client_that_reads_slowly_gets_a_long_list_whole(full):
    server, _node = full
    sock = socket.create_connection((HOST, server.http_port))
    sock.sendall(b"GET /debug HTTP/1.1\r\nHost: x\r\n\r\nGET /nodes HTTP/1.0\r\n\r\n")
    time.sleep(0.3)
    assert len(server.get("/topics")["topics"]) == MANY
    data = b""
    while more := sock.recv(65536):
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    assert len(json.loads(rest[:length])) == 2 * MANY + 1
    nodes = json.loads(rest[length:].partition(b"\r\n\r\n")[2])
    assert len(nodes["producers"][0]["topics"]) == len(nodes["producers"][0]["tombstones"]) == MANY


def test_clients_that_leave_in_the_middle_of_a_long_list_harm_nobody(full):
    server, _node = full
    for _ in range(20):
        sock = socket.create_connection((HOST, server.http_port))
        sock.sendall(b"GET /debug HTTP/1.1\r\nHost: x\r\n\r\n")
        sock.close()
    assert len(server.get("/topics")["topics"]) == MANY
    wait_until(lambda: server.contents()["http_connections"] == 1)


def test_a_star_means_all_topics(full):
    server, node = full
    everything = server.get("/lookup?topic=*")
    assert everything["channels"] == ["c"] * MANY
    assert [one["hostname"] for one in everything["producers"]] == ["a.example"]
    assert server.call("POST", "/topic/tombstone?topic=*&node=a.example:4151")[0] == 200
    assert server.get("/lookup?topic=*")["producers"] == []
    assert set(server.get("/nodes")["producers"][0]["tombstones"]) == {True}
    assert server.call("POST", "/topic/delete?topic=*")[0] == 200
    assert server.get("/topics") == {"topics": []}
    assert server.get("/debug").keys() == {"client::"}
    # A new registration counts again.
    node.ok("REGISTER t")
    assert server.found("t") == ["a.example"]


def test_what_changes_while_a_list_is_made_does_not_break_it(full):
    server, node = full
    reader = socket.create_connection((HOST, server.http_port))
    for round_ in range(5):
        reader.sendall(b"GET /debug HTTP/1.1\r\nHost: x\r\n\r\n" * 2 + b"GET /nodes HTTP/1.1\r\nHost: x\r\n\r\n")
        node.ok(*(f"UNREGISTER {topic(n)}" for n in range(round_ * 100, round_ * 100 + 100)))
        others = [Node(server, f"b{n}.example") for n in range(20)]
        for other in others:
            other.ok("REGISTER t c", "REGISTER u")
            other.close()
    data = b""
    while data.count(b"HTTP/1.1 200 OK") < 15:
        data += reader.recv(1 << 20)
    assert server.call("GET", "/ping") == (200, b"OK")


def test_the_debug_pages_answer(lookupd):
    server = lookupd()
    for path in ("", "/cmdline", "/heap", "/goroutine", "/threadcreate", "/profile?seconds=0.1"):
        assert server.call("GET", f"/debug/pprof{path}")[0] == 200, path
    assert server.call("GET", "/debug/pprof/symbol")[0] == 404
    assert server.call("POST", "/pub?topic=t")[0] == 404


def test_a_half_request_is_closed(lookupd):
    server = lookupd("--http-header-timeout=300ms")
    sock = socket.create_connection((HOST, server.http_port))
    sock.sendall(b"GET /pin")
    sock.settimeout(WAIT_SECONDS)
    assert sock.recv(100) == b""


def test_lists_get_on_during_a_storm_of_registrations(full):
    server, _node = full
    nodes = [Node(server, f"n{n}.example") for n in range(20)]
    storm = b"".join(b"REGISTER %b c\n" % topic(n).encode() for n in range(MANY))
    for node in nodes:
        node.sock.setblocking(False)
        node.sock.send(storm)
    assert len(server.get("/nodes")["producers"]) == 21
    assert len(server.get(f"/lookup?topic={topic(0)}")["channels"]) == 1
    assert server.get(f"/channels?topic={topic(1)}") == {"channels": ["c"]}
    wait_until(lambda: len(server.found(topic(7))) == 21)


def test_probes(lookupd):
    server = lookupd("--max-connections=2")
    assert server.call("GET", "/livez") == (200, b"OK")
    assert server.call("GET", "/readyz") == (200, b'{"ready":true,"reasons":[]}')
    assert "livez" not in server.log and "readyz" not in server.log
    server.process.send_signal(signal.SIGUSR1)
    assert server.call("GET", "/livez") == (200, b"OK")
    assert server.stop() == 0
