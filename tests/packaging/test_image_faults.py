"""Containers that cannot start: one line with the error and its remedy. And signals during a start."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import time

import pytest

from tests.packaging import container
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import free_port

pytestmark = container.needs_root
SERVE = ("serve", "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0")


def refused(image, data, *words, **environment) -> str:
    """The reason of a server that does not start: one line, after those that every start logs."""
    return reason(container.run(image, data, *(words or SERVE), **environment))


def reason(done: subprocess.CompletedProcess) -> str:
    assert done.returncode in (1, 2), done
    lines = [line for line in (done.stdout + done.stderr).splitlines() if " INFO: " not in line]
    assert len(lines) == 1, lines
    return lines[0]


def limited(image, data, limit, *words) -> subprocess.CompletedProcess:
    """A run to its end with a limit of prlimit(1)."""
    return subprocess.run(["prlimit", limit, *image.words(data, [*(words or SERVE)])], capture_output=True, text=True,
                          env=image.environment(PATH=os.environ["PATH"]), timeout=WAIT_SECONDS)


# ---------------------------------------------------------------------- the volume


def test_a_volume_of_root(image, data):
    """As nsqio/nsq, which runs as root, leaves one."""
    os.chown(data, 0, 0)
    data.chmod(0o755)
    assert re.search(r"FATAL: failed to instantiate nsqd - cannot write to data-path: /data: Permission denied; it belongs to user 0 and "
                     rf"group 0 with mode 755, and this process runs as user {container.USER} and group {container.USER}: chown it, or set "
                     "--data-path$", refused(image, data))
    assert not any(data.iterdir())


def test_a_volume_that_may_not_be_read(image, data):
    os.chown(data, 0, 0)
    data.chmod(0o700)
    assert "failed to lock data-path: open /data: Permission denied; it belongs to user 0 and group 0 with mode 700" in refused(image, data)


@pytest.fixture
def read_only(data):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,mode=0777", "none", data], check=True)
    yield data
    subprocess.run(["umount", data], check=True)


def test_a_volume_that_is_read_only(image, read_only):
    assert refused(image, read_only).endswith(
        "cannot write to data-path: /data: Read-only file system; mount it writable, or set --data-path")


def test_a_folder_that_does_not_exist(image, data):
    assert refused(image, data, NSQC_DATA_PATH="/data/none").endswith(
        "failed to lock data-path: open /data/none: No such file or directory; create it, or set --data-path")


# ---------------------------------------------------------------------- options and the network


@pytest.mark.parametrize("name, wanted", [
    ("NSQC_MEM_QUEUE_SZIE", "did you mean NSQC_MEM_QUEUE_SIZE?"), ("NSQC_FOO", "unset it"),
])
def test_a_variable_that_is_no_option(image, data, name, wanted):
    assert refused(image, data, **{name: "3"}) == (
        f"nsqc serve: environment variable {name} is not an option of nsqc serve; {wanted} (--help lists all flags)")


def test_a_port_that_is_in_use(image, data):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        assert f"listen ({address}) failed - [Errno 98] Address already in use" in refused(
            image, data, "serve", NSQC_TCP_ADDRESS=address, NSQC_HTTP_ADDRESS="127.0.0.1:0")
        assert f"listen ({address}) failed - [Errno 98] Address already in use" in refused(
            image, data, "serve", NSQC_HTTP_ADDRESS=address, NSQC_TCP_ADDRESS="127.0.0.1:0")


def test_no_network(image, data, tmp_path):
    """Even the loopback device is down: the node starts, and reports the unreachable addresses."""
    words = ["unshare", "--net", *image.words(data, ["serve", "--lookupd-tcp-address=nsqlookupd:4160"])]
    log = tmp_path / "log"
    with log.open("wb") as file:
        node = subprocess.Popen(words, env=image.environment(PATH=os.environ["PATH"]), stderr=file)
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while "LOOKUPD(nsqlookupd:4160): " not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(container.first_process(node), signal.SIGTERM)
        assert node.wait(WAIT_SECONDS) == 0
    finally:
        node.kill()
        node.wait()
    told = log.read_text()
    assert "TCP: listening on [::]:4150" in told and "name resolution" in told and "NSQ: bye" in told and "Traceback" not in told


def test_a_probe_of_nothing(image, data):
    address = f"127.0.0.1:{free_port()}"
    done = container.run(image, data, "probe", address)
    assert (done.returncode, done.stdout, done.stderr) == (3, "", f"nsqc probe: {address}: Connection refused\n")


# ---------------------------------------------------------------------- limits


def test_too_little_memory_for_its_modules(image, data):
    assert reason(limited(image, data, "--as=30000000")) == (
        "nsqc: the limit of memory, 30,000,000 bytes (ulimit -v), is too small for a server; raise it, to 100 MB or more")


def test_too_little_memory_for_its_threads(image, data):
    told = reason(limited(image, data, "--as=50000000"))
    assert "FATAL: failed to start threads - " in told and told.endswith("or of memory (ulimit -v)")


def test_too_few_open_files(image, data):
    assert "listen (127.0.0.1:0) failed - [Errno 24] Too many open files" in reason(limited(image, data, "--nofile=16"))


# ---------------------------------------------------------------------- signals


def test_a_stop_while_it_starts(image, data):
    """At many moments. The kernel ignores signals until process 1 handles them, so the request is repeated."""
    for moment in range(12):
        outer = subprocess.Popen(image.words(data, [*SERVE]), env=image.environment(PATH=os.environ["PATH"]), stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True)
        first = container.first_process(outer)
        time.sleep(0.04 * moment)
        while outer.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGTERM)
            time.sleep(0.02)
        told, _ = outer.communicate(timeout=WAIT_SECONDS)
        assert outer.returncode in (0, 128 + signal.SIGTERM), told
        assert "Traceback" not in told
