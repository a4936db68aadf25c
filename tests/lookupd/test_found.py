"""The daemon registers, and clients find it; all components are real."""

import contextlib
import os
import socketserver
import subprocess
import sys
import threading

import pytest

from nsqc.client import Consumer, Producer
from tests.support.daemon import wait_until
from tests.support.lookupd import Node, identify
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port

HERE = "127.0.0.1"


def test_a_consumer_finds_messages_of_nodes_that_come_and_go(daemon, lookupd):
    servers = [lookupd(), lookupd()]
    flags = [f"--lookupd-tcp-address={server.tcp_address}" for server in servers]
    first = daemon(*flags, f"--broadcast-address={HERE}")
    with Producer(f"{HERE}:{first.tcp_port}") as producer:
        producer.publish("orders", b"one")
    for server in servers:
        wait_until(lambda server=server: server.found("orders") == [HERE])
    addresses = [server.http_address for server in servers]
    with Consumer("orders", "work", nsqlookupd=addresses, poll_interval=0.2) as consumer:
        message = consumer.get(WAIT_SECONDS)
        assert message.body == b"one"
        message.finish()
        for server in servers:
            wait_until(lambda server=server: server.get("/lookup?topic=orders")["channels"] == ["work"])
        second = daemon(*flags, f"--broadcast-address={HERE}")
        with Producer(f"{HERE}:{second.tcp_port}") as producer:
            producer.publish("orders", b"two")
        message = consumer.get(WAIT_SECONDS)
        assert message.body == b"two"
        message.finish()
        assert servers[0].stop() == 0
        assert first.stop() == 0
        wait_until(lambda: [one["tcp_port"] for one in servers[1].get("/lookup?topic=orders")["producers"]]
                   == [second.tcp_port])
        # A restarted lookup server learns everything again.
        servers[0].start()
        wait_until(lambda: servers[0].found("orders") == [HERE])


PYNSQ = """
import sys, nsq

def take(message):
    print(message.body.decode(), flush=True)
    nsq.tornado.ioloop.IOLoop.current().call_later(0.1, sys.exit)
    return True

nsq.Reader(topic="t", channel="c", lookupd_http_addresses=sys.argv[1:], lookupd_poll_interval=1,
           message_handler=take)
nsq.run()
"""


def test_pynsq_finds_messages_unless_their_node_is_hidden(daemon, lookupd):
    server = lookupd()
    nodes = [daemon(f"--lookupd-tcp-address={server.tcp_address}", f"--broadcast-address={HERE}") for _ in range(2)]
    for number, node in enumerate(nodes):
        with Producer(f"{HERE}:{node.tcp_port}") as producer:
            producer.publish("t", b"of node %d" % number)
    wait_until(lambda: len(server.found("t")) == 2)
    assert server.call("POST", f"/topic/tombstone?topic=t&node={HERE}:{nodes[0].http_port}")[0] == 200
    done = subprocess.run([sys.executable, "-c", PYNSQ, f"http://{server.http_address}"], capture_output=True, text=True,
                          timeout=WAIT_SECONDS)
    assert done.stdout == "of node 1\n", done.stderr


def talker(said: bytes) -> socketserver.ThreadingTCPServer:
    """A service that is not nsqd: it sends the same greeting to every client."""
    class Talk(socketserver.BaseRequestHandler):
        def handle(self):
            with contextlib.suppress(OSError):
                self.request.sendall(said)
                while self.request.recv(1024):
                    pass

    server = socketserver.ThreadingTCPServer((HERE, 0), Talk)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server


@pytest.mark.parametrize("client", ["nsqc.client", "pynsq"])
def test_nodes_that_lie_keep_nobody_from_the_others(daemon, lookupd, client):
    """Registered: a port without a listener, one that answers HTTP, a silent one, and an invalid name."""
    server = lookupd()
    talkers = [talker(b"HTTP/1.1 400 Bad Request\r\n\r\n"), talker(b"")]
    liars = [Node(server) for _ in range(4)]
    places = [(HERE, free_port()), *(one.server_address for one in talkers), ("no.such.host.invalid", 4150)]
    try:
        for liar, (host, port) in zip(liars, places, strict=True):
            liar.send(identify(host, tcp_port=port))
            liar.reply()
            liar.ok("REGISTER t")
        node = daemon(f"--lookupd-tcp-address={server.tcp_address}", f"--broadcast-address={HERE}")
        with Producer(f"{HERE}:{node.tcp_port}") as producer:
            producer.publish("t", b"of the node")
        wait_until(lambda: len(server.found("t")) == 5)
        if client == "pynsq":
            done = subprocess.run([sys.executable, "-c", PYNSQ, f"http://{server.http_address}"], capture_output=True,
                                  text=True, timeout=WAIT_SECONDS)
            assert done.stdout == "of the node\n", done.stderr
        else:
            with Consumer("t", "c", nsqlookupd=[server.http_address], poll_interval=0.2) as consumer:
                message = consumer.get(WAIT_SECONDS)
                assert message.body == b"of the node"
                message.finish()
    finally:
        for one in talkers:
            one.shutdown()
            one.server_close()
        for liar in liars:
            liar.close()


def test_a_deleted_topic_is_unregistered(daemon, lookupd):
    server = lookupd()
    node = daemon(f"--lookupd-tcp-address={server.tcp_address}", f"--broadcast-address={HERE}")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c%23ephemeral")
    wait_until(lambda: server.get("/topics")["topics"] == ["t"] and server.found("t") == [HERE])
    node.post("/topic/delete?topic=t")
    wait_until(lambda: server.found("t") == [])
    assert server.get("/channels?topic=t") == {"channels": []}


def test_it_answers_to_the_name_of_nsqlookupd(lookupd, tmp_path):
    link = tmp_path / "nsqlookupd"
    link.write_text("import sys\nfrom nsqc.cli import main\nmain()\n")
    version = subprocess.run([sys.executable, link, "--version"], capture_output=True, text=True, check=True,
                             env={**os.environ, "PYTHONPATH": os.getcwd()})
    assert version.stdout.startswith("nsqlookupd v1.3.0 (built w/nsqc-")
    server = lookupd()
    wait_until(lambda: "[nsqlookupd] " in server.log)
    wait_until(lambda: "nsqlookupd v1.3.0 (built w/nsqc-" in server.log)


def test_it_imports_neither_the_broker_nor_spark(lookupd):
    server = lookupd(command=(sys.executable, "-X", "importtime", "-m", "nsqc", "lookupd"))
    node = Node(server, "a.example")
    node.ok("REGISTER t")
    assert server.found("t") == ["a.example"]
    assert server.call("POST", "/topic/tombstone?topic=t&node=a.example:4151")[0] == 200
    assert server.get("/nodes")["producers"][0]["tombstones"] == [True]
    node.close()
    imported = {line.rpartition("|")[2].strip() for line in server.log.splitlines() if line.startswith("import time:")}
    assert "nsqc.lookupd.server" in imported
    rooms = {name.split(".")[1] for name in imported if name.startswith("nsqc.")}
    assert not rooms & {"broker", "store", "tcp", "peers", "daemon", "client", "spark"}
    assert not imported & {"typer", "ctypes", "tomllib", "random"}
