"""The debug build reports broken invariants: each is broken on purpose."""

import asyncio

import pytest

from nsqc.store import memory
from tests.broker.harness import publish, run
from tests.compiled import diskqueue
from tests.compiled.memory import UnackedList

pytestmark = pytest.mark.skipif(not memory.ENABLED, reason="a release build checks no rules")

ID, STAMP = b"%016x" % 1, 1_700_000_000_000_000_000


@pytest.fixture
def reported(monkeypatch):
    """Uncaught exceptions, in place of the pytest plugin that would fail the test."""
    messages = []
    monkeypatch.setattr("sys.unraisablehook", lambda lost: messages.append(str(lost.exc_value)))
    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    return messages


@pytest.mark.parametrize("which", ["topic", "channel"])
def test_what_is_dirty_must_be_scheduled(tmp_path, reported, which):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        assert await publish(topic, b"scheduled") == 0
        queue = (topic if which == "topic" else channel).disk
        queue.check_rules()
        assert reported == []
        diskqueue.put(queue, b"behind its back", ID, STAMP)
        queue.check_rules()
        assert reported == ["records without a scheduled write"]
        diskqueue.rollback(queue)

    run(tmp_path, scenario, mem_queue_size=0)


def test_a_topic_must_not_give_up_places_before_their_copies_are_written(tmp_path, reported):
    async def scenario(broker):
        topic = broker.get_topic(b"t")
        channel = topic.get_channel(b"c")
        topic.unpause()
        assert reported == []
        diskqueue.put(channel.disk, b"behind its back", ID, STAMP)
        diskqueue.commit(channel.disk)
        topic.unpause()     # hands over pending messages; the commit knows of no write
        assert reported == ["a topic gives up places whose copies are not written"]
        await asyncio.sleep(0.05)

    run(tmp_path, scenario, mem_queue_size=0)


def test_a_place_is_done_once(reported):
    places = UnackedList()
    first, second = places.add(0, 0, 30), places.add(0, 30, 30)
    assert places.done(second) is False
    assert reported == []
    places.done_twice(first)
    assert reported == ["a place is done twice"]
    assert len(places) == 0
    again = {places.add(0, at, 30) for at in range(3)}
    assert len(again) == 3
