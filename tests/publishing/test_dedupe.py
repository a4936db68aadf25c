"""dedupe: publishes with an id are stored once, over TCP and HTTP, in memory and in logs."""

import json
import os
import threading

import pytest

from tests.publishing.support import drained, post, publisher, remember, shim, stored
from tests.support.daemon import Daemon, batch, wait_until


@pytest.fixture(params=["memory", "log"])
def node(request, daemon) -> Daemon:
    """A node whose topic t remembers ids."""
    node = daemon(f"--topic-storage={request.param}")
    remember(node)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    return node


def test_a_retry_is_stored_once(node):
    client = publisher(node)
    for _ in range(3):
        client.ok("PUB t one", b"a")
        client.ok("DPUB t 1 two", b"b")
        client.ok("MPUB t three", batch(b"c", b"d"))
        client.ok("DMPUB t 1 four", batch(b"e", b"f"))
    client.ok("PUB t five", b"g")
    client.ok("PUB t", b"h")
    client.ok("PUB t", b"h")
    stats = node.stats("t")
    assert (stats["message_count"], stats["deduplicated"], stats["publish_ids"]) == (9, 8, 5)
    assert sorted(drained(node, count=9)) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"h"]
    metrics = node.http("GET", "/metrics")[1].decode()
    assert 'nsqc_topic_deduplicated_total{topic="t"} 8' in metrics
    assert 'nsqc_topic_publish_ids{topic="t"} 5' in metrics


def test_large_bodies_have_ids_too(node):
    """They are gathered as they arrive, when their line is already gone."""
    client = publisher(node)
    large, many = b"x" * 200_000, [b"%d" % number * 30 for number in range(20_000)]
    for _ in range(2):
        client.ok("PUB t one", large)
        client.ok("MPUB t two", batch(*many))
        client.ok("DMPUB t 1 three", batch(large, large))
    assert node.stats("t")["deduplicated"] == 3
    assert stored(node) == 1 + len(many) + 2


def test_a_large_batch_after_a_duplicate_is_stored(node):
    """The messages of the duplicate were gathered, too, and must not take the place of the next ones."""
    client = publisher(node)
    first, second = b"x" * 200_000, b"y" * 200_000
    client.ok("MPUB t one", batch(first, first))
    client.ok("MPUB t one", batch(first, first))
    client.ok("PUB t two", second)
    client.ok("MPUB t", batch(second, second, second))
    assert sorted(drained(node, count=6)) == [first] * 2 + [second] * 4


def test_over_http(node):
    for _ in range(2):
        assert post(node, "/pub?topic=t", b"a", "one") == (200, b"OK")
        assert post(node, "/pub?topic=t&defer=1", b"b", "two") == (200, b"OK")
        assert post(node, "/mpub?topic=t", b"c\nd\n", "three") == (200, b"OK")
        assert post(node, "/mpub?topic=t&binary=true&defer=1", batch(b"e", b"f"), "four") == (200, b"OK")
        assert post(node, "/pub?topic=t", b"g") == (200, b"OK")
    assert node.stats("t")["deduplicated"] == 4
    assert sorted(drained(node, count=8)) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"g"]


def test_ids_are_of_a_topic_and_the_same_over_tcp_and_http(node):
    remember(node, "u")
    client = publisher(node)
    client.ok("PUB t one", b"a")
    client.ok("PUB u one", b"a")
    assert post(node, "/pub?topic=t", b"a", "one") == (200, b"OK")
    assert (stored(node), stored(node, "u")) == (1, 1)


@pytest.mark.parametrize("wrong", ["", "a b", "x" * 65, "\u00e9", "a\tb", "\x7f"])
def test_what_is_not_an_id_is_refused(daemon, wrong):
    node = daemon()
    client = publisher(node)
    if " " not in wrong:
        client.command(f"PUB t {wrong}", b"a")
        kind, answer = client.frame()
        assert kind == 1 and answer.startswith(b"E_INVALID PUB publish id"), answer
        assert client.frame() is None
    if wrong and wrong.isascii() and wrong.isprintable():
        assert post(node, "/pub?topic=t", b"a", wrong) == (400, b'{"message":"INVALID_PUBLISH_ID"}')
    assert not node.stats()["topics"] or stored(node) == 0


