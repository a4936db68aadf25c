"""Stops, kills and starts: no acknowledged message is lost."""

import json
import os
import re
import resource
import signal
import socket
import struct
import threading
import time

import pytest

from tests.support.counting import consume, numbered
from tests.support.daemon import batch, wait_until
from tests.support.ports import free_port, kept


def drain(node, topic: str, channel: str, count: int) -> list:
    consumer = node.connect().sub(topic, channel, 2500)
    messages = consumer.messages(count, finish=True)
    assert consumer.quiet(0.2)
    consumer.close()
    return messages


def meta(node) -> tuple[int, list[int]]:
    """(depth, [read file, read offset]) of channel c of topic t, as on disk."""
    path = node.data_path / "t:c.diskqueue.meta.dat"
    if not path.exists():
        return -1, []
    lines = path.read_text().splitlines()
    return int(lines[0]), [int(word) for word in lines[1].split(",")]


def test_graceful_stop_keeps_memory_in_flight_and_deferred(daemon):
    """Slow: the delay has to outlast a restart."""
    node = daemon()
    consumer = node.connect().sub("t", "c", 3)
    producer = node.connect()
    producer.pub("t", *[b"%d" % n for n in range(10)])
    in_flight = consumer.messages(3)
    requeued = time.monotonic()
    consumer.send(b"REQ " + in_flight[0].id + b" 6000\n")
    consumer.message()
    wait_until(lambda: node.channel("t", "c")["deferred_count"] == 1)
    node.restart()
    assert node.channel("t", "c")["deferred_count"] == 1
    consumer = node.connect().sub("t", "c", 100)
    attempts = {m.body: m.attempts for m in consumer.messages(9)}
    assert attempts == {b"1": 2, b"2": 2, b"3": 2, **{b"%d" % n: 1 for n in range(4, 10)}}
    late = consumer.message()
    assert (late.body, late.attempts) == (b"0", 2)
    assert time.monotonic() - requeued > 5.5, "the delay continues over the restart"


def test_deferred_in_a_topic_without_channels_keeps_its_delay(daemon):
    node = daemon()
    node.connect().ok("DPUB t 1500", b"x")
    node.restart()
    began = time.monotonic()
    consumer = node.connect().sub("t", "c", 1)
    assert consumer.message().body == b"x"
    assert time.monotonic() - began > 1.2, "the delay starts when a channel takes the message"


def test_kill_keeps_what_was_on_disk(daemon):
    node = daemon("--mem-queue-size=0")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    producer = node.connect()
    bodies = [b"%06d" % n for n in range(5000)]
    for at in range(0, 5000, 100):
        producer.pub("t", *bodies[at:at + 100])
    node.kill()
    node.start()
    assert [m.body for m in drain(node, "t", "c", 5000)] == bodies


def test_a_topic_that_was_new_when_the_daemon_was_killed_keeps_its_messages(daemon):
    """nsqd.dat is written on a worker thread and may not list it yet."""
    node = daemon("--mem-queue-size=0")
    node.connect().pub("brand-new", *(b"%d" % n for n in range(10)))
    node.kill()
    for name in ("nsqd.dat", "nsqc.ids.dat", "nsqc.rules.json"):
        (node.data_path / f"{name}.1.tmp").touch()
    node.start()
    assert node.stats("brand-new")["depth"] == 10
    # The running daemon may be replacing one of its own files.
    wait_until(lambda: not list(node.data_path.glob("*.tmp")), "leftovers to be gone")
    assert sorted(m.body for m in drain(node, "brand-new", "c", 10)) == [b"%d" % n for n in range(10)]


def test_after_a_kill_messages_in_flight_from_disk_are_delivered_again(daemon):
    """Finished, requeued, deferred, in flight, out of order, and in several files; all must survive."""
    node = daemon("--mem-queue-size=0", "--max-bytes-per-file=4000", "--sync-every=1", "--sync-timeout=20ms")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    bodies = [b"%06d" % n for n in range(1000)]
    node.connect().pub("t", *bodies)
    consumer = node.connect().sub("t", "c", 300)
    messages = consumer.messages(300)
    for message in messages[:100] + messages[150:300]:
        consumer.fin(message)
    consumer.send(b"REQ " + messages[120].id + b" 60000\n")
    consumer.messages(251)
    wait_until(lambda: node.channel("t", "c")["deferred_count"] == 1)
    wait_until(lambda: meta(node)[1] == [0, 100 * 36], "the positions to follow the finished ones")
    node.kill()
    assert (node.data_path / "t:c.diskqueue.000000.dat").exists()
    node.start("--mem-queue-size=0")
    assert node.channel("t", "c")["depth"] == 900
    assert [m.body for m in drain(node, "t", "c", 900)] == bodies[100:]


