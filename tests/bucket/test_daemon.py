"""Daemons with a bucket: a node that lost its machine continues elsewhere; a node that was replaced ends."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from functools import partial

import pytest

from nsqc.bucket.reading import NodeReader
from nsqc.bucket.store import open_bucket
from nsqc.commands.app import run
from nsqc.metrics.declared import OF_BUCKET
from nsqc.options.rules import ChannelRules
from tests.bucket.s3 import Server
from tests.bucket.support import read_range
from tests.support.daemon import Client, Daemon, batch, logged, wait_until
from tests.support.patience import WAIT_SECONDS

NODE = "--node-name=nsqd-1"
FORCE = "--bucket-take-over"


@pytest.fixture
def machine(daemon, tmp_path):
    """machine(*flags) -> a daemon on an empty disk, with the node's bucket."""
    def start(*flags: str, sync: str = "write", **more) -> Daemon:
        return daemon(f"--bucket=file://{tmp_path}/bucket", NODE, "--topic-storage=log", f"--log-sync={sync}",
                      "--bucket-linger=20ms", *flags, **more)

    return start


@pytest.fixture
def root(tmp_path):
    return open_bucket(f"file://{tmp_path}/bucket")


def shipped(root, topic: str, count: int) -> None:
    """Waits until the bucket has this many messages of a topic."""
    def is_there() -> bool:
        logs = NodeReader(root, "nsqd-1").logs(topic)
        return sum(part.end - part.first for _, log in logs for part in log.frames) >= count

    wait_until(is_there, f"{count} messages in the bucket")


def lines_of(node: Daemon, topic: str) -> list[dict]:
    """All that a reader by offset sees."""
    found: list[dict] = []
    offset = 0
    while True:
        status, data = node.http("GET", f"/topic/read?topic={topic}&offset={offset}&max_bytes=10000000")
        assert status == 200, (status, data)
        lines = [json.loads(line) for line in data.splitlines()]
        if not lines:
            return found
        found += lines
        offset = lines[-1]["offset"] + 1


def lose(node: Daemon) -> None:
    """The machine is gone, with its disk."""
    node.kill()
    shutil.rmtree(node.data_path)


def test_another_machine_goes_on(machine, root):
    one = machine("--max-bytes-per-file=300000")
    one.post("/topic/create?topic=orders")
    one.post("/channel/create?topic=orders&channel=billing")
    one.post("/channel/create?topic=orders&channel=mail")
    one.post("/channel/pause?topic=orders&channel=mail")
    bodies = [b"order %d " % number + os.urandom(number % 3000) for number in range(1000)]
    for at in range(0, len(bodies), 100):
        one.post("/mpub?topic=orders&binary=true", batch(*bodies[at:at + 100]))
    one.post("/topic/create?topic=events")
    one.post("/channel/create?topic=events&channel=audit")
    one.post("/pub?topic=events&defer=3600000", b"later")
    assert one.http("PUT", "/topic/rules?topic=events", b'{"retain_time": "2h"}')[0] == 200
    consumer = one.connect().sub("orders", "billing", 10)
    for message in consumer.messages(10):
        if message.body != bodies[3]:
            consumer.fin(message)
    wait_until(lambda: one.channel("orders", "billing")["in_flight_count"] == 10)
    before = lines_of(one, "orders")
    shipped(root, "orders", 1000)
    shipped(root, "events", 1)
    wait_until(lambda: NodeReader(root, "nsqd-1").whole.head.metadata.count(b"7200"))
    wait_until(lambda: positions_are_shipped(root, one))
    lose(one)

    two = machine(FORCE)
    assert lines_of(two, "orders") == before
    assert two.channel("orders", "mail")["paused"] and two.channel("orders", "mail")["depth"] == 1000
    assert json.loads(two.http("GET", "/topic/rules?topic=events")[1])["retain_time"] == "2h0m0s"
    consumer = two.connect().sub("orders", "billing", 2500)
    got = [message.body for message in consumer.messages(991, finish=True)]
    assert sorted(got) == sorted([bodies[3], *bodies[10:]])
    assert two.channel("events", "audit")["deferred_count"] == 1
    two.publish("orders", b"new")
    new = lines_of(two, "orders")[-1]
    assert new["offset"] >= 1 << 40 and int(new["id"], 16) > max(int(line["id"], 16) for line in before)
    assert two.stop() == 0

    reader = NodeReader(root, "nsqd-1")
    ((log_id, log),) = reader.logs("orders")
    ranges = reader.plan(log_id, 0, log.frames[-1].end, 300)
    assert [row[3] for part in ranges for row in read_range(root.below("nsqd-1"), part)] == [*bodies, b"new"]


