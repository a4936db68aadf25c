"""No client can starve the others: they are answered meanwhile. `make bench-stalls` measures how soon."""

import http.client
import re
import struct
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS

WRITE_NS = 1_500_000_000  # of the slow disk: several times the duration of publishing


class Watch(threading.Thread):
    """Sends /ping on a kept connection all the time, and counts the answers."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=WAIT_SECONDS)
        self.count, self.ends = 0, False

    def run(self):
        while not self.ends:
            self.connection.request("GET", "/ping")
            assert self.connection.getresponse().read() == b"OK"
            self.count += 1
            time.sleep(0.002)


@pytest.fixture
def watched():
    """watched(node): whether /ping of the node is answered meanwhile. `make bench-stalls` measures how soon."""
    @contextmanager
    def watch(node):
        pings = Watch(node)
        pings.start()
        yield
        pings.ends = True
        pings.join(WAIT_SECONDS)
        assert not pings.is_alive() and pings.count > 0
    return watch


@contextmanager
def flood(node, data: bytes, clients: int = 1, first: bytes = b""):
    """Clients that send `first`, then data again and again, and ignore the answers."""
    ends = threading.Event()

    def send(client):
        client.sock.sendall(first)
        while not ends.is_set():
            client.sock.sendall(data)

    def drop(client):
        while client.sock.recv(1 << 20):
            pass

    def quietly(call, client):
        with suppress(OSError):
            call(client)

    connected = [node.connect() for _ in range(clients)]
    for client in connected:
        client.sock.settimeout(WAIT_SECONDS)
        for call in (send, drop):
            threading.Thread(target=quietly, args=(call, client), daemon=True).start()
    yield
    ends.set()
    for client in connected:
        client.close()


def healthy(node):
    """A client with a heartbeat every second, which it answers."""
    client = node.connect()
    client.ok("IDENTIFY", b'{"heartbeat_interval": 1000}')
    return client


def test_a_batch_of_a_million_messages_to_twenty_channels(daemon, watched):
    node = daemon("--max-body-size=6000000")
    node.post("/topic/create?topic=t")
    for number in range(20):
        node.post(f"/channel/create?topic=t&channel=c{number}")
    producer, count = node.connect(), 1_000_000
    batch = struct.pack(">i", count) + b"\0\0\0\1x" * count
    with watched(node):
        producer.send(b"MPUB t\n" + struct.pack(">i", len(batch)) + batch)
        assert producer.frame(WAIT_SECONDS) == (0, b"OK")
    assert all(channel["depth"] == count for channel in node.stats("t")["channels"])


def test_unknown_ids_from_four_clients(daemon, watched):
    node = daemon()
    client = healthy(node)
    with watched(node), flood(node, b"FIN 0123456789abcdef\n" * 20_000, clients=4, first=b"SUB t c\n"):
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            assert client.quiet(0.5)    # it answers its heartbeats meanwhile
    client.pub("t", b"still here")
    assert node.stop() == 0
    assert 0 < node.log.count("E_FIN_FAILED") < 200
    assert re.search(r"\d,\d{3} more like this in the last [^:]*: \[[\d.:]+\] - E_FIN_FAILED ", node.log)


def test_a_topic_catches_up_under_a_flood(daemon, watched):
    node = daemon()
    producer = node.connect()
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.post("/topic/pause?topic=t")
    for _ in range(200):
        producer.pub("t", *[b"x" * 100] * 1000)
    assert node.stats("t")["depth"] == 200_000
    with watched(node), flood(node, (b"PUB t\n" + struct.pack(">i", 100) + b"x" * 100) * 5000, clients=2):
        node.post("/topic/unpause?topic=t")
        wait_until(lambda: node.stats("t")["depth"] == 0, "the topic has caught up")
    assert node.stats("t")["channels"][0]["depth"] >= 200_000


def test_a_topic_with_many_channels_is_deleted(daemon, watched):
    node = daemon("--mem-queue-size=0")
    node.post("/topic/create?topic=t")
    for number in range(400):
        node.post(f"/channel/create?topic=t&channel=c{number}")
    producer = node.connect()
    producer.pub("t", *[b"x" * 100] * 20)
    with watched(node):
        node.post("/topic/delete?topic=t")
    assert not [path for path in node.data_path.iterdir() if ".diskqueue." in path.name]
    producer.pub("t", b"again")
    assert node.stats("t")["depth"] == 1


def test_a_slow_disk_delays_only_those_who_wait_for_it(tmp_path):
    """In this process, where calls to the disk can be delayed: publishing continues during the first write."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from nsqc.broker.broker import Broker
    from nsqc.broker.health import WriteHealth
    from nsqc.broker.stats import Timers
    from nsqc.log import Log
    from nsqc.options.declared import Options, Settings
    from nsqc.store.disk import fileio
    from nsqc.store.disk.manager import DiskQueues
    from nsqc.store.message import GuidFactory

    async def main():
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(2) as workers:
            log, settings = Log(level=5), Settings(Options(mem_queue_size=0))
            disks = DiskQueues(tmp_path, loop, workers, log, *settings.now.disk_limits)
            write_health = WriteHealth(loop, workers, str(tmp_path), log, disks.failing_sync)
            broker = Broker(settings, log, Timers(loop), disks, write_health, GuidFactory.make(1), loop)
            for call in ("read", "write", "sync", "rename"):
                fileio.delay(call, WRITE_NS)
            try:
                topic, written = broker.get_topic(b"t"), []
                topic.get_channel(b"c")
                for number in range(20):
                    assert topic.publish(b"%d" % number) == -1
                    topic.when_written(written.append)
                    await asyncio.sleep(0.02)
                assert written == [], "the loop has waited for the first write"
                while len(written) < 20:
                    await asyncio.sleep(0.01)
                assert written == [0] * 20
            finally:
                for call in ("read", "write", "sync", "rename"):
                    fileio.delay(call, 0)
                write_health.close()
                await disks.quiet()
                broker.close()
                await disks.settle()

    asyncio.run(main())