def test_a_graceful_stop_with_messages_from_disk_in_flight_duplicates_none(daemon):
    node = daemon("--mem-queue-size=0", "--max-bytes-per-file=4000")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.connect().pub("t", *(b"%06d" % n for n in range(1000)))
    consumer = node.connect().sub("t", "c", 300)
    for message in consumer.messages(300)[100:200]:
        consumer.fin(message)
    consumer.messages(100)
    wait_until(lambda: node.channel("t", "c")["depth"] == 600)
    node.restart()
    assert node.channel("t", "c")["depth"] == 900
    assert sorted(m.body for m in drain(node, "t", "c", 900)) == [b"%06d" % n for n in range(1000) if not 100 <= n < 200]


def test_positions_catch_up_when_everything_is_finished(daemon):
    node = daemon("--mem-queue-size=0", "--max-bytes-per-file=4000", "--sync-timeout=20ms")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.connect().pub("t", *(b"%06d" % n for n in range(1000)))
    consumer = node.connect().sub("t", "c", 1000)
    for message in reversed(consumer.messages(1000)):
        consumer.fin(message)
    wait_until(lambda: meta(node)[0] == 0, "the positions")
    wait_until(lambda: len(list(node.data_path.glob("t:c.diskqueue.0*.dat"))) <= 1, "the files to go")
    node.kill()
    node.start("--mem-queue-size=0")
    assert node.channel("t", "c")["depth"] == 0


def test_kill_in_the_middle_of_a_load(daemon):
    node = daemon("--mem-queue-size=0", "--max-bytes-per-file=100000", "--sync-every=100")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    acknowledged = []
    stopped = threading.Event()

    def publish():
        client = node.connect()
        number = 0
        try:
            while not stopped.is_set():
                bodies = [b"%08d" % (number + n) for n in range(50)]
                number += 50
                client.pub("t", *bodies)
                acknowledged.extend(bodies)
        except (AssertionError, OSError):
            return

    thread = threading.Thread(target=publish)
    thread.start()
    wait_until(lambda: len(acknowledged) > 3000)
    node.kill()
    stopped.set()
    thread.join()
    node.start()
    depth = node.channel("t", "c")["depth"]
    assert depth >= len(acknowledged)
    assert set(acknowledged) <= {m.body for m in drain(node, "t", "c", depth)}


def test_terminated_under_load_with_silent_clients(daemon):
    node = daemon("--mem-queue-size=1000")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    silent = [node.connect(magic=b"") for _ in range(20)] + [node.connect().sub("t", "deaf", 2500) for _ in range(5)]
    acknowledged = []

    def publish():
        client = node.connect()
        number = 0
        try:
            while True:
                bodies = [b"%d" % (number + n) for n in range(100)]
                number += 100
                client.pub("t", *bodies)
                acknowledged.extend(bodies)
        except (AssertionError, OSError):
            return

    thread = threading.Thread(target=publish)
    thread.start()
    wait_until(lambda: len(acknowledged) > 20_000)
    assert node.stop() == 0
    thread.join()
    node.start()
    depth = node.channel("t", "c")["depth"]
    assert depth >= len(acknowledged)
    assert set(acknowledged) <= {m.body for m in drain(node, "t", "c", depth)}
    for client in silent:
        client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_with_zero(daemon, number):
    assert daemon().stop(number) == 0


def test_addresses_and_lock_are_free_at_once(daemon, tmp_path):
    node = daemon(kept(), f"--http-address=127.0.0.1:{free_port()}")
    client = node.connect().sub("t", "c", 1)
    node.kill()
    node.start()
    assert node.stop() == 0
    node.start()
    client.close()


def test_ids_rise_over_restarts_even_with_a_clock_that_went_back(daemon):
    node = daemon()
    node.connect().pub("t", b"before")
    assert node.stop() == 0
    state = json.loads((node.data_path / "nsqc.dat").read_text())
    ahead = state["reached_unit"] + 10_000
    state["reached_unit"] = ahead
    (node.data_path / "nsqc.dat").write_text(json.dumps(state))
    node.start()
    node.connect().pub("t", b"after")
    before, after = node.connect().sub("t", "c", 10).messages(2)
    assert before.id < after.id
    assert (int(after.id, 16) >> 22) + 1288834974288 >= ahead