def test_a_retried_publish_is_stored_once_across_machines(machine, root):
    one = machine(sync="bucket")
    assert one.http("PUT", "/topic/rules?topic=orders", b'{"dedupe": "1h"}')[0] == 200

    def publish(node: Daemon, publish_id: str) -> None:
        request = urllib.request.Request(f"http://127.0.0.1:{node.http_port}/pub?topic=orders", data=b"order",
                                         headers={"X-NSQ-Publish-Id": publish_id})
        assert urllib.request.urlopen(request, timeout=WAIT_SECONDS).status == 200

    for publish_id in "one", "two", "two":
        publish(one, publish_id)
    wait_until(lambda: NodeReader(root, "nsqd-1").whole.head.metadata.count(b"dedupe"))
    lose(one)
    two = machine(FORCE, sync="bucket")
    for publish_id in "two", "three", "one":
        publish(two, publish_id)
    assert len(lines_of(two, "orders")) == 3


def positions_are_shipped(root, node: Daemon) -> bool:
    """Whether the bucket has the newest positions of the node's channels."""
    before = NodeReader(root, "nsqd-1").whole.head.number
    time.sleep(0.3)
    return NodeReader(root, "nsqd-1").whole.head.number == before


def test_a_restart_ships_the_rest_and_restores_nothing(machine, root):
    one = machine()
    one.publish("orders", *[b"%d" % number for number in range(100)])
    shipped(root, "orders", 100)
    one.kill()
    one.start()
    one.publish("orders", b"more")
    assert [line["offset"] for line in lines_of(one, "orders")] == [*range(101)]
    one.restart()
    assert "restored" not in one.log and "watching" not in one.log
    assert [line["offset"] for line in lines_of(one, "orders")] == [*range(101)]
    shipped(root, "orders", 101)
    whole = NodeReader(root, "nsqd-1").whole
    assert whole.head.epoch == 3


def test_a_deleted_topic_is_gone_elsewhere_too(machine, root):
    one = machine()
    for topic in "orders", "events":
        one.publish(topic, b"one")
        shipped(root, topic, 1)
    one.post("/topic/delete?topic=orders")
    wait_until(lambda: NodeReader(root, "nsqd-1").logs("orders") == [])
    wait_until(lambda: b"orders" not in NodeReader(root, "nsqd-1").whole.head.metadata)
    lose(one)
    two = machine(FORCE)
    assert [topic["topic_name"] for topic in two.stats()["topics"]] == ["events"]


