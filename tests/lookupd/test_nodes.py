"""Rude, slow, numerous, and vanished nodes. tests/conformance/lookupd covers well-behaved ones."""

import contextlib
import resource
import signal
import socket
import struct
import time

import pytest

from tests.support.daemon import logged, wait_until
from tests.support.lookupd import HOST, Node, identify
from tests.support.patience import WAIT_SECONDS


@pytest.mark.parametrize("size", [-1, -(2**31), 4097, 2**31 - 1])
def test_a_size_that_cannot_be_is_refused(lookupd, size):
    """nsqlookupd panics, or allocates it."""
    server = lookupd()
    node = Node(server)
    node.send(b"IDENTIFY\n" + struct.pack(">i", size))
    assert node.reply() == b"E_BAD_BODY IDENTIFY failed to read body"
    assert node.reply() == b""
    Node(server, "a.example").ok("PING")


def test_a_line_without_end_is_refused(lookupd):
    server = lookupd()
    node = Node(server)
    node.send(b"x" * 70_000)
    assert node.reply() == b"E_INVALID line is longer than 65536 bytes"
    assert node.reply() == b""


def test_the_reply_to_a_refused_command_arrives_although_more_was_sent(lookupd):
    """Closing with unread input would reset the connection."""
    server = lookupd()
    for _ in range(20):
        node = Node(server)
        node.send(b"OOPS\n")
        node.send(b"PING\n" * 20_000)
        assert node.reply() == b"E_INVALID invalid command OOPS"


def test_what_stalls_is_closed_and_what_is_complete_stays(lookupd):
    server = lookupd("--handshake-timeout=500ms")
    silent, half, body = Node(server, magic=b""), Node(server, "a.example"), Node(server)
    quiet = Node(server, "b.example")
    half.send(b"REGIS")
    body.send(b"IDENTIFY\n" + struct.pack(">i", 100) + b"{")
    few = Node(server, magic=b" ")
    for node in (silent, half, body, few):
        assert node.reply() == b""
    wait_until(lambda: "failed to read protocol version - i/o timeout" in server.log)
    wait_until(lambda: [one["hostname"] for one in server.get("/nodes")["producers"]] == ["b.example"])
    time.sleep(0.6)
    quiet.ok("PING")


def test_silent_connections_do_not_hold_up_a_stop(lookupd):
    server = lookupd()
    held = [Node(server, magic=b""), Node(server), Node(server, "a.example")]
    held[2].send(b"REGISTER t\nREG")
    http = socket.create_connection((HOST, server.http_port))
    http.sendall(b"GET /pi")
    assert server.stop() == 0
    http.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_other_signals_stop_it_as_well(lookupd, number):
    server = lookupd()
    node = Node(server, "a.example")
    assert server.stop(number) == 0
    assert node.reply() == b""


def test_a_node_that_takes_no_replies_is_not_read_and_harms_nobody(lookupd):
    server = lookupd()
    stuck, other = Node(server), Node(server, "b.example")
    stuck.sock.settimeout(0.5)
    sent = 0
    with pytest.raises(TimeoutError):
        while sent < 500_000_000:
            sent += stuck.sock.send(b"PING\n" * 100_000)
    other.ok("REGISTER t")
    assert server.found("t") == ["b.example"]
    # It was answered so far, and continues when it reads.
    stuck.sock.settimeout(WAIT_SECONDS)
    for _ in range(1000):
        assert stuck.reply() == b"OK"


def test_commands_are_answered_however_they_are_cut(lookupd):
    server = lookupd()
    data = b"  V1" + identify("a.example") + b"".join(b"REGISTER t%d c\n" % n for n in range(200)) + b"PING\n"
    for size in (1, 3, 7, 100, 4096):
        node = Node(server, magic=b"")
        for at in range(0, len(data), size):
            node.send(data[at:at + size])
        assert b"broadcast_address" in node.reply()
        assert [node.reply() for _ in range(201)] == [b"OK"] * 201
        assert len(server.get("/nodes")["producers"][0]["topics"]) == 200
        node.close()
        wait_until(lambda: server.get("/nodes")["producers"] == [])


