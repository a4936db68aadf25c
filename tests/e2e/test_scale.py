"""Many topics: work on one topic does not cost more with their number, and work on all shares the loop."""

import json
import os
import random
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.daemon import wait_until

TOPICS = 3000


def publish(node, names) -> None:
    """A PUB to each topic in one write, each answered OK."""
    client = node.connect()
    client.send(b"".join(b"PUB %b\n" % name.encode() + struct.pack(">i", 1) + b"x" for name in names))
    for _ in names:
        assert client.frame() == (0, b"OK")
    client.close()


def names_of(answer: dict) -> list[str]:
    return [topic["topic_name"] for topic in answer["topics"]]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A daemon with many topics, each with a message on disk."""
    from tests.support.daemon import Daemon
    node = Daemon(tmp_path_factory.mktemp("large") / "data", "--mem-queue-size=0", "--max-create-rate=0")
    publish(node, [f"t{n:05d}" for n in range(TOPICS)])
    yield node
    node.close()


def test_statistics_of_many_topics_are_complete_and_sorted(large):
    stats = large.stats()
    assert list(stats) == ["version", "health", "start_time", "topics", "memory", "producers"]
    assert names_of(stats) == [f"t{n:05d}" for n in range(TOPICS)]
    assert all(topic["depth"] == 1 for topic in stats["topics"])
    text = large.http("GET", "/stats")[1].decode()
    assert text.count("] depth: 1 ") == TOPICS
    assert text.endswith("\nProducers: None\n")
    for query in ("topic=t00007", "topic=t00007&channel=c", "topic=unknown", "channel=c", "include_clients=false"):
        status, body = large.http("GET", f"/stats?format=json&{query}")
        assert status == 200
        assert json.loads(body)["producers"] is None


def test_others_are_served_while_statistics_are_made(large):
    """Several requests at once on separate connections; publishes are answered before they end."""
    requests, published, client = 8, 0, large.connect()
    with ThreadPoolExecutor(requests) as pool:
        answers = [pool.submit(large.stats) for _ in range(requests)]
        while not all(answer.done() for answer in answers):
            client.pub("t00000", b"y")
            published += 1
        assert [len(answer.result()["topics"]) for answer in answers] == [TOPICS] * requests
    assert published > requests


def test_topics_deleted_meanwhile_are_left_out(large):
    """Slow: each answer has all topics of the large daemon."""
    gone = [f"gone{n}" for n in range(300)]
    publish(large, gone)
    stop = threading.Event()
    answers = []

    def ask():
        while not stop.is_set():
            answers.append(names_of(large.stats()))

    thread = threading.Thread(target=ask)
    thread.start()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: large.post(f"/topic/delete?topic={name}"), gone))
    stop.set()
    thread.join()
    assert answers
    assert names_of(large.stats()) == [f"t{n:05d}" for n in range(TOPICS)]
    assert all(len(set(answer)) == len(answer) and answer == sorted(answer) for answer in answers)


def test_a_stop_and_a_kill_keep_many_topics(large):
    large.restart()
    assert names_of(large.stats()) == [f"t{n:05d}" for n in range(TOPICS)]
    large.kill()
    large.start("--mem-queue-size=0")
    stats = large.stats()
    assert names_of(stats) == [f"t{n:05d}" for n in range(TOPICS)]
    assert all(topic["depth"] >= 1 for topic in stats["topics"])


def test_names_are_found_whatever_was_deleted(daemon):
    """The name table closes the gaps that deleted topics leave. Slow: 1,500 times a topic is created, which takes a
    write of the metadata, or deleted, which waits for its files."""
    node = daemon("--mem-queue-size=100")
    chance = random.Random(3)
    counts: dict[str, int] = {}
    client = node.connect()
    for _ in range(1500):
        name = f"t{chance.randrange(120)}"
        if name in counts and chance.random() < 0.4:
            node.post(f"/topic/delete?topic={name}")
            del counts[name]
        else:
            client.pub(name, b"x")
            counts[name] = counts.get(name, 0) + 1
    assert {topic["topic_name"]: topic["depth"] for topic in node.stats()["topics"]} == counts


def test_names_that_are_not_text_do_not_prevent_a_start(daemon):
    node = daemon()
    node.connect().sub("t", "c")
    assert node.stop() == 0
    path = node.data_path / "nsqd.dat"
    bad = path.read_bytes().replace(b'"topics":[', b'"topics":[{"name":"caf\xe9","paused":false,"channels":null},')
    path.write_bytes(bad)
    node.start()
    assert names_of(node.stats()) == ["t"]
    assert (node.data_path / "nsqd.dat.bad").read_bytes() == bad
    assert json.loads(path.read_bytes())["topics"][0]["name"] == "t"
    wait_until(lambda: "is ignored" in node.log)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/dev/zero", path),
                                  lambda path: os.symlink(path, path)], ids=["folder", "fifo", "device", "loop"])
def test_other_entries_in_place_of_queue_files_do_not_prevent_a_start(daemon, make):
    node = daemon("--mem-queue-size=0")
    node.connect().pub("t", b"lost", b"lost, too")
    node.connect().pub("u", b"kept")
    assert node.stop() == 0
    for name in ("t.diskqueue.000000.dat", "u.diskqueue.meta.dat"):
        (node.data_path / name).unlink(missing_ok=True)
        make(str(node.data_path / name))
    node.start()
    assert {topic["topic_name"]: topic["depth"] for topic in node.stats()["topics"]} == {"t": 0, "u": 1}
    for name in "tu":
        node.connect().pub(name, b"new")
    assert {topic["topic_name"]: topic["depth"] for topic in node.stats()["topics"]} == {"t": 1, "u": 2}
    assert len(list(node.data_path.glob("*.bad"))) == 2
    assert node.stop() == 0


@pytest.mark.parametrize(("make", "works"), [(os.mkdir, False), (lambda path: os.symlink("/dev/zero", path), True)],
                         ids=["folder", "device"])
def test_an_entry_in_place_of_a_new_topics_file_takes_no_message(daemon, tmp_path, make, works):
    """A folder refuses messages, as with nsqd; a device would swallow them."""
    (tmp_path / "data").mkdir(exist_ok=True)
    make(str(tmp_path / "data" / "v.diskqueue.000000.dat"))
    node = daemon("--mem-queue-size=0", data_path=tmp_path / "data")
    assert node.http("POST", "/pub?topic=v", b"x")[0] == (200 if works else 503)
    if not works:
        (node.data_path / "v.diskqueue.000000.dat").rmdir()
        node.post("/pub?topic=v", b"x")
    assert node.stop() == 0
    assert (node.data_path / "v.diskqueue.000000.dat").read_bytes().endswith(b"x")
