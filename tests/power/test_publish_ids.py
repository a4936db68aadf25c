"""Power failures of a log that remembers ids of publishes: what a retry of everything stores then."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.power.test_log import disks, log_of, moments
from tests.publishing.support import publisher, remember
from tests.support.daemon import Client, batch
from tests.support.power.disk import other_boot
from tests.support.power.trace import Trace

COUNT, AT_ONCE = 150, 10


def publishes() -> list[tuple[str, bytes, list[bytes]]]:
    """Commands, their bodies, and the messages in each: single ones and batches."""
    found = []
    for number in range(COUNT):
        messages = [b"%d.%d" % (number, part) for part in range(1 + number % 3)]
        if len(messages) == 1:
            found.append((f"PUB t id-{number}", messages[0], messages))
        else:
            found.append((f"MPUB t id-{number}", batch(*messages), messages))
    return found


def send(client: Client, trace: Trace | None = None) -> list[tuple[int, list[bytes]]]:
    """Publishes everything, some at once; the messages of each that was acknowledged, and the trace's position then."""
    acknowledged, left = [], publishes()
    while left:
        some, left = left[:AT_ONCE], left[AT_ONCE:]
        for line, body, _ in some:
            client.command(line, body)
        for _, _, messages in some:
            assert client.frame() == (0, b"OK")
            acknowledged.append((0 if trace is None else trace.position, messages))
    return acknowledged


@pytest.mark.parametrize("sync", ["fsync", "write"])
def test_a_retry_after_a_power_failure(daemon, tmp_path, sync):
    """With fsync each message is stored exactly once. With write the end of what was published may be there twice or
    not at all, but nothing that was synced is lost, or there three times."""
    config, data = tmp_path / "nsqd.toml", tmp_path / "data"
    config.write_text('[topics."t"]\nstorage = "log"\ndedupe = "10m"\nretain_time = "1h"\n' + f'sync = "{sync}"\n')
    data.mkdir()
    trace = Trace(tmp_path / "trace", data)
    node = daemon(f"--config={config}", data_path=data, env=trace.environment())
    acknowledged = send(publisher(node), trace)
    node.kill()
    every = [message for _, _, messages in publishes() for message in messages]
    first = acknowledged[0][0]
    positions = sorted(at for at in moments(trace, first, 8, COUNT) for _ in range(3))      # with each kind of disk
    for position, path, chance in disks(trace, positions, tmp_path, COUNT):
        where = f"{path.name} at {position}, {type(chance).__name__}"
        other_boot(path)
        after = daemon(f"--config={config}", data_path=path)
        there = log_of(after).keys()
        if sync == "fsync":
            assert {message for at, messages in acknowledged if at <= position for message in messages} <= there, where
        # A publish between two starts, after which a retry comes: offsets continue beyond a gap by then.
        publisher(after).ok("PUB t another", b"another")
        after.kill()
        after.start()
        send(publisher(after))
        stored = Counter(bodies_of(after))
        if sync == "fsync":
            assert stored == Counter([*every, b"another"]), where
        else:
            assert there <= stored.keys() and max(stored.values()) <= 2, where
        after.close()
    trace.close()


def test_an_id_costs_no_write_and_no_sync(daemon, tmp_path):
    """It is part of its message's frame."""
    data = tmp_path / "data"
    data.mkdir()
    trace = Trace(tmp_path / "trace", data)
    node = daemon("--topic-storage=log", "--log-sync=fsync", "--sync-timeout=1h", data_path=data, env=trace.environment())
    remember(node)
    client = publisher(node)
    client.ok("PUB t first", b"it makes the files")
    for number in range(5):
        begin = trace.position
        client.ok(f"PUB t id-{number}", b"message")
        inodes = {path.stat().st_ino for path in (data / "t.log").iterdir()}
        kinds = [event.kind for event in trace.events(begin) if event.inode in inodes]
        assert kinds == ["write", "sync", "synced"]
    trace.close()


def bodies_of(node) -> list[bytes]:
    """The bodies of all messages of the log, in order."""
    client = node.connect()
    node.post("/channel/create?topic=t&channel=all&from=beginning")
    client.sub("t", "all", 1000)
    return [message.body for message in client.messages(node.channel("t", "all")["depth"]
                                                        + node.channel("t", "all")["in_flight_count"], finish=True)]
