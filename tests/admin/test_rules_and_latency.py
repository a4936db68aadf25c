"""Rules of topics and channels, dead letters, and latencies, through the API."""

import json
import math

import pytest

from nsqc.admin.fleet import NodeRow
from nsqc.admin.history import difference, p99_of_buckets, take_gauges
from nsqc.admin.upstream import dead_topic
from nsqc.options.rule_tables import BY_KEY
from tests.admin.conftest import API, address, seen
from tests.support.daemon import wait_until


def test_rules_of_channels_and_dead_letters(cluster, two):
    admin = cluster.admin()
    seen(admin, "/nodes", lambda data: len(data["nodes"]) == 2)
    keys = admin.get(f"{API}/rules")
    assert {noun: [key["key"] for key in listed] for noun, listed in keys.items()} == {
        scope.noun: [*scope.flags] for scope in BY_KEY.values()}
    attempts = next(key for key in keys["channel"] if key["key"] == "max_attempts")
    assert (attempts["kind"], attempts["least"], attempts["most"]) == ("int", 0, 65535)

    def act(**body):
        return admin.call("POST", f"{API}/actions", {"action": "rules", "topic": "t", "channel": "c", **body}).json["results"]

    results = act(rules={"max_attempts": 1, "requeue_delay": "2s"})
    assert sorted((each["target"], each["ok"]) for each in results) == sorted((address(node), True) for node in two)
    channel = seen(admin, "/topics/t/c", lambda data: data["dead_topic"])
    assert (channel["dead_topic"], channel["dead_letters"], channel["rules"]) == (
        "t.dead", 0, {"requeue_delay": "2s", "max_attempts": 1})
    assert [(each["node"], each["set"]) for each in channel["node_rules"]] == sorted(
        (address(node), {"requeue_delay": "2s", "max_attempts": 1}) for node in two)
    # One node gets another value; null resets it.
    assert [each["target"] for each in act(nodes=[address(two[0])], rules={"dead_letter": "morgue", "requeue_delay": None})] == [address(two[0])]
    rules = json.loads(two[0].http("GET", "/channel/rules?topic=t&channel=c")[1])
    assert (rules["dead_letter"], rules["requeue_delay"], rules["max_attempts"]) == ("morgue", "0s", 1)
    assert {each["node"]: each["set"] for each in admin.get(f"{API}/topics/t/c")["node_rules"]} == {
        address(two[0]): {"max_attempts": 1, "dead_letter": "morgue"}, address(two[1]): {"requeue_delay": "2s", "max_attempts": 1}}
    refused = act(rules={"max_attempts": -1})
    assert not any(each["ok"] for each in refused) and all("max_attempts" in each["message"] for each in refused)
    consumer = two[1].connect().sub("t", "c", 1)
    consumer.send(b"REQ " + consumer.message().id + b" 0\n")
    dead = seen(admin, "/topics/t.dead", lambda data: data["dead_letters_of"] and data["dead_letters_of"][0]["dead_letters"])
    assert dead["dead_letters_of"] == [{"topic": "t", "channel": "c", "dead_letters": 1, "waiting": None, "may_publish": True}]
    assert seen(admin, "/topics/t", lambda data: data["channel_rows"][0]["dead_letters"])["channel_rows"][0]["dead_topic"]


@pytest.mark.parametrize("topic, rules, dead", [
    ("t", {}, ""), ("t", {"max_attempts": 3}, "t.dead"), ("t", {"max_attempts": 3, "dead_letter": "d"}, "d"),
    ("t", {"dead_letter": "d"}, ""), ("t.dead", {"max_attempts": 3}, ""), ("t", {"max_attempts": 3, "dead_letter": 7}, "t.dead"),
    ("t", {"some": "dead-letter"}, "t.dead")])
def test_where_dead_letters_go(topic, rules, dead):
    assert dead_topic(topic, rules) == dead