CHANGES = [
    ("POST", "/topic/delete?topic=orders", b"", lambda node: "orders" not in [topic["topic_name"] for topic in node.stats()["topics"]]),
    ("POST", "/topic/pause?topic=orders", b"", lambda node: node.stats("orders")["paused"]),
    ("POST", "/channel/delete?topic=orders&channel=billing", b"", lambda node: node.stats("orders")["channels"] == []),
    ("POST", "/channel/create?topic=orders&channel=mail&from=5", b"", lambda node: node.channel("orders", "mail")["depth"] == 5),
    ("POST", "/channel/empty?topic=orders&channel=billing", b"", lambda node: node.channel("orders", "billing")["depth"] == 0),
    ("POST", "/channel/pause?topic=orders&channel=billing", b"", lambda node: node.channel("orders", "billing")["paused"]),
    ("POST", "/channel/seek?topic=orders&channel=billing&to=7", b"", lambda node: node.channel("orders", "billing")["depth"] == 3),
    ("PUT", "/topic/rules?topic=orders", b'{"retain_time": "2h"}',
     lambda node: b"2h0m0s" in node.http("GET", "/topic/rules?topic=orders")[1]),
    ("PUT", "/channel/rules?topic=orders&channel=billing", b'{"max_attempts": 3}',
     lambda node: b'"max_attempts":3' in node.http("GET", "/channel/rules?topic=orders&channel=billing")[1]),
]


@pytest.mark.parametrize("method, path, body, is_done", CHANGES, ids=[path.partition("?")[0][1:] for _, path, _, _ in CHANGES])
def test_an_answered_change_survives_the_machine(machine, method, path, body, is_done):
    """Which is lost at once, before another commit is due."""
    one = machine("--bucket-linger=500ms", sync="bucket")
    one.publish("orders", b"first")
    one.post("/channel/create?topic=orders&channel=billing&from=beginning")
    one.publish("orders", *[b"%d" % number for number in range(9)])
    assert one.http(method, path, body)[0] == 200
    lose(one)
    assert is_done(machine(FORCE, sync="bucket"))


def test_changes_wait_for_the_bucket(machine, tmp_path):
    node = machine("--bucket-timeout=1s", sync="bucket")
    assert node.http("PUT", "/topic/rules?topic=plain", b'{"sync": "write"}')[0] == 200
    for topic in "orders", "plain":
        node.post(f"/topic/create?topic={topic}")
    (tmp_path / "bucket").rename(tmp_path / "away")
    (tmp_path / "bucket").write_text("not a folder")
    status, text = node.http("POST", "/topic/pause?topic=orders")
    assert status == 503 and b"--bucket-timeout" in text and b"may still appear" in text
    assert node.stats("orders")["paused"]
    node.post("/topic/pause?topic=plain")       # its answers do not depend on the bucket
    status, text = node.http("PUT", "/topic/rules?topic=orders", b'{"sync": "write"}')
    assert status == 503, text                  # as the rule was
    assert node.http("PUT", "/topic/rules?topic=plain", b'{"sync": "bucket"}')[0] == 503     # and as it is now
    (tmp_path / "bucket").unlink()
    (tmp_path / "away").rename(tmp_path / "bucket")
    node.post("/topic/unpause?topic=plain")


def test_a_bucket_that_is_removed_is_not_begun_again(machine, tmp_path):
    """Commits that follow it would be worth nothing to a successor."""
    node = machine("--bucket-timeout=1s", sync="bucket")
    node.publish("orders", b"one")
    (tmp_path / "bucket").rename(tmp_path / "away")
    status, text = node.http("POST", "/pub?topic=orders", b"two")
    assert (status, b"the folder was removed" in text) == (503, True), text
    assert not (tmp_path / "bucket").exists()
    (tmp_path / "away").rename(tmp_path / "bucket")
    node.publish("orders", b"three")
    assert node.stop() == 0
    # A new bucket is none of these files, until people say so.
    (tmp_path / "bucket").rename(tmp_path / "away")
    with pytest.raises(AssertionError, match=r"if that bucket is lost, remove this file"):
        node.start()
    (node.data_path / "bucket.json").unlink()
    node.start()
    node.publish("orders", b"four")
    lose(node)
    node = machine(FORCE)
    assert [line["body"] for line in lines_of(node, "orders")] == ["one", "two", "three", "four"]


