"""Publishing with fail-over."""

import pytest

from nsqc.client import BadName, LookupFailed, Producer, PublishFailed, Refused, lookup, nodes
from tests.client.conftest import address
from tests.support import nested
from tests.support.ports import kept


def test_fail_over_when_one_is_killed(daemon):
    one, two = daemon(kept()), daemon()
    with Producer([address(one), address(two)], backoff=0.01) as producer:
        producer.publish_many("t", [b"a"] * 10)
        assert one.stats("t")["message_count"] == 10
        one.kill()
        producer.publish("t", b"b")
        producer.publish_many("t", [b"c"] * 5)
        producer.publish_deferred("t", b"d", 60_000)
        producer.publish_deferred_many("t", [b"e"] * 3, 60_000)
        assert two.stats("t")["message_count"] == 10


def test_all_down(daemon):
    node = daemon(kept())
    where = address(node)
    node.kill()
    producer = Producer(where, retries=2, backoff=0.01)
    with pytest.raises(PublishFailed, match=r"after 3 tries: .*Connection refused"):
        producer.publish("t", b"x")


def test_what_nsqd_refuses_is_not_tried_elsewhere(daemon):
    one, two = daemon("--max-msg-size=10"), daemon()
    producer = Producer([address(one), address(two)])
    with pytest.raises(Refused, match="E_BAD_MESSAGE"):
        producer.publish("t", b"x" * 11)
    with pytest.raises(BadName):
        producer.publish("bad topic", b"x")
    producer.close()
    assert "topics" in two.stats() and not two.stats()["topics"]


def test_by_lookup(daemon, lookupd):
    node = daemon()
    lookupd.ports = [node.tcp_port]
    with Producer(nsqlookupd=[lookupd.address]) as producer:
        producer.publish("t", b"x")
    assert node.stats("t")["message_count"] == 1
    assert lookupd.asked == ["/nodes"]


def test_lookup(lookupd):
    lookupd.ports = [1, 2]
    assert lookup("t#ephemeral", ["127.0.0.1:9", lookupd.address]) == ["127.0.0.1:1", "127.0.0.1:2"]
    assert lookupd.asked == ["/lookup?topic=t%23ephemeral"]
    lookupd.status = 404
    assert lookup("t", [lookupd.address]) == []
    # nsqd's answer; a server without topics is not queried for them.
    lookupd.refusal = "NOT_FOUND"
    with pytest.raises(LookupFailed, match="not nsqlookupd's HTTP port"):
        nodes([lookupd.address])
    lookupd.status = 500
    with pytest.raises(LookupFailed, match="status 500"):
        lookup("t", [lookupd.address])


@pytest.mark.parametrize("body", [nested.OBJECT, nested.ARRAYS, b"[]", b"7", b"null", b'{"producers": [[]]}', b"\xff", b""])
def test_a_lookup_server_that_answers_nonsense_costs_nothing_but_its_answer(lookupd, body):
    good, lookupd.ports = type(lookupd)(), [1]
    try:
        good.ports, lookupd.body = [2], body
        assert lookup("t", [lookupd.address, good.address]) == ["127.0.0.1:2"]
        with pytest.raises(LookupFailed):
            nodes([lookupd.address])
    finally:
        good.close()


def test_arguments():
    for wrong in ({}, {"nsqd": ["a:1"], "nsqlookupd": ["b:1"]}):
        with pytest.raises(ValueError, match="either nsqd or nsqlookupd"):
            Producer(**wrong)
