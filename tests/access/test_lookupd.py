"""The access file of a lookup server: which nodes may announce which topics."""

import os
import signal
import socket
import struct

import pytest

from tests.httpd.wire import Wire
from tests.support.daemon import Daemon, wait_until
from tests.support.lookupd import LookupServer

IDENTIFY = b'{"broadcast_address":"n","hostname":"h","tcp_port":1,"http_port":2,"version":"1"}'


@pytest.fixture
def lookupd(tmp_path, access):
    """lookupd(head): a server whose access file begins with head."""
    running = []

    def run(head):
        access.head = head
        running.append(LookupServer(tmp_path / "lookupd.log", access.write().flag))
        return running[-1]

    yield run
    for server in running:
        server.close()


class Node:
    """A node, byte by byte."""

    def __init__(self, server, source="127.0.0.1"):
        self.sock = socket.create_connection(("127.0.0.1", server.tcp_port), 60, source_address=(source, 0))
        self.sock.sendall(b"  V1IDENTIFY\n" + struct.pack(">i", len(IDENTIFY)) + IDENTIFY)
        self.reply()

    def reply(self):
        size = struct.unpack(">i", self.exactly(4))[0]
        return self.exactly(size)

    def exactly(self, size):
        data = b""
        while len(data) < size:
            data += self.sock.recv(size - len(data))
        return data

    def register(self, words):
        self.sock.sendall(b"REGISTER " + words + b"\n")
        return self.reply()


def ask(server, path, access, user="root"):
    with Wire(socket.create_connection(("127.0.0.1", server.http_port), 60)) as wire:
        wire.request("GET", path, headers=access.bearer(user))
        return wire.reply()


def nodes(server, topic, access):
    """The number of producers; None: the topic is unknown."""
    reply = ask(server, f"/lookup?topic={topic}", access)
    return None if reply.status == 404 else len(reply.json["producers"])


def test_which_topics_a_node_may_announce(lookupd, access):
    server = lookupd('[nodes."127.0.0.1"]\ntopics = ["a*"]\n[nodes."127.0.0.2"]\ntopics = ["*"]\n')
    one, two, other = Node(server), Node(server, "127.0.0.2"), Node(server, "127.0.0.3")
    for node, counts in ((one, (1, None)), (two, (2, 1)), (other, (2, 1))):
        for words in (b"abc", b"abc c", b"b", b"b c"):
            assert node.register(words) == b"OK"
        assert (nodes(server, "abc", access), nodes(server, "b", access)) == counts
    assert "may not announce topic b" in server.log_path.read_text()
    # Names are checked before permissions.
    assert one.register(b"a$ c").startswith(b"E_BAD_TOPIC")


@pytest.mark.parametrize("by_signal", [True, False])
def test_what_was_announced_is_taken_back(lookupd, access, by_signal):
    server = lookupd('[nodes."127.0.0.0/8"]\ntopics = ["*"]\n')
    node = Node(server)
    for topic in (b"a", b"b c"):
        assert node.register(topic) == b"OK"
    access.head = '[nodes."127.0.0.0/8"]\ntopics = ["a"]\n'
    access.write()
    if by_signal:
        os.kill(server.process.pid, signal.SIGHUP)
    wait_until(lambda: nodes(server, "b", access) == 0)
    assert nodes(server, "a", access) == 1
    assert server.stop() == 0


def test_without_nodes_all_may(lookupd, access):
    server = lookupd("")
    node = Node(server)
    assert node.register(b"a") == b"OK"
    assert nodes(server, "a", access) == 1


def test_http(lookupd, access):
    access.user("consumer", consume=["a/*"])
    server = lookupd("")
    node = Node(server)
    node.register(b"a")
    assert ask(server, "/lookup?topic=a", access, "consumer").status == 200
    assert ask(server, "/channels?topic=a", access, "consumer").status == 200
    for path in ("/lookup?topic=b", "/lookup?topic=*", "/nodes", "/topics", "/debug", "/metrics"):
        assert ask(server, path, access, "consumer").status == 403, path
        assert ask(server, path, access, "").status == 401, path
        assert ask(server, path, access).status in (200, 404), path


def test_a_real_node(lookupd, access, tmp_path):
    server = lookupd('[nodes."127.0.0.0/8"]\ntopics = ["good"]\n')
    node = Daemon(tmp_path / "data", f"--lookupd-tcp-address=127.0.0.1:{server.tcp_port}", "--broadcast-address=127.0.0.1")
    try:
        node.post("/topic/create?topic=bad")
        node.post("/topic/create?topic=good")
        wait_until(lambda: nodes(server, "good", access) == 1)
        assert nodes(server, "bad", access) is None
        assert ask(server, "/nodes", access).json["producers"][0]["topics"] == ["good"]
        assert node.stop() == 0
    finally:
        node.close()


