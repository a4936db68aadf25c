"""GET /topic/read with bodies that are sent piece by piece: slow clients, TLS, full speed, damage, deletion."""

import json
import random
import select
import socket
import ssl
import threading
import time

import pytest

from tests.httpd.reading import FRAMES, LARGEST, LINES, bodies, frame_bytes, offsets, publish, read, records
from tests.httpd.wire import Wire, request
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import self_signed

BODY = 1000
COUNT = 20_000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A daemon, and a topic of 20 MB in one segment."""
    from tests.httpd.conftest import HttpDaemon

    folder = tmp_path_factory.mktemp("large")
    self_signed(folder, "server", "localhost")
    daemon = HttpDaemon(folder / "data", "--topic-storage=log", "--log-retain-time=1h", "--max-body-size=30000000",
                        f"--tls-cert={folder}/server.pem", f"--tls-key={folder}/server.key")
    maker = random.Random(7)
    publish(daemon, "large", [b"%08d" % number + maker.randbytes(BODY - 8) for number in range(COUNT)])
    yield daemon
    assert daemon.stop() == 0


@pytest.fixture
def content(large):
    """The file's content."""
    segment = (large.data_path / "large.log" / f"{0:020d}.log").read_bytes()
    return segment[4096:]


def tls_wire(daemon):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    port = int(daemon.wait_for(r"HTTPS: listening on \S+:(\d+)")[1])
    return Wire(context.wrap_socket(socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)))


def whole_frames(content, size):
    """The frames that an answer of this size has."""
    at = 0
    while (end := at + frame_bytes(content, at)) <= size:
        at = end
    return content[:at]


def test_large_bodies(large, content):
    for size in (65536, 65536 + 30, 1_000_000, 5_000_000, LARGEST):
        reply = read(large, "large", f"&max_bytes={size}")
        assert len(content) == len(reply.body) or size - 70_000 < len(reply.body) <= max(size, 70_000)
        assert reply.body == content[:len(reply.body)]
        assert len(records(reply)) == offsets(reply)[2]


@pytest.mark.parametrize("buffer, size", [(1, 300_000), (20_000, 5_000_000)])
def test_a_client_that_reads_slowly(large, content, buffer, size):
    content = whole_frames(content, size)
    with large.wire(receive_buffer=buffer) as wire:
        wire.request("GET", f"/topic/read?topic=large&max_bytes={size}", headers=FRAMES)
        head = b""
        while b"\r\n\r\n" not in head:
            head += wire.sock.recv(64)
            time.sleep(0.05)    # the daemon fills the socket meanwhile
        wire.buffer = head
        assert wire.reply().body == content
        # The connection stays usable.
        wire.request("GET", "/ping")
        assert wire.reply().body == b"OK"


def test_over_tls(large, content):
    with tls_wire(large) as wire:
        for _ in range(2):
            wire.request("GET", f"/topic/read?topic=large&max_bytes={LARGEST}", headers=FRAMES)
            time.sleep(0.1)
            assert wire.reply().body == content


def test_lines(large, content):
    for wire in (large.wire(), tls_wire(large)):
        with wire:
            wire.request("GET", f"/topic/read?topic=large&offset=3&max_messages=5000&max_bytes={LARGEST}", headers=LINES)
            time.sleep(0.1)
            reply = wire.reply()
            assert offsets(reply) == (3, 5003, 5000)
            lines = reply.body.splitlines()
            assert len(lines) == 5000
            assert [json.loads(line)["offset"] for line in lines] == list(range(3, 5003))


def test_a_unix_socket(start):
    daemon = start("--topic-storage=log", "--log-retain-time=1h", "--max-body-size=30000000", unix=True)
    with daemon.wire() as wire:
        wire.request("POST", "/mpub?topic=large", b"\n".join([b"x" * BODY] * 5000))
        assert wire.reply().body == b"OK"
        wire.request("GET", f"/topic/read?topic=large&max_bytes={LARGEST}", headers=FRAMES)
        assert bodies(wire.reply()) == [b"x" * BODY] * 5000