def test_the_latency_of_a_fleet(cluster):
    """For nodes without percentiles, from the bounds of their histograms."""
    node = cluster.node()
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.post("/pub?topic=t&defer=100", b"late")
    consumer = node.connect().sub("t", "c", 1)
    consumer.messages(1, finish=True)
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
    admin = cluster.admin(source=f"--nsqd-http-address={address(node)}")
    totals = seen(admin, "/overview", lambda data: data["totals"]["p99_ms"] is not None)["totals"]
    assert totals["p99_from"] == "buckets" and totals["p99_ms"] > 100
    assert admin.get(f"{API}/nodes")["nodes"][0]["p99_ms"] == totals["p99_ms"]
    topic = admin.get(f"{API}/topics/t")
    assert (topic["p99_ms"], topic["p99_from"]) == (None, None)


def test_buckets():
    first, second = NodeRow("n:1", start_time=7), NodeRow("n:1", start_time=7)
    page = b'nsqc_processing_latency_seconds_bucket{le="0.5"} %d\nnsqc_processing_latency_seconds_bucket{le="+Inf"} %d\n'
    take_gauges(first, page % (990, 1000), None, 100.0)
    assert p99_of_buckets([first.recent_times]) == 0.5e9
    take_gauges(second, page % (990, 1002), first, 160.0)
    assert second.recent_times == {0.5: 0, math.inf: 2}
    assert p99_of_buckets([second.recent_times]) == 0.5e9     # the highest bound
    assert p99_of_buckets([]) == p99_of_buckets([{}]) == -1.0
    assert p99_of_buckets([difference(first.times, first.times)]) == 0.0
    restarted = NodeRow("n:1", start_time=9)
    take_gauges(restarted, page % (1, 1), second, 200.0)
    assert restarted.recent_times == {0.5: 1, math.inf: 1}
    assert p99_of_buckets([{1.0: 98, 2.0: 100, math.inf: 100}, {1.0: 100, 2.0: 100, math.inf: 100}]) == 1e9
    assert p99_of_buckets([{1.0: 97, 2.0: 100, math.inf: 100}, {1.0: 100, 2.0: 100, math.inf: 100}]) == 2e9


def test_the_rules_of_a_file_reach_nodes_that_join_later_and_drift_is_shown(cluster, tmp_path):
    file = tmp_path / "rules.toml"
    file.write_text('[channels."orders.*/*"]\nmax_attempts = 5\n')
    one = cluster.node()
    admin = cluster.admin(f"--rules={file}")

    def attempts(node):
        return json.loads(node.http("GET", "/channel/rules?topic=orders.new&channel=c")[1])["max_attempts"]

    wait_until(lambda: attempts(one) == 5)
    two = cluster.node()
    wait_until(lambda: attempts(two) == 5)
    file.write_text('[channels."orders.*/*"]\nmax_attempts = 6\n')
    wait_until(lambda: attempts(one) == attempts(two) == 6)
    seen(admin, "/attention", lambda data: not data["counts"].get("warn"))
    file.write_text('[channels."orders.*/*"]\nmax_attempts = many\n')
    found = seen(admin, "/attention", lambda data: data["counts"].get("warn"))
    assert "keep the rules that --rules had before" in found["attention"][0]["text"] and str(file) in found["attention"][0]["text"]
    assert attempts(one) == 6
    file.write_text('[channels."orders.*/*"]\nmax_attempts = 6\n')
    seen(admin, "/attention", lambda data: not data["counts"].get("warn"))
    locked = tmp_path / "access.toml"
    locked.write_text('anonymous = ["numbers"]\n[roles.numbers]\nstats = ["*"]\n')
    three = cluster.node(f"--access-file={locked}")
    found = seen(admin, "/attention", lambda data: any(each["rule"] == "rules-differ" for each in data["attention"]))
    [concern] = [each for each in found["attention"] if each["rule"] == "rules-differ"]
    assert concern["node"] == address(three) and "cannot be given the rules" in concern["text"]


def test_nodes_whose_rules_differ(cluster, tmp_path):
    nodes = [cluster.node(), cluster.node(), cluster.node("--topic-storage=log")]
    admin = cluster.admin()
    found = seen(admin, "/attention", lambda data: any(each["rule"] == "rules-differ" for each in data["attention"]))
    [concern] = [each for each in found["attention"] if each["rule"] == "rules-differ"]
    assert concern["node"] == address(nodes[2]) and "differ from those of 2 other nodes" in concern["text"]
