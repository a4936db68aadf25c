"""No leaks: after all clients are gone, messages, deliveries, buffers and objects are freed.

Objects are counted by Python's garbage collector, and deliveries, places, and buffers and blocks of files by
counters that every build has. Messages and the input and output buffers of connections are counted only by a debug build, so a release
build does not assert anything about them; `make debug-test` does. test_every_counter_counts shows that each counter
which is asserted to return to 0 rises in the first place.
"""

import gc
import os
import re
import resource
import signal
import struct
import threading

import pytest

from nsqc.broker import stats
from nsqc.store.peek import Page
from tests.peers.authd import AuthServer
from tests.peers.conftest import factory
from tests.support.daemon import batch, wait_until
from tests.support.secure import client_context, connect, identify

authd = factory(AuthServer)

OBJECTS = ("nsqc.tcp.connection.Connection", "nsqc.tcp.intake.Intake", "nsqc.tcp.outbox.Outbox",
           "nsqc.tcp.intake.Heartbeat", "nsqc.tcp.intake.Upgrade", "nsqc.tcp.session.Session",
           "nsqc.broker.topic.Topic", "nsqc.broker.channel.Channel", "nsqc.store.backlog.Backlog",
           "nsqc.store.disk.queue.DiskQueue", "nsqc.store.log.topiclog.TopicLog", "nsqc.store.log.cursor.Cursor")
# They live while a page is being built.
OF_PAGES = ("nsqc.store.peek.Page", "nsqc.store.peek.HeapPeek", "nsqc.store.peek.FifoPeek")
DEBUG = os.environ.get("NSQC_BUILD") == "debug"
DEBUG_ONLY = ("messages", "input_buffers", "output_buffers")
COUNTED = (*(name for name in stats.counts() if DEBUG or name not in DEBUG_ONLY), *OBJECTS, *OF_PAGES)
needs_debug = pytest.mark.skipif(not DEBUG, reason="only a debug build counts these")


def alive(node) -> dict[str, int]:
    """The counters of this build."""
    text = node.http("GET", "/debug/pprof/heap")[1].decode()
    counts = {name: int(value) for name, value in re.findall(r"^(?:alive|objects) (\S+) (\d+)$", text, re.MULTILINE)}
    return {name: counts.get(name, 0) for name in COUNTED}


def nothing_left(node) -> None:
    topics = [topic["topic_name"] for topic in node.stats()["topics"]]
    for topic in topics:
        node.post(f"/topic/delete?topic={topic.replace('#', '%23')}")
    wait_until(lambda: not any(alive(node).values()), f"nothing is left: {alive(node)}")


def test_counters_are_exact(daemon):
    node = daemon()
    consumer = node.connect().sub("t", "c", 2)
    producer = node.connect()
    producer.pub("t", *[b"x"] * 10)
    consumer.messages(2)
    consumer.send(b"half a comm")
    wait_until(lambda: alive(node)["deliveries"] == 2)
    counts = alive(node)
    assert counts["nsqc.tcp.session.Session"] == 2
    if DEBUG:
        assert counts["messages"] == 10
        wait_until(lambda: alive(node)["input_buffers"] == 1)
    consumer.close()
    producer.close()
    nothing_left(node)


@pytest.mark.parametrize("name", [
    *(pytest.param(name, marks=needs_debug if name in DEBUG_ONLY else ()) for name in stats.counts()),
    *OBJECTS])
