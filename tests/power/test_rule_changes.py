"""An OK under `fsync` covers all messages before it: they are on disk, too, under any rule and from any run. A sync
also covers the files of a killed run."""

from __future__ import annotations

import pytest

from tests.power.machine import Machine

SEGMENT = 400       # three messages


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.trace.close()


def test_segments_of_before_the_rule_changed(machine):
    machine.run("write", """
        await several(topic, 20)
        by_rule(topic, sync="fsync")
        await several(topic, 1)
    """, SEGMENT)
    assert machine.offsets() == list(range(21))


def test_a_rule_that_changes_back_and_forth(machine):
    machine.run("fsync", """
        for number in range(3):
            await several(topic, 4)
            by_rule(topic, sync="write")
            await several(topic, 4)
            by_rule(topic, sync="fsync")
        await several(topic, 1)
    """, SEGMENT)
    assert machine.offsets() == list(range(25))


def test_a_rule_that_changes_while_a_write_is_under_way(machine):
    machine.run("write", """
        await several(topic, 4)
        topic.publish(b"x" * 200_000)       # a thread writes it
        broker.commits.run()
        assert topic.log.busy
        by_rule(topic, sync="fsync")
        await several(topic, 1)
    """, SEGMENT)
    assert machine.offsets() == list(range(6))


def test_a_sync_under_way_does_not_count_for_what_comes_meanwhile(machine):
    machine.run("write", """
        await several(topic, 8)
        Disks.syncer.start(topic.log)
        await several(topic, 8)
        await Disks.syncer.synced(topic.log)
        by_rule(topic, sync="fsync")
        await several(topic, 1)
    """, SEGMENT)
    assert machine.offsets() == list(range(17))


def test_due_times_of_before_the_rule_changed(machine):
    machine.run("write", """
        await deferred(topic, b"x")
        by_rule(topic, sync="fsync")
        await several(topic, 1)
    """)
    assert machine.deferred() == [0]


def test_segments_of_a_killed_run(machine):
    machine.run("write", "await several(topic, 20)", SEGMENT)
    machine.run("fsync", "await several(topic, 1)", SEGMENT)
    assert machine.offsets() == list(range(21))


def test_segments_of_two_killed_runs(machine):
    machine.run("write", "await several(topic, 20)", SEGMENT)
    machine.run("write", "await several(topic, 7)", SEGMENT)
    machine.run("fsync", "await several(topic, 1)", SEGMENT)
    assert machine.offsets() == list(range(28))


def test_segments_of_a_killed_run_are_part_of_the_next_sync(machine):
    machine.run("write", "await several(topic, 20)", SEGMENT)
    machine.run("write", """
        await several(topic, 1)
        await synced(topic)
    """, SEGMENT)
    assert machine.offsets() == list(range(21))


def test_segments_of_a_killed_run_are_synced_without_a_publish(machine):
    machine.run("write", "await several(topic, 20)", SEGMENT)
    machine.run("write", "await due()", SEGMENT)
    assert machine.offsets() == list(range(20))
