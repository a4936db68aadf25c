"""Connections that end within a packet: every fatal error after every command, on every kind of channel.

Something else happens to the channel first: it is deleted, sought, drained, or its topic switches its storage. By
default a seed picks a sample; NSQC_TEST_ENDS=all covers all combinations, as `make asan` does.
"""

import contextlib
import itertools
import json
import os
import random
import socket
import struct

import pytest

from tests.support.daemon import batch, wait_until

SEED = 20261125
STORAGES = {"memory": (), "disk": ("--mem-queue-size=0",), "log": ("--topic-storage=log",)}
KINDS = [("t", "c"), ("t", "c#ephemeral"), ("t#ephemeral", "c"), ("t#ephemeral", "c#ephemeral")]
LASTING = ("pause", "to memory", "to a log")    # interferences whose effect the topic would keep
KEPT = 100          # acknowledged messages that must survive


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


FATAL = [
    b"BOGUS\n", b"FIN\n", b"FIN short\n", b"REQ 0123456789abcdef\n", b"REQ 0123456789abcdef soon\n", b"TOUCH short\n",
    b"RDY -1\n", b"RDY many\n", b"SUB t c\n", b"IDENTIFY\n" + sized(b"{}"), b"IDENTIFY\n" + sized(b"{"), b"AUTH\n",
    b"PUB bad!name\n" + sized(b"x"), b"PUB t\n" + struct.pack(">i", 0), b"PUB t\n" + struct.pack(">i", -1),
    b"PUB t\n" + struct.pack(">i", 1 << 30), b"MPUB t\n" + sized(batch(b"x", b"")), b"DPUB t -1\n" + sized(b"x"),
    b"DPUB t soon\n", b"CLS\nCLS\n", b"x" * 20_000,
]


def befores(topic: str, message_id: bytes) -> list[bytes]:
    """The commands that come before a fatal error, in the same packet."""
    name = topic.encode()
    return [
        b"", b"NOP\n", b"RDY 1\n", b"RDY 0\n", b"RDY 100\n", b"FIN " + message_id + b"\n", b"REQ " + message_id + b" 0\n",
        b"REQ " + message_id + b" 50\n", b"TOUCH " + message_id + b"\n", b"CLS\n", b"FIN " + message_id + b"\nRDY 5\n",
        b"REQ " + message_id + b" 0\nRDY 0\n", b"PUB " + name + b"\n" + sized(b"more"),
        b"DPUB " + name + b" 20\n" + sized(b"later"), b"MPUB " + name + b"\n" + sized(batch(*[b"m"] * 300)),
        b"PUB other\n" + sized(b"x"), b"MPUB " + name + b"\n" + sized(batch(b"x" * 20_000, b"y")),
    ]


def quoted(name: str) -> str:
    return name.replace("#", "%23")


def interferences(topic: str, channel: str) -> dict[str, list[tuple[str, str, bytes]]]:
    """Calls to make while the consumer has a message in flight."""
    one = f"topic={quoted(topic)}"
    both = f"{one}&channel={quoted(channel)}"
    return {
        "nothing": [],
        "drain": [("POST", "/drain?keep=true", b"")],
        "delete channel": [("POST", f"/channel/delete?{both}", b"")],
        "delete topic": [("POST", f"/topic/delete?{one}", b"")],
        "empty": [("POST", f"/channel/empty?{both}", b""), ("POST", f"/topic/empty?{one}", b"")],
        "pause": [("POST", f"/topic/pause?{one}", b""), ("POST", f"/channel/pause?{both}", b"")],
        "unpause": [("POST", f"/channel/pause?{both}", b""), ("POST", f"/channel/unpause?{both}", b"")],
        "seek": [("POST", f"/channel/seek?{both}&to=beginning", b"")],
        "to memory": [("PUT", f"/topic/rules?{one}", json.dumps({"storage": "memory"}).encode())],
        "to a log": [("PUT", f"/topic/rules?{one}", json.dumps({"storage": "log"}).encode())],
    }


