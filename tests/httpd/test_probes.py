"""/livez and /readyz, for supervisors and load balancers."""

import errno
import os
import resource
import shutil
import socket
import time

from nsqc.broker.health import FILE, write_error
from tests.support.daemon import wait_until


def ready(node):
    reply = node.call("GET", "/readyz")
    assert reply.headers["content-type"] == "application/json; charset=utf-8"
    assert reply.status == (200 if reply.json["ready"] else 503)
    return reply.json["reasons"]


def test_a_daemon_that_is_well(server):
    reply = server.call("GET", "/livez")
    assert (reply.status, reply.body) == (200, b"OK")
    reply = server.call("GET", "/readyz")
    assert (reply.status, reply.json) == (200, {"ready": True, "reasons": []})
    assert "livez" not in server.log and "readyz" not in server.log
    assert FILE not in os.listdir(server.data_path)


def test_head_and_other_methods(server):
    for path in ("/livez", "/readyz", "/ping"):
        assert server.call("HEAD", path).status == 405
        assert server.call("POST", path).headers["allow"] == "GET, OPTIONS"


def test_less_space_than_should_stay_free(start):
    node = start(f"--min-free-disk={1 << 60}")
    [reason] = wait_until(lambda: ready(node))
    assert reason.startswith("no space left: less than ")
    assert node.call("GET", "/ping").status == 500
    assert node.call("GET", "/livez").status == 200


def test_many_probes_try_the_disk_once_a_second(start, tmp_path):
    node = start()
    began = time.monotonic()
    with node.wire() as wire:
        for _ in range(300):
            wire.request("GET", "/readyz")
        assert all(wire.reply().json["ready"] for _ in range(300))
    seconds = time.monotonic() - began
    with open(f"/proc/{node.pid}/io") as counts:
        written = int(next(line.split()[1] for line in counts if line.startswith("wchar")))
    # On top of the data written by the start and the log: a probe writes 4 KiB.
    assert written < (seconds + 1) * 4096 + 100_000 + 300 * 500


def test_connections_that_are_refused_or_wait(start):
    node = start("--max-connections=2")
    with node.wire() as first:
        first.request("GET", "/readyz")
        assert first.reply().json["ready"]
        with socket.create_connection(("127.0.0.1", node.tcp_port)):
            def refused():
                first.request("GET", "/readyz")
                return first.reply().json["reasons"]
            assert wait_until(refused) == ["new clients are refused: --max-connections 2 reached"]


def test_a_file_in_the_way_and_what_was_left_over(tmp_path):
    path = str(tmp_path / FILE)
    assert write_error(path) is None
    open(path, "w").close()     # a kill interrupted a probe
    assert write_error(path) is None
    assert not os.path.exists(path)
    os.mkdir(path)
    assert write_error(path).errno in (errno.EISDIR, errno.EPERM)


def test_a_data_path_that_cannot_be_written(start):
    """A file size limit stands for a full disk, which accepts names but no bytes; then the folder is removed."""
    node = start()
    assert ready(node) == []
    soft, hard = resource.prlimit(node.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (0, hard))
    assert wait_until(lambda: ready(node)) == ["the data path cannot be written: File too large"]
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (soft, hard))
    assert FILE not in os.listdir(node.data_path)
    while node.data_path.exists():      # the daemon may be writing a file there
        shutil.rmtree(node.data_path, ignore_errors=True)
    wait_until(lambda: ready(node) == ["the data path cannot be written: No such file or directory"])
    assert node.call("GET", "/livez").body == b"OK"
    node.data_path.mkdir()
    wait_until(lambda: not ready(node))