def test_pipelined_requests_are_answered_in_order(large, content):
    paths = ["/ping", "/topic/read?topic=large&max_bytes=3000000", "/topic/read?topic=large&offset=5&max_messages=1",
             "/topic/read?topic=large&max_bytes=2000000", "/ping"]
    with large.wire() as wire:
        wire.send(b"".join(request("GET", path, headers=FRAMES) for path in paths))
        replies = [wire.reply() for _ in paths]
    assert [replies[0].body, replies[4].body] == [b"OK", b"OK"]
    assert offsets(replies[2]) == (5, 6, 1)
    for reply in replies[1:4:2]:
        assert len(reply.body) > 1_900_000
        assert reply.body == content[:len(reply.body)]


def test_the_end_of_a_connection_behind_a_large_body(large, content):
    with large.wire() as wire:
        wire.request("GET", f"/topic/read?topic=large&max_bytes={LARGEST}", headers=FRAMES + "Connection: close\r\n")
        reply = wire.reply()
        assert reply.headers["connection"] == "close"
        assert reply.body == content
        assert wire.is_closed()
    with large.wire() as wire:
        wire.send(f"GET /topic/read?topic=large&max_bytes={LARGEST} HTTP/1.0\r\n{FRAMES}\r\n".encode())
        wire.sock.shutdown(socket.SHUT_WR)
        # The client may be gone, so the daemon stops looking for further parts.
        reply = wire.reply()
        assert len(reply.body) > 4_000_000 and content.startswith(reply.body)
        assert len(records(reply)) == offsets(reply)[2]
        assert wire.is_closed()


def test_long_reads_let_short_ones_pass(large, content):
    greedy = [large.wire() for _ in range(20)]
    for wire in greedy:
        wire.request("GET", f"/topic/read?topic=large&max_bytes={LARGEST}", headers=FRAMES)
    # All have begun once a short one is answered, because it is queued after them.
    assert read(large, "large", "&max_messages=1").status == 200
    answered = select.select([wire.sock for wire in greedy], [], [], 0)[0]
    assert len(answered) < 10
    for wire in greedy:
        reply = wire.reply()
        assert offsets(reply) == (0, COUNT, COUNT) and reply.body == content
        wire.sock.close()


def test_clients_that_read_nothing_cost_neither_threads_nor_memory(large, content):
    """Slow: the daemon closes unread connections after 5 s."""
    before = large.rss()
    idle = [large.wire(receive_buffer=1) for _ in range(300)]
    try:
        for wire in idle:
            wire.request("GET", f"/topic/read?topic=large&max_bytes={LARGEST}", headers=FRAMES)
        # All of them have their first bytes, and the sockets are full.
        for wire in idle:
            assert wire.sock.recv(8) == b"HTTP/1.1"
        for _ in range(3):
            assert read(large, "large", f"&max_bytes={LARGEST}").body == content
        assert large.rss() - before < 300 * 100_000
        assert not [path for path in large.descriptors() if path.endswith("0.log")][2:]
    finally:
        for wire in idle:
            wire.sock.close()
    connections = "http_connections"
    wait_until(lambda: int(dict(line.rsplit(" ", 1) for line in large.call("GET", "/debug/pprof/heap").body.decode()
                                .splitlines())[connections]) == 1, "the end of the connections")


def test_a_stop_does_not_wait_for_clients_that_read_nothing(start):
    daemon = start("--topic-storage=log", "--log-retain-time=1h", "--max-body-size=30000000")
    publish(daemon, "large", [b"x" * BODY] * COUNT)
    idle = [daemon.wire(receive_buffer=1) for _ in range(10)]
    for wire in idle:
        wire.request("GET", f"/topic/read?topic=large&max_bytes={LARGEST}", headers=LINES if wire in idle[:5] else FRAMES)
        assert wire.sock.recv(8) == b"HTTP/1.1"
    assert daemon.stop() == 0
    for wire in idle:
        wire.sock.close()


def test_clients_that_leave_in_the_middle(large):
    for number in range(50):
        with large.wire() as wire:
            wire.request("GET", f"/topic/read?topic=large&max_bytes={LARGEST}",
                         headers=LINES if number % 2 else FRAMES)
            wire.sock.recv(1000)
    assert read(large, "large", "&max_messages=1").status == 200
    assert "cannot send" not in large.log


