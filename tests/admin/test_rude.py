"""Rude clients of the admin server and of /ui, and nodes that answer slowly, endlessly or with garbage."""

import http.client
import json
import socket
import threading
from contextlib import suppress

import pytest

from tests.admin.conftest import API, address, seen
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS


def rss(pid: int) -> int:
    """Resident memory, bytes."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


class Server:
    """An admin server, or /ui of a daemon, as a target of rude clients."""

    def __init__(self, port, pid, prefix):
        self.port, self.pid, self.prefix = port, pid, prefix
        self._kept = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), WAIT_SECONDS)

    def ping(self) -> None:
        """One call on a kept connection."""
        self._kept.request("GET", "/ping")
        answer = self._kept.getresponse()
        assert (answer.status, answer.read()) == (200, b"OK")

    def ask(self, *lines: bytes, body: bytes = b"") -> int:
        """The status of a request on its own connection; 0: closed without an answer."""
        with self.connect() as sock:
            try:
                sock.sendall(b"\r\n".join([*lines, b"", b""]) + body)
                data = sock.recv(4096)
            except ConnectionError:
                return 0
            return int(data.split()[1]) if data else 0


@pytest.fixture(params=["admin", "ui"])
def server(request, cluster):
    node = cluster.node()
    for number in range(300):
        node.post(f"/topic/create?topic=topic-{number:03}")
    if request.param == "ui":
        server = Server(node.http_port, node.pid, "/ui")
        wait_until(lambda: node.http("GET", f"/ui{API}/topics")[0] == 200)
        return server
    cluster.registered("topic-299", node)
    admin = cluster.admin()
    seen(admin, "/topics", lambda data: data["total"] == 300)
    return Server(admin.port, admin.process.pid, "")


def test_floods(server):
    """Idle connections, slow readers, pipelines and half requests: others are answered, and memory is bounded."""
    server.ping()
    before = rss(server.pid)
    path = f"{server.prefix}{API}/topics?limit=500".encode()
    one = b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    socks = [server.connect() for _ in range(300)]
    try:
        for sock in socks[:100]:
            sock.sendall(one[:20])              # half a request
        for sock in socks[100:130]:
            sock.setblocking(False)
            with suppress(BlockingIOError):
                sock.sendall(one * 40)      # whose answers are never read
            server.ping()
        for sock in socks[130:135]:
            sock.sendall(one * 20)
            server.ping()
            reader = sock.makefile("rb")
            for _ in range(20):
                assert reader.readline().startswith(b"HTTP/1.1 200")
                lengths = [int(line.split(b":")[1]) for line in iter(reader.readline, b"\r\n")
                           if line.lower().startswith(b"content-length")]
                assert len(json.loads(reader.read(lengths[0]))["topics"]) == 300
        server.ping()
        assert rss(server.pid) - before < 64 * 1024 * 1024
    finally:
        for sock in socks:
            sock.close()
    server.ping()


def test_requests_that_are_too_large(server):
    path = f"{server.prefix}{API}/actions".encode()
    get, post = b"GET " + path + b" HTTP/1.1", b"POST " + path + b" HTTP/1.1"
    assert server.ask(get, b"Host: localhost", b"X: " + b"x" * 200_000) in (0, 400, 431)
    assert server.ask(get, b"Host: localhost", *[b"X: y"] * 20_000) in (0, 400, 431)
    assert server.ask(b"GET /" + b"x" * 200_000 + b" HTTP/1.1", b"Host: localhost") in (0, 400, 414, 431)
    for more in ((b"Content-Length: 100000000000",), (b"Content-Length: 2000000",), (b"Transfer-Encoding: chunked",)):
        chunk = b"1e8480\r\n" + b"x" * 2_000_000 if b"chunked" in more[0] else b"x" * 2_000_000
        assert server.ask(post, b"Host: localhost", *more, body=chunk) in (0, 400, 413)
    deep = b'{"rules":' + b"[" * 500_000
    assert server.ask(post, b"Host: localhost", b"Content-Length: %d" % len(deep), body=deep) == 400
    for body in (b"", b"null", b"[]", b"7", b'{"action":null}', b'{"action":"pause","topic":7}', b'{"nodes":"x"}', b"\xff\xfe"):
        assert server.ask(post, b"Host: localhost", b"Content-Length: %d" % len(body), body=body) == 400
    server.ping()


FOREIGN_HOSTS = ("evil.example", "evil.example:4171", "localhost.evil.example", "127.0.0.1.evil.example", "2130706433", "127.1", "0x7f.1",
                 "[::1].evil.example", "localhost@evil.example", "evil.example#localhost", "xn--lcalhost-n4a", "")
FOREIGN_ORIGINS = (b"http://evil.example", b"null", b"http://localhost.evil.example", b"https://localhost:1", b"file://",
                   b"http://localhost:1@evil.example", b"garbage")
PAUSE = b'{"action":"pause","topic":"topic-001"}'


def test_dns_rebinding(server):
    """A page's own name resolves to this server: its script must learn nothing, whatever headers it sends."""
    for host in FOREIGN_HOSTS:
        origin = b"Origin: http://" + host.encode()
        for lines in ((), (origin,), (b"Sec-Fetch-Site: same-origin", origin)):
            for path in ("/topics", "/session", "/overview", "/nodes"):
                status = server.ask(f"GET {server.prefix}{API}{path} HTTP/1.1".encode(), b"Host: " + host.encode(), *lines)
                assert status in (400, 403) or (not host and not lines), (host, lines, path, status)
            status = server.ask(f"POST {server.prefix}{API}/actions HTTP/1.1".encode(), b"Host: " + host.encode(), *lines,
                                b"Content-Length: %d" % len(PAUSE), body=PAUSE)
            assert status in (400, 403) or (not host and not lines), (host, lines, status)


