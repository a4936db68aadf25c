"""History that is only in the bucket: left there by a takeover or by retain_local_bytes, and fetched while it is read."""

import json
import os
import random
import shutil
import signal
import socket
import threading
import time
from contextlib import suppress

import pytest

from nsqc.bucket.fetch import fetch_frames
from nsqc.bucket.reading import NodeReader
from nsqc.bucket.store import BucketError, open_bucket
from nsqc.commands.app import run
from nsqc.store.log.names import Segment
from nsqc.store.log.reading import find_run, records
from tests.bucket.s3 import Server
from tests.bucket.test_daemon import FORCE, NODE, lines_of, lose, shipped
from tests.httpd.reading import FRAMES, LARGEST, LINES
from tests.httpd.wire import Closed, Wire
from tests.support.daemon import Daemon, batch, logged, wait_until
from tests.support.patience import WAIT_SECONDS

SEGMENT = 20_000                # bytes of frames, about
HISTORY = ("--log-retain-time=1h", f"--max-bytes-per-file={SEGMENT}")
HEADER = 4096                   # bytes of a segment's file without frames
BODIES = [b"%d " % number + bytes([97 + number % 26]) * (number % 700) for number in range(600)]


@pytest.fixture
def machine(daemon, tmp_path):
    """machine(*flags) -> a daemon on an empty disk, with the node's bucket."""
    def start(*flags: str, **more) -> Daemon:
        return daemon(f"--bucket=file://{tmp_path}/bucket", NODE, FORCE, "--topic-storage=log", "--bucket-linger=20ms",
                      *HISTORY, *flags, **more)

    return start


def fill(node: Daemon) -> None:
    """A topic with history, and a channel that has seen nothing of it."""
    node.post("/topic/create?topic=orders")
    node.post("/channel/create?topic=orders&channel=billing")
    for at in range(0, len(BODIES), 20):
        node.post("/mpub?topic=orders&binary=true", batch(*BODIES[at:at + 20]))


def files(node: Daemon, suffix: str) -> list[int]:
    """Sizes of the files in the folder of the log."""
    found = []
    for path in (node.data_path / "orders.log").glob(f"*{suffix}"):
        with suppress(FileNotFoundError):
            found.append(path.stat().st_size)
    return found


def local_bytes(node: Daemon) -> int:
    return sum(size for size in files(node, ".log") if size > HEADER)


def segments(node: Daemon) -> int:
    return json.loads(node.http("GET", "/topic/log?topic=orders")[1])["segments"]


def bodies_of(node: Daemon) -> list[bytes]:
    return [line["body"].encode() for line in lines_of(node, "orders")]


def consumed(node: Daemon, count: int) -> list[bytes]:
    consumer = node.connect().sub("orders", "billing", 200)
    return [message.body for message in consumer.messages(count, finish=True)]


def is_sound(node: Daemon) -> None:
    """No reader has found a message damaged or missing."""
    state = json.loads(node.http("GET", "/topic/log?topic=orders")[1])
    assert (state["damaged"], state["missing"]) == (0, 0)
    assert "damaged" not in node.log


def test_a_takeover_leaves_history_in_the_bucket(machine, tmp_path):
    one = machine()
    fill(one)
    shipped(open_bucket(f"file://{tmp_path}/bucket"), "orders", len(BODIES))
    times = [line["timestamp"] for line in lines_of(one, "orders")]
    lose(one)
    two = machine()
    assert {*files(two, ".log")} == {HEADER} and segments(two) == len(files(two, ".log"))
    state = json.loads(two.http("GET", "/topic/log?topic=orders")[1])
    assert (state["first_offset"], state["bytes"] > sum(map(len, BODIES))) == (0, True)
    assert state["last_time"] >= state["first_time"] > 0        # although the next offset is far beyond the last one
    assert files(two, ".fetched") == []
    two.publish("orders", b"new")
    # A time, an offset, a channel that is behind, and one that seeks.
    found = json.loads(two.http("GET", f"/topic/read?topic=orders&time={times[300]}&max_messages=1")[1])
    assert found["timestamp"] == times[300] and len(files(two, ".fetched")) in (1, 2)
    assert bodies_of(two) == [*BODIES, b"new"]
    assert consumed(two, len(BODIES) + 1) == [*BODIES, b"new"]
    wait_until(lambda: two.channel("orders", "billing")["depth"] == 0)
    two.post("/channel/seek?topic=orders&channel=billing&to=offset&offset=100")
    assert consumed(two, len(BODIES) - 99) == [*BODIES[100:], b"new"]
    is_sound(two)
    assert two.stop() == 0
    two.start()
    assert files(two, ".fetched") == [] and bodies_of(two) == [*BODIES, b"new"]