@pytest.mark.parametrize("lines", [False, True])
def test_reading_while_publishing_at_full_speed(start, lines):
    daemon = start("--topic-storage=log", "--log-retain-time=1h", "--max-bytes-per-file=2000000")
    daemon.call("POST", "/topic/create?topic=busy")
    rounds, size = 200, 100
    failures = []

    def produce(first):
        client = daemon.connect()
        try:
            for number in range(first, rounds, 2):
                client.pub("busy", *(b"%06d" % (number * size + each) + b"x" * 200 for each in range(size)))
        except AssertionError as error:
            failures.append(error)
        client.close()

    producers = [threading.Thread(target=produce, args=(first,)) for first in (0, 1)]
    for producer in producers:
        producer.start()
    seen = []
    following = 0
    with daemon.wire() as wire:
        while following < rounds * size:
            wire.request("GET", f"/topic/read?topic=busy&offset={following}&wait_ms=20000",
                         headers=LINES if lines else FRAMES)
            reply = wire.reply()
            first, after, count = offsets(reply)
            assert first == following and after > first
            part = ([json.loads(line)["body"].encode() for line in reply.body.splitlines()] if lines
                    else bodies(reply))
            assert len(part) == count
            seen += [int(body[:6]) for body in part]
            following = after
    for producer in producers:
        producer.join()
    assert not failures
    assert sorted(seen) == list(range(rounds * size))
    for first in (0, 1):
        own = [number for number in seen if number // size % 2 == first]
        assert own == sorted(own)


def test_damaged_records_are_left_out_and_counted(start):
    daemon = start("--topic-storage=log", "--log-retain-time=1h", "--max-bytes-per-file=50000")
    for at in range(0, 500, 10):
        publish(daemon, "hurt", [b"%03d" % number + b"x" * 500 for number in range(at, at + 10)])
    path = daemon.data_path / "hurt.log" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    # Frames of ten messages each: the first, third and fourth are damaged.
    for number in (0, 25, 31):
        data[data.index(b"%03dxxx" % number) + 100] ^= 4
    path.write_bytes(data)
    expected = [number for number in range(500) if number not in {*range(10), *range(20, 40)}]
    for headers in (FRAMES, LINES):
        seen, damaged, following = [], 0, 0
        while following < 500:
            reply = read(daemon, "hurt", f"&offset={following}", headers)
            part = records(reply) if headers == FRAMES else list(map(json.loads, reply.body.splitlines()))
            first, following, _ = offsets(reply)
            damaged += int(reply.headers["x-nsq-damaged"])
            seen += range(first, following)
            assert [int(one["body"][:3]) if headers == LINES else int(one.body[:3]) for one in part] == list(range(first, following))
        assert (seen, damaged) == (expected, 30)
    # A whole segment of nothing but damage.
    path.write_bytes(bytes(data[:4096]) + bytes(len(data) - 4096))
    end = int(sorted(path.parent.glob("*.log"))[1].stem)
    reply = read(daemon, "hurt")
    assert (reply.status, reply.body, offsets(reply), reply.headers["x-nsq-damaged"]) == (200, b"", (end, end, 0), str(end))


def received_or_end(sock):
    """The next bytes; empty at the end, however the connection ends."""
    try:
        return sock.recv(1 << 16)
    except ConnectionResetError:
        return b""


def test_a_topic_that_is_deleted_while_it_is_read(start):
    daemon = start("--topic-storage=log", "--log-retain-time=1h", "--max-body-size=30000000")
    publish(daemon, "gone", [b"x" * BODY] * COUNT)
    with daemon.wire(receive_buffer=1) as wire:
        wire.request("GET", f"/topic/read?topic=gone&max_bytes={LARGEST}", headers=FRAMES)
        assert wire.sock.recv(8) == b"HTTP/1.1"
        assert daemon.call("POST", "/topic/delete?topic=gone").status == 200
        assert read(daemon, "gone").status == 404
        # A new log of the same name has files of the same name.
        publish(daemon, "gone", [b"y" * BODY] * COUNT)
        received = 0
        # With the small window, draining the kernel's buffer would take minutes.
        wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        while data := received_or_end(wire.sock):
            assert b"yy" not in data
            received += len(data)
        assert received < COUNT * BODY
    wait_until(lambda: "cannot send the rest of an answer" in daemon.log)
    assert bodies(read(daemon, "gone", "&max_messages=1")) == [b"y" * BODY]
