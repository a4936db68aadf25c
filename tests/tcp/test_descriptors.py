"""At the limit of open files: connected clients are served, new ones wait, none is closed without an error."""

import contextlib
import re
import resource
import socket

import pytest

from tests.support.daemon import Client, wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import client_context

LIMIT = 64
STOPS, GOES_ON = "accepting stops at", "accepting resumes"


def limit_open_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))


@pytest.fixture
def sockets():
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def full(daemon, sockets):
    """full(*flags): a daemon without room for further clients, and its clients."""
    def start(*flags, **more):
        node = daemon(*flags, preexec=limit_open_files, **more)
        room = wait_until(lambda: re.search(f"the limit of {LIMIT} open files allows (\\d+) connections", node.log))
        assert LIMIT // 4 < int(room[1]) < LIMIT
        clients = []
        for number in range(int(room[1])):
            clients.append(sockets.enter_context(contextlib.closing(node.connect())))
            clients[-1].ok(f"PUB topic{number}", b"x")
        wait_until(lambda: STOPS in node.log)
        return node, clients

    return start


def newcomer(sockets, port: int, data: bytes) -> socket.socket:
    """A client that sends data and expects an answer eventually."""
    sock = sockets.enter_context(socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS))
    sock.sendall(data)
    return sock


def test_newcomers_wait_and_those_inside_are_served(full, sockets):
    node, clients = full("--mem-queue-size=0")
    publish = b"  V2PUB late\n\x00\x00\x00\x01x"
    waiting = [newcomer(sockets, node.tcp_port, publish) for _ in range(30)]
    web = newcomer(sockets, node.http_port, b"GET /ping HTTP/1.0\r\n\r\n")
    # New topics need files, more than there are descriptors.
    for number in range(100):
        clients[number % len(clients)].ok(f"PUB new{number}", b"x")
    for number, client in enumerate(clients):
        assert client.sub(f"new{number}", "c", 1).message().body == b"x"
    for sock in (*waiting, web):
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(1)
        sock.settimeout(WAIT_SECONDS)
    assert len(node.descriptors()) <= LIMIT
    for client in clients:
        client.close()
    for sock in waiting:
        assert sock.recv(100)[8:] == b"OK"
        sock.close()
    assert b"200 OK" in web.recv(1000)
    wait_until(lambda: GOES_ON in node.log)
    assert node.stats("late")["message_count"] == 30
    assert node.log.count(STOPS) == node.log.count(GOES_ON) == 1
    assert "Too many open files" not in node.log
    assert node.stop() == 0


def test_one_leaves_and_one_comes(full, sockets):
    node, clients = full()
    waiting = [newcomer(sockets, node.tcp_port, b"  V2PUB late\n\x00\x00\x00\x01x") for _ in range(10)]
    for sock in waiting:
        clients.pop().close()
        assert sock.recv(100)[8:] == b"OK"
    clients.pop().ok("PUB t", b"x")
    # Accepting has stopped and resumed all the time, which is not logged each time.
    assert node.log.count(STOPS) <= 2


def test_over_unix_sockets(full, sockets):
    node, clients = full(unix=True)
    late = sockets.enter_context(contextlib.closing(node.connect()))
    late.command("PUB late", b"x")
    assert late.quiet(0.5)
    clients.pop().ok("PUB t", b"x")
    assert (node.data_path / "tcp.sock").exists()
    clients.pop().close()
    assert late.frame() == (0, b"OK")
    assert (node.data_path / "tcp.sock").exists()
    assert node.stop() == 0
    assert not (node.data_path / "tcp.sock").exists()


def test_https_waits_as_well(full, sockets, certs):
    node, clients = full(f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key")
    port = int(re.search(r"HTTPS: listening on \S+:(\d+)", node.log)[1])
    sock = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS)
    secure = client_context().wrap_socket(sock, do_handshake_on_connect=False)
    sockets.enter_context(contextlib.closing(secure))
    secure.settimeout(0.5)
    with pytest.raises(TimeoutError):
        secure.do_handshake()
    for _ in range(4):
        clients.pop().close()
    secure.settimeout(WAIT_SECONDS)
    secure.do_handshake()
    secure.sendall(b"GET /ping HTTP/1.0\r\n\r\n")
    assert b"200 OK" in secure.recv(1000)


def test_a_stop_while_clients_wait(full, sockets):
    node, _ = full()
    late = Client(newcomer(sockets, node.tcp_port, b"  V2PUB t\n\x00\x00\x00\x01x"))
    assert late.quiet(0.2)
    assert node.stop() == 0
    assert late.frame() is None


def test_the_soft_limit_is_raised_to_the_hard_one(daemon):
    node = daemon(preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 500)))
    assert resource.prlimit(node.pid, resource.RLIMIT_NOFILE) == (500, 500)


def test_a_limit_that_changes_while_it_runs(daemon, sockets):
    node = daemon()
    client = sockets.enter_context(contextlib.closing(node.connect()))
    client.ok("PUB t", b"x")
    limits = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (len(node.descriptors()), limits[1]))
    wait_until(lambda: STOPS in node.log)
    late = Client(newcomer(sockets, node.tcp_port, b"  V2PUB t\n\x00\x00\x00\x01x"))
    assert late.quiet(0.5)
    client.ok("PUB t", b"x")
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, limits)
    assert late.frame() == (0, b"OK")
    wait_until(lambda: GOES_ON in node.log)


@pytest.mark.parametrize("most", [24, 32])
def test_very_low_limits(daemon, sockets, most):
    """Clients within the limit are served, even if that is one."""
    node = daemon(preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
    client = sockets.enter_context(contextlib.closing(node.connect()))
    for number in range(50):
        client.ok(f"PUB t{number}", b"x")
    assert node.stop() == 0


@pytest.mark.parametrize("port", ["tcp_port", "http_port"])
def test_silent_clients_are_probed(daemon, port):
    """As by Go's listeners."""
    node = daemon()
    with socket.create_connection(("127.0.0.1", getattr(node, port))) as sock:
        mine = sock.getsockname()[1]
        wait_until(lambda: "02:" in keepalive_timer(getattr(node, port), mine), "a keepalive timer")


def keepalive_timer(local: int, remote: int) -> str:
    """The timer column of /proc/net/tcp for that connection; 02 is keepalive."""
    for name in ("tcp", "tcp6"):
        with open(f"/proc/net/{name}") as table:
            for line in table:
                columns = line.split()
                if columns[1].endswith(f":{local:04X}") and columns[2].endswith(f":{remote:04X}"):
                    return columns[5]
    return ""


def test_logs_have_more_files_than_there_are_descriptors(daemon):
    """Segments, indexes and journals: logs keep only a small part of the limit open."""
    node = daemon("--topic-storage=log", preexec=limit_open_files)
    client = node.connect()
    for _ in range(2):
        for number in range(60):
            client.ok(f"PUB topic{number}", b"x")
    for number in range(60):
        consumer = node.connect().sub(f"topic{number}", "c", 1)
        consumer.messages(2, finish=True)
        consumer.close()
    newcomers = [node.connect() for _ in range(10)]
    for number, newcomer in enumerate(newcomers):
        newcomer.ok(f"PUB topic{number}", b"x")
    assert "Too many open files" not in node.log
