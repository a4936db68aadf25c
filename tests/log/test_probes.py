"""Health checks that connect and send nothing leave no line above debug on any listener."""

import socket
import ssl
import struct

import pytest

from tests.support.daemon import wait_until
from tests.support.lookupd import LookupServer, Node
from tests.support.secure import make_certificates

COUNT = 20


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return make_certificates(tmp_path_factory.mktemp("certs"))


def silent(port: int) -> None:
    socket.create_connection(("127.0.0.1", port)).close()


def reset(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def tls(port: int) -> None:
    """A whole handshake, and nothing more."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port)) as sock, context.wrap_socket(sock):
        pass


def began(port: int) -> None:
    """Half a handshake."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01")


def texts(log: str) -> list[str]:
    """The lines since the server began to listen, without those of the test's own requests."""
    lines = [line.split(" ", 3)[-1] for line in log.splitlines()]
    last = max(at for at, line in enumerate(lines) if "listening on" in line or ("connections" in line and "limit of" in line))
    return [line for line in lines[last + 1:] if "/ping" not in line and "closing" not in line and "bye" not in line]


@pytest.mark.parametrize("level", ["info", "debug"])
def test_the_daemon(daemon, certs, level):
    node = daemon(f"--log-level={level}", f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key")
    https = int(next(line for line in node.log.splitlines() if "HTTPS: listening on" in line).rsplit(":", 1)[1])
    for probe, port in ((silent, node.tcp_port), (silent, node.http_port), (silent, https), (reset, node.tcp_port),
                        (reset, node.http_port), (reset, https), (tls, https), (began, https)):
        for _ in range(COUNT):
            probe(port)
    if level == "debug":
        wait_until(lambda: node.log.count("DEBUG: TCP: client(") == 2 * COUNT)
        wait_until(lambda: node.log.count("DEBUG: HTTP: client(") == 3 * COUNT)      # one of them is TLS
        wait_until(lambda: node.log.count("DEBUG: HTTPS: TLS handshake error") >= 2 * COUNT)
    assert node.http("GET", "/ping") == (200, b"OK")
    assert node.stop() == 0
    assert [line for line in texts(node.log) if "DEBUG" not in line] == []


@pytest.mark.parametrize("level", ["info", "debug"])
def test_the_lookup_server(tmp_path, level):
    server = LookupServer(tmp_path / "lookupd.log", f"--log-level={level}")
    try:
        for port in (server.tcp_port, server.http_port):
            for probe in (silent, reset):
                for _ in range(COUNT):
                    probe(port)
        if level == "debug":
            wait_until(lambda: server.log.count("disconnected without sending anything") == 4 * COUNT)
        assert server.stop() == 0
    finally:
        server.close()
    assert [line for line in texts(server.log) if "DEBUG" not in line] == []


def test_silence_until_the_time_out(daemon):
    node = daemon("--handshake-timeout=200ms")
    client = node.connect(magic=b"")
    assert client.sock.recv(1) == b""
    assert node.stop() == 0
    assert texts(node.log) == []


def test_whoever_says_anything_is_named(daemon, tmp_path):
    node = daemon()
    node.connect(magic=b" ").close()
    wait_until(lambda: "connection closed" in node.log)
    wait_until(lambda: "INFO: TCP: new client(127.0.0.1:" in node.log)
    server = LookupServer(tmp_path / "lookupd.log")
    try:
        Node(server, magic=b" ").sock.close()
        wait_until(lambda: "failed to read protocol version - " in server.log)
        wait_until(lambda: "INFO: TCP: new client(127.0.0.1:" in server.log)
    finally:
        server.close()
