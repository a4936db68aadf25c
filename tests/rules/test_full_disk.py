"""Expired messages bound for a dead-letter topic while the disk is full: they wait, and move once it recovers."""

import time

import pytest

from tests.e2e import test_space
from tests.rules.support import set_rule, subscribe, until_channel, until_topic
from tests.support.counting import numbered
from tests.support.daemon import wait_until

pytestmark = test_space.pytestmark
small = test_space.small


@pytest.mark.parametrize("storage", ["memory", "log"])
def test_a_full_disk_keeps_expired_messages(small, storage):
    flags = ("--mem-queue-size=10", "--max-bytes-per-file=1000000", "--sync-timeout=100ms")
    node = small(40, f"--topic-storage={storage}", *flags)
    for topic in ("t", "filler"):
        node.post(f"/topic/create?topic={topic}")
        node.post(f"/channel/create?topic={topic}&channel=c")
    node.publish("t", *numbered(8000, size=1000), size=50)
    client = node.connect()
    while True:
        client.command("PUB filler", b"x" * 500_000)
        if client.frame()[0] == 1:
            break
    time.sleep(1)       # all of them have expired
    set_rule(node, "t", "c", message_ttl="1s", expired="dead-letter")
    wait_until(lambda: "cannot be moved to topic t.dead and wait - " in node.log)
    stats = wait_until(lambda: node.channel("t", "c") if node.channel("t", "c")["deferred_count"] else None)
    assert stats["depth"] + stats["deferred_count"] + stats.get("dead_letter_count", 0) == 8000
    assert subscribe(node, "t", rdy=100).quiet(0.3)
    node.post("/topic/delete?topic=filler")
    until_channel(node, "t", depth=0, deferred_count=0, expired_count=8000, dead_letter_count=8000)
    until_topic(node, "t.dead", depth=8000)
    assert node.stop() == 0
