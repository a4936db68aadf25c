"""New topics query the nsqlookupds for their channels; messages get through however those behave."""

import json
import threading

import pytest

from tests.peers.fakes import http_answer
from tests.support import nested
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS


def listing(*channels: str) -> bytes:
    return json.dumps({"channels": channels}).encode()


def known(node, lookup) -> None:
    wait_until(lambda: node.log.count("peer info") == len(lookup))


def channels(node, topic: str) -> list[str]:
    return [one["channel_name"] for one in node.stats(topic)["channels"]]


def test_channels_are_made_before_the_first_message_passes(daemon, lookupd):
    first = lookupd({"t": ["one", "two", "e#ephemeral", "bad name", "x" * 65, ""]})
    second = lookupd({"t": ["two", "three"]})
    node = daemon(f"--lookupd-tcp-address={first.address}", f"--lookupd-tcp-address={second.address}")
    known(node, [first, second])
    node.connect().pub("t", b"early")
    wait_until(lambda: node.stats("t")["depth"] == 0)
    assert channels(node, "t") == ["one", "three", "two"]
    for name in ("one", "two", "three"):
        assert node.connect().sub("t", name, 1).message().body == b"early"
    assert first.web.heard == second.web.heard == ["/channels?topic=t"]
    assert "Accept: application/vnd.nsq; version=1.0\r\n" in first.web.heads[0]
    first.hear(*[f"REGISTER t {name}" for name in ("one", "two", "three")], "REGISTER t")


def test_ephemeral_topics_ask_too_with_their_name_quoted(daemon, lookupd):
    lookup = lookupd({"t#ephemeral": ["one"]})
    node = daemon(f"--lookupd-tcp-address={lookup.address}")
    known(node, [lookup])
    node.connect().pub("t#ephemeral", b"x")
    wait_until(lambda: channels(node, "t#ephemeral") == ["one"])
    assert lookup.web.heard == ["/channels?topic=t%23ephemeral"]


def test_without_lookupd_nobody_is_asked(daemon):
    node = daemon()
    node.connect().pub("t", b"x")
    assert node.connect().sub("t", "c", 1).message().body == b"x"
    assert "nsqlookupd" not in node.log


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n{\"chann\r\n11\r\nels\": [\"one\",\"two\r\n3\r\n\"]}\r\n0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + listing("one", "two"),
    b"HTTP/1.1 100 Continue\r\n\r\n" + http_answer(listing("one", "two")),
    http_answer(listing("one", "two")) + b"more than was asked for",
])
def test_every_way_to_write_an_answer(daemon, lookupd, answer):
    lookup = lookupd(answer=lambda target: answer)
    node = daemon(f"--lookupd-tcp-address={lookup.address}")
    known(node, [lookup])
    node.connect().pub("t", b"x")
    wait_until(lambda: channels(node, "t") == ["one", "two"])


@pytest.mark.parametrize("answer", [
    b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + listing("never"), http_answer(b"not json"), http_answer(b"\xff"),
    http_answer(nested.OBJECT), http_answer(b'{"channels":' + nested.ARRAYS + b"}"), http_answer(b'{"channels": [1]}'), http_answer(b'{"channels": null}'), http_answer(b"{}"),
    http_answer(listing("never"), "500 Internal Server Error"), http_answer(listing("never"), "404 Not Found"),
    http_answer(b'{"channels": ["never"], "x": "' + b"x" * (5 << 20) + b'"}'),
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 20),
])
def test_a_bad_answer_costs_nothing(daemon, lookupd, answer):
    lookup = lookupd(answer=lambda target: answer)
    node = daemon(f"--lookupd-tcp-address={lookup.address}", "--http-client-request-timeout=2s")
    known(node, [lookup])
    client = node.connect()
    client.pub("t", b"x")
    assert node.connect().sub("t", "c", 1).message().body == b"x"
    assert channels(node, "t") == ["c"]
    assert node.log.count("ended: ") == 0


def test_messages_wait_for_a_lookupd_that_hangs_but_not_for_ever(daemon, lookupd):
    hanging = lookupd(answer=lambda target: None)
    good = lookupd({"t": ["one"]})
    node = daemon(f"--lookupd-tcp-address={hanging.address}", f"--lookupd-tcp-address={good.address}",
                  "--http-client-request-timeout=4s")
    known(node, [hanging, good])
    client = node.connect()
    client.pub("t", b"first")
    consumer = node.connect().sub("t", "late", 10)
    wait_until(lambda: hanging.web.heard and good.web.heard)
    client.pub("t", b"second")
    assert node.stats("t")["depth"] == 2
    assert [message.body for message in consumer.messages(2)] == [b"first", b"second"]
    assert channels(node, "t") == ["late", "one"]
    assert node.channel("t", "one")["depth"] == 2
    wait_until(lambda: f"failed to query nsqlookupd {hanging.address} for channels to pre-create for topic t - timed out" in node.log)


