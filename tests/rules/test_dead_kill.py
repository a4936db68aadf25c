"""kill -9 before each write, sync and rename of a move: each letter is in the channel or in the dead-letter topic, never
in neither, and at most once in each."""

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from perf.programs import program
from tests.rules.letters import die, lines, waiting
from tests.rules.support import publish, set_rule, subscribe, until_channel
from tests.support.daemon import wait_until

BODIES = [b"%d" % number for number in range(20)]
MOST_STEPS = 40


@pytest.fixture
def doomed(daemon, tmp_path):
    """Makes a daemon that dies before the step whose number the returned function gets."""
    shim = program("kill-at.so", [Path(__file__).parent.parent / "support" / "killat.c"], "-shared", "-fPIC", "-ldl")
    order = tmp_path / "kill"

    def make(*flags: str):
        node = daemon("--topic-storage=log", *flags,
                      env={**os.environ, "LD_PRELOAD": str(shim), "NSQC_TEST_KILL": str(order)})

        def arm(step: int) -> None:
            (tmp_path / "new").write_text(str(step))
            (tmp_path / "new").rename(order)

        def again() -> None:
            node.process.wait(60)
            order.unlink()
            node.start()

        return node, arm, again

    return make


def ended(node, done) -> bool:
    """Waits until a move is done, or has killed the daemon: then returns True."""
    def over() -> str | None:
        if node.process.poll() is not None:
            return "killed"
        with suppress(OSError, AssertionError, ValueError):
            return "done" if done() else None
        return None

    return wait_until(over, "the end of the move") == "killed"


def in_channel(node) -> Counter:
    """The messages of the channel, which are then finished."""
    client = subscribe(node, "t", "c", rdy=100)
    count = node.channel("t", "c")
    total = count["depth"] + count["in_flight_count"] + count["deferred_count"]
    return Counter(message.body for message in client.messages(total, finish=True))


@pytest.mark.parametrize("sync", ["fsync"])
def test_dead_lettering(doomed, sync):
    kills = 0
    for step in range(1, MOST_STEPS):
        node, arm, again = doomed(f"--log-sync={sync}")
        set_rule(node, "t", "c", max_attempts=1)
        client = subscribe(node, "t", "c", rdy=100)
        publish(node, "t", *BODIES)
        messages = client.messages(len(BODIES))
        arm(step)
        with suppress(OSError):
            for message in messages:
                client.command(f"REQ {message.id.decode()} 0")
        if not ended(node, lambda node=node: node.channel("t", "c").get("dead_letter_count") == len(BODIES)
                     and not any(node.channel("t", "c")[key] for key in ("depth", "deferred_count"))):
            break
        kills += 1
        (node.data_path / "nsqc.channel-rules.json").unlink()       # or the next run moves the rest at once
        again()
        moved = Counter(line["body"].encode() for line in lines(node, "t.dead")) if b"t.dead" in node.http(
            "GET", "/stats?format=json")[1] else Counter()
        kept = in_channel(node)
        assert set(moved) | set(kept) == set(BODIES), step
        assert max([*moved.values(), *kept.values()]) == 1, step
        node.kill()
    assert kills >= 3


@pytest.mark.parametrize("storage", ["log", "memory"])
def test_redriving(doomed, storage):
    kills = 0
    for step in range(1, MOST_STEPS):
        node, arm, again = doomed()
        node.http("PUT", "/topic/rules?topic=t", b'{"storage": "%s"}' % storage.encode())
        die(node, "t", "c", *BODIES)
        arm(step)
        with suppress(OSError, ValueError):
            node.http("POST", "/dead/redrive?topic=t.dead")
        if not ended(node, lambda node=node: waiting(node, "t.dead") == []):
            break
        kills += 1
        again()
        set_rule(node, "t", "c", max_attempts=None)
        left, kept = Counter(waiting(node, "t.dead")), in_channel(node)
        assert set(left) | set(kept) == set(BODIES), step
        assert max([*left.values(), *kept.values()]) == 1, step
        node.kill()
    assert kills >= 2
    until_channel(node, "t", "c", depth=len(BODIES))
