"""Remembered publishes across restarts and kills: their number and their age."""

import json
import random
import subprocess
import sys
import threading

import pytest

from tests.publishing.support import drained, publisher, remember, stored
from tests.support.daemon import batch, wait_until

LOG = "--topic-storage=log"


@pytest.mark.parametrize("end", ["restart", "kill"])
@pytest.mark.parametrize("sync", ["write", "fsync"])
def test_a_log_remembers_over_the_end_of_the_daemon(daemon, end, sync):
    node = daemon(LOG, f"--log-sync={sync}")
    remember(node)
    client = publisher(node)
    for number in range(100):
        client.ok(f"PUB t id-{number}", b"%d" % number)
    client.ok("MPUB t batch", batch(b"a", b"b"))
    client.close()
    for _ in range(2):
        if end == "kill":
            node.kill()
            node.start()
        else:
            node.restart()
        client = publisher(node)
        for number in range(100):
            client.ok(f"PUB t id-{number}", b"%d" % number)
        client.ok("MPUB t batch", batch(b"a", b"b"))
        assert (stored(node), node.stats("t")["deduplicated"]) == (0, 101)
        client.close()


def test_memory_topics_forget_with_the_daemon(daemon):
    node = daemon()
    remember(node)
    publisher(node).ok("PUB t one", b"a")
    node.restart()
    publisher(node).ok("PUB t one", b"a")
    assert stored(node) == 1


def test_kill_amid_publishes(daemon):
    """Each acknowledged id is stored once, and so is each other one, once it is published again."""
    node = daemon(LOG)
    remember(node)
    random.seed(1)
    count = 0
    for _ in range(5):
        stop = threading.Event()
        before = stored(node) if node.stats()["topics"] else 0

        def publish(first: int = count, stop: threading.Event = stop) -> None:
            client = publisher(node)
            number = first
            try:
                while not stop.is_set():
                    client.send(b"".join(b"PUB t id-%d\n\0\0\0\6%06d" % (index, index)
                                         for index in range(number, number + 50)))
                    number += 50
                    for _ in range(50):
                        if client.frame() is None:
                            return
            except OSError:
                return

        thread = threading.Thread(target=publish)
        thread.start()
        enough = before + random.randint(500, 3000)
        wait_until(lambda enough=enough: node.stats()["topics"] and stored(node) > enough)
        node.kill()
        stop.set()
        thread.join()
        node.start()
        end = count + 20_000
        client = publisher(node)
        already = json.loads(node.http("GET", "/topic/log?topic=t")[1])["next_offset"]
        for at in range(count, end, 1000):
            client.send(b"".join(b"PUB t id-%d\n\0\0\0\6%06d" % (index, index) for index in range(at, at + 1000)))
            for _ in range(1000):
                assert client.frame() == (0, b"OK")
        assert stored(node) == end - already
        count = end
    node.post("/channel/create?topic=t&channel=c&from=beginning")
    client = node.connect().sub("t", "c", 2000)
    assert sorted(int(message.body) for message in client.messages(count, finish=True)) == list(range(count))
    assert client.quiet(0.2)


SMALL = "--max-bytes-per-file=20000"


def publish_segments(node, first: int, count: int) -> None:
    """Publishes with ids, some to a segment."""
    client = publisher(node)
    for number in range(first, first + count):
        client.ok(f"PUB t id-{number}", b"%01000d" % number)
    client.close()


@pytest.mark.parametrize("end", ["restart", "kill"])
@pytest.mark.parametrize("sync", ["write", "fsync"])
def test_ids_outlive_their_messages(daemon, end, sync):
    """Retention has removed the segments, but the ids are remembered."""
    node = daemon(LOG, SMALL, f"--log-sync={sync}")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    remember(node)
    publish_segments(node, 0, 100)
    assert len(drained(node, count=100)) == 100
    folder = node.data_path / "t.log"
    wait_until(lambda: len(list(folder.glob("*.log"))) == 1, "retention")
    assert len(list(folder.glob("ids.*"))) > 3
    for _ in range(2):
        if end == "kill":
            node.kill()
            node.start()
        else:
            node.restart()
        publish_segments(node, 0, 100)
        assert (stored(node), node.stats("t")["deduplicated"]) == (0, 100)