def end_amid(node, topic: str, channel: str, number: int, fatal: bytes, interference: str, other: bool) -> None:
    """One consumer with a message in flight, whose packet ends in a fatal error."""
    producer = node.connect()
    producer.pub(topic, *[b"body"] * 3)
    bystander = node.connect().sub(topic, channel) if other else None
    consumer = node.connect().sub(topic, channel, 2)
    producer.pub(topic, b"first", b"second")    # an ephemeral channel is new, and lacks the earlier ones
    message_id = consumer.message().id
    for method, path, body in interferences(topic, channel)[interference]:
        node.http(method, path, body)
    with contextlib.suppress(OSError):
        consumer.send(befores(topic, message_id)[number] + fatal)
        consumer.sock.shutdown(socket.SHUT_WR)      # RDY after CLS is ignored, whatever its count
        while consumer.frame() is not None:
            pass
    if interference == "drain":
        node.http("DELETE", "/drain")
    for client in (producer, bystander, consumer):
        if client is not None:
            client.close()


@pytest.mark.parametrize("storage", STORAGES)
def test_every_fatal_error_after_every_command(daemon, storage):
    # Minutes under AddressSanitizer, a second otherwise.
    rng = random.Random(SEED)
    node = daemon(*STORAGES[storage], "--msg-timeout=1s")
    node.connect().pub("kept", *[b"%d" % number for number in range(KEPT)])
    names, everything = list(interferences("t", "c")), os.environ.get("NSQC_TEST_ENDS") == "all"
    for number, fatal in itertools.product(range(len(befores("t", b""))), FATAL):
        for (topic, channel), interference in itertools.product(KINDS, names) if everything else [(rng.choice(KINDS), rng.choice(names))]:
            end_amid(node, topic, channel, number, fatal, interference, rng.random() < 0.3)
            if interference in LASTING or rng.random() < 0.05:
                node.http("POST", f"/topic/delete?topic={quoted(topic)}")  # 404 for a vanished ephemeral one
    wait_until(lambda: not any(c["clients"] for t in node.stats()["topics"] for c in t["channels"] or []),
               "all consumers are gone")
    consumer = node.connect().sub("kept", "c", KEPT)
    assert sorted(int(message.body) for message in consumer.messages(KEPT, finish=True)) == list(range(KEPT))


@pytest.mark.parametrize("storage", STORAGES)
def test_an_ephemeral_channel_whose_client_ends_amid_a_packet(daemon, storage):
    node = daemon(*STORAGES[storage])
    node.connect().pub("kept", *[b"%d" % number for number in range(KEPT)])
    for packet in (b"SUB nope c#ephemeral\nRDY 1\nBOGUS\n", b"SUB t#ephemeral c#ephemeral\nRDY 1\nBOGUS\n"):
        client = node.connect()
        client.send(packet)
        assert client.frame() == (0, b"OK")
        assert client.frame() == (1, b"E_INVALID invalid command BOGUS")
        assert client.frame() is None
    wait_until(lambda: [t["topic_name"] for t in node.stats()["topics"] if t["topic_name"] != "kept"] == ["nope"],
               "the ephemeral topic is gone")
    wait_until(lambda: not node.stats("nope")["channels"], "the ephemeral channel is gone")
    assert node.stats("kept")["depth"] == KEPT


@pytest.mark.parametrize("storage", STORAGES)
def test_a_client_that_publishes_while_the_node_drains(daemon, storage):
    """A correct client: FIN of its message, then a PUB, which a draining node refuses, ending the connection."""
    node = daemon(*STORAGES[storage])
    consumer = node.connect().sub("t", "c#ephemeral", 1)
    node.connect().pub("t", b"x")
    message = consumer.message()
    node.post("/drain?keep=true")
    consumer.send(b"FIN " + message.id + b"\nPUB t\n" + sized(b"y"))
    kind, text = consumer.frame()
    assert kind == 1 and text.startswith(b"E_PUB_FAILED")
    assert consumer.frame() is None
    node.http("DELETE", "/drain")
    assert node.http("GET", "/ping") == (200, b"OK")
    wait_until(lambda: not node.stats("t")["channels"], "the ephemeral channel is gone")


def test_a_client_that_comes_as_the_last_one_leaves_keeps_the_channel(daemon):
    """A new consumer keeps its subscription when the previous one leaves."""
    node = daemon()
    first = node.connect().sub("t", "c#ephemeral", 1)
    for number in range(200):
        following = node.connect()
        following.send(b"SUB t c#ephemeral\nRDY 1\n")
        first.close()
        assert following.frame() == (0, b"OK")
        node.connect().pub("t", b"%d" % number)
        message = following.message()
        assert message.body == b"%d" % number
        following.fin(message)
        first = following
