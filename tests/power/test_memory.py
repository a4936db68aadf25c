"""Power failures of topics in memory, which overflow to disk: synced messages are delivered.

Positions on disk record how far reading and writing have got, and a topic's messages move to its channels. So the worst
moments are those at which positions have become valid: everything that they rely on must have been synced.
"""

from __future__ import annotations

import re
import struct

import pytest

from tests.power.test_log import disks
from tests.support.counting import consume, numbered
from tests.support.daemon import wait_until
from tests.support.power.disk import Chance, Disk, contents
from tests.support.power.trace import Trace

COUNT = 20_000
META = "t.diskqueue.meta.dat"
DATA = re.compile(r"t\.diskqueue\.\d+\.dat")
MOMENTS = 5


def durable(trace: Trace, until: int) -> set[bytes]:
    """Bodies that the topic's own files had on disk at any time up to a position."""
    disk, nodes = Disk(), []
    for event in trace.events():
        if event.end <= until:
            disk.play([event])
            if event.kind == "create" and DATA.fullmatch(event.path):
                nodes.append(disk.root.entries[event.path])
    bodies = set()
    for node in nodes:
        data, at = contents(node, Chance()), 0
        while at + 30 <= len(data):
            (size,) = struct.unpack_from(">i", data, at)
            if size < 26 or at + 4 + size > len(data):
                break
            bodies.add(data[at + 30:at + 4 + size])
            at += 4 + size
    return bodies


@pytest.mark.parametrize("channels", [["c"], ["a", "b", "c"]], ids=["one-channel", "three-channels"])
def test_what_was_synced_is_delivered(daemon, tmp_path, channels):
    """Slow: disks are rebuilt, and a daemon starts on each."""
    data = tmp_path / "data"
    data.mkdir()
    trace = Trace(tmp_path / "trace", data)
    node = daemon("--mem-queue-size=0", data_path=data, env=trace.environment())
    node.post("/topic/create?topic=t")
    for channel in channels:
        node.post(f"/channel/create?topic=t&channel={channel}")
    node.post("/topic/pause?topic=t")
    node.publish("t", *numbered(COUNT))
    node.post("/topic/unpause?topic=t")
    meta = data / META
    wait_until(lambda: meta.exists() and meta.read_text().startswith("0\n"), "the topic's positions to be written")
    node.kill()

    valid = [event.end for event in trace.events() if event.kind == "rename" and event.to == META]
    synced = [event.end for event in trace.events() if event.kind in ("synced", "unlink") and event.end > valid[0]]
    positions = [at for at in sorted({*valid[-2:], *synced[::max(1, len(synced) // (MOMENTS - 2))]}) for _ in range(3)]
    most = 0
    for position, path, _ in disks(trace, positions, tmp_path, seed=COUNT):    # each position with each kind of disk
        wanted = durable(trace, position)
        after = daemon("--mem-queue-size=0", data_path=path)
        after.post("/topic/unpause?topic=t")
        for channel in channels:
            there = consume(after, "t", channel, wanted).keys()
            assert wanted <= there, f"{path.name}, {channel}: {len(wanted - there)} of {len(wanted)} are missing"
        after.close()
        most = max(most, len(wanted))
    trace.close()
    assert most == COUNT
