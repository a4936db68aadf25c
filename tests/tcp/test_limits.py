"""Connection limits, and the treatment of excess clients."""

import socket
import struct

import pytest

from nsqc.net.listener import ConnectionLimits, host_of
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import connect, identify
from tests.support.sizes import SIZES


def refused(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.settimeout(WAIT_SECONDS)
        try:
            sock.sendall(b"  V2NOPE\n")
            return sock.recv(100) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False


@pytest.mark.parametrize("flag", ["--max-connections=4", "--max-connections-per-address=4"])
def test_connections(daemon, flag):
    node = daemon(flag)
    clients = [node.connect() for _ in range(3)]
    web = socket.create_connection(("127.0.0.1", node.http_port))
    for client in clients:
        client.ok("PUB t", b"x")
    assert refused(node.tcp_port)
    assert refused(node.http_port)
    for client in clients:
        client.ok("PUB t", b"x")
    wait_until(lambda: f" refused: {flag.replace('=', ' ')} reached" in node.log)
    clients.pop().close()
    web.close()
    wait_until(lambda: node.log.count("connection closed") == 1)
    other = node.connect()
    other.ok("PUB t", b"x")


def test_pending_handshakes(secure):
    node = secure("--max-pending-handshakes=2")
    stalled = [node.connect() for _ in range(2)]
    for client in stalled:
        identify(client, tls_v1=True)
    wait_until(lambda: node.log.count("upgrading connection to TLS") == 2)
    third = node.connect()
    identify(third, tls_v1=True)
    assert third.frame() is None
    port = int(node.log.rsplit("HTTPS: listening on ", 1)[1].split()[0].rsplit(":", 1)[1])
    assert refused(port)
    for client in stalled:
        client.close()
    wait_until(lambda: node.log.count("E_IDENTIFY_FAILED") == 2)
    connect(node, "tls").ok("SUB t c")


class Lines:
    def __init__(self):
        self.lines = []

    def warn(self, text, *args, kind=None):
        self.lines.append(text % args)


def test_the_gate_counts():
    log = Lines()
    limits = ConnectionLimits(log, 3, 2, 1)
    assert [limits.enter(host) for host in ("a", "a", "a", "b", "", "b")] == [True, True, False, True, False, False]
    limits.leave("a")
    assert limits.enter("")
    limits.leave("")
    limits.leave("a")
    limits.leave("b")
    assert (limits.connections, limits.hosts) == (0, {})
    assert limits.begin_handshake("a")
    assert not limits.begin_handshake("a")
    limits.end_handshake(True)
    assert limits.begin_handshake("a")
    assert log.lines == ["client(a) refused: --max-connections-per-address 2 reached",
                         "client(@) refused: --max-connections 3 reached",
                         "client(b) refused: --max-connections 3 reached",
                         "client(a) refused: --max-pending-handshakes 1 reached"]


def test_hosts():
    assert host_of(("::ffff:10.0.0.1", 5, 0, 0)) == host_of(("10.0.0.1", 7)) == "10.0.0.1"
    assert host_of(("::1", 5, 0, 0)) == "::1"
    assert host_of("") == host_of(None) == ""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("storage", ["memory", "log"])
def test_hostile_sizes(daemon, size, storage):
    """Limits of bodies, batches and messages in them; nothing of them is published."""
    node = daemon(f"--topic-storage={storage}")
    field, body = struct.pack(">i", size), b"x" * 100
    commands = {b"PUB t\n" + field: b"E_BAD_MESSAGE PUB ", b"DPUB t 5\n" + field: b"E_BAD_MESSAGE DPUB ",
                b"MPUB t\n" + field: b"E_BAD_BODY MPUB ", b"IDENTIFY\n" + field: b"E_BAD_BODY IDENTIFY ",
                b"MPUB t\n\0\0\0\x64" + field: b"E_BAD_BODY MPUB invalid message count ",
                b"MPUB t\n\0\0\0\x64\0\0\0\2\0\0\0\1y" + field: b"E_BAD_MESSAGE MPUB "}
    for command, error in commands.items():
        if size == 3:
            continue        # a size like any other
        client = node.connect()
        client.send(command + body)
        kind, text = client.frame()
        assert (kind, text[:len(error)]) == (1, error)
        assert client.frame() is None
    for batch in (field, b"\0\0\0\2\0\0\0\1y" + field):
        assert node.http("POST", "/mpub?topic=t&binary=true", batch + body[:2])[0] == 413
    assert node.stats("t")["message_count"] == 0


def test_sizes_that_no_frame_can_tell(daemon):
    node = daemon("--max-msg-size=9223372036854775807", "--max-body-size=9223372036854775807")
    assert node.http("GET", "/config/max_msg_size") == (200, b"9223372036854775807")
    for line in ("PUB t", "DPUB t 0"):
        client = node.connect()
        client.send(line.encode() + b"\n" + struct.pack(">i", 2**31 - 30))
        name = line.split()[0].encode()
        assert client.frame() == (1, b"E_BAD_MESSAGE " + name + b" message too big 2147483618 > 2147483617")
        client = node.connect()
        client.send(line.encode() + b"\n" + struct.pack(">i", 2**31 - 31) + b"x")
        client.sock.shutdown(socket.SHUT_WR)
        assert client.frame() == (1, b"E_BAD_MESSAGE " + name + b" failed to read message body")
    client = node.connect()
    client.send(b"MPUB t\n" + struct.pack(">iii", 2**31 - 1, 1, 2**31 - 30))
    assert client.frame() == (1, b"E_BAD_MESSAGE MPUB message too big 2147483618 > 2147483617")
    with socket.create_connection(("127.0.0.1", node.http_port)) as web:
        web.settimeout(WAIT_SECONDS)
        web.sendall(b"POST /pub?topic=t HTTP/1.1\r\nHost: x\r\nContent-Length: 2147483618\r\n\r\n")
        assert web.recv(100).startswith(b"HTTP/1.1 413 ")
    node.connect().ok("PUB t", b"x")
    # The same limit applies to reading from disk.
    node.restart()
    node.connect().sub("t", "c", 1).message()
