"""overflow = "drop-oldest": unfinished messages removed from a log no longer count anywhere."""

from __future__ import annotations

import json
import threading
from contextlib import suppress

import pytest

from tests.support.daemon import Daemon, batch, wait_until

DROPS = ("--topic-storage=log", "--log-overflow=drop-oldest")


def described(node: Daemon) -> dict:
    return json.loads(node.http("GET", "/topic/log?topic=t")[1])


def unfinished(node: Daemon) -> dict[str, int]:
    """The channel's positions relative to the end of the log, and its counts."""
    log = described(node)
    channel = log["channels"][0]
    return {"position": channel["position"] - log["next_offset"], "oldest": channel["oldest_unfinished"] - log["next_offset"],
            **{name: channel[name] for name in ("lag_messages", "in_flight", "deferred")}}


@pytest.mark.parametrize("limits", [("--log-retain-bytes=1", "--max-bytes-per-file=1"), ("--log-retain-bytes=1",),
                                    ("--log-retain-bytes=4000", "--max-bytes-per-file=1000")])
def test_messages_that_are_removed_when_they_have_just_been_written(daemon, limits):
    node = daemon(*DROPS, *limits)
    node.post("/topic/create?topic=t")
    for channel in "ab":
        node.post(f"/channel/create?topic=t&channel={channel}")

    def publish(*lines: tuple[str, bytes]) -> None:
        client = node.connect()
        for _ in range(400):
            for line, body in lines:
                client.ok(line, body)
        client.close()

    def consume() -> None:
        client = node.connect().sub("t", "a", 10)
        while not ended.is_set():
            with suppress(TimeoutError):
                client.fin(client.message(0.01))
        client.close()

    ended = threading.Event()
    threads = [threading.Thread(target=publish, args=lines) for lines in (
        [("PUB t", b"x" * 300)], [("MPUB t", batch(*[b"x" * 300] * 20))], [("DPUB t 2000", b"x" * 300)],
        [("DPUB t 2000", b"x" * 300), ("MPUB t", batch(*[b"x" * 300] * 20))])]
    consumer = threading.Thread(target=consume)
    for thread in (*threads, consumer):
        thread.start()
    for thread in threads:
        thread.join()
    ended.set()
    consumer.join()
    assert node.process.poll() is None
    log = described(node)
    assert log["next_offset"] == 400 * 42 + 400 and log["first_offset"] > 15_000
    # The remaining messages are delivered, and nothing keeps a removed segment.
    client = node.connect().sub("t", "b", 1000)
    left = log["next_offset"] - log["first_offset"]
    bodies = [message.body for message in client.messages(left, finish=True)]
    assert bodies == [b"x" * 300] * left
    wait_until(lambda: described(node)["channels"][1]["lag_messages"] == 0, "the rest")


def test_what_waits_is_forgotten_with_its_segments(daemon):
    node = daemon(*DROPS, "--log-retain-bytes=100000", "--max-bytes-per-file=10000")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    publisher, consumer = node.connect(), node.connect().sub("t", "c", 200)
    publisher.ok("MPUB t", batch(*[b"requeued"] * 100))
    for _ in range(50):
        publisher.ok("DPUB t 900000", b"deferred")
    for message in consumer.messages(100):
        consumer.command(f"REQ {message.id.decode()} 900000")
    wait_until(lambda: node.channel("t", "c")["deferred_count"] == 150, "the deferred ones")
    for _ in range(60):
        publisher.ok("MPUB t", batch(*[b"x" * 100] * 100))
        consumer.messages(100, finish=True)
    done = dict.fromkeys(("position", "oldest", "lag_messages", "in_flight", "deferred"), 0)
    wait_until(lambda: unfinished(node) == done, "the end")
    channel = node.channel("t", "c")
    assert (channel["depth"], channel["deferred_count"]) == (0, 0)
    # Nor do removed messages fill a log that refuses publishes at its limit.
    assert node.http("PUT", "/topic/rules?topic=t", b'{"overflow": "refuse"}')[0] == 200
    for _ in range(40):
        wait_until(lambda: node.http("POST", "/mpub?topic=t", b"\n".join([b"y" * 100] * 100))[0] == 200, "room")
        consumer.messages(100, finish=True)
    node.kill()
    node.start()
    # Messages finished in the last loop iteration may come again.
    assert unfinished(node)["deferred"] == 0


def test_a_hundred_thousand_deferred_ones_are_forgotten(daemon):
    """Messages in existing segments still wait."""
    node = daemon(*DROPS, "--log-retain-bytes=2000000", "--max-bytes-per-file=100000")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    client = node.connect()
    line = b"DPUB t 900000\n" + (60).to_bytes(4, "big") + b"d" * 60
    for _ in range(100):
        client.send(line * 1000)
        for _ in range(1000):
            assert client.frame() == (0, b"OK")

    def there() -> int:
        log = described(node)
        assert log["next_offset"] == 100_000
        return log["next_offset"] - log["first_offset"]

    wait_until(lambda: node.channel("t", "c")["deferred_count"] == there(), "the deferred ones that there are")
    assert 10_000 < there() < 40_000
    assert node.channel("t", "c")["depth"] == 0


@pytest.mark.parametrize("delay", [0, 900_000])
def test_what_is_in_flight_when_it_is_removed_does_not_come_back(daemon, delay):
    node = daemon(*DROPS, "--log-retain-bytes=20000", "--max-bytes-per-file=4000")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    publisher, consumer = node.connect(), node.connect().sub("t", "c", 2)
    publisher.pub("t", b"first", b"second")
    first, second = consumer.messages(2)
    for _ in range(60):
        publisher.ok("MPUB t", batch(*[b"x" * 100] * 10))
    wait_until(lambda: described(node)["first_offset"] > 100, "retention")
    consumer.command(f"REQ {first.id.decode()} {delay}")
    consumer.fin(second)
    left = described(node)["next_offset"] - described(node)["first_offset"]
    assert {message.body for message in consumer.messages(left, finish=True)} == {b"x" * 100}
    wait_until(lambda: set(unfinished(node).values()) == {0}, "the end")
    assert consumer.quiet(0.2)
    channel = node.channel("t", "c")
    assert (channel["depth"], channel["in_flight_count"], channel["deferred_count"], channel["requeue_count"]) == (0, 0, 0, 1)