class TestMetadata:
    def test_empty_file_is_rebuilt_from_the_last_good_copy(self, daemon):
        node = daemon()
        node.connect().sub("t", "c")
        node.post("/topic/pause?topic=t")
        assert node.stop() == 0
        (node.data_path / "nsqd.dat").write_bytes(b"")
        node.start()
        topic = node.stats("t")
        assert topic["paused"]
        assert [c["channel_name"] for c in topic["channels"]] == ["c"]
        wait_until(lambda: "rebuilt" in node.log)
        assert json.loads((node.data_path / "nsqd.dat").read_text())["topics"]

    def test_half_a_file_without_a_copy_is_rebuilt_from_file_names(self, daemon):
        node = daemon("--mem-queue-size=0")
        node.post("/topic/create?topic=t")
        node.post("/channel/create?topic=t&channel=c")
        node.connect().pub("t", b"kept")
        assert node.stop() == 0
        path = node.data_path / "nsqd.dat"
        path.write_bytes(path.read_bytes()[:20])
        (node.data_path / "nsqd.dat.last").unlink()
        node.start()
        assert drain(node, "t", "c", 1)[0].body == b"kept"

    def test_pause_is_on_disk_before_it_is_answered(self, daemon):
        node = daemon()
        node.connect().sub("t", "c")
        for n in range(20):
            word = "pause" if n % 2 == 0 else "unpause"
            node.post(f"/channel/{word}?topic=t&channel=c")
            saved = json.loads((node.data_path / "nsqd.dat").read_text())
            assert saved["topics"][0]["channels"][0]["paused"] == (n % 2 == 0)

    def test_survives_a_kill(self, daemon):
        node = daemon()
        for n in range(30):
            node.post(f"/topic/create?topic=t{n}")
            node.post(f"/channel/create?topic=t{n}&channel=c")
        node.post("/topic/pause?topic=t3")
        node.kill()
        node.start()
        assert {t["topic_name"] for t in node.stats()["topics"]} == {f"t{n}" for n in range(30)}
        assert node.stats("t3")["paused"]


def test_descriptors_of_idle_and_spilled_queues(daemon):
    """Slow: queues count as idle after some seconds."""
    node = daemon("--mem-queue-size=0", "--sync-timeout=200ms")
    producer = node.connect()
    for n in range(40):
        node.post(f"/topic/create?topic=t{n}")
        node.post(f"/channel/create?topic=t{n}&channel=c")
        producer.pub(f"t{n}", b"x", b"y")
    queue_files = [f for f in node.descriptors() if ".diskqueue." in f]
    assert len(queue_files) <= 4 + 4, "files being read, written and synced"
    wait_until(lambda: not [f for f in node.descriptors() if ".diskqueue." in f], "idle queues hold no descriptor")
    for n in range(40):
        assert [m.body for m in drain(node, f"t{n}", "c", 2)] == [b"x", b"y"]


def limit_file_size():
    import resource
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))


def lift_file_size(pid: int) -> None:
    import resource
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.parametrize("with_channel", [False, True], ids=["topic", "channel"])
def test_a_stop_on_a_full_disk_reports_what_is_lost_and_keeps_what_fits(daemon, with_channel):
    node = daemon("--mem-queue-size=300", preexec=limit_file_size)
    node.post("/topic/create?topic=t")
    if with_channel:
        node.post("/channel/create?topic=t&channel=c")
    producer = node.connect()
    producer.pub("t", *[b"x" * 1000 for _ in range(300)])
    assert node.stop() == 1
    lost_counts = re.findall(r"ERROR: .*failed to write messages.*: (\d+) messages are lost", node.log)
    assert len(lost_counts) == 1
    lost = int(lost_counts[0])
    assert 50 < lost < 250, "some of them fit"
    node.start()
    stats = node.stats("t")
    assert stats["depth"] + sum(channel["depth"] for channel in stats["channels"]) == 300 - lost