def test_foreign_origins(server):
    for path in (f"{server.prefix}{API}/actions", f"{server.prefix}{API}/publish", *([] if server.prefix else ["/api/topics/topic-001"])):
        for origin in FOREIGN_ORIGINS:
            status = server.ask(f"POST {path} HTTP/1.1".encode(), b"Host: localhost:%d" % server.port, b"Origin: " + origin,
                                b"Content-Type: text/plain", b"Content-Length: %d" % len(PAUSE), body=PAUSE)
            assert status == 403, (path, origin)


# ---------------------------------------------------------------------- nodes

OK = b"HTTP/1.1 200 OK\r\n"
INFO = json.dumps({"version": "1.3.0", "broadcast_address": "127.0.0.1", "hostname": "h", "http_port": 1, "tcp_port": 2, "start_time": 1}).encode()


def sized(body: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


def stats(**topic) -> bytes:
    return sized(json.dumps({"version": "1.3.0", "health": "OK", "start_time": 1, "topics": [{"topic_name": "t", **topic}]}).encode())


# The answer to /stats, and whether it is valid.
GARBAGE = {
    "nothing": (b"", False), "no HTTP": (b"SSH-2.0-OpenSSH\r\n", False), "half a head": (OK + b"Content-", False),
    "a short body": (OK + b"Content-Length: 100\r\n\r\n{", False), "no JSON": (sized(b"<html>"), False), "nested": (sized(b"[" * 1_000_000), False),
    "nested topics": (sized(b'{"topics":' + b"[" * 1_000_000), False), "not UTF-8": (sized(b'{"health":"\xff"}'), False),
    "other types": (sized(b'{"topics":7}'), False), "two lengths": (OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", False),
    "a topic of other types": (stats(depth="x", channels=7), True), "large numbers": (stats(depth=10**30), True),
    "negative numbers": (stats(depth=-5, message_count=-(2**62)), True), "other rules": (
        stats(channels=[{"channel_name": "c", "rules": {"max_attempts": {}, "dead_letter": []}, "depth": 1}]), True),
    "hostile names": (stats(topic_name="../../<img>\x00\u202e", channels=[{"channel_name": "a/b"}]), True),
    "percentiles": (stats(e2e_processing_latency={"count": 1, "percentiles": [{"quantile": 0.99}, {}]}), True),
    "endless heads": (OK + b"X: y\r\n" * 500_000, False),
}


class Node:
    """An nsqd with a given answer to /stats, and garbage for /metrics."""

    def __init__(self, answer):
        self.answer, self.asked = answer, 0
        self._sock = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.address = f"127.0.0.1:{self._sock.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock):
        with sock:
            try:
                while head := sock.recv(65536):
                    if head.startswith(b"GET /info"):
                        sock.sendall(sized(INFO))
                    elif head.startswith(b"GET /stats"):
                        self.asked += 1
                        if callable(self.answer):
                            self.answer(sock)
                        else:
                            sock.sendall(self.answer)
                        if not self.answer or not (callable(self.answer) or b"Content-Length" in self.answer):
                            return
                    else:
                        sock.sendall(sized(b"nsqc_build_info{version=\"\x00\"} 1\nnsqc_disk_free_bytes 1e999\nnsqc_draining -\n"
                                           b'nsqc_processing_latency_seconds_bucket{le="x"} 1\n'))
            except OSError:
                pass

    def close(self):
        self._sock.close()


@pytest.fixture
def fake():
    nodes = []

    def start(answer):
        nodes.append(Node(answer))
        return nodes[-1]

    yield start
    for node in nodes:
        node.close()


def beside(cluster, node, *flags):
    """An admin server with a healthy node and another."""
    sound = cluster.node()
    sound.post("/topic/create?topic=sound")
    return cluster.admin("--http-client-request-timeout=2s", f"--nsqd-http-address={node.address}", *flags,
                         source=f"--nsqd-http-address={address(sound)}")


@pytest.mark.parametrize("name", GARBAGE)
def test_a_node_that_answers_garbage(cluster, fake, name):
    """The bad node is shown as missing or with its error; the healthy one is unaffected."""
    answer, is_one = GARBAGE[name]
    node = fake(answer)
    admin = beside(cluster, node)
    rows = seen(admin, "/nodes", lambda data: len(data["nodes"]) == 2)["nodes"]
    row = next(row for row in rows if row["address"] == node.address)
    assert bool(row["error"]) is not is_one, row
    overview = seen(admin, "/overview", lambda data: True)
    assert overview["totals"]["answering"] == 1 + is_one
    assert "sound" in [topic["name"] for topic in admin.get(f"{API}/topics")["topics"]]
    wait_until(lambda: node.asked > 2)
    for path in ("/topics/t", "/topics/t/c", f"/nodes/{node.address}", "/attention", "/search?q=t", "/topics?sort=oldest"):
        assert admin.call("GET", API + path).status in (200, 404)
    assert admin.call("GET", "/ping").status == 200


def test_a_node_that_never_ends(cluster, fake):
    """Neither size nor pace of its answer exceeds the limits."""
    ended = threading.Event()

    def endless(sock):
        sock.sendall(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
        try:
            while not ended.is_set():
                sock.sendall(piece)
        finally:
            ended.set()

    def drips(sock):
        sock.sendall(OK + b"Content-Length: 1000000\r\n\r\n")
        for _ in range(1000):
            sock.sendall(b" ")
            ended.wait(0.05)

    for answer in (endless, drips):
        ended.clear()
        node = fake(answer)
        admin = beside(cluster, node)
        overview = seen(admin, "/overview", lambda data: data["totals"]["answering"] == 1 and data["attention"])
        assert [each["rule"] for each in overview["attention"]] == ["node-missing"]
        assert rss(admin.process.pid) < 400 * 1024 * 1024
        # Other calls reject a long answer sooner.
        for path in (f"/nodes/{node.address}", "/topics/sound"):
            assert admin.call("GET", API + path).status == 200
        admin.close()


def test_a_node_that_dies_while_it_answers(cluster, fake):
    """In the middle of a change: the result is "unknown"."""
    def dies(sock):
        sock.sendall(stats())

    node = fake(dies)
    admin = beside(cluster, node)
    seen(admin, "/nodes", lambda data: len(data["nodes"]) == 2)
    original = node._serve

    def cut(sock):
        head = sock.recv(65536, socket.MSG_PEEK)
        if head.startswith(b"POST"):
            sock.sendall(OK + b"Content-Length: 10\r\n\r\n{")
            sock.close()
        else:
            original(sock)

    node._serve = cut
    results = {each["target"]: each for each in admin.call("POST", f"{API}/actions", {"action": "pause", "topic": "sound", "nodes": []}).json["results"]}
    assert all(each["ok"] for target, each in results.items() if target != node.address)
    results = admin.call("POST", f"{API}/actions", {"action": "pause", "topic": "t", "nodes": [node.address]}).json["results"]
    assert not results[0]["ok"] and "may or may not have been carried out" in results[0]["message"]
