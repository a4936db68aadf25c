"""Few descriptors and many log-backed topics: a job closes its files itself, without waiting for the loop."""

from __future__ import annotations

import resource

import pytest

TOPICS, ROUNDS = 150, 3


@pytest.mark.parametrize(("sync", "channels"), [("write", 0), ("fsync", 1)])
def test_publishes_to_many_topics_at_a_time(daemon, sync, channels):
    node = daemon("--topic-storage=log", f"--log-sync={sync}",
                  preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    for number in range(TOPICS):
        node.post(f"/topic/create?topic=t{number}")
        if channels:
            node.post(f"/channel/create?topic=t{number}&channel=c")
    client = node.connect()
    for _ in range(ROUNDS):
        client.send(b"".join(b"PUB t%d\n\0\0\0\1x" % number for number in range(TOPICS)))
        assert [client.frame() for _ in range(TOPICS)] == [(0, b"OK")] * TOPICS
    assert "Too many open files" not in node.log
    assert len(node.descriptors()) < 48
    node.kill()
    node.start()
    depths = {topic["topic_name"]: topic["depth"] + sum(one["depth"] for one in topic["channels"])
              for topic in node.stats()["topics"]}
    assert depths == {f"t{number}": ROUNDS for number in range(TOPICS)}
