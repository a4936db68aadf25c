"""Dead letters redriven to their own channels only, or dropped."""

import json
import random
import struct

import pytest

from tests.rules.letters import ask, die, waiting
from tests.rules.support import publish, set_rule, subscribe, until_channel
from tests.support.crc32c import crc32c
from tests.support.daemon import wait_until
from tests.tools.calling import call

SALT_AT = 40        # in the header of a segment


@pytest.fixture
def node(daemon):
    return daemon("--topic-storage=log")


def where(node):
    return "--nsqd", f"127.0.0.1:{node.tcp_port}", "--http", f"127.0.0.1:{node.http_port}"


def take(node, topic: str, channel: str, count: int) -> list[bytes]:
    client = subscribe(node, topic, channel, rdy=count + 1)
    messages = client.messages(count, finish=True)
    assert {message.attempts for message in messages} <= {1}
    assert client.quiet(0.1)
    client.close()
    until_channel(node, topic, channel, depth=0, in_flight_count=0)
    return sorted(message.body for message in messages)


@pytest.mark.parametrize("storage", ["log", "memory"])
def test_letters_go_to_their_channel_only(daemon, storage):
    node = daemon("--topic-storage=log")
    node.http("PUT", "/topic/rules?topic=t", json.dumps({"storage": storage}).encode())
    other = subscribe(node, "t", "other", rdy=10)
    die(node, "t", "c", b"a", b"b", attempts=3)
    assert len(other.messages(2, finish=True)) == 2
    assert ask(node, "POST", "/dead/redrive?topic=t.dead")["redriven"] == 2
    assert other.quiet(0.1) and node.channel("t", "other")["depth"] == 0
    assert waiting(node, "t.dead") == []
    node.kill()         # they are on the disk of the channel
    node.start()
    assert waiting(node, "t.dead") == []
    assert take(node, "t", "c", 2) == [b"a", b"b"]
    publish(node, "t", b"next")
    assert take(node, "t", "c", 1) == [b"next"]
    node.restart()
    assert node.channel("t", "c")["depth"] == 0


def test_a_letter_that_dies_again_waits_again(node):
    die(node, "t", "c", b"x")
    client = subscribe(node, "t", "c")
    assert ask(node, "POST", "/dead/redrive?topic=t.dead")["redriven"] == 1
    client.command(f"REQ {client.message().id.decode()} 0")
    until_channel(node, "t", dead_letter_count=2)
    assert waiting(node, "t.dead") == [b"x"]


def test_filters_and_limits(node):
    for topic, channel in (("t", "c"), ("v", "d"), ("u", "c")):
        set_rule(node, topic, channel, dead_letter="dead")
    for topic, channel, body in (("t", "c", b"a"), ("v", "d", b"b"), ("u", "c", b"c"), ("u", "c", b"d")):
        die(node, topic, channel, body)
    call_ = "/dead/redrive?topic=dead&dry_run=true"
    for filters, count in (("", 4), ("&origin=t", 1), ("&origin=v/d", 1), ("&origin=u/d", 0), ("&reason=requeued", 4),
                           ("&reason=timed_out", 0), ("&limit=3", 3), ("&from=3", 1), ("&origin=u&reason=requeued", 2)):
        assert ask(node, "POST", call_ + filters)["redriven"] == count, filters
    letters = ask(node, "GET", "/dead/show?topic=dead")["messages"]
    assert len(waiting(node, "dead")) == 4
    answer = ask(node, "POST", f"/dead/redrive?topic=dead&id={letters[1]['origin']['id']}")
    assert (answer["redriven"], answer["next"]) == (1, None)
    assert ask(node, "POST", f"/dead/drop?topic=dead&id={letters[3]['id']}")["dropped"] == 1
    assert waiting(node, "dead") == [b"a", b"c"]
    answer = ask(node, "POST", "/dead/drop?topic=dead&limit=1")
    assert (answer["dropped"], answer["next"]) == (1, 2)
    assert [topic["waiting"] for topic in ask(node, "GET", "/dead")["topics"] if topic["topic"] == "dead"] == [1]
    for bad in ("origin=/c", "origin=t/", "dry_run=yes", "limit=0", "limit=10001", "from=x", "to=t", "source=c"):
        ask(node, "POST", f"/dead/redrive?topic=dead&{bad}", 400)
    ask(node, "POST", "/dead/redrive?topic=nothing", 404)


def test_what_has_no_channel_stays(node):
    die(node, "t", "c", b"a")
    publish(node, "t.dead", b"plain")
    node.post("/channel/delete?topic=t&channel=c")
    answer = ask(node, "POST", "/dead/redrive?topic=t.dead")
    assert answer["redriven"] == 0 and [one["origin"] for one in answer["skipped"]] == ["t/c", None]
    assert len(waiting(node, "t.dead")) == 2
    node.post("/channel/create?topic=t&channel=new")
    assert ask(node, "POST", "/dead/redrive?topic=t.dead&to=t/new")["redriven"] == 2
    assert take(node, "t", "new", 2) == [b"a", b"plain"]


