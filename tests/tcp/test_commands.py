"""Commands: their checks, the order and errors of these, and whether the connection survives."""

import json
import struct

import pytest

ID = b"0123456789abcdef"
LONG = "x" * 65


def sized(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def frames(client) -> list[tuple[int, bytes]]:
    """All up to the end of the connection."""
    replies = []
    while (frame := client.frame()) is not None:
        replies.append(frame)
    return replies


@pytest.mark.parametrize("sent,error", [
    (b"BOGUS\n", b"E_INVALID invalid command BOGUS"),
    (b"fin " + ID + b"\n", b"E_INVALID invalid command fin"),
    (b"\n", b"E_INVALID invalid command "),
    # Commands that need a subscription.
    (b"FIN " + ID + b"\n", b"E_INVALID cannot FIN in current state"),
    (b"FIN\n", b"E_INVALID cannot FIN in current state"),
    (b"REQ " + ID + b" 0\n", b"E_INVALID cannot REQ in current state"),
    (b"TOUCH " + ID + b"\n", b"E_INVALID cannot TOUCH in current state"),
    (b"RDY 1\n", b"E_INVALID cannot RDY in current state"),
    (b"CLS\n", b"E_INVALID cannot CLS in current state"),
    # Words of a line: first their number, then names in order, then numbers.
    (b"SUB\n", b"E_INVALID SUB insufficient number of parameters"),
    (b"SUB t\n", b"E_INVALID SUB insufficient number of parameters"),
    (b"SUB t! c!\n", b'E_BAD_TOPIC SUB topic name "t!" is not valid'),
    (b"SUB t c!\n", b'E_BAD_CHANNEL SUB channel name "c!" is not valid'),
    (b"SUB " + LONG.encode() + b" c\n", b'E_BAD_TOPIC SUB topic name "' + LONG.encode() + b'" is not valid'),
    (b"PUB\n", b"E_INVALID PUB insufficient number of parameters"),
    (b"PUB t!\n" + sized(b"x"), b'E_BAD_TOPIC PUB topic name "t!" is not valid'),
    (b"MPUB\n", b"E_INVALID MPUB insufficient number of parameters"),
    (b"MPUB t!\n" + sized(b"x"), b'E_BAD_TOPIC E_BAD_TOPIC MPUB topic name "t!" is not valid'),
    (b"DPUB t\n", b"E_INVALID DPUB insufficient number of parameters"),
    (b"DPUB t! x\n", b'E_BAD_TOPIC DPUB topic name "t!" is not valid'),
    (b"DPUB t x\n", b"E_INVALID DPUB could not parse timeout x"),
    (b"DPUB t 3600001\n", b"E_INVALID DPUB timeout 3600001 out of range 0-3600000"),
    (b"AUTH x\n", b"E_INVALID AUTH invalid number of parameters"),
    (b"AUTH\n" + sized(b"x"), b"E_AUTH_DISABLED AUTH disabled"),
    # Bodies.
    (b"PUB t\n" + struct.pack(">i", 0), b"E_BAD_MESSAGE PUB invalid message body size 0"),
    (b"PUB t\n" + struct.pack(">i", -1), b"E_BAD_MESSAGE PUB invalid message body size -1"),
    (b"PUB t\n" + struct.pack(">i", 1 << 20 | 1), b"E_BAD_MESSAGE PUB message too big 1048577 > 1048576"),
    (b"MPUB t\n" + struct.pack(">ii", 4, 0), b"E_BAD_BODY MPUB invalid message count 0"),
    (b"IDENTIFY\n" + sized(b"{"), b"E_BAD_BODY IDENTIFY failed to decode JSON body"),
    (b"IDENTIFY\n" + sized(b'{"heartbeat_interval": 1}'), b"E_BAD_BODY IDENTIFY heartbeat interval (1) is invalid"),
])
def test_errors_of_a_new_client_close_its_connection(daemon, sent, error):
    client = daemon().connect()
    client.send(sent + b"PUB t\n" + sized(b"never run"))
    assert frames(client) == [(1, error)]


@pytest.mark.parametrize("sent,error", [
    (b"SUB t c\n", b"E_INVALID cannot SUB in current state"),
    (b"IDENTIFY\n", b"E_INVALID cannot IDENTIFY in current state"),
    (b"AUTH\n", b"E_INVALID cannot AUTH in current state"),
    (b"RDY x\n", b"E_INVALID RDY could not parse count x"),
    (b"RDY 2501\n", b"E_INVALID RDY count 2501 out of range 0-2500"),
    (b"FIN\n", b"E_INVALID FIN insufficient number of params"),
    (b"FIN short\n", b"E_INVALID invalid message ID"),
    (b"REQ " + ID + b"\n", b"E_INVALID REQ insufficient number of params"),
    (b"REQ short 0\n", b"E_INVALID invalid message ID"),
    (b"REQ " + ID + b" x\n", b"E_INVALID REQ could not parse timeout x"),
    (b"TOUCH\n", b"E_INVALID TOUCH insufficient number of params"),
    (b"TOUCH short\n", b"E_INVALID invalid message ID"),
])
def test_errors_of_a_subscriber_close_its_connection(daemon, sent, error):
    client = daemon().connect()
    client.ok("SUB t c")
    client.send(sent + b"PUB t\n" + sized(b"never run"))
    assert frames(client) == [(1, error)]


@pytest.mark.parametrize("command", ["FIN", "REQ", "TOUCH"])
def test_errors_about_one_message_leave_the_connection_open(daemon, command):
    node = daemon()
    owner, other = node.connect().sub("t", "c", 1), node.connect().sub("t", "c")
    other.ok("PUB t", b"x")
    held = owner.message()
    more = b" 0" if command == "REQ" else b""
    name = command.encode()
    other.send(name + b" " + ID + more + b"\n" + name + b" " + held.id + more + b"\n")
    assert [other.frame() for _ in range(2)] == [
        (1, b"E_%b_FAILED %b %b failed ID not in flight" % (name, name, ID)),
        (1, b"E_%b_FAILED %b %b failed client does not own message" % (name, name, held.id))]
    other.ok("PUB t", b"y")


def test_cls_lets_a_client_finish_what_it_holds(daemon):
    node = daemon()
    consumer, producer = node.connect().sub("t", "c", 2), node.connect()
    producer.ok("PUB t", b"first")
    held = consumer.message()
    consumer.send(b"CLS\nRDY 5\n")
    assert consumer.frame() == (0, b"CLOSE_WAIT")
    producer.ok("PUB t", b"second")
    assert consumer.quiet(0.2), "RDY is ignored after CLS"
    consumer.fin(held)
    consumer.send(b"CLS\n")
    assert frames(consumer) == [(1, b"E_INVALID cannot CLS in current state")]
    assert node.channel("t", "c")["depth"] == 1


def test_identify_changes_only_what_it_names(daemon):
    node = daemon()
    client = node.connect()
    for body in ({"client_id": "a", "output_buffer_size": 1000, "msg_timeout": 5000}, {"client_id": "b"}):
        client.command("IDENTIFY", json.dumps({**body, "feature_negotiation": True}).encode())
        kind, reply = client.frame()
        assert kind == 0
    agreed = json.loads(reply)
    assert (agreed["output_buffer_size"], agreed["msg_timeout"]) == (1000, 5000)
    client.ok("SUB t c")
    assert node.stats("t")["channels"][0]["clients"][0]["client_id"] == "b"


def test_pub_rdy_and_nop_in_one_read(daemon):
    client = daemon().connect()
    client.send(b"NOP\nSUB t c\nRDY 1\nNOP\nPUB t\n" + sized(b"x") + b"NOP\n")
    assert client.frame() == (0, b"OK")
    replies = sorted([client.frame(), client.frame()])
    assert [kind for kind, _ in replies] == [0, 2]
    assert replies[0] == (0, b"OK")
    assert replies[1][1].endswith(b"x")