def test_a_disk_keeps_no_more_than_its_rule_says(machine):
    node = machine()
    fill(node)
    count, everything = segments(node), local_bytes(node)
    assert node.http("PUT", "/topic/rules?topic=orders", b'{"retain_local_bytes": 60000}')[0] == 200
    time.sleep(1)
    assert local_bytes(node) == everything          # no checkpoint has it yet
    node.restart()
    wait_until(lambda: local_bytes(node) <= 60_000 + SEGMENT)
    assert segments(node) == count and local_bytes(node) > 60_000 - 2 * SEGMENT
    assert bodies_of(node) == BODIES and consumed(node, len(BODIES)) == BODIES
    # The rule of the whole log still applies.
    assert node.http("PUT", "/topic/rules?topic=orders", b'{"retain_time": "1ms"}')[0] == 200
    wait_until(lambda: segments(node) == 1)
    wait_until(lambda: len(files(node, ".log")) == 1)
    node.publish("orders", b"new")
    node.kill()
    node.start()
    assert json.loads(node.http("GET", "/topic/read?topic=orders")[1].splitlines()[-1])["body"] == "new"
    is_sound(node)


@pytest.mark.parametrize(("rule", "fault"), [("sync = \"bucket\"", "sync = bucket needs --bucket"),
                                             ("retain_local_bytes = 1000", "retain_local_bytes needs --bucket")])
def test_a_node_without_a_bucket_refuses_rules_that_need_one(daemon, tmp_path, capfd, rule, fault):
    """From each place from which a rule can come."""
    config, table = tmp_path / "nsqd.toml", f'[topics."ord*"]\n{rule}\n'
    config.write_text(table)
    with pytest.raises(AssertionError, match=fault):
        daemon(f"--config={config}")
    with pytest.raises(AssertionError, match="needs --bucket"):
        daemon("--log-retain-local-bytes=1000" if "bytes" in rule else "--log-sync=bucket")
    config.write_text("")
    node = daemon(f"--config={config}")
    refused = f"RELOAD: no option is changed, the old ones stay - [topics.\"ord*\"]: {fault}"
    config.write_text(table)
    node.process.send_signal(signal.SIGHUP)
    logged(node, refused)
    config.write_text(f'bucket = "file://{tmp_path}/bucket"\n{table}')      # which needs a restart
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: node.log.count(refused) == 2)
    values = json.dumps({key: json.loads(value) for key, value in [rule.split(" = ")]})
    for path, body in (("/topic/rules?topic=orders", values), ("/rules", f'{{"topics": {{"ord*": {values}}}}}')):
        status, text = node.http("PUT", path, body.encode())
        assert (status, fault in text.decode()) == (400, True), text
    (tmp_path / "rules.toml").write_text(table)
    assert run(["rules", "apply", str(tmp_path / "rules.toml"), "--nsqd", f"127.0.0.1:{node.tcp_port}",
                "--http", f"127.0.0.1:{node.http_port}"]) != 0
    assert fault in capfd.readouterr().err
    found = json.loads(node.http("GET", "/topic/rules?topic=orders")[1])
    assert (found["sync"], found["retain_local_bytes"]) == ("write", 0)


def test_stored_rules_that_need_a_bucket(machine, daemon):
    """They stay; without the bucket, publishes are synced instead, and the log is said to be so."""
    node = machine()
    assert node.http("PUT", "/topic/rules?topic=orders", b'{"sync": "bucket", "retain_time": "2h"}')[0] == 200
    assert node.http("PUT", "/rules", b'{"topics": {"ev*": {"retain_local_bytes": 1000}}}')[0] == 200
    node.publish("orders", b"one")
    assert node.stop() == 0
    flags, node.flags = node.flags, ("--topic-storage=log", *HISTORY)
    node.start()
    assert "ERROR" in logged(node, '[topics."ev*"]: retain_local_bytes needs --bucket (and 1 more); until a start')
    node.publish("orders", b"two")
    assert node.http("PUT", "/topic/rules?topic=orders", b'{"retain_time": "3h"}')[0] == 200
    rule = json.loads(node.http("GET", "/topic/rules?topic=orders")[1])
    assert (rule["sync"], rule["retain_time"]) == ("bucket", "3h0m0s")
    assert node.stop() == 0
    node.flags = flags
    node.start()
    wait_until(lambda: bodies_of(node) == [b"one", b"two"])     # once they are shipped