def test_a_file_that_cannot_be_read_delays_what_is_shipped(machine, root):
    """Nothing that was noted with it is skipped."""
    node = machine()
    node.publish("orders", b"one")
    shipped(root, "orders", 1)
    wait_until(lambda: positions_are_shipped(root, node))
    loop = node.data_path / ChannelRules.scope.file
    loop.symlink_to(loop)
    node.publish("orders", b"two")
    node.post("/channel/create?topic=orders&channel=billing&from=beginning")
    wait_until(lambda: json.loads(node.http("GET", "/info")[1])["bucket"]["errors"])
    node.publish("orders", b"three")
    node.post("/channel/create?topic=orders&channel=mail&from=beginning")
    time.sleep(1.5)     # it tries again each second
    loop.unlink()
    shipped(root, "orders", 3)
    wait_until(lambda: positions_are_shipped(root, node))
    lose(node)
    node = machine(FORCE)
    assert [node.channel("orders", channel)["depth"] for channel in ("billing", "mail")] == [3, 3]


def test_a_clean_stop_ships_everything_and_needs_no_watch(machine):
    one = machine("--bucket-linger=1m")
    one.publish("orders", *[b"%d" % number for number in range(100)])
    assert one.stop() == 0
    shutil.rmtree(one.data_path)
    two = machine()
    assert "watching" not in two.log
    assert [line["body"] for line in lines_of(two, "orders")] == [str(number) for number in range(100)]


def test_a_publish_with_sync_bucket_waits_for_the_bucket(machine, root, tmp_path):
    node = machine("--bucket-timeout=1s", sync="bucket")
    client = node.connect()
    client.pub("orders", b"one")
    assert sum(part.end - part.first for _, log in NodeReader(root, "nsqd-1").logs("orders") for part in log.frames) == 1
    assert [line["body"] for line in lines_of(node, "orders")] == ["one"]
    (tmp_path / "bucket").rename(tmp_path / "away")     # while nothing has to be shipped
    (tmp_path / "bucket").write_text("not a folder")
    consumer = node.connect().sub("orders", "billing", 10)
    client.command("PUB orders", b"two")
    # Consumers get it at once; readers by offset only what the bucket has.
    assert {message.body for message in consumer.messages(1)} <= {b"one", b"two"}
    assert [line["body"] for line in lines_of(node, "orders")] == ["one"]
    kind, text = client.frame()
    assert (kind, text[:21]) == (1, b"E_PUB_FAILED PUB fail") and b"--bucket-timeout" in text
    status, text = node.http("POST", "/pub?topic=orders", b"three")
    assert status == 503 and b"--bucket-timeout" in text
    client = node.connect()
    client.command("PUB deleted", b"soon")
    wait_until(lambda: node.http("GET", "/stats?topic=deleted&format=json")[1].count(b'"message_count":1'))
    assert node.http("POST", "/topic/delete?topic=deleted")[0] == 503
    assert client.frame()[1][:2] in (b"OK", b"E_")      # whichever was first
    (tmp_path / "bucket").unlink()
    (tmp_path / "away").rename(tmp_path / "bucket")
    node.connect().pub("orders", b"four")
    assert [line["body"] for line in lines_of(node, "orders")] == ["one", "two", "three", "four"]


