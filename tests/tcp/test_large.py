"""Large bodies: they arrive in pieces, are read into their messages, and are sent from there."""

import contextlib
import random
import socket
import struct
import threading
import time

import pytest

from tests.support.daemon import Client, Message, batch, wait_until
from tests.support.secure import client_context, connect, make_certificates

KIB, MIB = 1024, 1024 * 1024
SIZES = [1, 2047, 2048, 4095, 8191, 8192, 16384, 65535, 65536, 131_072, 262_144, 262_145, 1_000_000, MIB]


def body_of(size: int, seed: int = 0) -> bytes:
    """Bytes that show where one was lost or swapped."""
    return random.Random(size * 1000 + seed).randbytes(size)


def in_pieces(client, data: bytes, seed: int) -> None:
    """Sends in pieces of any size, often small ones, each in its own segment."""
    client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    dice, at = random.Random(seed), 0
    while at < len(data):
        step = dice.choice((1, 3, 100, 5000, 20_000, 70_000, 300_000))
        client.send(data[at:at + step])
        at += step
        if dice.random() < 0.2:
            time.sleep(0.002)


def command(line: str, body: bytes) -> bytes:
    return f"{line}\n".encode() + struct.pack(">i", len(body)) + body


def drained(node, count: int, topic: str = "t", rdy: int = 10) -> list[bytes]:
    return [message.body for message in node.connect().sub(topic, "c", rdy).messages(count, finish=True)]


def test_single_messages_of_all_sizes(daemon):
    node = daemon()
    sender = node.connect()
    bodies = [body_of(size, 1) for size in SIZES]
    in_pieces(sender, b"".join(command("PUB t", body) + b"NOP\n" for body in bodies), 1)
    assert [sender.frame() for _ in bodies] == [(0, b"OK")] * len(bodies)
    assert drained(node, len(bodies)) == bodies


