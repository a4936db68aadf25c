"""The access file of a lookup server: which nodes may announce which topics."""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests.httpd.wire import Wire
from tests.support import network
from tests.support.daemon import Daemon, wait_until
from tests.support.lookupd import LookupServer
from tests.support.secure import client_context, make_certificates

IDENTIFY = b'{"broadcast_address":"n","hostname":"h","tcp_port":1,"http_port":2,"version":"1"}'


@pytest.fixture
def lookupd(tmp_path, access):
    """lookupd(head): a server whose access file begins with head."""
    running = []

    def run(head, *flags):
        access.head = head
        running.append(LookupServer(tmp_path / "lookupd.log", access.write().flag, *flags))
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




@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_tls_and_tokens_from_end_to_end(lookupd, access, start, certificates, tmp_path):
    """A lookup server with an access file and TLS: nodes, their look-ups of channels, and consumers come through."""
    access.user("node", stats=["*"])
    access.user("reader", consume=["t"])
    pair = tmp_path / "server.pem", tmp_path / "server.key"
    for path in pair:
        shutil.copy(certificates / path.name, path)
    server = lookupd('[nodes."127.0.0.0/8"]\ntopics = ["*"]\n', f"--tls-cert={pair[0]}", f"--tls-key={pair[1]}")
    token = tmp_path / "token"
    token.write_text(access.tokens["node"] + "\n")
    flags = (access.flag, f"--lookupd-tcp-address=tls://127.0.0.1:{server.tcp_port}", "--broadcast-address=127.0.0.1",
             f"--lookupd-root-ca-file={pair[0]}", f"--lookupd-token-file={token}")
    one, two = start(*flags), start(*flags)
    tls = client_context()
    url = f"https://127.0.0.1:{server.http_port}"

    def call(path, user=""):
        request = urllib.request.Request(url + path, headers={"Authorization": f"Bearer {access.tokens[user]}"} if user else {})
        try:
            with urllib.request.urlopen(request, context=tls, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code

    wait_until(lambda: len(call("/nodes", "root")["producers"]) == 2)
    assert call("/lookup?topic=t") == 401
    one.call("POST", "/topic/create?topic=t", b"", access.bearer("root"))
    one.call("POST", "/channel/create?topic=t&channel=c", b"", access.bearer("root"))
    wait_until(lambda: call("/channels?topic=t", "root") == {"channels": ["c"]})
    two.call("POST", "/pub?topic=t", b"early", access.bearer("root"))
    stats = wait_until(lambda: two.call("GET", "/stats?format=json&topic=t", b"", access.bearer("root")).json["topics"][0]["channels"])
    assert [each["channel_name"] for each in stats] == ["c"]
    words = [sys.executable, "-m", "nsqc", "tail", "t", "--channel=c", "-n1", f"--nsqlookupd={url}", f"--tls-ca={pair[0]}",
             f"--auth-secret={access.tokens['reader']}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "early\n"), done.stderr
    assert '"403 ' not in one.log + two.log + server.log
    before = ssl.get_server_certificate(("127.0.0.1", server.http_port))
    for path, name in zip(pair, ("stranger.pem", "stranger.key"), strict=True):
        shutil.copy(certificates / name, path)
    for port in (server.tcp_port, server.http_port):
        wait_until(lambda port=port: ssl.get_server_certificate(("127.0.0.1", port)) != before)
    assert server.stop() == 0


def test_a_consumer_tails_without_a_refusal(start, access):
    access.user("reader", consume=["t"])
    node = start(access.write().flag)
    node.call("POST", "/topic/create?topic=t", b"", access.bearer("root"))
    words = [sys.executable, "-m", "nsqc", "tail", "-n1", f"--nsqd=127.0.0.1:{node.tcp_port}", f"--http=127.0.0.1:{node.http_port}",
             f"--auth-secret={access.tokens['reader']}"]
    with subprocess.Popen([*words, "t"], stdout=subprocess.PIPE, text=True) as tail:
        wait_until(lambda: node.call("GET", "/stats?format=json&topic=t", b"", access.bearer("root")).json["topics"][0]["channels"])
        node.call("POST", "/pub?topic=t", b"x", access.bearer("root"))
        assert tail.communicate(timeout=120)[0] == "x\n"
    assert '"403 ' not in node.log
    done = subprocess.run([*words, "tt"], capture_output=True, text=True, timeout=120)
    assert done.returncode and "E_UNAUTHORIZED" in done.stderr      # the token does not cover it


@pytest.mark.parametrize("program", ["serve", "lookupd", "admin"])
def test_a_listener_that_takes_tokens_in_clear_text_is_named(tmp_path, access, program):
    """On an address that others reach; TLS has nothing to warn of."""
    access.write()
    make_certificates(tmp_path)
    address = network.outside()
    own = {"serve": [f"--data-path={tmp_path}", f"--tcp-address={address}:0", f"--https-address={address}:0"],
           "lookupd": [f"--tcp-address={address}:0"], "admin": ["--nsqd-http-address=127.0.0.1:1"]}[program]
    tls = [f"--tls-cert={tmp_path}/server.pem", f"--tls-key={tmp_path}/server.key",
           *(["--tls-required=true"] if program == "serve" else [])]
    for more, count in (([], 2 if program == "serve" else 1), (tls, 0)):
        log = tmp_path / "log"
        with log.open("wb") as file, subprocess.Popen([sys.executable, "-m", "nsqc", program, f"--http-address={address}:0", access.flag,
                                                       *own, *more], stderr=file) as process:
            try:
                listeners = {"serve": 2 + bool(more), "lookupd": 2, "admin": 1}[program]
                wait_until(lambda n=listeners, log=log: log.read_text().count(": listening on") == n)
            finally:
                process.terminate()
        found = re.findall(rf"(\w+): {re.escape(address)}:\d+ takes tokens in clear text", log.read_text())
        assert len(found) == count, log.read_text()
