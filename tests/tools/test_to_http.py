"""nsqc to-http: its requests, and its behaviour when servers fail."""

import signal
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.daemon import wait_until


class Server:
    """Keeps the requests. statuses: of the next answers; then 200."""

    def __init__(self):
        self.requests, self.statuses = [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"] or 0))
                outer.requests.append((self.path, self.headers, body))
                status = outer.statuses.pop(0) if outer.statuses else 200
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            do_GET = do_POST

            def log_message(self, *_):
                pass

        class Listener(ThreadingHTTPServer):
            request_queue_size = 200
            daemon_threads = True

        self.server = Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def bodies(self):
        return [body for _, _, body in self.requests]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server():
    found = Server()
    yield found
    found.close()


@pytest.fixture
def other():
    found = Server()
    yield found
    found.close()


def test_posts(tools, server):
    topic = tools.topic("nsq_to_http")
    bodies = [b"%d\n\xff" % number for number in range(200)]
    tools.publish(topic, *bodies)
    running = tools.start("to-http", "--topic", topic, "--post", f"{server.url}/in?x=1", "--header", "X-Key: a: b", "--content-type",
                          "text/x-thing")
    tools.drained(topic, "nsq_to_http")
    assert running.stop(signal.SIGTERM) == 0
    assert running.err == ""
    assert sorted(server.bodies) == sorted(bodies)
    path, headers, _ = server.requests[0]
    assert (path, headers["X-Key"], headers["Content-Type"]) == ("/in?x=1", "a: b", "text/x-thing")
    assert headers["User-Agent"].startswith("nsqc-to-http/")


def test_gets_escape_the_message(tools, server):
    topic = tools.topic("nsq_to_http")
    tools.publish(topic, "a b&c=%/é~*\r\nHost: evil".encode())
    running = tools.start("to-http", "--topic", topic, "--get", f"{server.url}/a%20b?d=%s&e")
    tools.drained(topic, "nsq_to_http")
    assert running.stop() == 130
    assert server.requests[0][0] == "/a%20b?d=a+b%26c%3D%25%2F%C3%A9~%2A%0D%0AHost%3A+evil&e"


@pytest.mark.parametrize("status, text", [(500, "status 500"), (302, "status 302")])
def test_what_fails_comes_again_until_it_succeeds(tools, server, status, text):
    topic = tools.topic("nsq_to_http")
    server.statuses = [status] * 2
    tools.publish(topic, b"one")
    running = tools.start("to-http", "--topic", topic, "--post", server.url, "--requeue-delay", "1ms")
    tools.drained(topic, "nsq_to_http")
    assert running.stop(signal.SIGTERM) == 0
    assert server.bodies == [b"one"] * 3
    assert running.err == f"nsqc to-http: {server.url}: {text}; the message will be retried\n"


def test_a_server_that_fails_is_paused_and_found_again(tools, server):
    topic = tools.topic("nsq_to_http")
    server.statuses = [503] * 4
    bodies = [b"%d" % number for number in range(20)]
    tools.publish(topic, *bodies)
    running = tools.start("to-http", "--topic", topic, "--post", server.url, "--requeue-delay", "0s", "--at-once", "4")
    tools.drained(topic, "nsq_to_http")
    assert running.stop(signal.SIGTERM) == 0
    assert set(server.bodies) == set(bodies)
    assert len(server.bodies) == 24


def test_a_server_that_hangs_or_talks_nonsense(tools, server):
    topic = tools.topic("nsq_to_http")
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as rude:
        def answer():
            while True:
                try:
                    client, _ = rude.accept()
                except OSError:
                    return
                client.recv(1000)
                client.sendall(b"\0garbage\r\n\r\n")
                client.close()

        threading.Thread(target=answer, daemon=True).start()
        urls = [f"http://127.0.0.1:{listening.getsockname()[1]}/" for listening in (silent, rude)]
        bodies = [b"%d" % number for number in range(10)]
        tools.publish(topic, *bodies)
        running = tools.start("to-http", "--topic", topic, "--post", urls[0], "--post", urls[1], "--post", server.url,
                              "--request-timeout", "200ms", "--requeue-delay", "0s")
        tools.drained(topic, "nsq_to_http")
        assert running.stop(signal.SIGTERM) == 0
        assert f"{urls[0]}: no answer in time" in running.err
        assert f"{urls[1]}: not an HTTP answer" in running.err
        assert set(server.bodies) == set(bodies)
        rude.shutdown(socket.SHUT_RDWR)


def test_nobody_there_keeps_the_messages(tools):
    topic = tools.topic("nsq_to_http")
    tools.publish(topic, b"a", b"b")
    running = tools.start("to-http", "--topic", topic, "--post", "http://127.0.0.1:1/", "--requeue-delay", "0s")
    running.says("Connection refused; the message will be retried")
    assert running.stop() == 130
    assert sorted(tools.taken(topic, "nsq_to_http")) == [b"a", b"b"]


def test_all_samples_and_attempts(tools, server, other):
    topic = tools.topic("nsq_to_http")
    other.statuses = [500]
    tools.publish(topic, b"x")
    running = tools.start("to-http", "--topic", topic, "--mode", "all", "--post", server.url, "--post", other.url, "--requeue-delay", "0s")
    tools.drained(topic, "nsq_to_http")
    assert (running.stop(signal.SIGTERM), server.bodies, other.bodies) == (0, [b"x"] * 2, [b"x"] * 2)
    tools.publish(topic, b"y", b"z")
    running = tools.start("to-http", "--topic", topic, "--sample", "0", "--post", server.url)
    tools.drained(topic, "nsq_to_http")
    running.stop()
    assert len(server.bodies) == 2
    server.statuses = [500] * 10
    tools.publish(topic, b"never")
    running = tools.start("to-http", "--topic", topic, "--max-attempts", "2", "--post", server.url, "--requeue-delay", "0s")
    tools.drained(topic, "nsq_to_http")
    running.stop()
    assert server.bodies[2:] == [b"never"] * 2
    assert running.err.splitlines()[-1].endswith("dropped after 2 attempts")


@pytest.mark.parametrize("words, text", [
    ((), "give either --post or --get"), (("--get", "http://x/"), "needs one %s"), (("--post", "x"), "is not a URL"),
    (("--post", "http://x/", "--header", "a"), "not NAME: VALUE"), (("--post", "http://x/", "--header", "a: b\r\nc: d"), "not NAME: VALUE"),
    (("--post", "http://x/", "--sample", "1.5"), "--sample: 1.5 is not from 0 to 1"),
    (("--post", "http://x/", "--server-ca", "/nowhere"), "--server-ca: /nowhere: No such file")])
def test_what_cannot_begin(inside, tools, words, text):
    done = inside("to-http", "--topic", "x", *words, *tools.nodes)
    assert done.returncode == 2
    assert text in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_signal_waits_for_what_has_begun(tools):
    topic = tools.topic("nsq_to_http")
    tools.publish(topic, b"slow", b"next")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = tools.start("to-http", "--topic", topic, "--at-once", "1", "--post", f"http://127.0.0.1:{listening.getsockname()[1]}/")
        client, _ = listening.accept()
        assert b"POST / HTTP/1.1" in client.recv(1000)
        running.process.send_signal(signal.SIGINT)
        wait_until(lambda: tools.node.channel(topic, "nsq_to_http")["depth"] == 1)
        client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        client.close()
        assert running.wait() == 130
    assert tools.node.channel(topic, "nsq_to_http")["depth"] == 1
