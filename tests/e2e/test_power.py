"""A power failure may take only what has not been synced, so the order of syncs counts.

The daemon runs with a library that logs each write, sync and rename below the data path in order. So no power has to be
cut: whenever positions become valid (the rename), all that they rely on must have been synced.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perf.programs import slow_disk
from tests.support.counting import numbered, publish
from tests.support.daemon import wait_until

COUNT = 50_000
RECORD_BYTES = 30 + 8       # on disk, with the bodies of numbered()
META = ".diskqueue.meta.dat"


@dataclass
class Disk:
    """The bytes of each queue's data files that were written, and those that would survive."""

    written: dict[str, int] = field(default_factory=lambda: defaultdict(int))       # by path
    syncing: dict[str, int] = field(default_factory=dict)                             # that the running sync covers
    durable: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def survives(self, queue: str) -> int:
        """Bytes of a queue that a power failure leaves."""
        return sum(size for path, size in self.durable.items()
                   if re.fullmatch(rf"{re.escape(queue)}\.diskqueue\.\d+\.dat", Path(path).name))

    def play(self, line: str) -> tuple[str, int, int, int, int] | None:
        """Plays one call; one that makes positions valid returns queue, read file and offset, write file and offset."""
        call, path, *rest = line.split(" ")
        if call == "write":
            self.written[path] += int(rest[0])
        elif call == "sync":
            self.syncing[path] = self.written[path]
        elif call == "synced":
            self.durable[path] = max(self.durable[path], self.syncing[path])
        elif call == "rename" and rest[0].endswith(META):
            _, read, write = " ".join(rest[1:]).split()
            return (Path(rest[0]).name.removesuffix(META),
                    *(int(number) for pair in (read, write) for number in pair.split(",")))
        return None


@pytest.mark.parametrize("channels", [["c"], ["a", "b", "c"]], ids=["one-channel", "three-channels"])
def test_positions_are_valid_only_when_what_they_rely_on_is_synced(daemon, tmp_path, channels):
    """A topic's read position relies on the copies in its channels, a write position on the queue's own records."""
    data, log = tmp_path / "data", tmp_path / "calls"
    node = daemon("--mem-queue-size=0", data_path=data, env={
        **os.environ, "LD_PRELOAD": str(slow_disk()), "NSQC_SLOW_PATH": str(data), "NSQC_DISK_LOG": str(log)})
    node.post("/topic/create?topic=t")
    for channel in channels:
        node.post(f"/channel/create?topic=t&channel={channel}")
    node.post("/topic/pause?topic=t")
    publish(node, "t", numbered(COUNT))
    node.post("/topic/unpause?topic=t")
    meta = data / f"t{META}"
    wait_until(lambda: meta.exists() and meta.read_text().startswith("0\n"), "the topic's positions to be written")
    node.kill()

    disk, passed_most = Disk(), 0
    for line in log.read_text().splitlines():
        positions = disk.play(line)
        if positions is None:
            continue
        queue, read_file, read_at, write_file, write_at = positions
        if write_file == 0:
            assert disk.survives(queue) >= write_at, f"{queue}: positions ahead of the records: {line}"
        if queue == "t":
            passed = read_at if read_file == 0 else COUNT * RECORD_BYTES
            for channel in channels:
                assert disk.survives(f"t:{channel}") >= passed, (
                    f"the topic's position passes {passed // RECORD_BYTES} messages, of which {channel} has "
                    f"{disk.survives(f't:{channel}') // RECORD_BYTES} on disk")
            passed_most = max(passed_most, passed)
    assert passed_most == COUNT * RECORD_BYTES
