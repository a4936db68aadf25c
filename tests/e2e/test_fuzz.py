"""Hostile input over TCP and HTTP, from a seed: the daemon stays up and small, and keeps serving others."""

import contextlib
import os
import random
import socket
import struct

import pytest

from tests.support.daemon import Client, batch, wait_until
from tests.support.patience import WAIT_SECONDS

SEED = int(os.environ.get("NSQC_TEST_FUZZ_SEED", "20261121"))
ROUNDS = 1500
CEILING_BYTES = 150_000_000
WORDS = [b"IDENTIFY", b"SUB", b"PUB", b"MPUB", b"DPUB", b"DMPUB", b"RDY", b"FIN", b"REQ", b"TOUCH", b"CLS", b"NOP", b"AUTH", b"t", b"c",
         b"0123456789abcdef", b"-1", b"0", b"1", b"2500", b"99999999999999999999", b"", b"x" * 64, b"x" * 65, b"e#ephemeral",
         b"\xff\x00", b"  V2"]


def some_number(rng: random.Random) -> bytes:
    return struct.pack(">I", rng.choice([0, 1, 2, 5, 26, 1000, 1 << 20, (1 << 20) + 1, 5 << 20, (5 << 20) + 1, 1 << 31,
                                         (1 << 32) - 1, rng.getrandbits(32)]))


def some_input(rng: random.Random) -> bytes:
    out = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.45:
            out.append(b" ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 4))) + rng.choice([b"\n", b"\r\n", b""]))
        elif kind < 0.6:
            out.append(some_number(rng))
        elif kind < 0.75:
            body = rng.randbytes(rng.randint(1, 300))
            out.append(b"PUB t\n" + struct.pack(">I", len(body)) + body)
        elif kind < 0.85:
            body = bytearray(batch(*[rng.randbytes(rng.randint(1, 50)) for _ in range(rng.randint(1, 20))]))
            if rng.random() < 0.5:
                body[rng.randrange(len(body))] = rng.getrandbits(8)
            out.append(b"MPUB t\n" + struct.pack(">I", len(body)) + bytes(body))
        elif kind < 0.92:
            body = rng.choice([b"{}", b"[]", b"{\"heartbeat_interval\": %d}" % rng.randint(-5, 100_000), b"{", b"\xff" * 20,
                               b'{"feature_negotiation": true, "output_buffer_size": -1}', b'{"a":' * 500])
            out.append(b"IDENTIFY\n" + struct.pack(">I", len(body)) + body)
        else:
            out.append(rng.randbytes(rng.randint(1, 20_000)))
    return b"".join(out)


def attack(make, rng: random.Random, data: bytes) -> None:
    """Sends data in random pieces, reads the answers, and disconnects in a random way."""
    sock = make()
    sock.settimeout(WAIT_SECONDS)
    with contextlib.suppress(OSError), sock:
        at = 0
        while at < len(data):
            step = rng.choice([1, 7, 100, 5000, len(data)])
            sock.sendall(data[at:at + step])
            at += step
        leave = rng.random()
        if leave < 0.3:
            sock.shutdown(socket.SHUT_WR)
        elif leave < 0.5:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return
        sock.settimeout(0.02)
        while sock.recv(65536):
            pass


@pytest.fixture
def node(daemon):
    return daemon("--mem-queue-size=100", "--handshake-timeout=5s", "--http-header-timeout=5s")


def test_tcp(node):
    rng = random.Random(SEED)
    before = node.rss()
    for _ in range(ROUNDS):
        data = rng.choice([b"  V2", b"  V2", b"  V2", b"", b"  V1"]) + some_input(rng)
        attack(lambda: socket.create_connection(("127.0.0.1", node.tcp_port)), rng, data)
    still_serves(node)
    assert node.rss() - before < CEILING_BYTES


def some_request(rng: random.Random) -> bytes:
    path = rng.choice([b"/pub?topic=t", b"/mpub?topic=t", b"/mpub?topic=t&binary=true", b"/stats?format=json", b"/ping", b"/nothing",
                       b"/topic/create?topic=t%00", b"/config/log_level", b"/pub?topic=t&defer=-1", b"/%ff", b"/stats?topic=%zz",
                       b"/channel/create?topic=t&channel=" + b"c" * 100, b"/" + b"a" * 9000])
    head = rng.choice([b"GET", b"POST", b"PUT", b"HEAD", b"OPTIONS", b"BREW", b"\xff\xfe"]) + b" " + path + b" HTTP/1." + rng.choice(
        [b"0", b"1", b"9"]) + b"\r\n"
    for _ in range(rng.randint(0, 4)):
        head += rng.choice([b"Host: x\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n", b"X: " + b"y" * 70_000 + b"\r\n",
                            b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"Content-Length: 99999999999\r\n",
                            b"Content-Length: -5\r\n", b"Content-Length: 10\r\n", b"broken header\r\n", b"\x00: \x00\r\n"])
    body = rng.choice([b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"ffffffff\r\n" + b"x" * 5000, b"zz\r\n", rng.randbytes(300)])
    return head + b"\r\n" + body


def test_http(node):
    rng = random.Random(SEED)
    before = node.rss()
    for _ in range(ROUNDS):
        data = b"".join(some_request(rng) for _ in range(rng.randint(1, 3)))
        attack(lambda: socket.create_connection(("127.0.0.1", node.http_port)), rng, data)
    still_serves(node)
    assert node.rss() - before < CEILING_BYTES


def test_declared_but_never_sent_bodies_cost_no_memory(node):
    before = node.rss()
    clients = []
    for n in range(300):
        client = node.connect()
        client.send([b"PUB t\n" + struct.pack(">I", 1 << 20) + b"x", b"MPUB t\n" + struct.pack(">II", 5 << 20, 1_000_000),
                     b"IDENTIFY\n" + struct.pack(">I", 5 << 20) + b"{"][n % 3])
        clients.append(client)
    node.connect().pub("u", b"x")
    assert node.rss() - before < 30_000_000
    for client in clients:
        client.close()


def still_serves(node) -> None:
    """Checks that a well-behaved client gets its message, and nothing remains of the others."""
    consumer: Client = node.connect().sub("served", "c", 1)
    node.connect().pub("served", b"x")
    assert consumer.message().body == b"x"
    assert node.http("GET", "/ping") == (200, b"OK")
    wait_until(lambda: len([f for f in node.descriptors() if f.startswith("socket:")]) < 20, "connections are gone")
