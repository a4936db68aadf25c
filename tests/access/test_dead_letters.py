"""Rules and redrives make the node publish: for users who may do so themselves, and for no others."""

from __future__ import annotations

import json

import pytest

from tests.access.files import AccessFile
from tests.httpd.conftest import HttpDaemon
from tests.rules.letters import die, lines, waiting
from tests.support.daemon import logged
from tests.support.secure import identify


@pytest.fixture
def node(start, access: AccessFile):
    access.user("team", publish=["mine.*"], admin=["mine.*", "shop/*"], consume=["mine.*"])
    access.user("ops", admin=["*"], stats=["*"], read=["*"], publish=["mine.*"])
    return start(access.write().flag, "--topic-storage=log")


def put(node: HttpDaemon, access: AccessFile, user: str, target: str, **changes: object) -> tuple[int, str]:
    """PUT /topic/rules or /channel/rules; status and message."""
    kind = "channel" if "channel=" in target else "topic"
    reply = node.call("PUT", f"/{kind}/rules?{target}", json.dumps(changes).encode(), access.bearer(user))
    return reply.status, json.loads(reply.body).get("message", "")


def refused(answer: tuple[int, str], topic: str) -> bool:
    return answer[0] == 403 and answer[1].endswith(f"has no grant publish for topic {topic}, which would get messages")


def test_a_channels_rule(node, access):
    assert refused(put(node, access, "team", "topic=mine.a&channel=c", max_attempts=1, dead_letter="orders"), "orders")
    assert refused(put(node, access, "team", "topic=mine.a&channel=c", dead_letter="orders"), "orders")
    assert put(node, access, "team", "topic=mine.a&channel=c", max_attempts=1)[0] == 200
    assert refused(put(node, access, "team", "topic=mine.a&channel=c", dead_letter="orders"), "orders")
    assert put(node, access, "team", "topic=mine.a&channel=c", dead_letter="mine.dead")[0] == 200
    assert put(node, access, "team", "topic=mine.a&channel=c", dead_letter=None)[0] == 200
    # The default name counts, too; keys that move nothing need no more than before.
    assert refused(put(node, access, "team", "topic=shop&channel=c", max_attempts=1), "shop.dead")
    assert put(node, access, "team", "topic=shop&channel=c", rate=5, max_depth=9, message_ttl="1h")[0] == 200
    assert refused(put(node, access, "team", "topic=shop&channel=c", overflow="dead-letter"), "shop.dead")
    assert refused(put(node, access, "team", "topic=shop&channel=c", expired="dead-letter"), "shop.dead")
    logged(node, '"result":"403 FORBIDDEN - user team has no grant publish for topic orders')


def test_a_topics_rule_applies_to_channels_with_dead_letters_elsewhere(node, access):
    assert put(node, access, "root", "topic=mine.a&channel=c", dead_letter="orders")[0] == 200
    assert refused(put(node, access, "team", "topic=mine.a", max_depth=1, overflow="dead-letter"), "orders")
    assert put(node, access, "team", "topic=mine.b", max_depth=1, overflow="dead-letter")[0] == 200
    assert put(node, access, "team", "topic=mine.a", max_depth=1, retain_time="1h")[0] == 200


def test_redriving(node, access, start):
    """The letters are made by a daemon without access rules, over the same data."""
    assert node.stop() == 0
    node.start("--access-file=")
    for topic in ("mine.a", "orders"):
        die(node, topic, "c", topic.encode())
        if topic == "orders":
            node.post("/topic/create?topic=orders.dead")
    die_to_one = json.dumps({"dead_letter": "all.dead", "max_attempts": 1}).encode()
    for topic in ("mine.a", "orders"):
        assert node.http("PUT", f"/channel/rules?topic={topic}&channel=c", die_to_one)[0] == 200
        die(node, topic, "c", b"to all")
    assert len(waiting(node, "all.dead")) == 2
    assert node.stop() == 0
    node.start(access.flag)

    def redrive(user: str, more: str = "") -> tuple[int, dict]:
        reply = node.call("POST", f"/dead/redrive?topic=all.dead{more}", headers=access.bearer(user))
        return reply.status, json.loads(reply.body)

    assert redrive("team")[0] == 403
    status, answer = redrive("ops", "&to=orders/c")
    assert status == 403 and "no grant publish for topic orders" in answer["message"]
    status, answer = redrive("ops")
    assert (status, answer["redriven"]) == (200, 1)
    assert [(one["origin"], one["count"]) for one in answer["skipped"]] == [("orders/c", 1)]
    assert "no grant publish" in answer["skipped"][0]["reason"]
    assert redrive("root")[1]["redriven"] == 1


def test_giving_up(node, access):
    """A consumer's DEAD needs publish for the topic that it names; without it the message stays with the channel."""
    for body in (b"a", b"b"):
        assert node.call("POST", "/pub?topic=mine.a", body, access.bearer("team")).status == 200
    client = node.connect()
    assert identify(client, dead_letters=True)["dead_letters"] is True
    client.command("AUTH", access.tokens["team"].encode())
    assert client.frame()[0] == 0
    first, second = client.sub("mine.a", "c", 2).messages(2)
    client.command(f"DEAD {first.id.decode()} orders ValueError")
    assert client.frame() == (1, b"E_DEAD_FAILED DEAD %b failed publishing to topic orders is not permitted" % first.id)
    client.command(f"DEAD {second.id.decode()} mine.dead ValueError")
    client.fin(first)       # it is still in flight, and the connection open
    client.command(f"TOUCH {first.id.decode()}")
    assert client.frame()[1].startswith(b"E_TOUCH_FAILED")
    client.close()
    logged(node, '"call":"DEAD","target":"orders","result":"E_DEAD_FAILED"')
    assert node.stop() == 0
    node.start("--access-file=")
    assert [(line["body"], line["origin"]["reason"]) for line in lines(node, "mine.dead")] == [
        (second.body.decode(), "ValueError")]
    assert node.channel("mine.a", "c")["depth"] == 0
