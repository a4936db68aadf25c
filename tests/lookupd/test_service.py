"""The lookup server under a service manager: sockets that outlive it."""

import contextlib
import socket
import subprocess

import pytest

from tests.support.lookupd import COMMAND, LookupServer, Node
from tests.support.manager import handed
from tests.support.patience import WAIT_SECONDS


def test_inherited_sockets_stand_for_the_addresses(tmp_path, sockets):
    tcp, http = sockets
    # Not in the order of the code: the names decide.
    server = LookupServer(tmp_path / "log", **handed([http, tcp], "http:tcp", command=COMMAND))
    try:
        assert (server.tcp_port, server.http_port) == (tcp.getsockname()[1], http.getsockname()[1])
        node = Node(server, "a.example")
        node.ok("REGISTER t c")
        assert server.found("t") == ["a.example"]
        assert server.stop() == 0
        # The manager's sockets keep listening: a node waits for the next process.
        waiting = Node(server, "")
        server.start()
        waiting.ok("PING")
        assert server.stop() == 0
    finally:
        server.close()


@pytest.mark.parametrize(("names", "reason"), [
    ("https", "inherited socket 3 is named 'https', not one of tcp, http (FileDescriptorName= in its unit)"),
    ("tcp:tcp", "two inherited sockets are named tcp")])
def test_what_cannot_be_inherited_stops_the_start(sockets, names, reason):
    more = handed(sockets[:names.count(":") + 1], names, command=COMMAND)
    done = subprocess.run([*more.pop("command"), "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0"],
                          capture_output=True, text=True, timeout=WAIT_SECONDS, **more)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith(f"FATAL: failed to instantiate nsqlookupd - {reason}")


def test_an_inherited_unix_socket(tmp_path):
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as sock:
        sock.bind(str(tmp_path / "sock"))
        sock.listen()
        more = handed([sock], "tcp", command=COMMAND)
        with subprocess.Popen([*more.pop("command"), "--http-address=127.0.0.1:0"], stderr=subprocess.PIPE,
                              **more) as process, contextlib.closing(socket.socket(socket.AF_UNIX)) as node:
            node.settimeout(WAIT_SECONDS)
            node.connect(str(tmp_path / "sock"))
            node.sendall(b"  V1PING\n")
            assert node.recv(100) == b"\0\0\0\x02OK"
            process.terminate()
            assert process.wait(WAIT_SECONDS) == 0
    assert (tmp_path / "sock").exists()
