"""Message ids are never given twice, whenever the daemon is killed, whatever the clock and the disk do.

Slow: some tests run longer than the saved bound of ids lasts.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.e2e.test_log_faults import small as small
from tests.support.counting import consume_all
from tests.support.daemon import wait_until

STORAGES = pytest.mark.parametrize("flags", [("--topic-storage=log",), ("--mem-queue-size=0",)], ids=["log", "disk"])
EPOCH_UNITS = 1288834974288
BOUND_S = 5.5           # after which a busy daemon has raised its bound


def bound_of(data: Path) -> int:
    return json.loads((data / "nsqc.ids.dat").read_text())["reached_unit"]


def ids_of(node, bodies: set[bytes]) -> dict[bytes, bytes]:
    """Ids by body, of unfinished messages."""
    client = node.connect().sub("t", "c", 2500)      # all of them: none is finished
    found: dict[bytes, bytes] = {}
    while found.keys() != bodies:
        message = client.message()
        found[message.body] = message.id
    client.close()
    return found


@STORAGES
def test_ids_differ_after_kills_in_a_row(daemon, flags):
    node = daemon(*flags)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    until = time.monotonic() + BOUND_S
    sent = set()
    while time.monotonic() < until:
        sent.add(b"before-%d" % len(sent))
        node.post("/pub?topic=t", max(sent, key=lambda body: int(body[7:])))
        time.sleep(0.1)
    for body in (b"A", b"B", b"C"):
        node.kill()
        node.start()
        node.post("/pub?topic=t", body)
        sent.add(body)
    found = ids_of(node, sent)
    assert len(set(found.values())) == len(sent)
    assert found[b"before-0"] < found[b"A"] < found[b"B"] < found[b"C"]


@STORAGES
def test_the_bound_on_disk_is_above_all_ids_at_every_moment(daemon, flags):
    node = daemon(*flags)
    node.post("/topic/create?topic=t")
    client = node.connect().sub("t", "c", 1)
    until = time.monotonic() + BOUND_S
    while time.monotonic() < until:
        node.post("/pub?topic=t", b"x")
        message = client.message()
        assert (int(message.id, 16) >> 22) + EPOCH_UNITS <= bound_of(node.data_path)
        client.fin(message)
        time.sleep(0.01)


@pytest.mark.parametrize("lost", [None, b"", b'{"reached_unit":1,"stop'])
def test_a_lost_bound_is_replaced_by_one_above_the_messages_on_disk(daemon, lost):
    """Even if the clock has been set back: by the times of files, which are those of the future then."""
    node = daemon("--mem-queue-size=0")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.post("/pub?topic=t", b"A")
    wait_until(lambda: node.channel("t", "c")["depth"] == 1)
    node.kill()
    path = node.data_path / "nsqc.ids.dat"
    path.unlink() if lost is None else path.write_bytes(lost)
    ahead = time.time() + 10 * 86400
    for queue in node.data_path.glob("*.diskqueue.*"):
        os.utime(queue, (ahead, ahead))
    node.start()
    node.post("/pub?topic=t", b"B")
    found = ids_of(node, {b"A", b"B"})
    assert found[b"A"] < found[b"B"]
    assert (int(found[b"B"], 16) >> 22) + EPOCH_UNITS > int(ahead * 1e9) >> 20


def test_ids_continue_while_the_bound_cannot_be_written(daemon):
    """A folder has its name. Ids use the rest of the bound, an error is logged, and a kill meanwhile repeats none."""
    node = daemon("--topic-storage=log")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    path = node.data_path / "nsqc.ids.dat"
    kept = path.read_bytes()
    path.unlink()
    path.mkdir()
    (path / "full").touch()
    sent = set()

    def refused() -> bool:
        sent.add(b"%d" % len(sent))
        node.post("/pub?topic=t", b"%d" % (len(sent) - 1))
        return b"failed to write nsqc.ids.dat" in node.log_path.read_bytes()

    wait_until(refused)
    node.kill()
    shutil.rmtree(path)
    path.write_bytes(kept)
    node.start()
    node.post("/pub?topic=t", b"later")
    found = ids_of(node, {*sent, b"later"})
    assert len(set(found.values())) == len(found)
    assert max(found, key=found.__getitem__) == b"later"
    assert consume_all(node, "t", "c", found.keys()) == found.keys()


def test_the_bound_is_raised_on_a_full_disk(small, daemon):
    node = daemon("--min-free-disk=0", data_path=small)
    client = node.connect().sub("t#ephemeral", "c#ephemeral", 1)
    with pytest.raises(OSError, match="No space left"), (small / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    bound = bound_of(small)

    def raised() -> bool:
        node.post("/pub?topic=t%23ephemeral", b"x")
        client.fin(client.message())
        return bound_of(small) > bound

    wait_until(raised)
    assert not list(small.glob("nsqc.ids.dat.*"))
    assert "failed to write nsqc.ids.dat" not in node.log
