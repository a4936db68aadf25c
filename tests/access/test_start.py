"""Warnings at startup, and the permissions of files that the daemon writes."""

import os
import re
import stat
from pathlib import Path

import pytest

from tests.support.daemon import Daemon, wait_until

WARNING = r"WARNING: HTTP: \S+ is open to every client that reaches it: --auth-http-address guards TCP only"


@pytest.fixture
def start(tmp_path):
    """start(*flags) starts a daemon that ends with the test."""
    running = []

    def run(*flags, **more):
        running.append(Daemon(tmp_path / f"data{len(running)}", *flags, **more))
        return running[-1]

    yield run
    for node in running:
        node.close()


@pytest.mark.parametrize(("flags", "warned"), [
    (["--auth-http-address=127.0.0.1:1", "--http-address=0.0.0.0:0"], True),
    (["--auth-http-address=127.0.0.1:1", "--http-address=127.0.0.1:0"], False),
    (["--auth-http-address=127.0.0.1:1", "--http-address=[::1]:0"], False),
    (["--http-address=0.0.0.0:0"], False),
])
def test_an_open_port_beside_an_auth_server(start, flags, warned):
    node = start(*flags)
    assert node.stop() == 0
    assert bool(re.search(WARNING, node.log)) is warned


def test_a_unix_socket_is_not_open(start):
    node = start("--auth-http-address=127.0.0.1:1", unix=True)
    assert node.stop() == 0
    assert not re.search(WARNING, node.log)


def test_others_cannot_read_data_files(start):
    node = start("--mem-queue-size=0", preexec=lambda: os.umask(0))
    node.post("/channel/create?topic=disk&channel=c") if node.http("POST", "/topic/create?topic=disk")[0] == 200 else None
    node.post("/pub?topic=disk", b"secret")
    assert node.http("PUT", "/topic/rules?topic=log", b'{"storage": "log", "retain_time": "1h"}')[0] == 200
    node.post("/pub?topic=log", b"secret")
    wait_until(lambda: node.channel("disk", "c")["backend_depth"] == 1)
    assert node.stop() == 0
    written = [os.path.join(folder, name) for folder, _, names in os.walk(node.data_path) for name in names]
    assert any(path.endswith(".log") or ".log/" in path for path in written)
    assert any(".diskqueue." in path for path in written)
    assert any(b"secret" in Path(path).read_bytes() for path in written)
    assert [path for path in written if stat.S_IMODE(os.stat(path).st_mode) & 0o077] == []