def test_fetched_history_takes_no_more_room_than_allowed(machine, tmp_path):
    one = machine()
    fill(one)
    for channel in "mail", "audit":
        one.post(f"/channel/create?topic=orders&channel={channel}")
        one.post(f"/channel/seek?topic=orders&channel={channel}&to=beginning")
    assert one.stop() == 0
    shutil.rmtree(one.data_path)
    two = machine(f"--bucket-cache-bytes={3 * SEGMENT}")
    largest, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(0.001):
            largest[0] = max(largest[0], sum(files(two, ".fetched")))

    def consume(channel: str) -> None:
        consumer = two.connect().sub("orders", channel, 50)
        assert [message.body for message in consumer.messages(len(BODIES), finish=True)] == BODIES

    threads = [threading.Thread(target=consume, args=(channel,)) for channel in ("billing", "mail", "audit")]
    watching = threading.Thread(target=watch)
    for thread in (*threads, watching):
        thread.start()
    assert bodies_of(two) == BODIES
    for thread in threads:
        thread.join()
    ended.set()
    watching.join()
    assert 0 < largest[0] <= 3 * SEGMENT + 1000
    assert all(two.channel("orders", channel)["depth"] == 0 for channel in ("billing", "mail", "audit"))
    is_sound(two)


def test_readers_of_history_wait_for_a_bucket_that_is_gone(machine, tmp_path):
    one = machine()
    fill(one)
    assert one.stop() == 0
    shutil.rmtree(one.data_path)
    two = machine("--bucket-timeout=1s")
    (tmp_path / "bucket").rename(tmp_path / "away")
    (tmp_path / "bucket").write_text("not a folder")
    consumer = two.connect().sub("orders", "billing", 200)
    status, text = two.http("GET", "/topic/read?topic=orders&offset=0")
    assert (status, b"bucket" in text) == (503, True)
    wait_until(lambda: "LOG(orders): failed to read at offset 0 - " in two.log)
    # What is new goes on.
    two.post("/channel/create?topic=orders&channel=tail")
    two.publish("orders", b"new")
    assert [message.body for message in two.connect().sub("orders", "tail", 1).messages(1, finish=True)] == [b"new"]
    (tmp_path / "bucket").unlink()
    (tmp_path / "away").rename(tmp_path / "bucket")
    assert [message.body for message in consumer.messages(len(BODIES) + 1, finish=True)] == [*BODIES, b"new"]
    assert bodies_of(two) == [*BODIES, b"new"]
    is_sound(two)


def test_a_daemon_without_its_bucket_says_what_it_lacks(machine, daemon, tmp_path):
    one = machine()
    fill(one)
    assert one.stop() == 0
    shutil.rmtree(one.data_path)
    two = machine()
    assert two.stop() == 0
    two.flags = ("--topic-storage=log", *HISTORY)
    two.start()
    assert f"only the bucket has {len(BODIES)} of its messages" in two.log
    status, text = two.http("GET", "/topic/read?topic=orders&offset=0")
    assert (status, b"--bucket" in text) == (503, True)
    two.connect().sub("orders", "billing", 200)
    wait_until(lambda: "failed to read at offset 0 - only the bucket" in two.log)
    assert two.channel("orders", "billing")["depth"] == len(BODIES)


LARGE = ("--max-bytes-per-file=21000000", "--max-body-size=30000000")