def test_a_node_that_was_replaced_ends(machine, daemon, root, capsys):
    """It was only paused, and continues after another one has taken over. What it never shipped is published again."""
    one = machine("--bucket-linger=5s", sync="bucket")
    consumer = one.connect().sub("orders", "billing")
    one.publish("orders", *[b"%d" % number for number in range(10)])
    client = one.connect()
    client.command("PUB orders", b"one's")      # the next commit follows in five seconds
    wait_until(lambda: one.stats("orders")["message_count"] == 11)
    one.process.send_signal(signal.SIGSTOP)
    two = machine(FORCE, sync="bucket")
    two.publish("orders", b"two's")
    one.process.send_signal(signal.SIGCONT)
    answer = client.frame()
    assert answer is None or answer[0] == 1, answer
    assert one.process.wait(WAIT_SECONDS) == 1
    logged(one, "was written by")
    logged(one, "no longer owns the node")
    assert consumer.frame() is None
    bodies = [line["body"] for line in lines_of(two, "orders")]
    assert bodies == [*map(str, range(10)), "two's"]
    with pytest.raises(AssertionError, match="nsqc bucket adopt"):
        one.start()
    code = run(["bucket", "adopt", root.uri, "nsqd-1", "--data-path", str(one.data_path)])
    out = capsys.readouterr().out
    assert code == 0 and "orders: 1 messages from offset 10 on were never shipped" in out, out
    aside = daemon("--topic-storage=log", data_path=one.data_path.with_name(one.data_path.name + ".aside"))
    place = ("--nsqd", f"127.0.0.1:{aside.tcp_port}", "--http", f"127.0.0.1:{aside.http_port}")
    assert run(["channel", "create", "orders", "again", "--from", "10", *place]) == 0
    relay = subprocess.Popen([sys.executable, "-m", "nsqc", "relay", "orders", "--channel", "again", *place,
                              "--to", f"127.0.0.1:{two.tcp_port}"])
    wait_until(lambda: len(lines_of(two, "orders")) == 12)
    relay.terminate()
    assert relay.wait(WAIT_SECONDS) == 0
    assert two.stop() == 0
    one.start()
    assert [line["body"] for line in lines_of(one, "orders")] == [*map(str, range(10)), "two's", "one's"]


def test_a_node_that_was_replaced_takes_nothing_more(machine):
    """Not even for topics in memory, until it ends."""
    one = machine()
    assert one.http("PUT", "/topic/rules?topic=memory", b'{"storage": "memory"}')[0] == 200

    def publish(client: Client) -> object:
        with suppress(OSError):
            client.command("PUB memory", b"late")
            return client.frame()
        return None

    accepted = answer = (0, b"OK")
    clients = [one.connect()]
    one.process.send_signal(signal.SIGSTOP)
    machine(FORCE)
    clients[0].command("PUB orders", b"noticed")
    one.process.send_signal(signal.SIGCONT)
    while answer == accepted:
        try:
            clients.append(one.connect())
        except OSError:     # it ends, and spares the newest clients for a moment
            break
        answer = publish(clients[-1])
    if answer == accepted:
        answer = publish(clients[-1])
    assert answer is None or (answer[0] == 1 and b"no longer owns the node" in answer[1]), answer


def test_two_nodes_fight_for_one_name(machine, root):
    """Each takes over from the other; what was acknowledged is there."""
    acknowledged: set[bytes] = set()
    for number in range(4):
        node = machine(FORCE, sync="bucket")
        node.publish("orders", b"%d" % number)
        acknowledged.add(b"%d" % number)
    assert {line["body"].encode() for line in lines_of(node, "orders")} == acknowledged


def test_a_living_node_is_not_replaced(machine):
    one = machine()
    with pytest.raises(AssertionError, match="is alive on"):
        machine()
    one.publish("orders", b"one")
    assert one.process.poll() is None


