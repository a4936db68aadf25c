"""Names of a log's files, and of its folder, are on disk before anything relies on them."""

from __future__ import annotations

import pytest

from nsqc.store.log.manager import read_progress
from tests.power.machine import Machine


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.trace.close()


def test_a_folder_that_the_journal_has_made(machine):
    machine.run("fsync", """
        topic.get_channel(b"c")
        await recorded(topic)
        assert await publish(topic, b"acknowledged") == 0
    """)
    assert b"acknowledged" in (machine.disk() / f"{0:020}.log").read_bytes()


def test_a_folder_that_a_killed_run_has_made(machine):
    machine.run("fsync", """
        topic.get_channel(b"c")
        await recorded(topic)
    """)
    machine.run("fsync", 'assert await publish(topic, b"acknowledged") == 0')
    assert b"acknowledged" in (machine.disk() / f"{0:020}.log").read_bytes()


def test_a_new_journal_is_part_of_the_next_sync(machine):
    machine.run("write", """
        topic.get_channel(b"c")
        for number in range(5):
            assert await publish(topic, b"%d" % number) == 0
        await recorded(topic)
        await synced(topic)
    """)
    machine.run("write", """
        topic.get_channel(b"c").empty()
        await recorded(topic)
        await synced(topic)
    """)
    channel, = read_progress(str(machine.disk())).channels
    assert (channel.name, channel.cursor) == ("c", 5)


def test_a_journal_without_messages_is_part_of_the_next_sync(machine):
    machine.run("write", """
        topic.get_channel(b"c")
        await recorded(topic)
        await synced(topic)
    """)
    assert [channel.name for channel in read_progress(str(machine.disk())).channels] == ["c"]


def test_what_a_killed_run_has_made_is_part_of_the_next_sync(machine):
    """Its journal has its name only in memory when it is killed."""
    machine.run("write", 'assert await publish(topic, b"x") == 0')
    machine.run("write", """
        topic.get_channel(b"c")
        await recorded(topic)
    """)
    machine.run("write", """
        assert await publish(topic, b"y") == 0
        await synced(topic)
    """)
    assert [channel.name for channel in read_progress(str(machine.disk())).channels] == ["c"]


def test_new_due_times_are_part_of_the_next_sync(machine):
    machine.run("write", """
        assert await publish(topic, b"x") == 0
        await synced(topic)
        await deferred(topic, b"y")
        await synced(topic)
    """)
    assert machine.deferred() == [1]


def test_due_times_that_began_without_syncs(machine):
    machine.run("write", """
        assert await publish(topic, b"x") == 0
        await deferred(topic, b"y")
    """)
    machine.run("fsync", 'await deferred(topic, b"z")')
    assert machine.deferred() == [1, 2]