def slow(node: Daemon, query: str, headers: str) -> Wire:
    """A read of all of a topic by a client that accepts almost nothing so far."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    sock.settimeout(WAIT_SECONDS)
    sock.connect(("127.0.0.1", node.http_port))
    wire = Wire(sock)
    wire.request("GET", f"/topic/read?{query}&max_bytes={LARGEST}", headers=headers)
    wire.buffer += sock.recv(8)
    return wire


def drained(wire: Wire) -> bytes:
    # With the small window, draining the kernel's buffer would take minutes.
    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    with wire:
        return wire.reply().body


@pytest.mark.parametrize("headers", [LINES, FRAMES], ids=["lines", "frames"])
def test_an_answer_continues_while_its_segment_comes_and_goes(machine, headers):
    node = machine(*LARGE)
    node.post("/mpub?topic=orders&binary=true", batch(*[b"%08d" % number * 125 for number in range(20_000)]))
    node.post("/mpub?topic=orders&binary=true", batch(*[b"x" * 1000] * 2000))     # another segment
    node.publish("other", b"other")
    whole = drained(slow(node, "topic=orders", headers))
    assert len(whole) > 20_000_000
    node.restart()          # with a checkpoint
    # It becomes remote.
    wire = slow(node, "topic=orders", headers)
    assert node.http("PUT", "/topic/rules?topic=orders", b'{"retain_local_bytes": 1}')[0] == 200
    wait_until(lambda: min(files(node, ".log")) == HEADER)
    assert drained(wire) == whole
    # Another log needs its room.
    assert node.stop() == 0
    shutil.rmtree(node.data_path)
    node = machine(*LARGE, "--bucket-cache-bytes=1")
    wire = slow(node, "topic=orders", headers)
    wait_until(lambda: lines_of(node, "other") and not files(node, ".fetched"))
    assert drained(wire) == whole
    is_sound(node)
    state = json.loads(node.http("GET", "/topic/log?topic=orders")[1])
    assert state["local_bytes"] == 0 and state["bytes"] > len(whole) // 2
    bucket = json.loads(node.http("GET", "/info")[1])["bucket"]
    assert bucket["fetches"] >= 3 and bucket["fetch_failures"] == 0 and bucket["cache_bytes"] > 20_000_000
    # One that cannot be fetched again ends early, and the log says why.
    wire = slow(node, "topic=orders", headers)
    wait_until(lambda: lines_of(node, "other") and not files(node, ".fetched"))
    node.post("/topic/delete?topic=orders")
    with pytest.raises((Closed, ConnectionResetError)):
        drained(wire)
    logged(node, "cannot send the rest of an answer - FAILED - the bucket: ")      # deleted before or during the fetch


def test_kills_while_history_is_fetched(daemon):
    """From a store that fails now and then; each start continues where the channel was."""
    server, chance = Server(), random.Random(1)
    flags = ("--bucket=s3://acme/fetch", NODE, FORCE, "--topic-storage=log", "--bucket-linger=20ms", *HISTORY)
    node = daemon(*flags, env={**os.environ, **server.environment()})
    fill(node)
    assert node.stop() == 0
    shutil.rmtree(node.data_path)
    node.data_path.mkdir()
    node.start()
    server.rate = 0.2
    got: set[bytes] = set()
    for _ in range(6):
        consumer = node.connect().sub("orders", "billing", 20)
        got.update(message.body for message in consumer.messages(chance.randrange(1, 60), finish=True))
        node.kill()
        node.start()
    consumer = node.connect().sub("orders", "billing", 200)
    wanted = {*BODIES}
    while got < wanted:
        got.update(message.body for message in consumer.messages(1, finish=True))
    assert bodies_of(node) == BODIES
    is_sound(node)
    server.rate = 0.0
    assert node.stop() == 0
    server.close()


def test_a_damaged_object_is_no_history(machine, tmp_path):
    """Fetched frames are checked: damage is an error, not a gap, and leaves no file."""
    one = machine()
    fill(one)
    assert one.stop() == 0
    root = open_bucket(f"file://{tmp_path}/bucket")
    ((_, log),) = NodeReader(root, "nsqd-1").logs("orders")
    parts = [part for part in log.frames if part.segment == log.frames[0].segment]
    path = str(tmp_path / "frames")
    fetch_frames(root.below("nsqd-1"), parts, path)
    segment = Segment(parts[0].first, parts[-1].end, parts[-1].position + parts[-1].length, parts[0].salt)
    with open(path, "rb") as file:
        assert find_run(file.fileno(), segment, 7, 0, 2, 1 << 20, False)[:2] == (7, 9)
        assert BODIES[7] in records(file.fileno(), segment, 7, 0, 8, 1 << 20, False)[3]
    target = tmp_path / "bucket/nsqd-1" / parts[0].object
    data = bytearray(target.read_bytes())
    data[parts[0].at + parts[0].length // 2] ^= 1
    target.write_bytes(data)
    with pytest.raises(BucketError, match=r"messages 0 to .* are damaged"):
        fetch_frames(root.below("nsqd-1"), parts, path + ".again")
    assert [name for name in os.listdir(tmp_path) if name.startswith("frames.")] == []