def test_what_people_see_of_the_bucket(machine, capfd):
    node = machine()
    node.publish("orders", b"one")

    def info() -> dict:
        return json.loads(node.http("GET", "/info")[1])["bucket"]

    wait_until(lambda: info()["lag_bytes"] == 0 and info()["commits"])
    assert (info()["node"], info()["epoch"], info()["fenced"], info()["taken_from"]) == ("nsqd-1", 1, "", "")
    assert time.time() - 600 < info()["owned_since"] <= time.time()
    metrics = node.http("GET", "/metrics")[1].decode()
    for metric in OF_BUCKET:
        assert f"\n{metric.sample} " in metrics, metric.name
    assert run(["nodes", "--nsqd", f"127.0.0.1:{node.tcp_port}", "--http", f"127.0.0.1:{node.http_port}"]) == 0
    assert "epoch 1, lag " in capfd.readouterr().out
    assert run(["topic", "log", "orders", "--nsqd", f"127.0.0.1:{node.tcp_port}", "--http",
                f"127.0.0.1:{node.http_port}"]) == 0
    rows = [line.split() for line in capfd.readouterr().out.splitlines()]
    state = json.loads(node.http("GET", "/topic/log?topic=orders")[1])
    assert rows[0][3:5] == ["BYTES", "LOCAL"] and rows[1][3:5] == [str(state["bytes"])] * 2
    lose(node)
    node = machine(FORCE)
    assert info()["taken_from"] == socket.gethostname()
    assert run(["nodes", "--nsqd", f"127.0.0.1:{node.tcp_port}", "--http", f"127.0.0.1:{node.http_port}"]) == 0
    assert f"epoch 2, from {socket.gethostname()} " in capfd.readouterr().out


def test_a_start_that_is_refused_ends(daemon, tmp_path):
    (tmp_path / "file").write_text("")
    for uri in f"file://{tmp_path}/file", f"file://{tmp_path}/file/bucket":
        with pytest.raises(AssertionError, match=f"left with 1: .*{tmp_path}/file: not a folder"):
            daemon(f"--bucket={uri}", env={**os.environ})       # with an environment, it is a process of its own


def test_a_library_that_is_missing_is_said_in_one_line(daemon, tmp_path):
    blocked = tmp_path / "obstore.py"
    blocked.write_text("raise ImportError")
    with pytest.raises(AssertionError, match=r"nsqc\[bucket\]"):
        daemon("--bucket=s3://acme/nsq", "--topic-storage=log", env={**os.environ, "PYTHONPATH": str(tmp_path)})


