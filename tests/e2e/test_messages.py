"""Messages through a real daemon: cases that nsqd's transcripts do not cover."""

import itertools
import struct
import time

import pytest

from tests.support.daemon import batch, wait_until
from tests.support.patience import WAIT_SECONDS


@pytest.fixture(params=[False, True], ids=["tcp", "unix"])
def node(daemon, request):
    return daemon(unix=request.param)


def test_publish_consume_finish(node):
    consumer = node.connect().sub("t", "c", 10)
    producer = node.connect()
    producer.pub("t", b"one")
    producer.pub("t", b"two", b"three")
    found = consumer.messages(3, finish=True)
    assert [m.body for m in found] == [b"one", b"two", b"three"]
    assert [m.attempts for m in found] == [1, 1, 1]
    assert len({m.id for m in found}) == 3


def test_large_and_small_messages_in_any_cut(daemon):
    node = daemon()
    consumer = node.connect().sub("t", "c", 100)
    producer = node.connect()
    bodies = [b"s", b"x" * 70_000, b"y" * 1_048_576, b"z" * 4097]
    data = b"".join(b"PUB t\n" + struct.pack(">i", len(b)) + b for b in bodies)
    for at in range(0, len(data), 50_001):
        producer.send(data[at:at + 50_001])
    assert [producer.frame() for _ in bodies] == [(0, b"OK")] * 4
    assert [m.body for m in consumer.messages(4)] == bodies


def test_batch_of_the_largest_body(daemon):
    node = daemon()
    consumer = node.connect().sub("t", "c", 2500)
    producer = node.connect()
    bodies = [b"%07d" % n * 70 for n in range(10_000)]
    producer.pub("t", *bodies)
    assert [m.body for m in consumer.messages(10_000, finish=True)] == bodies


def test_messages_are_dealt_evenly_over_ready_consumers(daemon):
    node = daemon()
    consumers = [node.connect().sub("t", "c", 100) for _ in range(4)]
    node.connect().pub("t", *[b"%d" % n for n in range(100)])
    got = [m.body for consumer in consumers for m in consumer.messages(25)]
    assert sorted(got) == sorted(b"%d" % n for n in range(100))


def test_a_quiet_topic_does_not_wait_for_the_buffer_timeout(daemon):
    node = daemon("--max-output-buffer-timeout=1h", "--output-buffer-timeout=1h")
    consumer = node.connect().sub("t", "c", 100)
    node.connect().pub("t", b"now")
    assert consumer.message().body == b"now"


def test_output_buffer_flush_as_the_original(daemon):
    node = daemon("--output-buffer-flush=timeout", "--output-buffer-timeout=2s")
    consumer = node.connect().sub("t", "c", 2)
    producer = node.connect()
    producer.pub("t", b"held")
    assert consumer.quiet(0.7)
    producer.pub("t", b"fills what RDY allows")
    assert [m.body for m in consumer.messages(2)] == [b"held", b"fills what RDY allows"]


def test_requeued_after_its_delay_and_not_before(daemon):
    node = daemon()
    consumer = node.connect().sub("t", "c", 1)
    node.connect().pub("t", b"x")
    first = consumer.message()
    sent = time.monotonic()
    consumer.send(b"REQ " + first.id + b" 700\n")
    again = consumer.message()
    assert time.monotonic() - sent >= 0.7
    assert (again.id, again.attempts) == (first.id, 2)


def test_touch_extends_up_to_the_limit(daemon):
    node = daemon("--msg-timeout=2s", "--max-msg-timeout=4s")
    consumer = node.connect().sub("t", "c", 1)
    began = time.monotonic()
    node.connect().pub("t", b"x")
    first = consumer.message()
    while time.monotonic() - began < 2.5:
        consumer.send(b"TOUCH " + first.id + b"\n")
        assert consumer.quiet(0.3)
    again = consumer.message()
    assert time.monotonic() - began >= 4.0
    assert again.attempts == 2


def test_thousands_of_deferred_messages_come_in_the_order_of_their_times(daemon):
    node = daemon()
    producer = node.connect()
    consumer = node.connect().sub("t", "c", 2500)
    delays = [500 + n % 7 * 100 for n in range(7000)]
    producer.send(b"".join(b"DPUB t %d\n\x00\x00\x00\x04%4d" % (delay, delay) for delay in delays))
    for _ in range(7000):
        assert producer.frame() == (0, b"OK")
    messages = consumer.messages(7000, finish=True)
    assert sorted(int(message.body) for message in messages) == sorted(delays)
    due = [message.timestamp + int(message.body) * 1_000_000 for message in messages]
    # Wall clock and monotonic clock are read one after the other.
    assert all(before - after < 5_000_000 for before, after in itertools.pairwise(due))