def test_batches_of_mixed_sizes(daemon):
    node = daemon()
    senders = [node.connect() for _ in range(3)]
    sent = []

    def publish(sender, number: int) -> None:
        dice = random.Random(10 + number)
        for _ in range(4):
            bodies = [body_of(dice.choice((1, 30, 900, 3000, 17_000, 70_000, 300_000)), dice.randrange(1 << 30))
                      for _ in range(dice.choice((1, 3, 20)))][:15]
            sent.extend(bodies)
            in_pieces(sender, command("MPUB t", batch(*bodies)) + command("PUB t", b"between"), dice.randrange(1 << 30))
            sent.append(b"between")

    threads = [threading.Thread(target=publish, args=(sender, number)) for number, sender in enumerate(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for sender in senders:
        assert [sender.frame() for _ in range(8)] == [(0, b"OK")] * 8
    assert sorted(drained(node, len(sent))) == sorted(sent)


@pytest.mark.parametrize("sizes", [
    [40_000] * 20,
    [40_000] * 10 + [39_999],
    [40_000] * 5 + [40_001] * 5 + [1] * 3 + [40_000],
    [70_000, 5, 70_000, 5, 300_000, 20_000, 300_000],
    [16_384] * 30 + [16_383] * 3,
], ids=lambda sizes: f"{len(sizes)} of {sizes[0]}")
@pytest.mark.parametrize("how", ["at once", "in pieces", "with pauses"])
def test_batches_whose_next_size_can_be_guessed(daemon, sizes, how):
    node = daemon()
    sender = node.connect()
    bodies = [body_of(size, number) for number, size in enumerate(sizes)]
    data = (command("MPUB t", batch(*bodies)) + command("PUB t", b"behind")) * 2
    if how == "at once":
        sender.send(data)
    elif how == "in pieces":
        in_pieces(sender, data, len(sizes))
    else:
        # Every message of the batch ends a write, and so does each half of a size field.
        at = 0
        for body in bodies:
            end = data.index(body, at) + len(body)
            for part in (data[at:end - len(body) - 2], data[end - len(body) - 2:end]):
                sender.send(part)
                time.sleep(0.002)
            at = end
        sender.send(data[at:])
    assert [sender.frame() for _ in range(4)] == [(0, b"OK")] * 4
    assert drained(node, 2 * len(bodies) + 2) == [*bodies, b"behind"] * 2


def test_ids_and_times_are_those_of_the_end(daemon):
    node = daemon()
    slow, quick = node.connect(), node.connect()
    whole = command("PUB t", body_of(100_000))
    slow.send(whole[:50_000])
    time.sleep(0.1)
    quick.pub("t", b"first")
    slow.send(whole[50_000:])
    assert slow.frame() == (0, b"OK")
    first, second = node.connect().sub("t", "c", 10).messages(2)
    assert (first.body, second.body) == (b"first", whole[-100_000:])
    assert first.id < second.id and first.timestamp < second.timestamp
    assert len(second.id) == 16 and second.attempts == 1


def test_no_topic_before_the_body_is_whole(daemon):
    node = daemon()
    client = node.connect()
    client.send(command("PUB late", body_of(100_000))[:-1])
    time.sleep(0.2)
    assert node.stats()["topics"] == []
    client.send(b"x")
    assert client.frame() == (0, b"OK")
    assert node.stats("late")["message_count"] == 1


@pytest.mark.parametrize("size,error", [
    (0, b"E_BAD_MESSAGE MPUB invalid message(2) body size 0"),
    (-7, b"E_BAD_MESSAGE MPUB invalid message(2) body size -7"),
    (MIB + 1, b"E_BAD_MESSAGE MPUB message too big 1048577 > 1048576"),
])
def test_an_error_amid_a_batch_publishes_nothing_of_it(daemon, size, error):
    node = daemon()
    client = node.connect()
    rest = batch(b"a" * 70_000, b"b" * 70_000)[4:] + struct.pack(">i", size)
    client.send(b"MPUB t\n" + struct.pack(">ii", 200_000, 3) + rest)
    assert client.frame() == (1, error)
    assert client.frame() is None
    assert node.stats("t")["message_count"] == 0


@pytest.mark.parametrize("line,sent,error", [
    ("PUB t", struct.pack(">i", 100_000) + bytes(99_999), b"E_BAD_MESSAGE PUB failed to read message body"),
    ("MPUB t", struct.pack(">iii", 200_000, 2, 100_000) + bytes(99_999),
     b"E_BAD_MESSAGE MPUB failed to read message body"),
    ("MPUB t", struct.pack(">iii", 200_000, 2, 100_000) + bytes(100_000),
     b"E_BAD_MESSAGE MPUB failed to read message(1) body size"),
    ("MPUB t", struct.pack(">iii", 200_000, 2, 100_000) + bytes(100_003),
     b"E_BAD_MESSAGE MPUB failed to read message(1) body size"),
    ("MPUB t", struct.pack(">iii", 200_000, 2, 100_000) + bytes(100_000) + struct.pack(">i", 5),
     b"E_BAD_MESSAGE MPUB failed to read message body"),
])
@pytest.mark.parametrize("how", ["leaves", "stalls"])
def test_cut_short(daemon, how, line, sent, error):
    node = daemon("--handshake-timeout=500ms")
    client = node.connect()
    client.send(line.encode() + b"\n" + sent)
    if how == "leaves":
        client.sock.shutdown(1)
    assert client.frame() == (1, error)
    assert client.frame() is None
    assert sum(topic["message_count"] for topic in node.stats()["topics"]) == 0


def test_a_batch_that_takes_many_slices(daemon):
    """Gathered, and published to several channels while other commands follow it."""
    node = daemon("--mem-queue-size=1000000")
    for channel in ("a", "b", "c", "d"):
        node.connect().sub("t", channel)
    sender, other = node.connect(), node.connect()
    bodies = [b"%06d" % number for number in range(300_000)]
    in_pieces(sender, command("MPUB t", batch(*bodies)) + command("PUB t", b"behind"), 1)
    other.pub("u", b"meanwhile")
    assert [sender.frame() for _ in range(2)] == [(0, b"OK")] * 2
    assert node.stats("t")["message_count"] == 300_001
    assert drained(node, 300_001, rdy=2500) == [*bodies, b"behind"]


def test_to_disk(daemon):
    node = daemon("--mem-queue-size=0")
    bodies = [body_of(size) for size in SIZES[:-2]]
    sender = node.connect()
    node.connect().sub("t", "c")
    in_pieces(sender, command("MPUB t", batch(*bodies)) * 3, 5)
    assert [sender.frame() for _ in range(3)] == [(0, b"OK")] * 3
    node.kill()
    node.start()
    assert drained(node, 3 * len(bodies)) == bodies * 3


def test_topic_deleted_while_a_batch_comes(daemon):
    node = daemon()
    client = node.connect()
    whole = command("MPUB t", batch(*[body_of(50_000)] * 5))
    client.send(whole[:100_000])
    wait_until(lambda: node.stats()["topics"])
    node.post("/topic/delete?topic=t")
    client.send(whole[100_000:])
    assert client.frame() == (0, b"OK")
    assert node.stats("t")["message_count"] == 5


@pytest.mark.parametrize("way", ["tls", "deflate", "snappy", "tls+snappy"])
def test_encrypted_and_compressed(daemon, tmp_path, way):
    certs = make_certificates(tmp_path)
    node = daemon(f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key")
    sender, taker = connect(node, way, client_context()), connect(node, way, client_context())
    taker.sub("t", "c", 3)
    bodies = [body_of(size) for size in SIZES]
    for body in bodies:
        sender.pub("t", body)
    assert [message.body for message in taker.messages(len(bodies), finish=True)] == bodies


def test_a_consumer_that_reads_late_gets_every_byte_and_holds_little(daemon):
    node = daemon("--mem-queue-size=10000")
    taker = node.connect()
    taker.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 20_000)
    taker.sub("t", "c", 2500)
    sender = node.connect()
    bodies = [body_of(size, number) for number in range(30) for size in (100, 3000, 40_000, 65_536, 200_000)]
    for at in range(0, len(bodies), 10):
        sender.pub("t", *bodies[at:at + 10])
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] > 0)
    time.sleep(0.3)
    # Messages that the socket does not take stay in the channel.
    assert node.channel("t", "c")["in_flight_count"] < 80
    got = []
    for number in range(len(bodies)):
        message = taker.message()
        got.append(message.body)
        taker.fin(message)
        if number % 10 == 0:
            time.sleep(0.01)
    assert sorted(got) == sorted(bodies)
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)


