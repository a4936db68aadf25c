"""nsqc backup and nsqc restore: a copy of a data path that a daemon uses has everything that was acknowledged before."""

import json
import os
import shutil
import threading

import pytest

from nsqc.store.copying import MARK, PART, CopyError, back_up, restore
from tests.rules.support import set_rule
from tests.support.daemon import Daemon, wait_until
from tests.support.forks import run

FLAGS = ("--mem-queue-size=0", "--max-bytes-per-file=65536", "--sync-timeout=5ms")
TOPICS = ("logged", "queued")


def drained(node, topic, channel="c"):
    """The bodies of all unfinished messages."""
    client = node.connect().sub(topic, channel, 100)
    found = set()

    def left():
        stats = node.channel(topic, channel)
        return stats["depth"] + stats["deferred_count"] + stats["in_flight_count"]

    while left():
        message = client.message()
        found.add(message.body)
        client.send(b"FIN " + message.id + b"\n")
    client.close()
    return found


class Load:
    """Publishes to a log and to a disk queue, finishes a part of it, and sends dead letters back and forth."""

    def __init__(self, node):
        self.node = node
        self.acknowledged = {topic: set() for topic in TOPICS}
        self.finished = {topic: set() for topic in TOPICS}
        self.rounds = 0
        self.is_over = threading.Event()
        self.errors = []
        self._threads = [threading.Thread(target=self._guarded, args=(call, *arguments)) for call, *arguments in (
            *((self._publish, topic) for topic in TOPICS), *((self._consume, topic) for topic in TOPICS), (self._die,))]
        for thread in self._threads:
            thread.start()

    def _guarded(self, call, *arguments):
        try:
            call(*arguments)
        except Exception as error:
            self.errors.append(error)

    def _publish(self, topic):
        client, number = self.node.connect(), 0
        while not self.is_over.is_set():
            bodies = [b"%s %d %d " % (topic.encode(), number, each) + bytes(1000) for each in range(10)]
            client.ok(f"PUB {topic}", bodies[0])
            self.acknowledged[topic].add(bodies[0])
            self.node.post(f"/mpub?topic={topic}", b"\n".join(bodies[1:]))
            self.acknowledged[topic].update(bodies[1:])
            number += 1

    def _consume(self, topic):
        """Every second message; the others go back to the end."""
        client, number = self.node.connect().sub(topic, "c", 5), 0
        while not self.is_over.is_set():
            message = client.message()
            number += 1
            if number % 2:
                self.finished[topic].add(message.body)
                client.send(b"FIN " + message.id + b"\n")
            else:
                client.send(b"REQ " + message.id + b" 0\n")

    def _die(self):
        client = self.node.connect().sub("orders", "billing", 20)
        while not self.is_over.is_set():
            for _ in range(20):
                client.send(b"REQ " + client.message().id + b" 0\n")
            dead = 20 * (self.rounds + 1)
            wait_until(lambda: self.node.channel("orders", "billing").get("dead_letter_count") == dead)     # noqa: B023
            wait_until(lambda: redriven(self.node))
            self.rounds += 1

    def end(self):
        self.is_over.set()
        for thread in self._threads:
            thread.join()
        assert not self.errors, self.errors


@pytest.fixture
def busy(tmp_path):
    node = Daemon(tmp_path / "data", *FLAGS)
    for topic in ("logged", "orders", "orders.dead"):
        set_rule_of_topic(node, topic)
    for topic in TOPICS:
        node.post(f"/topic/create?topic={topic}")
        node.post(f"/channel/create?topic={topic}&channel=c")
    for topic in ("orders", "orders.dead"):
        node.post(f"/topic/create?topic={topic}")
    node.post("/channel/create?topic=orders&channel=billing")
    set_rule(node, "orders", "billing", max_attempts=1)
    node.post("/mpub?topic=orders", b"\n".join(b"letter %d" % number for number in range(20)))
    load = Load(node)
    yield load
    load.is_over.set()
    node.kill()


def set_rule_of_topic(node, topic):
    node.http("PUT", f"/topic/rules?topic={topic}", b'{"storage": "log"}')