def test_what_a_power_failure_took_from_the_disk_comes_from_the_bucket(machine, root):
    one = machine("--log-retain-time=1h", "--max-bytes-per-file=20000")
    one.post("/topic/create?topic=orders")
    one.post("/channel/create?topic=orders&channel=billing")
    for at in range(0, 300, 30):
        one.publish("orders", *[b"%d" % number for number in range(at, at + 30)])
    consumer = one.connect().sub("orders", "billing", 50)
    assert [message.body for message in consumer.messages(50, finish=True)] == [b"%d" % number for number in range(50)]
    wait_until(lambda: one.channel("orders", "billing")["in_flight_count"] == 50)
    shipped(root, "orders", 300)
    wait_until(lambda: positions_are_shipped(root, one))
    before = lines_of(one, "orders")
    one.kill()
    folder = one.data_path / "orders.log"
    newest = max(folder.glob("*.log"))
    with newest.open("r+b") as file:
        file.truncate(newest.stat().st_size // 2)
    for journal in folder.glob("cursors.*"):
        journal.unlink()
    one.start()
    logged(one, "restored")
    assert lines_of(one, "orders") == before
    assert one.channel("orders", "billing")["depth"] == 250


def has_left(node: Daemon, count: int) -> bool:
    channel = node.channel("orders", "billing")
    return channel["depth"] + channel["in_flight_count"] == count


def test_positions_survive_checkpoints(machine, root):
    """Journals are folded into states: by checkpoints, at each start, and when they are restored."""
    node = machine(FORCE)
    node.post("/topic/create?topic=orders")
    node.post("/channel/create?topic=orders&channel=billing")
    finished: set[bytes] = set()
    published: set[bytes] = set()
    for number in range(3):
        bodies = [b"%d %d" % (number, index) for index in range(200)]
        node.publish("orders", *bodies)
        published.update(bodies)
        consumer = node.connect().sub("orders", "billing", 150)
        for message in consumer.messages(150):
            if int(message.body.split()[1]) % 3:
                consumer.fin(message)
                finished.add(message.body)
        consumer.command("CLS")
        wait_until(partial(has_left, node, len(published) - len(finished)))
        assert node.stop() == 0
        shutil.rmtree(node.data_path)
        whole = NodeReader(root, "nsqd-1").whole
        assert whole.head.is_stopped and all(len(log.cursors) >= 1 for log in whole.logs.values())
        node = machine()
    consumer = node.connect().sub("orders", "billing", 2500)
    left = published - finished
    assert {message.body for message in consumer.messages(len(left))} == left


# ---------------------------------------------------------------------- under load


class Load:
    """Publishes on a thread until the node is gone; reads by offset beside it."""

    def __init__(self, node: Daemon, number: int, seen: dict[int, str]) -> None:
        self.node, self.number, self.seen = node, number, seen
        self.acknowledged: list[bytes] = []
        self.threads = [threading.Thread(target=self.publish), threading.Thread(target=self.read)]
        self.ended = False
        for thread in self.threads:
            thread.start()

    def publish(self) -> None:
        try:
            client = self.node.connect()
            for index in range(1 << 30):
                bodies = [b"%d %d %d" % (self.number, index, part) for part in range(5)]
                client.command("MPUB orders", batch(*bodies))
                if client.frame(5) != (0, b"OK"):
                    return
                self.acknowledged += bodies
        except (OSError, AssertionError):
            return

    def read(self) -> None:
        offset = 0
        while not self.ended:
            try:
                status, data = self.node.http("GET", f"/topic/read?topic=orders&offset={offset}&wait_ms=50")
            except OSError:
                return
            for line in data.splitlines() if status == 200 else ():
                row = json.loads(line)
                assert self.seen.setdefault(row["offset"], row["body"]) == row["body"]
                offset = row["offset"] + 1

    def end(self) -> list[bytes]:
        self.ended = True
        for thread in self.threads:
            thread.join()
        return self.acknowledged


def rounds(machine, count: int, paused: float = 0.3) -> None:
    """Under load, a node loses its disk at a random moment, or is stopped; another one takes over. One that was stopped
    then continues, and ends. paused: the share of these."""
    seen: dict[int, str] = {}
    acknowledged: list[bytes] = []
    failures: list[threading.ExceptHookArgs] = []
    chosen = random.Random(count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", failures.append)
        node = machine(FORCE, sync="bucket")
        for number in range(count):
            load = Load(node, number, seen)
            time.sleep(chosen.random() / 3)
            if is_paused := chosen.random() < paused:
                node.process.send_signal(signal.SIGSTOP)
            else:
                lose(node)
            before, node = node, machine(FORCE, sync="bucket")
            if is_paused:
                before.process.send_signal(signal.SIGCONT)
                assert before.process.wait(WAIT_SECONDS) == 1
            acknowledged += load.end()
    lines = lines_of(node, "orders")
    bodies = {line["offset"]: line["body"] for line in lines}
    assert {body.decode() for body in acknowledged} <= {*bodies.values()}
    assert seen.items() <= bodies.items()
    consumer = node.connect().sub("orders", "billing", 2500)
    assert len(consumer.messages(len(lines), finish=True)) == len(lines)
    assert failures == []


def test_acknowledged_messages_survive_machines(machine):
    rounds(machine, 30)


@pytest.mark.long
def test_acknowledged_messages_survive_many_machines(machine):
    rounds(machine, 300)


@pytest.mark.long
def test_nodes_that_are_only_stopped_never_answer_for_their_successor(machine):
    rounds(machine, 100, paused=1.0)


@pytest.mark.long
def test_acknowledged_messages_survive_machines_before_a_real_store_that_fails(daemon, ceph):
    """Every tenth request is refused, slow or cut, or its answer is lost."""
    ceph.rate = 0.1

    def machine(*flags: str, sync: str) -> Daemon:
        return daemon("--bucket=s3://acme/rounds", NODE, "--topic-storage=log", f"--log-sync={sync}", "--bucket-linger=20ms",
                      "--bucket-timeout=1m", *flags, env={**os.environ, **ceph.environment()})

    rounds(machine, 20)
    ceph.rate = 0.0


class Flood:
    """Publishers of MPUBs with bodies of 1 B to 64 KB, on threads. `acknowledged` has the bodies of each."""

    def __init__(self, node: Daemon, topic: str, publishers: int, most: int) -> None:
        """most: MPUBs of each."""
        self.node, self.topic, self.most = node, topic, most
        self.acknowledged: list[list[bytes]] = [[] for _ in range(publishers)]
        self.ended = False
        self.threads = [threading.Thread(target=self.publish, args=(number,)) for number in range(publishers)]
        for thread in self.threads:
            thread.start()

    def publish(self, number: int) -> None:
        chosen = random.Random(number)
        client = self.node.connect()
        for index in range(self.most):
            if self.ended:
                return
            name = b"%s %d %d " % (self.topic.encode(), number, index)
            bodies = [(name + b"." * 65536)[:int(65536 ** chosen.random())] for _ in range(20)]
            client.pub(self.topic, *bodies)
            self.acknowledged[number] += bodies

    def end(self) -> list[bytes]:
        self.ended = True
        for thread in self.threads:
            thread.join()
        return [body for bodies in self.acknowledged for body in bodies]


def flooded(machine, root, seconds: float, most: int) -> None:
    """A kill in a flood: what is missing elsewhere is no more than the lag that the node showed; and nothing of what was
    acknowledged with `bucket`."""
    one = machine("--bucket-linger=1s")
    assert one.http("PUT", "/topic/rules?topic=paid", b'{"sync": "bucket"}')[0] == 200
    orders, paid = Flood(one, "orders", 4, most), Flood(one, "paid", 2, most)
    time.sleep(seconds)
    acknowledged = paid.end()
    time.sleep(0.2)
    published = orders.end()
    lag = json.loads(one.http("GET", "/info")[1])["bucket"]["lag_bytes"]
    lose(one)
    two = machine(FORCE)
    reader = NodeReader(root, "nsqd-1")

    def restored(topic: str) -> list[bytes]:
        ((log_id, log),) = reader.logs(topic)
        assert json.loads(two.http("GET", f"/topic/log?topic={topic}")[1])["next_offset"] >= log.frames[-1].end
        ranges = reader.plan(log_id, 0, log.frames[-1].end, 10_000)
        return [row[3] for part in ranges for row in read_range(root.below("nsqd-1"), part)]

    assert sorted(restored("paid")) == sorted(acknowledged)
    found = restored("orders")
    assert Counter(found) <= Counter(published)
    missing = sum(map(len, published)) - sum(map(len, found))
    print(f"published {len(published):,} messages, {sum(map(len, published)):,} bytes; missing {len(published) - len(found):,}, "
          f"{missing:,} bytes; lag at the kill {lag:,} bytes")
    assert missing <= lag


def test_the_lag_tells_what_a_kill_in_a_flood_costs(machine, root):
    flooded(machine, root, 1.5, 150)


@pytest.mark.long
def test_the_lag_tells_what_a_kill_in_a_long_flood_costs(machine, root):
    flooded(machine, root, 15, 1 << 30)


def test_a_bucket_that_fails_now_and_then(daemon):
    server = Server()
    flags = ("--bucket=s3://acme/daemon", NODE, FORCE, "--topic-storage=log", "--log-sync=bucket", "--bucket-timeout=1m",
             "--bucket-linger=20ms")
    one = daemon(*flags, env={**os.environ, **server.environment()})
    server.rate = 0.2
    bodies = [b"%d" % number for number in range(200)]
    one.publish("orders", *bodies, size=10)
    lose(one)
    two = daemon(*flags, env={**os.environ, **server.environment()})
    assert [line["body"].encode() for line in lines_of(two, "orders")] == bodies
    server.rate = 0.0
    assert two.stop() == 0
    server.close()