def test_ids_expire_and_their_files_go(daemon):
    node = daemon(LOG, SMALL)
    remember(node, dedupe="1s")
    publish_segments(node, 0, 60)
    folder = node.data_path / "t.log"
    wait_until(lambda: len(list(folder.glob("ids.*"))) > 1, "summaries of sealed segments")
    before = set(folder.glob("ids.*"))
    wait_until(lambda: node.stats("t")["publish_ids"] == 0, "the end of the ids' time")
    publish_segments(node, 0, 60)
    assert stored(node) == 120
    wait_until(lambda: not before & set(folder.glob("ids.*")), "the end of the files")
    wait_until(lambda: node.stats("t")["publish_ids"] == 0)
    node.restart()
    publish_segments(node, 0, 1)
    assert stored(node) == 1
    wait_until(lambda: not list(folder.glob("ids.*")))


def test_a_full_table_forgets_the_oldest(daemon):
    node = daemon()
    remember(node, dedupe_ids=100)
    client = publisher(node)
    for number in range(150):
        client.ok(f"PUB t id-{number}", b"x")
    stats = node.stats("t")
    assert (stats["publish_ids"], stats["forgotten_ids"]) == (100, 50)
    client.ok("PUB t id-149", b"x")
    client.ok("PUB t id-0", b"x")
    assert stored(node) == 151


def test_the_rule_off_forgets(daemon):
    node = daemon(LOG)
    remember(node)
    client = publisher(node)
    client.ok("PUB t one", b"a")
    assert remember(node, dedupe="0s")["dedupe"] == "0s"
    assert "publish_ids" not in node.stats("t")
    client.ok("PUB t one", b"a")
    remember(node)
    client.ok("PUB t one", b"a")
    client.ok("PUB t one", b"a")
    assert stored(node) == 3
    remember(node, dedupe="0s")
    remember(node)
    client.ok("PUB t two", b"a")
    node.kill()
    node.start()
    client = publisher(node)
    client.ok("PUB t two", b"a")
    client.ok("PUB t one", b"a")
    assert stored(node) == 1, "an id from before the rule was off is known"


@pytest.mark.parametrize("running", [True, False])
def test_the_rule_off_removes_the_files(daemon, running):
    node = daemon(LOG, SMALL)
    remember(node)
    publish_segments(node, 0, 60)
    folder = node.data_path / "t.log"
    wait_until(lambda: len(list(folder.glob("ids.*"))) > 1, "summaries of sealed segments")
    if running:
        remember(node, dedupe="0s")
    else:
        assert node.stop() == 0
        (node.data_path / "nsqc.rules.json").unlink()
        node.start()
    wait_until(lambda: not list(folder.glob("ids.*")))


def test_a_topic_that_switches_storage_still_knows_its_ids(daemon):
    node = daemon()
    remember(node)
    client = publisher(node)
    client.ok("PUB t one", b"a")
    remember(node, storage="log")
    client.ok("PUB t one", b"a")
    client.ok("PUB t two", b"b")
    remember(node, storage="memory")
    client.ok("PUB t one", b"a")
    client.ok("PUB t two", b"b")
    client.ok("PUB t three", b"c")
    client.ok("PUB t three", b"c")
    assert stored(node) == 3


def test_damaged_files_are_left_out(daemon):
    """Then the segment is read, if it is still there."""
    node = daemon(LOG, SMALL)
    remember(node)
    publish_segments(node, 0, 60)
    folder = node.data_path / "t.log"
    wait_until(lambda: len(list(folder.glob("ids.*"))) > 2, "summaries of sealed segments")
    node.kill()
    first, second, *_ = sorted(folder.glob("ids.*"))
    for path in first, second:
        data = bytearray(path.read_bytes())
        data[130] ^= 1
        path.write_bytes(data)
    (folder / f"{second.name[4:]}.log").unlink()
    unfinished = folder / f"{first.name}.tmp"
    unfinished.write_bytes(b"")
    node.start()
    wait_until(lambda: not unfinished.exists())
    wait_until(lambda: node.log.count("failed to read the publish ids") == 2)
    publish_segments(node, 0, 60)
    begin, end = int(second.name[4:]), int(sorted(folder.glob("*.log"))[1].name[:20])
    assert stored(node) == end - begin


def test_verify_knows_the_files(daemon):
    node = daemon(LOG, SMALL)
    remember(node)
    publish_segments(node, 0, 60)
    wait_until(lambda: list((node.data_path / "t.log").glob("ids.*")), "a summary")
    assert node.stop() == 0
    answer = subprocess.run([sys.executable, "-m", "nsqc", "log", "verify", str(node.data_path)], capture_output=True,
                            text=True, check=True)
    assert "ids." not in answer.stdout