def redriven(node):
    """Brings all dead letters back; whether there were none."""
    return json.loads(node.http("POST", "/dead/redrive?topic=orders.dead")[1])["redriven"] == 0


def check_copy(busy, tmp_path, number):
    rounds, least = busy.rounds, 300 * (number + 1)
    wait_until(lambda: busy.errors or (busy.rounds > rounds and all(len(busy.finished[topic]) > least for topic in TOPICS)))
    before = {topic: set(busy.acknowledged[topic]) for topic in TOPICS}
    back_up(str(tmp_path / "data"), str(tmp_path / f"backup{number}"))
    finished = {topic: set(busy.finished[topic]) for topic in TOPICS}
    target = tmp_path / f"restored{number}"
    restore(str(tmp_path / f"backup{number}"), str(target))
    other = Daemon(target, *FLAGS)
    try:
        for topic in TOPICS:
            missing = before[topic] - finished[topic] - drained(other, topic)
            assert not missing, (topic, len(missing), sorted(missing)[:3])
        set_rule(other, "orders", "billing", max_attempts=0)
        wait_until(lambda: redriven(other))
        assert drained(other, "orders", "billing") == {b"letter %d" % each for each in range(20)}
        assert "ERROR" not in other.log and "damage" not in other.log, other.log
    finally:
        other.kill()
        shutil.rmtree(target)


def test_nothing_acknowledged_before_is_missing(busy, tmp_path):
    """Under load, three times, with files that begin and end meanwhile."""
    for number in range(3):
        check_copy(busy, tmp_path, number)
    busy.end()
    assert busy.node.process.poll() is None


def command(*words, tmp_path):
    """(exit code, output) of a command."""
    with open(tmp_path / "told", "wb+") as file:
        code = run([*words], file).wait(60)
        file.seek(0)
        return code, file.read().decode()


def test_the_commands(tmp_path):
    node = Daemon(tmp_path / "data", "--topic-storage=log")
    node.post("/pub?topic=t", b"here")
    data, copy, target = (str(tmp_path / name) for name in ("data", "copy", "target"))
    code, told = command("backup", copy, "--data-path", data, tmp_path=tmp_path)
    assert code == 0 and told.startswith(f"{copy}: "), told
    node.stop()
    assert command("backup", copy, "--data-path", data, tmp_path=tmp_path)[0] == 1      # it is not empty
    assert command("backup", copy + "2", "--data-path", data + "x", tmp_path=tmp_path) == (
        2, f"nsqc backup: {data}x does not exist (see nsqc backup --help)\n")
    assert command("restore", copy, "--data-path", target, tmp_path=tmp_path)[0] == 0
    assert MARK not in os.listdir(target)
    other = Daemon(tmp_path / "target", "--topic-storage=log")
    other.post("/channel/create?topic=t&channel=c&from=beginning")
    assert drained(other, "t") == {b"here"}
    assert other.stop() == 0
    code, told = command("restore", copy, "--data-path", target, tmp_path=tmp_path)
    assert code == 1 and "is not empty" in told


def test_incomplete_backups_are_refused(tmp_path):
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    (data / "nsqd.dat").write_text("{}")
    (data / "t.diskqueue.000000.dat").write_bytes(b"x" * 100)
    assert back_up(str(data), str(copy)) == (2, 102)
    (copy / "t.diskqueue.000000.dat").write_bytes(b"x" * 99)
    with pytest.raises(CopyError, match="2 files with 101 bytes in place of 2 with 102"):
        restore(str(copy), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    with pytest.raises(CopyError, match="is not a complete backup"):
        restore(str(data), str(tmp_path / "new"))
    (tmp_path / f"other{PART}").mkdir()
    with pytest.raises(CopyError, match="from a backup that was interrupted"):
        back_up(str(data), str(tmp_path / "other"))
    (tmp_path / "link").symlink_to(data)
    for inside in data / "copy", tmp_path / "link/copy":
        with pytest.raises(CopyError, match="is in the data path itself"):
            back_up(str(data), str(inside))
