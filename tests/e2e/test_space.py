"""A disk that fills up: publishes are refused while some space remains, in each protocol's words, and it recovers."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from nsqc.broker.health import HEALED_PART
from tests.support.counting import consume, numbered
from tests.support.daemon import batch, wait_until

MIB = 1 << 20
# The data path is a small file system, mounted for this process only, and unmounted with it.
INSIDE = ("unshare", *(() if os.geteuid() == 0 else ("--user", "--map-root-user")), "--mount", "sh", "-c")
MOUNT = 'mount -t tmpfs -o size=%dm tmpfs "$0" && exec "$@"'
REASON = b"no space left: less than %d bytes are free (--min-free-disk)"

pytestmark = pytest.mark.skipif(subprocess.run([*INSIDE, "mount -t tmpfs tmpfs /mnt"], capture_output=True).returncode != 0,
                                reason="this user may not mount a file system")


@pytest.fixture
def small(daemon, tmp_path):
    """small(MiB, *flags): a daemon whose data path is a separate file system."""
    def start(size, *flags):
        data_path = tmp_path / "small"
        command = (*INSIDE, MOUNT % size, str(data_path), sys.executable, "-m", "nsqc", "serve")
        return daemon(*flags, data_path=data_path, command=command)

    return start


def free(node) -> int:
    """Bytes that are free in the data path, as the daemon sees it."""
    status = os.statvfs(f"/proc/{node.pid}/root{node.data_path}")
    return status.f_bavail * status.f_frsize


def fill(node, bodies, limit=0) -> tuple[list[bytes], bytes]:
    """Publishes in batches until one is refused and less than limit is free; returns the acknowledged messages and the
    error.

    Publishes are also refused, temporarily, when the file system has not reported its free space for a while.
    """
    client, done = node.connect(), []
    for at in range(0, len(bodies), 50):
        client.command("MPUB t", batch(*bodies[at:at + 50]))
        kind, data = client.frame()
        if kind == 0:
            done += bodies[at:at + 50]
            continue
        assert client.frame() is None
        if not limit or free(node) < limit + limit // HEALED_PART:
            return done, data
        wait_until(lambda: node.http("GET", "/ping") == (200, b"OK"), "an answer of the file system")
        client = node.connect()
    raise AssertionError("nothing is refused")


def test_publishes_are_refused_in_time_and_it_heals(small):
    """Slow: publishes and consumes 100 MiB."""
    node = small(100, "--mem-queue-size=10", "--sync-timeout=100ms")
    limit = 5 * MIB                         # 5 %
    reason = REASON % limit
    bodies = numbered(120_000, size=1000)
    done, error = fill(node, bodies, limit)
    assert error == b"E_MPUB_FAILED MPUB failed " + reason
    assert limit // 2 < free(node)
    assert node.http("GET", "/ping") == (500, b"NOK - " + reason)
    assert node.stats()["health"] == "NOK - " + reason.decode()
    assert b"\nHealth: NOK - " + reason in node.http("GET", "/stats")[1]

    for command, name in (("PUB t", b"PUB"), ("DPUB t 1000", b"DPUB")):
        client = node.connect()
        client.command(command, b"x")
        assert client.frame() == (1, b"E_%b_FAILED %b failed %b" % (name, name, reason))
        assert client.frame() is None
    for path in ("/pub?topic=t", "/mpub?topic=t", "/pub?topic=t&defer=5"):
        assert node.http("POST", path, b"x") == (503, b'{"message":"FAILED - %b"}' % reason), path
    node.connect().pub("other", b"in memory")
    node.connect().pub("t#ephemeral", *[b"x"] * 20)

    counts = consume(node, "t", "c", set(done))
    assert set(done) <= set(counts)
    wait_until(lambda: node.http("GET", "/ping") == (200, b"OK"), "health to return by itself")
    node.connect().pub("t", *[b"after"] * 50)
    assert node.stop() == 0
    lines = [line for line in node.log.splitlines() if "DISKSPACE:" in line]
    # Messages also pass through the disk from topic to channel, and may fill it once more.
    words = [re.search(r"refused|again", line)[0] for line in lines]
    assert words == ["refused", "again"] * max(1, len(words) // 2)


@pytest.mark.parametrize("sync", ["write", "fsync"])
def test_a_log_refuses_all_publishes_and_heals(small, sync):
    node = small(40, "--topic-storage=log", f"--log-sync={sync}", "--max-bytes-per-file=1000000")
    reason = REASON % (2 * MIB)
    done, error = fill(node, numbered(60_000, size=1000), 2 * MIB)
    assert error == b"E_MPUB_FAILED MPUB failed " + reason
    assert free(node) > MIB
    while node.http("GET", "/ping")[0] == 200:      # the file system had reserved more than it needed
        done += fill(node, numbered(60_000, size=1000), 2 * MIB)[0]
    assert node.http("GET", "/ping") == (500, b"NOK - " + reason)
    assert node.http("POST", "/pub?topic=new", b"x") == (503, b'{"message":"FAILED - %b"}' % reason)
    node.connect().pub("t#ephemeral", b"x")
    assert set(consume(node, "t", "c", set(done))) == set(done)
    wait_until(lambda: node.http("GET", "/ping") == (200, b"OK"), "health to return by itself")
    node.connect().pub("t", *[b"after"] * 50)
    assert node.stop() == 0


def test_the_limit_changes_with_a_reload(small, tmp_path):
    config = tmp_path / "nsqc.cfg"
    config.write_text("min_free_disk = 0\n")
    node = small(64, "--mem-queue-size=0", f"--config={config}")
    node.connect().pub("t", b"1")
    config.write_text(f"min_free_disk = {1 << 40}\n")
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: node.http("GET", "/ping") == (500, b"NOK - " + REASON % (1 << 40)))
    client = node.connect()
    client.command("PUB t", b"2")
    assert client.frame() == (1, b"E_PUB_FAILED PUB failed " + REASON % (1 << 40))
    config.write_text("")
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: node.http("GET", "/ping") == (200, b"OK"))
    node.connect().pub("t", b"2")
    assert set(consume(node, "t", "c", {b"1", b"2"})) == {b"1", b"2"}


def test_without_a_limit_the_disk_itself_refuses(small):
    """Slow: the disk is filled more than once."""
    node = small(20, "--mem-queue-size=0", "--min-free-disk=0")
    done, error = fill(node, numbered(30_000, size=1000))
    assert error == b"E_MPUB_FAILED MPUB failed No space left on device"
    assert set(consume(node, "t", "c", set(done))) >= set(done)


def test_a_node_whose_disk_is_full_is_not_ready_and_heals(small):
    """No watermark: the file system itself runs full, and later has space again."""
    node = small(8, "--min-free-disk=0")
    assert node.http("GET", "/readyz") == (200, b'{"ready":true,"reasons":[]}')
    filler = f"/proc/{node.pid}/root{node.data_path}/filler"
    with open(filler, "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))
    reason = "the data path cannot be written: No space left on device"
    answer = wait_until(lambda: (found := node.http("GET", "/readyz"))[0] == 503 and found)
    assert json.loads(answer[1]) == {"ready": False, "reasons": [reason]}
    assert node.http("GET", "/livez")[0] == 200
    assert node.http("GET", "/ping") == (200, b"OK")        # as nsqd: no write has failed
    assert node.http("POST", "/pub?topic=t", b"in memory") == (200, b"OK")
    os.truncate(filler, 0)
    wait_until(lambda: node.http("GET", "/readyz") == (200, b'{"ready":true,"reasons":[]}'), "readiness to return")
    assert node.stop() == 0
