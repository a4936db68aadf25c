"""The journal of a log is compacted while channels work, and a kill at any moment costs nothing."""

from __future__ import annotations

import random

import pytest

from tests.support.daemon import Client, Daemon, wait_until

COUNT = 3000
FLAGS = ("--topic-storage=log", "--max-rdy-count=10000", "--msg-timeout=15m", "--max-msg-timeout=30m")


def numbers(node: Daemon) -> list[int]:
    """Of the files of the journal."""
    return sorted(int(path.suffix[1:]) for path in (node.data_path / "t.log").glob("cursors.[0-9]*"))


def is_replaced(node: Daemon, kill_at: str) -> bool:
    """Whether a compaction has come so far, as often as files are looked at."""
    folder = node.data_path / "t.log"
    if kill_at == "new":
        return (folder / "cursors.tmp").exists()
    return len(numbers(node)) > 1 if kill_at == "both" else numbers(node)[0] > 2


class Work:
    """Requeues all messages again and again, and finishes a few of them each time."""

    def __init__(self, node: Daemon):
        self.node = node
        self.dice = random.Random(7)
        self.pending = {b"%d" % number for number in range(COUNT)}
        self.doubtful: set[bytes] = set()       # finished since the journal was known to be written
        self.rounds = 0

    def run(self, kill_at: str) -> None:
        client = self.node.connect().sub("t", "c", 2 * COUNT)
        while not is_replaced(self.node, kill_at):
            self.round(client)
        if kill_at == "third":
            self.node.post("/channel/create?topic=t&channel=other")      # answered when it is in the journal
            self.doubtful = set()
        self.node.kill()

    def round(self, client: Client) -> None:
        messages = client.messages(len(self.pending))
        assert {message.body for message in messages} == self.pending
        assert {message.attempts for message in messages} == {self.rounds + 1}
        self.dice.shuffle(messages)
        self.doubtful = {message.body for message in messages[:5]} if len(self.pending) > 100 else set()
        done, again = messages[:len(self.doubtful)], messages[len(self.doubtful):]
        client.send(b"".join(b"FIN %s\n" % message.id for message in done)
                    + b"".join(b"REQ %s 0\n" % message.id for message in again))
        self.pending -= self.doubtful
        self.rounds += 1


@pytest.mark.parametrize("kill_at", ["new", "both", "third"])
def test_a_journal_is_replaced(daemon, kill_at):
    node = daemon(*FLAGS)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.connect().pub("t", *(b"%d" % number for number in range(COUNT)))
    work = Work(node)
    work.run(kill_at)
    node.start()
    client = node.connect().sub("t", "c", 2 * COUNT)
    wait_until(lambda: node.channel("t", "c")["depth"] == 0)
    delivered = client.messages(node.channel("t", "c")["in_flight_count"])
    bodies = {message.body for message in delivered}
    assert work.pending <= bodies <= work.pending | work.doubtful
    assert {message.attempts for message in delivered} <= {work.rounds, work.rounds + 1}
    assert len(delivered) == len(bodies)
    client.send(b"".join(b"FIN %s\n" % message.id for message in delivered))
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
    node.post("/pub?topic=t", b"new")
    assert client.messages(1)[0].body == b"new"
    assert node.stop() == 0 and "compact" not in node.log and "damaged" not in node.log
    assert len(numbers(node)) <= 2      # one with the state, one with what followed
