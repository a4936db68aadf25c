"""Multi-publishes as real clients send them: the declared size of the body is not the sent one."""

import struct

import pytest

from tests.support.daemon import batch, wait_until

MIB = 1024 * 1024
BODIES = [b"one", b"two two", b"x" * 3000]
COUNT = struct.pack(">i", len(BODIES))
SIZED = b"".join(struct.pack(">i", len(body)) + body for body in BODIES)
BYTES = sum(map(len, BODIES))

# The size that each client declares; the rest of the command is the same.
DECLARED = {
    "the protocol's": len(COUNT + SIZED),
    "nsq-ruby's": len(SIZED),                       # without the count
    "nsq-go's, of segmentio": BYTES,                # without the sizes, too
    "squeaky's": BYTES,
    "nsq.js's": BYTES,
    "one byte": 1,
    "more than comes": 2 * len(SIZED),
}


def mpub(topic: str, declared: int, rest: bytes) -> bytes:
    return f"MPUB {topic}\n".encode() + struct.pack(">i", declared) + rest


@pytest.mark.parametrize("client", DECLARED)
def test_a_batch_ends_with_its_last_message(daemon, client):
    node = daemon()
    taker = node.connect().sub("t", "c", 100)
    sender = node.connect()
    command = mpub("t", DECLARED[client], COUNT + SIZED)
    # The following commands are read from its real end.
    sender.send(command + b"PUB t\n\x00\x00\x00\x05after" + command)
    assert [sender.frame() for _ in range(3)] == [(0, b"OK")] * 3
    assert sorted(message.body for message in taker.messages(7, finish=True)) == sorted([*BODIES, b"after", *BODIES])


@pytest.mark.parametrize("client", DECLARED)
def test_byte_by_byte(daemon, client):
    node = daemon()
    sender = node.connect()
    rest = struct.pack(">i", 2) + batch(b"ab", b"c")[4:]
    for byte in mpub("t", min(DECLARED[client], 40), rest) + b"PUB t\n\x00\x00\x00\x01x":
        sender.send(bytes([byte]))
    assert [sender.frame() for _ in range(2)] == [(0, b"OK")] * 2
    assert node.stats("t")["message_count"] == 3


@pytest.mark.parametrize("declared,rest,error", [
    (0, COUNT, b"E_BAD_BODY MPUB invalid body size 0"),
    (-1, COUNT, b"E_BAD_BODY MPUB invalid body size -1"),
    (5 * MIB + 1, COUNT, b"E_BAD_BODY MPUB body too big 5242881 > 5242880"),
    (1, struct.pack(">i", 0), b"E_BAD_BODY MPUB invalid message count 0"),
    (1, struct.pack(">i", -1), b"E_BAD_BODY MPUB invalid message count -1"),
    (1, struct.pack(">i", MIB), b"E_BAD_BODY MPUB invalid message count 1048576"),
    (1, struct.pack(">iiB", 2, 1, 0) + struct.pack(">i", 0), b"E_BAD_MESSAGE MPUB invalid message(1) body size 0"),
    (1, struct.pack(">ii", 1, MIB + 1), b"E_BAD_MESSAGE MPUB message too big 1048577 > 1048576"),
])
def test_what_is_refused(daemon, declared, rest, error):
    client = daemon().connect()
    client.send(mpub("t", declared, rest))
    assert client.frame() == (1, error)
    assert client.frame() is None


@pytest.mark.parametrize("rest,error", [
    (b"", b"E_BAD_BODY MPUB failed to read message count"),
    (COUNT, b"E_BAD_MESSAGE MPUB failed to read message(0) body size"),
    (COUNT + SIZED[:9], b"E_BAD_MESSAGE MPUB failed to read message(1) body size"),
    (COUNT + SIZED[:-1], b"E_BAD_MESSAGE MPUB failed to read message body"),
])
def test_what_is_cut_short(daemon, rest, error):
    client = daemon().connect()
    client.send(mpub("t", 1, rest))
    client.sock.shutdown(1)
    assert client.frame() == (1, error)


def test_what_is_kept_of_a_batch_is_bounded(daemon):
    node = daemon()
    before = node.rss()
    clients = []
    message = struct.pack(">i", MIB) + bytes(MIB)
    for number in range(4):
        clients.append(node.connect())
        # As many messages as the limit holds but one byte, which never comes.
        clients[-1].send(mpub(f"t{number}", 1, struct.pack(">i", 1000) + message * 4 + message[:-1]))
    wait_until(lambda: node.rss() - before > 15 * MIB)
    assert node.rss() - before < 40 * MIB
    for client in clients:
        client.send(b"\0" + struct.pack(">i", 1))
        assert client.frame() == (1, b"E_BAD_BODY MPUB body too big 5242881 > 5242880")
        assert client.frame() is None
    wait_until(lambda: node.rss() - before < 12 * MIB)


def test_a_batch_as_large_as_nsqd_takes_it_from_clients_that_leave_sizes_out(daemon):
    node = daemon("--max-body-size=100000", "--mem-queue-size=100000")
    client = node.connect()
    bodies = [b"12345678"] * 12_500
    client.send(mpub("t", 100_000, batch(*bodies)))
    assert client.frame() == (0, b"OK")
    assert node.stats("t")["depth"] == 12_500


@pytest.mark.parametrize("body,error", [
    (batch(*BODIES), None), (batch(*BODIES) + b"more", None), (b"", b"BAD_BODY"), (COUNT[:3], b"BAD_BODY"),
    (COUNT, b"BAD_MESSAGE"), (COUNT + SIZED[:-1], b"BAD_MESSAGE"),
])
def test_over_http_the_body_ends_where_it_ends(daemon, body, error):
    status, answer = daemon().http("POST", "/mpub?topic=t&binary=true", body)
    assert (status, answer) == ((200, b"OK") if error is None else (413, b'{"message":"%b"}' % error))


@pytest.mark.parametrize(("count", "batches"), [(16_000, 20), (200_000, 1)], ids=["read at once", "gathered"])
def test_a_stop_leaves_no_batch_published_in_part(daemon, count, batches):
    node = daemon("--mem-queue-size=10000000")
    for channel in ("a", "b"):
        node.connect().sub("t", channel)
    sender = node.connect().sub("u", "c")      # a pure publisher may finish while the connection is new
    body = batch(*[b"12345678"] * count)
    sender.send(mpub("t", len(body), body) * batches)
    wait_until(lambda: node.stats("t")["message_count"])
    assert node.stop() == 0
    answers = []
    while (frame := sender.frame()) is not None:
        answers.append(frame)
    assert answers == [(0, b"OK")] * len(answers)
    node.start()
    assert [channel["depth"] for channel in node.stats("t")["channels"]] == [count * len(answers)] * 2