def test_many_new_topics_ask_a_few_at_a_time_and_all_start(daemon, lookupd):
    lookup = lookupd(answer=lambda target: None)
    node = daemon(f"--lookupd-tcp-address={lookup.address}", "--http-client-request-timeout=1h")
    known(node, [lookup])
    client = node.connect()
    names = [f"t{number}" for number in range(100)]
    for name in names:
        client.pub(name, b"x")
    wait_until(lambda: len(lookup.web.heard) == 32)
    # All are registered, and still no more queries run at once.
    wait_until(lambda: len(lookup.commands()) == 100)
    assert lookup.web.open == lookup.web.most_open == 32
    lookup.web.answer = lambda target: http_answer(listing("one"))
    lookup.web.drop()
    wait_until(lambda: len(lookup.web.heard) == 100)
    wait_until(lambda: sum(len(topic["channels"]) for topic in node.stats()["topics"]) == 68)
    for name in names:
        node.post(f"/channel/create?topic={name}&channel=one")
    wait_until(lambda: all((topic["depth"], topic["channels"][0]["depth"]) == (0, 1)
                           for topic in node.stats()["topics"]))


def test_a_topic_deleted_while_it_waits_stays_deleted(daemon, lookupd):
    released = threading.Event()

    def answer(target: str) -> bytes:
        released.wait(WAIT_SECONDS)
        return http_answer(listing("one"))

    lookup = lookupd(answer=answer)
    node = daemon(f"--lookupd-tcp-address={lookup.address}", "--http-client-request-timeout=1h")
    known(node, [lookup])
    client = node.connect()
    client.pub("t", b"x")
    wait_until(lambda: lookup.web.heard)
    node.post("/topic/delete?topic=t")
    released.set()
    client.pub("u", b"y")
    wait_until(lambda: channels(node, "u") == ["one"])
    assert [topic["topic_name"] for topic in node.stats()["topics"]] == ["u"]
    assert "TOPIC(t): new channel" not in node.log
    client.pub("t", b"z")
    assert node.connect().sub("t", "one", 1).message().body == b"z"


def test_a_stop_keeps_what_waits(daemon, lookupd):
    lookup = lookupd(answer=lambda target: None)
    node = daemon(f"--lookupd-tcp-address={lookup.address}", "--http-client-request-timeout=1h")
    known(node, [lookup])
    node.connect().pub("t", b"one", b"two")
    node.post("/channel/create?topic=t&channel=c")
    wait_until(lambda: lookup.web.heard)
    assert node.stop() == 0
    node.flags = ()
    node.start()
    assert [message.body for message in node.connect().sub("t", "c", 2).messages(2)] == [b"one", b"two"]


def test_right_after_the_start_the_introduction_is_waited_for(daemon, lookupd):
    lookup = lookupd({"t": ["one"]})
    lookup.may_introduce.clear()
    node = daemon(f"--lookupd-tcp-address={lookup.address}", "--http-client-request-timeout=10s")
    node.connect().pub("t", b"x")
    lookup.wait_for_introductions(1)
    assert node.stats("t")["depth"] == 1
    lookup.may_introduce.set()
    wait_until(lambda: channels(node, "t") == ["one"])
    assert node.connect().sub("t", "one", 1).message().body == b"x"


@pytest.mark.parametrize("introduction", [b"{}", b'{"broadcast_address": "127.0.0.1"}',
                                          b'{"broadcast_address": "127.0.0.1", "http_port": 70000}'])
def test_a_lookupd_without_http_address_is_not_asked(daemon, lookupd, introduction):
    lookup = lookupd()
    lookup.introduction = introduction
    node = daemon(f"--lookupd-tcp-address={lookup.address}")
    known(node, [lookup])
    node.connect().pub("t", b"x")
    assert node.connect().sub("t", "c", 1).message().body == b"x"
    wait_until(lambda: "no available nsqlookupd to query for channels to pre-create for topic t" in node.log)
    lookup.hear("REGISTER t", "REGISTER t c")