@pytest.mark.parametrize("reset", [False, True])
def test_what_nodes_leave_behind_is_freed(lookupd, reset):
    server = lookupd()
    for _ in range(3):
        nodes = [Node(server, f"n{n}.example") for n in range(50)]
        for node in nodes:
            node.ok("REGISTER t c", "REGISTER t2", "REGISTER u#ephemeral")
        assert len(server.found("t")) == 50
        for node in nodes:
            node.close(reset)
        wait_until(lambda: server.found("t") == [])
    wait_until(lambda: server.contents()["objects nsqc.lookupd.registry.Peer"] == 0)
    wait_until(lambda: server.contents()["objects nsqc.lookupd.connection.Connection"] == 0)
    assert server.contents()["objects builtins.dict"] > 0, "objects are listed"
    assert server.get("/debug") == {}
    assert sorted(server.get("/topics")["topics"]) == ["t", "t2", "u#ephemeral"]


def test_thousands_connect_and_leave_at_once(lookupd):
    server = lookupd()
    nodes = [Node(server) for _ in range(2000)]
    for number, node in enumerate(nodes):
        node.send(identify(f"n{number}") + b"REGISTER t\nREGISTER u c\n")
    for node in nodes:
        assert b"broadcast_address" in node.reply()
        assert (node.reply(), node.reply()) == (b"OK", b"OK")
    assert len(server.found("t")) == 2000
    assert len(server.get("/nodes")["producers"]) == 2000
    for node in nodes:
        node.close()
    wait_until(lambda: server.found("t") == [])
    wait_until(lambda: server.get("/debug") == {})
    wait_until(lambda: server.log.count(" UNREGISTER ") + dropped(server.log) >= 2000 * 4)


def dropped(log: str) -> int:
    """Lines dropped by the log, as the log itself reports."""
    return sum(int(line.split(" lines dropped")[0].rsplit(" ", 1)[1]) for line in log.splitlines()
               if " lines dropped" in line)


def test_at_the_limit_of_descriptors_newcomers_wait(lookupd):
    server = lookupd(preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)))
    nodes = [Node(server, magic=b"") for _ in range(200)]
    wait_until(lambda: "accepting stops at" in server.log)
    for node in nodes[:150]:
        node.close()
    late = nodes[150:]
    for number, node in enumerate(late):
        node.send(b"  V1" + identify(f"n{number}"))
    for node in late[:30]:
        assert b"broadcast_address" in node.reply()
    for node in late:
        node.close()
    node = Node(server, "a.example")
    node.ok("REGISTER t")
    assert server.found("t") == ["a.example"]


def test_beyond_max_connections_newcomers_are_closed(lookupd):
    server = lookupd("--max-connections=2")
    first, second = Node(server, "a.example"), Node(server, "b.example")
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        assert Node(server).reply() == b""
    wait_until(lambda: "--max-connections 2 reached" in server.log)
    first.close()
    second.ok("PING")
    wait_until(lambda: "exiting ioloop" in server.log)
    assert server.call("GET", "/ping") == (200, b"OK")


def test_nodes_that_reset_their_connection_in_the_middle_of_a_storm(lookupd):
    """Nothing is written to a closed connection; the fixture reports uncaught exceptions."""
    server = lookupd()
    storm = b"".join(b"REGISTER t%d c\n" % n for n in range(1500))
    for tail in (b"", b"OOPS\n", b"REG"):
        nodes = [Node(server, f"n{n}") for n in range(30)]
        for node in nodes:
            node.send(storm + tail)
        for node in nodes:
            node.close(reset=True)
        wait_until(lambda: server.get("/debug") == {})
    other = Node(server, "a.example")
    other.ok("REGISTER t1")
    assert server.found("t1") == ["a.example"]


def test_registrations_are_bounded(lookupd):
    """Topics and channels stay when their nodes leave."""
    server = lookupd("--max-registrations=4")
    node = Node(server, "a.example")
    for name in ("t", "t c", "u", "u c", "v", "v c", "t c"):
        node.ok(f"REGISTER {name}")
    assert server.get("/topics")["topics"] == ["t", "u"]
    assert server.call("POST", "/topic/create?topic=w")[0] == 403
    logged(server, "registers nothing new: --max-registrations 4 reached")
    assert server.call("POST", "/topic/delete?topic=u")[0] == 200
    node.ok("REGISTER v")
    assert sorted(server.get("/topics")["topics"]) == ["t", "v"]


def test_connections_of_one_address_are_bounded(lookupd):
    server = lookupd("--max-connections-per-address=2")
    first, second = Node(server, "a.example"), Node(server, "b.example")
    third = socket.create_connection((HOST, server.tcp_port), WAIT_SECONDS)
    with contextlib.suppress(ConnectionResetError):
        assert third.recv(1) == b""
    third.close()
    second.close()
    wait_until(lambda: "--max-connections-per-address 2 reached" in server.log)
    first.ok("PING")