def test_every_counter_counts(daemon, certs, name):
    """While clients hold messages from disk and from a log, have sent half a command, read no output, or are in a
    handshake."""
    node = daemon("--mem-queue-size=0", f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key")
    producer, consumer, deaf, upgrading, reader = (node.connect() for _ in range(5))
    assert node.http("PUT", "/topic/rules?topic=logged", b'{"storage": "log"}')[0] == 200
    for _ in range(2):
        producer.pub("logged", *[b"x" * 1000] * 500)        # the first half is not the end, which is in memory
    reader.sub("logged", "c", 100).messages(100)
    producer.pub("t", *[b"x" * 1000] * 5000)
    consumer.sub("t", "c", 10).messages(10)
    consumer.send(b"half a comm")
    deaf.sub("t", "deaf", 2500)
    identify(upgrading, tls_v1=True)
    largest = 0

    def rises():
        nonlocal largest
        producer.pub("t", b"y")
        largest = max(largest, alive(node)[name])
        return largest > 0

    wait_until(rises, name)
    for client in (producer, consumer, deaf, upgrading, reader):
        client.close()
    nothing_left(node)


@pytest.mark.parametrize("sync", ["write", "fsync"])
def test_logs_that_are_deleted(daemon, sync):
    """Nothing leaks in any pending state, although the collector would hardly ever run."""
    node = daemon("--topic-storage=log", f"--log-sync={sync}", "--max-bytes-per-file=20000", "--sync-every=10")
    for number in range(20):
        producer = node.connect()
        producer.pub("t", *[b"x" * 1000] * 100)
        consumer = node.connect().sub("t", "c", 20)
        messages = consumer.messages(20)
        consumer.send(b"REQ " + messages[0].id + b" 0\n" + b"REQ " + messages[1].id + b" 60000\n")
        for message in messages[2:number]:
            consumer.fin(message)
        publishing = threading.Thread(target=node.http, args=("POST", "/mpub?topic=t", b"y\n" * 300))
        if number % 2:
            publishing.start()
        node.post("/topic/delete?topic=t")
        if number % 2:
            publishing.join()
        consumer.close()
        producer.close()
    nothing_left(node)
    assert node.http("GET", "/ping") == (200, b"OK")


def test_pages_that_are_dropped_half_way(daemon):
    """Messages referenced by a page are released, also if their channel is deleted before it is complete. Slow: the
    deferred messages are published one by one."""
    assert gc.is_tracked(Page(1, 1, 1))     # so the collector counts it
    node = daemon("--mem-queue-size=100", "--max-bytes-per-file=3000")
    producer = node.connect()
    for _ in range(5):
        consumer = node.connect().sub("t", "c", 50)
        producer.pub("t", *[b"x" * 100] * 300)
        for _ in range(50):
            producer.ok("DPUB t 60000", b"later")
        callers = [threading.Thread(target=node.http, args=("GET", "/channel/peek?topic=t&channel=c&max_messages=1000"
                                                            f"&state={state}"))
                   for state in ("queued", "in_flight", "deferred") * 4]
        for caller in callers:
            caller.start()
        node.post("/channel/delete?topic=t&channel=c")
        for caller in callers:
            caller.join()
        consumer.close()
    producer.close()
    nothing_left(node)


def test_everything_clients_do(daemon):
    node = daemon("--mem-queue-size=50", "--max-bytes-per-file=3000", "--msg-timeout=1s", "--sync-timeout=100ms")
    for _ in range(3):
        producer, clients = node.connect(), []
        consumers = [node.connect().sub("t", channel, 20) for channel in ("a", "b", "e#ephemeral")]
        producer.pub("t", *[b"%d" % n * 50 for n in range(300)])
        producer.ok("DPUB t 60000", b"much later")
        for consumer in consumers:
            held = consumer.messages(20)
            consumer.fin(held[0])
            consumer.send(b"REQ " + held[1].id + b" 60000\n" + b"REQ " + held[2].id + b" 0\n" + b"TOUCH " + held[3].id + b"\n")
            consumer.send(b"FIN 0000000000000000\n")
        node.post("/channel/pause?topic=t&channel=a")
        consumers[1].send(b"PUB t\n" + struct.pack(">i", 1000) + b"unfinished")
        producer.send(b"MPUB t\n" + struct.pack(">i", 500) + batch(b"x" * 20)[:30])
        for body in (b"MPUB large\n" + struct.pack(">i", 500_000) + batch(*[b"x" * 50_000] * 10)[:-1],
                     b"PUB large\n" + struct.pack(">i", 500_000) + b"x" * 400_000):
            clients.append(node.connect())
            clients[-1].send(body)
        node.post("/channel/empty?topic=t&channel=b")
        for client in (*consumers, producer, *clients):
            client.close()
        node.post("/channel/unpause?topic=t&channel=a")
    wait_until(lambda: alive(node)["nsqc.tcp.session.Session"] == 0)
    nothing_left(node)


def test_blocked_clients_and_a_deleted_channel(daemon):
    node = daemon()
    deaf = node.connect().sub("t", "deaf", 2500)
    producer = node.connect()
    for _ in range(20):
        producer.pub("t", *[b"x" * 10_000] * 100)
    node.post("/channel/delete?topic=t&channel=deaf")
    deaf.close()
    producer.close()
    nothing_left(node)


def test_errors_and_garbage(daemon):
    node = daemon()
    for data in (b"FIN\n", b"PUB t\n\xff\xff\xff\xff", b"MPUB t\n" + struct.pack(">iii", 1000, 2, 5) + b"hello",
                 b"IDENTIFY\n\x00\x00\x00\x01{", b"\xff" * 20_000, b"SUB t c\nSUB t c\n", b"PUB t\n\x00\x00\x00\x09half"):
        client = node.connect()
        client.send(data)
        client.sock.shutdown(1)
        while client.frame() is not None:
            pass
        client.close()
    node.connect(magic=b"  V1").close()
    nothing_left(node)


def test_encrypted_compressed_and_authorised_clients(daemon, authd, certs):
    server = authd()
    node = daemon(f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key", f"--auth-http-address={server.address}")
    for transport in ("tls", "deflate", "snappy", "tls+deflate", "tls+snappy"):
        producer, consumer = connect(node, transport), connect(node, transport)
        for client in (producer, consumer):
            client.command("AUTH", b"secret")
            assert client.frame()[0] == 0
        consumer.sub("t", "c", 100)
        producer.pub("t", *[b"%d" % n * 500 for n in range(100)])
        for message in consumer.messages(100)[:50]:
            consumer.fin(message)
        consumer.send(b"half a comm")
        producer.close()
        consumer.close()
    # Failed handshakes, interrupted streams, and clients that disconnect during an auth query.
    for data in (b"", b"garbage" * 100):
        client = node.connect()
        identify(client, tls_v1=True)
        client.send(data)
        client.close()
    for codec in ("deflate", "snappy"):
        client = node.connect()
        identify(client, **{codec: True})
        client.send(b"\xff\x00garbage")
        client.close()
        connect(node, codec).sock.sock.close()
    server.gate.clear()
    for transport in ("snappy", "tls"):
        client = connect(node, transport, client_context())
        client.send(b"AUTH\n\x00\x00\x00\x01xPUB t\n\x00\x00")
        client.close()
    server.gate.set()
    wait_until(lambda: alive(node)["nsqc.tcp.session.Session"] == 0)
    nothing_left(node)


def test_what_lies_on_disk(daemon):
    """Topics that are emptied and deleted while they hand over messages, channels while they write, and requeued
    messages."""
    node = daemon("--mem-queue-size=0", "--max-bytes-per-file=100000", "--msg-timeout=300ms", "--sync-timeout=100ms")
    producer = node.connect()
    for end in ("/topic/empty?topic=t", "/topic/delete?topic=t", "/channel/empty?topic=t&channel=a",
                "/channel/delete?topic=t&channel=a"):
        node.post("/topic/create?topic=t")
        node.post("/topic/pause?topic=t")
        node.post("/channel/create?topic=t&channel=a")
        node.post("/channel/create?topic=t&channel=b")
        for _ in range(4):
            producer.pub("t", *[b"x" * 100] * 5000)
        consumers = [node.connect().sub("t", "b", 100), node.connect().sub("t", "b", 50)]
        node.post("/topic/unpause?topic=t")
        consumers[0].messages(50)
        node.post(end)
        for message in consumers[1].messages(50)[:10] if "delete?topic" not in end else ():
            consumers[1].send(b"REQ " + message.id + b" 0\n")
        if "delete?topic" not in end:
            assert alive(node)["places"] > 0
        for consumer in consumers:
            consumer.close()
    producer.close()
    nothing_left(node)


def test_a_disk_that_is_full_for_a_while(daemon):
    """Channels keep messages that they cannot write, and the topic keeps its places until they can."""
    node = daemon("--mem-queue-size=0", "--msg-timeout=300ms", preexec=no_signal)
    producer = node.connect()
    for end in ("delete", "empty", "heal"):
        node.post(f"/topic/create?topic={end}")
        for _ in range(4):
            producer.pub(end, *[b"x" * 100] * 2500)
        limit_file_size(node.pid, 200_000)
        node.post(f"/channel/create?topic={end}&channel=a")
        node.post(f"/channel/create?topic={end}&channel=b")
        wait_until(lambda: node.http("GET", "/ping")[0] == 500, "the drain to fail")
        if end != "heal":
            node.post(f"/channel/{end}?topic={end}&channel=a")
            node.post(f"/topic/{end}?topic={end}")
        limit_file_size(node.pid, resource.RLIM_INFINITY)
        wait_until(lambda: node.http("GET", "/ping")[0] == 200, "the disk to be written again")
    producer.close()
    nothing_left(node)


def no_signal() -> None:
    """A file that may not grow is an error, not a signal."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def limit_file_size(pid: int, limit: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