def test_small_replies_among_large_messages_keep_their_order(daemon):
    node = daemon()
    client = node.connect().sub("t", "c", 100)
    for number in range(20):
        client.send(command("PUB other", b"%d" % number) + command("PUB t", body_of(30_000, number))
                    + command("PUB other", b"x"))
    frames = [client.frame() for _ in range(80)]
    assert [data for kind, data in frames if kind == 0] == [b"OK"] * 60
    assert [data[26:] for kind, data in frames if kind == 2] == [body_of(30_000, number) for number in range(20)]


def test_what_was_collected_leaves_before_the_end(daemon):
    """A refused client gets everything due to it before the error."""
    node = daemon()
    sender = node.connect()
    taker = node.connect().sub("t", "c", 40)
    sender.pub("t", *[body_of(60_000, number) for number in range(40)])
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] > 0)
    taker.send(b"RDY x\n")
    frames = []
    while (frame := taker.frame()) is not None:
        frames.append(frame)
    assert frames[-1] == (1, b"E_INVALID RDY could not parse count x")
    assert [data[26:] for _, data in frames[:-1]] == [body_of(60_000, number) for number in range(len(frames) - 1)]


@pytest.mark.parametrize("size", [120_000, 8 * MIB])
def test_who_only_announces_much_gets_little(daemon, size):
    node = daemon("--max-msg-size=16777216", "--max-body-size=16777216")
    before = node.rss()
    clients = [node.connect() for _ in range(400)]
    for client in clients:
        client.send(b"PUB t\n" + struct.pack(">i", size) + bytes(5000))
    wait_until(lambda: node.http("GET", "/ping")[1] == b"OK")
    time.sleep(0.2)
    assert node.rss() - before < 16 * MIB