def test_slow_consumer_does_not_stop_the_others(daemon):
    node = daemon()
    slow = node.connect().sub("t", "slow", 2500)
    quick = node.connect().sub("t", "quick", 2500)
    producer = node.connect()
    for _ in range(40):
        producer.pub("t", *[b"x" * 10_000] * 100)
        quick.messages(100, finish=True)
    assert node.channel("t", "slow")["depth"] > 0, "the socket of a client that does not read takes no more"
    assert node.channel("t", "quick")["depth"] == 0
    assert len(slow.messages(4000, finish=True)) == 4000


def test_client_that_reads_no_replies_is_not_read_from_for_ever(daemon):
    node = daemon()
    before = node.rss()
    producer = node.connect()
    producer.sock.settimeout(3)
    with pytest.raises(TimeoutError):
        while True:
            producer.send(b"PUB t\n\x00\x00\x00\x01x" * 10_000)
    assert node.rss() - before < 400e6
    assert node.connect().sub("other", "c")


def test_fan_out_shares_ids_and_bodies(daemon):
    node = daemon()
    consumers = [node.connect().sub("t", f"c{n}", 10) for n in range(5)]
    node.connect().pub("t", b"x", b"y")
    assert len({tuple((m.id, m.body) for m in consumer.messages(2)) for consumer in consumers}) == 1


def test_empty_and_delete_while_in_flight(daemon):
    node = daemon()
    consumer = node.connect().sub("t", "c", 2)
    producer = node.connect()
    producer.pub("t", b"a", b"b", b"c")
    held = consumer.messages(2)
    node.post("/channel/empty?topic=t&channel=c")
    consumer.fin(held[0])
    assert consumer.frame()[1].startswith(b"E_FIN_FAILED")
    producer.pub("t", b"d", b"e")
    assert [m.body for m in consumer.messages(2)] == [b"d", b"e"]
    node.post("/channel/delete?topic=t&channel=c")
    assert consumer.frame() is None


def test_pause_of_topic_and_channel(daemon):
    node = daemon()
    consumer = node.connect().sub("t", "c", 10)
    producer = node.connect()
    node.post("/channel/pause?topic=t&channel=c")
    producer.pub("t", b"1")
    assert consumer.quiet(0.3)
    node.post("/topic/pause?topic=t")
    producer.pub("t", b"2")
    node.post("/channel/unpause?topic=t&channel=c")
    assert consumer.message().body == b"1"
    assert consumer.quiet(0.3)
    node.post("/topic/unpause?topic=t")
    assert consumer.message().body == b"2"


def test_ids_of_all_topics_are_unique_under_load(daemon):
    node = daemon("--mem-queue-size=1000000")
    producer = node.connect()
    consumers = [node.connect().sub(topic, "c", 2500) for topic in ("a", "b")]
    for _ in range(100):
        for topic in ("a", "b"):
            producer.command(f"MPUB {topic}", batch(*[b"x"] * 200))
    ids = [m.id for consumer in consumers for m in consumer.messages(20_000, finish=True)]
    assert len(set(ids)) == 40_000


def test_heartbeats_and_a_silent_client(daemon):
    node = daemon()
    client = node.connect()
    began = time.monotonic()
    client.ok("IDENTIFY", b'{"heartbeat_interval": 1000}')
    client.sock.settimeout(WAIT_SECONDS)
    data = b""
    while chunk := client.sock.recv(4096):
        data += chunk
    assert b"_heartbeat_" in data
    assert time.monotonic() - began >= 1.5


def test_unfinished_command_and_missing_magic_are_closed(daemon):
    node = daemon("--handshake-timeout=1s")
    silent = node.connect(magic=b" ")
    stalled = node.connect()
    stalled.command("PUB t")
    stalled.send(struct.pack(">i", 100) + b"only this")
    idle = node.connect()
    idle.ok("SUB t c")
    assert stalled.frame() == (1, b"E_BAD_MESSAGE PUB failed to read message body")
    assert stalled.frame() is None
    assert silent.frame() is None
    assert idle.quiet(1.5)
    wait_until(lambda: node.stats("t")["channels"][0]["client_count"] == 1)
