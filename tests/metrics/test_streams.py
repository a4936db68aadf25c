"""Long pages: sent in pieces, to clients that read slowly, disconnect, or use an older HTTP; with topics deleted
meanwhile."""

import contextlib
import http.client
import re
import socket

import pytest

from tests.metrics import pages
from tests.metrics.pages import OPEN_METRICS, TEXT
from tests.support.daemon import Daemon, wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import client_context

TOPICS = 150
CHANNELS = 50       # of each: a page of megabytes, more than sockets hold


def make(node: Daemon) -> Daemon:
    """With many channels."""
    connection = http.client.HTTPConnection("127.0.0.1", node.http_port)
    for topic in range(TOPICS):
        for path in [f"/topic/create?topic=t{topic}", *(f"/channel/create?topic=t{topic}&channel={'c' * 40}{channel}"
                                                        for channel in range(CHANNELS))]:
            connection.request("POST", path)
            assert connection.getresponse().read() == b""
    return node


@pytest.fixture(scope="module")
def large(tmp_path_factory, certs):
    """One daemon for all of these."""
    node = make(Daemon(tmp_path_factory.mktemp("large") / "data", f"--tls-cert={certs}/server.pem",
                       f"--tls-key={certs}/server.key", "--max-create-rate=0"))
    yield node
    with ask(node, receive=4096) as sock:       # a stop does not wait for it
        assert sock.recv(10)
        assert node.stop() == 0
    errors = [line for line in node.log.splitlines() if " ERROR: " in line and "the client reads nothing" not in line]
    assert errors == []


def ask(node: Daemon, version: str = "1.1", more: str = "", receive: int = 0) -> socket.socket:
    """A request, whose answer is left unread."""
    sock = socket.socket()
    if receive:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    sock.settimeout(WAIT_SECONDS)
    sock.connect(("127.0.0.1", node.http_port))
    sock.sendall(f"GET /metrics HTTP/{version}\r\nHost: localhost\r\n{more}\r\n".encode())
    return sock


def complete(text: str) -> None:
    """All channels occur, each once. The official parser needs seconds for a page this long, so it reads one of
    them."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    names = [line.rpartition(" ")[0] for line in lines]
    assert len(set(names)) == len(names)
    assert sum(name.startswith("nsqc_channel_depth{") for name in names) == TOPICS * CHANNELS
    assert f"nsqc_channels {TOPICS * CHANNELS}" in lines


@pytest.mark.parametrize("accept", [TEXT, OPEN_METRICS])
def test_a_long_page_comes_in_chunks_and_is_complete(large, accept):
    connection = http.client.HTTPConnection("127.0.0.1", large.http_port)
    for again in (False, True):     # over one connection
        connection.request("GET", "/metrics", headers={"Accept": accept})
        answer = connection.getresponse()
        assert answer.headers["Transfer-Encoding"] == "chunked" and "Content-Length" not in answer.headers
        text = answer.read().decode()
        complete(text)
        assert text.endswith("# EOF\n") == (accept == OPEN_METRICS)
        if again and accept == OPEN_METRICS:
            assert pages.samples_of(pages.families(text, accept))


def test_over_tls(large):
    port = int(re.search(r"HTTPS: listening on \S+:(\d+)", large.log)[1])
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=client_context())
    connection.request("GET", "/metrics")
    complete(connection.getresponse().read().decode())


@pytest.mark.parametrize("more", ["", "Connection: keep-alive\r\n"])
def test_http_1_0_gets_it_up_to_the_end_of_the_connection(large, more):
    with ask(large, "1.0", more) as sock:
        data = b""
        while part := sock.recv(1 << 20):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head and b"Content-Length" not in head and b"keep-alive" not in head
    complete(body.decode())


def test_a_client_that_reads_nothing_holds_no_memory_and_nobody_up(large):
    large.http("GET", "/metrics")
    before = large.rss()
    idle = [ask(large, receive=4096) for _ in range(4)]
    for sock in idle:
        assert sock.recv(10) == b"HTTP/1.1 2"
    with ask(large) as fifth:       # each has the values of its own time
        assert fifth.recv(12) == b"HTTP/1.1 503"
    assert large.http("GET", "/ping") == (200, b"OK")
    assert large.rss() - before < 40_000_000
    for sock in idle:
        sock.close()
    wait_until(lambda: large.http("GET", "/metrics")[0] == 200)


def test_a_client_that_reads_slowly_gets_all_of_it_as_it_was(large):
    with ask(large, "1.0", receive=4096) as sock:
        data = sock.recv(100)
        connection = http.client.HTTPConnection("127.0.0.1", large.http_port)
        for topic in range(3):
            connection.request("POST", f"/topic/delete?topic=t{topic}")
            assert connection.getresponse().read() == b""
        while part := sock.recv(10_000):
            data += part
    complete(data.partition(b"\r\n\r\n")[2].decode())
    for topic in range(3):
        large.post(f"/topic/create?topic=t{topic}")
        for channel in range(CHANNELS):
            large.post(f"/channel/create?topic=t{topic}&channel={'c' * 40}{channel}")


def test_topics_that_come_and_go_while_they_are_counted(large):
    connection = http.client.HTTPConnection("127.0.0.1", large.http_port)
    waiting = [ask(large) for _ in range(3)]
    for number in range(50):
        for call in ("create", "delete"):
            connection.request("POST", f"/topic/{call}?topic=more{number % 5}")
            assert connection.getresponse().read() == b""
    for sock in waiting:
        answer = http.client.HTTPResponse(sock)
        answer.begin()
        complete(answer.read().decode())
        sock.close()


def test_many_clients_that_leave_in_the_middle(large):
    for number in range(30):
        with contextlib.suppress(OSError), ask(large, receive=4096) as sock:
            if number % 2:
                sock.recv(1000)
            if number % 3 == 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    wait_until(lambda: large.http("GET", "/metrics")[0] == 200)
    complete(wait_until(lambda: large.http("GET", "/metrics"))[1].decode())


@pytest.mark.long
def test_a_client_that_takes_nothing_is_not_waited_for(large):
    idle = [ask(large, receive=4096) for _ in range(4)]
    assert all(sock.recv(1) for sock in idle)
    wait_until(lambda: large.http("GET", "/metrics")[0] == 200)
    for sock in idle:
        sock.close()