def test_memory_is_used_again(daemon):
    """Rounds of large messages through a channel do not make the daemon grow."""
    node = daemon("--mem-queue-size=10000")
    sender, taker = node.connect(), node.connect().sub("t", "c", 100)
    bodies = [body_of(size) for size in (5000, 20_000, 65_536, 140_000)] * 5

    def some_rounds(count: int) -> int:
        for _ in range(count):
            sender.pub("t", *bodies)
            assert len(taker.messages(len(bodies), finish=True)) == len(bodies)
        return node.rss()

    first = some_rounds(30)
    assert some_rounds(100) - first < 20 * MIB


@pytest.mark.parametrize("come", [0, 2], ids=["none", "two"])
def test_a_long_line_is_no_part_of_the_body(daemon, come):
    """Of the body, the count has not come yet, or not whole."""
    node = daemon()
    bodies = [body_of(50_000), body_of(49_000)]
    begun = b"MPUB t " + b"x" * 6000 + b"\n" + struct.pack(">i", len(batch(*bodies)))
    sender = node.connect()
    sender.send(begun + batch(*bodies)[:come])
    wait_until(lambda: any(topic["topic_name"] == "t" for topic in node.stats()["topics"]))
    sender.send(batch(*bodies)[come:])
    assert sender.frame() == (0, b"OK")
    assert drained(node, 2) == bodies


def test_answers_left_unread_stay_bounded_where_some_are_read_now_and_then(daemon):
    node = daemon("--max-buffered-bytes=8388608")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)     # before it connects, or it stays larger
    sock.connect(("127.0.0.1", node.tcp_port))
    client = Client(sock)
    client.send(b"  V2")
    client.sub("t", "c", 1)
    before, wrong = node.rss(), b"FIN 0123456789abcdef\n" * 90_000      # answered by 6 MB
    client.sock.settimeout(1)
    with pytest.raises(TimeoutError):   # in the end the daemon reads no more of it
        for _ in range(14):
            client.send(wrong)
            taken = 0
            while taken < 3_000_000:
                taken += len(client.sock.recv(50_000))
    assert node.rss() - before < 20 * MIB


@pytest.mark.parametrize("seed", range(3))
def test_kill_9_amid_batches_that_go_to_disk(daemon, seed):
    """Acknowledged messages are there, whole; others may be there, but only whole."""
    node = daemon("--mem-queue-size=0", "--max-bytes-per-file=3000000")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    acknowledged, sent, dice = [], set(), random.Random(seed)

    def publish(number: int) -> None:
        client = node.connect()
        try:
            for turn in range(1000):
                bodies = [body_of(size, number * 10_000 + turn) for size in (60_000, 60_000, 200_000, 900, 16_384)]
                sent.update(bodies)
                client.send(command("MPUB t", batch(*bodies)))
                if client.frame() != (0, b"OK"):
                    return
                acknowledged.extend(bodies)
        except OSError:
            return

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2 + dice.random() * 0.5)
    node.kill()
    for thread in threads:
        thread.join()
    node.start()
    taker, got = node.connect().sub("t", "c", 20), []
    while node.stats("t")["depth"] or node.channel("t", "c")["depth"] or node.channel("t", "c")["in_flight_count"]:
        with contextlib.suppress(TimeoutError):
            while (frame := taker.frame(0.3)) is not None:
                message = Message(frame[1])
                taker.fin(message)
                got.append(message.body)
    assert acknowledged and set(got) >= set(acknowledged)
    assert set(got) <= sent