def test_many_letters_in_pieces(node):
    bodies = [b"%d" % number for number in range(2000)]
    die(node, "t", "c", *bodies)
    moved, begin = 0, 0
    while begin is not None:
        answer = ask(node, "POST", f"/dead/redrive?topic=t.dead&limit=300&from={begin}")
        moved, begin = moved + answer["redriven"], answer["next"]
    assert moved == 2000
    assert take(node, "t", "c", 2000) == sorted(bodies)


def test_settled_letters_can_be_removed(daemon):
    """Without a channel the dead-letter topic keeps the waiting messages, and nothing else."""
    node = daemon("--topic-storage=log", "--max-bytes-per-file=65536")
    die(node, "t", "c", *(b"%d" % number + b"x" * 1000 for number in range(500)))
    assert node.stats("t.dead")["depth"] == 500
    ask(node, "POST", "/dead/drop?topic=t.dead&limit=499")
    assert node.stats("t.dead")["depth"] == 1
    node.kill()
    node.start()
    assert len(waiting(node, "t.dead")) == 1
    assert node.stats("t.dead")["depth"] == 1


def test_any_letters_in_any_order_over_kills(node):
    """Settled letters are single ones and ranges, at the beginning, in the middle and at the end."""
    numbers = list(range(200))
    die(node, "t", "c", *(b"%d" % number for number in numbers))
    left = {int(message["body"]): message["id"] for message in ask(
        node, "GET", "/dead/show?topic=t.dead&limit=1000")["messages"]}
    taken = set()
    chance = random.Random(37)
    for turn in range(6):
        for number in chance.sample(sorted(left), min(12, len(left))):
            assert ask(node, "POST", f"/dead/drop?topic=t.dead&id={left.pop(number)}")["dropped"] == 1
        begin = chance.randrange(200)
        answer = ask(node, "POST", f"/dead/redrive?topic=t.dead&from={begin}&limit={chance.randrange(1, 20)}")
        still = {int(body) for body in waiting(node, "t.dead")}
        assert answer["redriven"] == len(left) - len(still) and still <= set(left)
        taken |= set(left) - still
        left = {number: id_ for number, id_ in left.items() if number in still}
        if turn % 2:
            node.restart()
        else:
            node.kill()
            node.start()
        assert {int(body) for body in waiting(node, "t.dead")} == set(left)
        assert ask(node, "GET", "/dead")["topics"][0]["waiting"] == len(left)
    assert {int(body) for body in take(node, "t", "c", len(taken))} == taken


def test_a_topic_in_memory(daemon):
    node = daemon("--topic-storage=memory")
    for body in (b"a", b"b", b"c"):
        die(node, "t", "c", body)
    node.post("/channel/create?topic=t.dead&channel=ops")
    node.post("/channel/create?topic=t&channel=other")
    until_channel(node, "t.dead", "ops", depth=3)
    for missing in ("", "&source=ops", "&to=t/c"):
        assert "is kept in memory" in ask(node, "POST", f"/dead/redrive?topic=t.dead{missing}", 400)["message"]
    ask(node, "POST", "/dead/redrive?topic=t.dead&source=ops&to=t/c&origin=t", 400)
    ask(node, "POST", "/dead/drop?topic=t.dead", 400)
    ask(node, "POST", "/dead/redrive?topic=t.dead&source=no&to=t/c", 404)
    ask(node, "POST", "/dead/redrive?topic=t.dead&source=ops&to=t/no", 404)
    path = "/dead/redrive?topic=t.dead&source=ops&to=t/c"
    assert ask(node, "POST", f"{path}&dry_run=true")["redriven"] == 3
    assert ask(node, "POST", f"{path}&limit=2")["redriven"] == 2
    until_channel(node, "t.dead", "ops", depth=1)
    assert ask(node, "POST", path)["redriven"] == 1
    assert ask(node, "POST", path)["redriven"] == 0
    assert node.channel("t.dead", "ops")["depth"] == 0 and node.channel("t", "other")["depth"] == 0
    node.kill()
    node.start()
    assert take(node, "t", "c", 3) == [b"a", b"b", b"c"]


def test_memory_on_disk(daemon):
    """Messages leave the dead-letter topic's files once they are in the channel's files."""
    node = daemon("--topic-storage=memory", "--mem-queue-size=0")
    bodies = [b"%d" % number for number in range(500)]
    die(node, "t", "c", *bodies)
    node.post("/channel/create?topic=t.dead&channel=ops")
    until_channel(node, "t.dead", "ops", depth=500)
    assert ask(node, "POST", "/dead/redrive?topic=t.dead&source=ops&to=t/c")["redriven"] == 500
    node.restart()
    assert node.channel("t.dead", "ops")["depth"] == 0
    assert take(node, "t", "c", 500) == sorted(bodies)