@pytest.mark.parametrize("with_channel", [False, True], ids=["topic", "channel"])
@pytest.mark.parametrize("batches", [1, 5])
def test_disk_full_refuses_before_the_ok_and_heals(daemon, with_channel, batches):
    node = daemon("--mem-queue-size=0", preexec=limit_file_size)
    node.post("/topic/create?topic=t")
    if with_channel:
        node.post("/channel/create?topic=t&channel=c")
    acknowledged, error = [], None
    while error is None:
        client = node.connect()
        bodies = [b"%d-" % (len(acknowledged) + n) + b"x" * 1000 for n in range(10)]
        if batches == 1:
            client.command("MPUB t", batch(*bodies))
            kind, data = client.frame()
            acknowledged += bodies if kind == 0 else []
        else:
            data = b"".join(b"PUB t\n" + struct.pack(">i", len(b)) + b for b in bodies)
            client.send(data)
            for body in bodies:
                kind, data = client.frame()
                if kind != 0:
                    break
                acknowledged.append(body)
        if kind == 1:
            error = data
        client.close()
    assert error.startswith((b"E_MPUB_FAILED", b"E_PUB_FAILED")), error
    assert len(acknowledged) >= 150
    status, text = node.http("GET", "/ping")
    assert status == 500
    assert text.startswith(b"NOK - ")
    assert b"File too large" in text
    status = 200
    while status == 200:  # a few small ones may still fit
        body = b"y%d" % len(acknowledged) * 300
        status, text = node.http("POST", "/pub?topic=t", body)
        acknowledged += [body] if status == 200 else []
    assert (status, json.loads(text)) == (503, {"message": "FAILED - File too large"})
    lift_file_size(node.pid)
    wait_until(lambda: node.http("GET", "/ping") == (200, b"OK"), "health to return by itself")
    node.connect().pub("t", b"after")
    acknowledged.append(b"after")
    consumer = node.connect().sub("t", "c", 2500)
    missing = set(acknowledged)
    while missing:
        message = consumer.message()
        consumer.fin(message)
        missing.discard(message.body)


def test_second_daemon_on_the_same_path_leaves(daemon, tmp_path):
    node = daemon()
    with pytest.raises(AssertionError, match="left with 1"):
        daemon(data_path=node.data_path)
    assert node.http("GET", "/ping") == (200, b"OK")


def test_unix_sockets_are_removed_at_a_stop_and_replaced_after_a_kill(daemon):
    node = daemon(unix=True)
    path = node.data_path / "tcp.sock"
    node.kill()
    assert path.exists()
    node.start()
    node.connect().pub("t", b"x")
    assert node.stop() == 0
    assert not path.exists()


def test_memory_comes_back_after_a_peak(daemon):
    """Slow: receives 200,000 messages one by one."""
    node = daemon("--mem-queue-size=1000000")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    producer = node.connect()
    before = node.rss()
    for _ in range(200):
        producer.pub("t", *[b"x" * 200] * 1000)
    full = node.rss()
    assert full - before > 40e6
    drain(node, "t", "c", 200_000)
    wait_until(lambda: node.rss() - before < (full - before) / 2, "the memory is released")


def test_a_port_in_use_is_one_clear_line(daemon, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(AssertionError, match="left with 1"):
            daemon(f"--tcp-address=127.0.0.1:{port}")
    assert os.path.isdir(tmp_path)


def test_a_full_disk_empties_through_a_consumer(daemon):
    """A channel that cannot write delivers from memory; messages waiting in the topic follow, though the disk stays
    full."""
    node = daemon("--mem-queue-size=0", preexec=lambda: signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
    bodies = numbered(20_000, size=200)
    node.publish("t", *bodies)
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    node.post("/channel/create?topic=t&channel=c")
    wait_until(lambda: node.http("GET", "/ping")[0] == 500, "the drain to fail")
    assert len(consume(node, "t", "c", set(bodies))) == len(bodies)
    lift_file_size(node.pid)
    wait_until(lambda: node.http("GET", "/ping") == (200, b"OK"), "health to return by itself")
    node.connect().pub("t", b"after")
    assert consume(node, "t", "c", {b"after"})


@pytest.mark.parametrize("queue", [0, 100])
def test_a_data_path_that_vanishes_and_returns(daemon, queue):
    node = daemon(f"--mem-queue-size={queue}", "--sync-timeout=200ms")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.connect().pub("t", *[b"lost"] * 200)
    aside = node.data_path.with_name("aside")
    node.data_path.rename(aside)
    producer = node.connect()
    producer.command("PUB t", b"x")
    assert producer.frame()[1] == b"E_PUB_FAILED PUB failed No such file or directory"
    node.data_path.mkdir()
    wait_until(lambda: node.http("GET", "/ping")[0] == 200, "the daemon to recover")
    producer = node.connect()
    for number in range(50):
        producer.pub("t", b"%d" % number)
    consumer, missing = node.connect().sub("t", "c", 100), {b"%d" % number for number in range(50)}
    while missing:
        message = consumer.message()
        missing.discard(message.body)
        consumer.fin(message)