def test_the_longest_and_the_oddest_id(node):
    client = publisher(node)
    for name in ("!" * 64, "~", '"\\%', "t"):
        for _ in range(2):
            client.ok(f"PUB t {name}", name.encode())
    assert stored(node) == 4


def test_without_the_rule_or_without_asking_ids_are_only_words(daemon):
    node = daemon()
    client, plain = publisher(node), node.connect()
    for _ in range(2):
        client.ok("PUB t one", b"a")
        plain.ok("PUB t one more words", b"a")
    assert stored(node) == 4
    remember(node)
    for _ in range(2):
        plain.ok("PUB t one", b"a")
    stats = node.stats("t")
    assert (stats["message_count"], stats["deduplicated"]) == (6, 0)


def test_other_clients_see_the_answer_of_nsqd(daemon):
    node = daemon()
    asked = []
    for more in ({}, {"publish_ids": False, "deferred_batches": False}):
        client = node.connect()
        client.command("IDENTIFY", json.dumps({"feature_negotiation": True, **more}).encode())
        asked.append(client.frame()[1])
        client.command("DMPUB t 1", batch(b"a"))
        assert client.frame() == (1, b"E_INVALID invalid command DMPUB")
    assert asked[0] == asked[1] and b"publish_ids" not in asked[0]


