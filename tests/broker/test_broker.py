"""The broker: topics and channels by name, listeners, and the result of a stop."""

from tests.broker.harness import publish, run


def test_ephemeral_topics_and_channels(tmp_path):
    async def scenario(broker):
        events = []
        broker.listeners.append(lambda event, topic, channel: events.append((event, topic.name, channel and channel.name)))
        topic = broker.get_topic(b"t#ephemeral")
        topic.get_channel(b"c")
        for _ in range(10):
            assert await publish(topic, b"x") == 0
        assert topic.channels[b"c"].depth == 10, "a lasting channel of an ephemeral topic spills to disk"
        topic.get_channel(b"e#ephemeral")
        for _ in range(10):
            topic.publish(b"x")
        assert topic.channels[b"e#ephemeral"].depth == 4, "what exceeds memory is dropped"
        assert topic.delete_channel(b"c")
        assert not topic.delete_channel(b"c")
        assert topic.delete_channel(b"e#ephemeral")
        assert broker.topic(b"t#ephemeral") is None, "it goes with its last channel"
        assert [event for event, _, _ in events] == [
            "topic created", "channel created", "channel created", "channel deleted", "channel deleted", "topic deleted"]

    run(tmp_path, scenario, mem_queue_size=4)


def test_many_topics_are_found_by_name(tmp_path):
    async def scenario(broker):
        names = [b"topic-%d" % n for n in range(500)]
        for name in names:
            broker.get_topic(name)
        assert all(broker.topic(name).name == name for name in names)
        for name in names[::2]:
            assert broker.delete_topic(name)
        assert not broker.delete_topic(names[0])
        assert len(broker.topics) == 250

    run(tmp_path, scenario)


def test_close_returns_what_the_disk_format_has_no_room_for(tmp_path):
    async def scenario(broker):
        broker.get_topic(b"waits").publish(b"x", 5000)
        topic = broker.get_topic(b"t")
        topic.get_channel(b"c")
        topic.publish(b"y", 60_000)
        assert topic.channels[b"c"].deferred_count == 1

    def closed(broker, delays, lost):
        assert lost == 0
        assert list(delays["topics"]["waits"].values()) == [5000]
        assert len(delays["channels"]["t:c"]) == 1
        assert broker.topics[b"t"].publish(b"late") != 0

    run(tmp_path, scenario, closed)