def test_the_command(node):
    die(node, "t", "c", b"a", b"b", attempts=2)
    listed = call("dead", "list", *where(node))
    assert listed.code == 0 and listed.out.splitlines()[1].split()[2:5] == ["t/c", "requeued", "2"]
    assert json.loads(call("dead", "list", "t.dead", "--json", *where(node)).out)["count"] == 2
    shown = call("dead", "show", "t.dead", "-n", "1", *where(node)).out
    assert "from t/c  requeued, attempts 2" in shown and len(shown.splitlines()) == 1
    assert "2 letters would be redriven" in call("dead", "redrive", "t.dead", "--dry-run", *where(node)).out
    assert "1 letter redriven" in call("dead", "redrive", "t.dead", "--origin", "t/c", "-n", "1", *where(node)).out
    refused = call("dead", "drop", "t.dead", *where(node))
    assert refused.code == 2 and "--yes" in refused.err
    dropped = json.loads(call("dead", "drop", "t.dead", "--yes", "--json", *where(node)).out)
    assert dropped["dropped"] == 1
    assert waiting(node, "t.dead") == []
    bad = call("dead", "redrive", "t.dead", "--target", "x", *where(node))
    assert bad.code == 1 and "INVALID_ARG_TO" in bad.err
    assert call("dead", "show", "nothing", *where(node)).code != 0


def spoil_origin(node, topic: str, at: int) -> None:
    """Makes the origin of a message unreadable, with valid checksums, while the daemon is stopped."""
    folder = node.data_path
    [path] = [file for file in folder.rglob("*") if file.is_file() and b'{"topic":"t","channel":"c"' in file.read_bytes()]
    data = bytearray(path.read_bytes())
    position = -1
    for _ in range(at + 1):
        position = data.index(b'{"topic":"t","channel":"c"', position + 1)
    data[position:position + 1] = b"\n"
    frame = data.rindex(b"nqFR", 0, position)
    length = struct.unpack_from(">I", data, frame + 8)[0]
    salt = struct.unpack_from(">Q", data, SALT_AT)[0]
    struct.pack_into(">I", data, frame + 12, crc32c(bytes(data[frame + 64:frame + 64 + length])))
    struct.pack_into(">I", data, frame + 4, crc32c(struct.pack(">Qq", salt, frame) + bytes(data[frame + 8:frame + 64])))
    path.write_bytes(data)


def test_a_malformed_origin_stops_no_other_letter(node):
    die(node, "t", "c", b"0", b"1", b"2")
    node.post("/channel/create?topic=t&channel=other")
    assert node.stop() == 0
    spoil_origin(node, "t.dead", 1)
    node.start()
    groups = ask(node, "GET", "/dead/list?topic=t.dead")["groups"]
    assert {(group["origin"], group["reason"], group["count"]) for group in groups} == {
        ("t/c", "requeued", 2), (None, "malformed_origin", 1)}
    shown = ask(node, "GET", "/dead/show?topic=t.dead")["messages"]
    assert [message.get("malformed_origin", False) for message in shown] == [False, True, False]
    assert [message["origin"] is None for message in shown] == [False, True, False]
    peeked = ask(node, "GET", "/topic/peek?topic=t.dead")["messages"]
    assert [("origin" in message) for message in peeked] == [True, False, True]
    answer = ask(node, "POST", "/dead/redrive?topic=t.dead")
    assert answer["redriven"] == 2
    assert [(one["origin"], one["count"]) for one in answer["skipped"]] == [(None, 1)]
    assert "its origin is malformed" in answer["skipped"][0]["reason"]
    assert ask(node, "POST", "/dead/redrive?topic=t.dead&to=t/other")["redriven"] == 1
    wait_until(lambda: "the origin of the message at offset 1 is malformed" in node.log)


def test_channels_whose_messages_expire_or_overflow_are_listed(node):
    for channel, changes in (("old", {"message_ttl": "1ms", "expired": "dead-letter"}),
                             ("full", {"max_depth": 1, "overflow": "dead-letter"}), ("other", {"max_depth": 99})):
        node.post("/topic/create?topic=t")
        node.post(f"/channel/create?topic=t&channel={channel}")
        set_rule(node, "t", channel, **changes)
    publish(node, "t", b"0", b"1")
    until_channel(node, "t", "old", dead_letter_count=2)
    [dead] = ask(node, "GET", "/dead")["topics"]
    assert (dead["topic"], dead["channels"]) == ("t.dead", ["t/full", "t/old"])
