"""The journal of a log is compacted, and the power fails at any moment of that."""

from __future__ import annotations

import pytest

from nsqc.store.log.manager import read_progress
from tests.power.machine import Machine
from tests.support.power.disk import Chance, Disk, Everything, Names, Some
from tests.support.power.trace import Trace


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.trace.close()


def moments(trace: Trace) -> int:
    """The number of events so far."""
    return len(list(trace.events()))


def test_a_journal_that_is_replaced(machine, tmp_path):
    """Earlier synced operations survive, for any other contents of the disk; operations that never happened do not
    appear."""
    machine.run("write", """
        topic.get_channel(b"c")
        for number in range(5):
            assert await publish(topic, b"%d" % number) == 0
        topic.get_channel(b"c").empty()
        await recorded(topic)
        await synced(topic)
    """)
    (machine.folder / "t.log" / "cursors.000002").write_bytes(b"damaged, so that a new file follows with the next write" * 9)
    begin = moments(machine.trace)
    machine.run("write", """
        topic.get_channel(b"d")
        numbers = lambda: sorted(name for name in os.listdir(topic.log.folder) if "cursors" in name)
        await until(lambda: numbers() == ["cursors.000002.bad", "cursors.000003"])
        topic.get_channel(b"e")
        await recorded(topic)
        await synced(topic)
    """)
    events, seen = list(machine.trace.events()), set()
    for end in range(begin, len(events) + 1):
        for number, chance in enumerate((Chance(), Names(), Some(end), Some(-end), Everything())):
            disk = Disk()
            disk.play(events[:end])
            disk.write(tmp_path / f"disk{end}.{number}", chance)
            folder = tmp_path / f"disk{end}.{number}" / "t.log"
            progress = read_progress(str(folder))
            named = progress.named
            assert (named["c"].cursor, named["c"].out, named["c"].waiting) == (5, [], []), (end, number)
            assert list(named) == ["c", "d", "e"][:len(named)]
            seen.add((tuple(sorted(path.name for path in folder.glob("cursors.*"))), len(named)))
    assert list(named) == ["c", "d", "e"]
    assert len({names for names, _ in seen}) >= 4, seen