def test_concurrent_retries_are_stored_once(daemon):
    """Many clients publish the same ids at the same time; each write syncs, so most duplicates meet a pending write."""
    node = daemon("--topic-storage=log", "--log-sync=fsync")
    remember(node)
    count, failures = 300, []

    def publish(shift: int) -> None:
        try:
            client = publisher(node)
            client.send(b"".join(b"PUB t id-%d\n\0\0\0\4%04d" % (number, number) for number in range(shift, count)))
            client.send(b"".join(b"PUB t id-%d\n\0\0\0\4%04d" % (number, number) for number in range(count)))
            for _ in range(2 * count - shift):
                assert client.frame() == (0, b"OK")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=publish, args=(shift,)) for shift in range(0, 80, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    node.post("/channel/create?topic=t&channel=c&from=beginning")
    assert sorted(drained(node, count=count)) == [b"%04d" % number for number in range(count)]


@pytest.fixture
def shimmed(daemon, tmp_path):
    """A node whose log can be made slow or failing, and the folder of the files that do so."""
    folder = tmp_path / "switches"
    folder.mkdir()
    node = daemon("--topic-storage=log", "--log-sync=fsync", env={**os.environ, "LD_PRELOAD": str(shim(folder))})
    remember(node)
    client = publisher(node)
    client.ok("PUB t first", b"first")
    return node, folder


def test_batches_that_take_several_slices(node):
    """Clients that send the same id meanwhile wait for the first one, and so does one that publishes a single
    message."""
    for number in range(10):
        node.post(f"/channel/create?topic=t&channel=c{number}")
    bodies = [b"%d" % number for number in range(20_000)]
    answers = []

    def tcp(line: str, body: bytes) -> None:
        client = publisher(node)
        client.command(line, body)
        answers.append(client.frame() == (0, b"OK"))

    first = publisher(node)
    first.command("MPUB t one", batch(*bodies))
    threads = [threading.Thread(target=tcp, args=("MPUB t one", batch(*bodies))) for _ in range(3)]
    threads += [threading.Thread(target=lambda: answers.append(
        post(node, "/mpub?topic=t", b"\n".join(bodies), "one") == (200, b"OK"))) for _ in range(2)]
    wait_until(lambda: node.stats("t")["message_count"] > 0)
    threads.append(threading.Thread(target=tcp, args=("PUB t one", b"x")))
    threads.append(threading.Thread(target=lambda: answers.append(
        post(node, "/pub?topic=t", b"x", "one") == (200, b"OK"))))
    for thread in threads:
        thread.start()
    assert first.frame() == (0, b"OK")
    for thread in threads:
        thread.join()
    assert answers == [True] * len(threads)
    assert stored(node) == len(bodies)
    assert node.stats("t")["deduplicated"] == len(threads)


def test_a_connection_that_is_lost_amid_a_batch(node):
    for number in range(10):
        node.post(f"/channel/create?topic=t&channel=c{number}")
    bodies = [b"%d" % number for number in range(20_000)]
    for number in range(5):
        client = publisher(node)
        client.command(f"MPUB t id-{number}", batch(*bodies))
        client.close()
        retry = publisher(node)
        retry.ok(f"MPUB t id-{number}", batch(*bodies))
        retry.close()
        wanted = (number + 1) * len(bodies)
        wait_until(lambda wanted=wanted: stored(node) == wanted)


def next_offset(node: Daemon) -> int:
    return json.loads(node.http("GET", "/topic/log?topic=t")[1])["next_offset"]


def test_a_retry_is_answered_when_the_first_is_written(shimmed):
    node, folder = shimmed
    (folder / "SLOW").touch()
    first, second = publisher(node), publisher(node)
    first.command("PUB t one", b"a")
    wait_until(lambda: node.stats("t")["message_count"] == 2)
    second.command("PUB t one", b"a")
    third = []
    thread = threading.Thread(target=lambda: third.append(post(node, "/pub?topic=t", b"a", "one")))
    thread.start()
    assert second.frame() == (0, b"OK")
    assert next_offset(node) == 2
    assert first.frame() == (0, b"OK")
    thread.join()
    assert third == [(200, b"OK")]
    assert stored(node) == 2 and next_offset(node) == 2


def test_if_the_first_fails_the_retry_is_stored(shimmed):
    node, folder = shimmed
    (folder / "SLOW").touch()
    blocker = publisher(node)
    blocker.command("PUB t blocker", b"-")
    wait_until(lambda: node.stats("t")["message_count"] == 2)
    # These are collected during that write, and then fail together.
    clients = [publisher(node) for _ in range(3)]
    for client in clients:
        client.command("PUB t one", b"a")
    wait_until(lambda: node.stats("t")["deduplicated"] == 2)
    (folder / "FAIL").touch()
    for client in clients:
        kind, answer = client.frame()
        assert kind == 1 and answer.startswith(b"E_PUB_FAILED"), answer
    (folder / "FAIL").unlink()
    (folder / "SLOW").unlink()
    retry = publisher(node)
    for _ in range(2):
        retry.ok("PUB t one", b"a")
    before = stored(node)
    node.kill()
    node.start()
    retry = publisher(node)
    retry.ok("PUB t one", b"a")
    assert stored(node) == 0
    node.post("/channel/create?topic=t&channel=c&from=beginning")
    assert b"a" in drained(node, count=before)
    assert before in (2, 3)     # depends on whether the blocker was still being written when writes began to fail


def test_ids_of_refused_records_do_not_come_back(shimmed):
    """A failed append has written its ids, and its offsets go to other records; then the daemon is killed."""
    node, folder = shimmed
    (folder / "FAIL").touch()
    client = publisher(node)
    client.command("PUB t one", b"refused")
    assert client.frame()[0] == 1
    (folder / "FAIL").unlink()
    node.publish("t", b"another", b"more")
    node.kill()
    node.start()
    client = publisher(node)
    client.ok("PUB t one", b"one")
    client.ok("PUB t first", b"first")
    assert stored(node) == 1
    node.kill()
    node.start()
    client = publisher(node)
    client.ok("PUB t one", b"one")
    assert stored(node) == 0
    node.post("/channel/create?topic=t&channel=c&from=beginning")
    assert drained(node, count=4) == [b"first", b"another", b"more", b"one"]
