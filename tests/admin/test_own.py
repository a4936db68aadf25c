"""nsqc's own API: lists, attention, messages, actions with a result for each node, permissions, /ui."""

import json
import os
import signal
import threading

import pytest

from nsqc.admin.attention import Finding, look
from nsqc.admin.fleet import ChannelRow, Moment, NodeRow, TopicRow
from nsqc.admin.history import MOST_SERIES, SLOTS, History
from nsqc.wire.stats import ChannelStats, TopicStats
from tests.admin.conftest import API, address, log_topic, seen
from tests.support.daemon import wait_until

# ---------------------------------------------------------------------- reads


def test_sums_and_lists(cluster, two):
    for number in range(30):
        two[0].post(f"/topic/create?topic=many-{number:02}")
    two[0].post("/mpub?topic=many-07", b"a\nb\nc")
    admin = cluster.admin()
    overview = seen(admin, "/overview", lambda data: data["totals"]["topics"] == 31 and data["totals"]["came"] is not None)
    assert overview["totals"]["nodes"] == overview["totals"]["answering"] == 2
    assert overview["totals"]["depth"] == 5
    assert overview["series"]["step"] == 10 and overview["series"]["values"]["depth"][-1] == 5
    page = admin.get(f"{API}/topics?search=MANY&sort=depth&order=desc&limit=10")
    assert (page["total"], len(page["topics"]), page["topics"][0]["name"]) == (30, 10, "many-07")
    page = admin.get(f"{API}/topics?limit=10&offset=30")
    assert [row["name"] for row in page["topics"]] == ["t"]
    assert [each["topic"] for each in admin.get(f"{API}/search?q=many-07")["found"]] == ["many-07"]
    assert admin.get(f"{API}/search?q=t/c")["found"] == [{"kind": "channel", "topic": "t", "channel": "c"}]
    for query in ("sort=nope", "order=up", "limit=0x", "limit=501"):
        assert admin.call("GET", f"{API}/topics?{query}").status == 400
    topic = admin.get(f"{API}/topics/t")
    assert topic["depth"] == 2 and sorted(row["node"] for row in topic["node_rows"]) == sorted(map(address, two))
    client = two[1].connect().sub("t", "c", 1)
    client.message()
    channel = seen(admin, "/topics/t/c", lambda data: data["consumers"] and data["held"])
    assert channel["consumers"][0]["in_flight_count"] == 1 and channel["held"][0]["node"] == address(two[1])
    node = admin.get(f"{API}/nodes/{address(two[0])}?search=many&limit=5")
    assert (node["total"], len(node["topic_rows"]), node["nsqc"] != "") == (30, 5, True)
    assert node["disk_size"] > 0 and node["memory"] > 0
    assert admin.get(f"{API}/lookup")["lookupds"] == [{"address": cluster.lookupd.http_address, "error": "", "topics": 31}]
    for path, word in (("/topics/none", "TOPIC_NOT_FOUND"), ("/topics/t/none", "CHANNEL_NOT_FOUND"), ("/nodes/n:1", "NODE_NOT_FOUND")):
        answer = admin.call("GET", API + path)
        assert (answer.status, answer.json["message"]) == (404, word)


def test_a_node_that_dies(cluster, two):
    admin = cluster.admin()
    seen(admin, "/nodes", lambda data: len(data["nodes"]) == 2)
    two[1].kill()
    overview = seen(admin, "/overview", lambda data: data["totals"]["answering"] == 1)
    concern = next(each for each in overview["attention"] if each["rule"] == "node-missing")
    assert concern["severity"] == "bad" and concern["node"] == address(two[1]) and "connection refused" in concern["text"]
    assert overview["totals"]["depth"] == 2     # with its last known values


def test_messages(cluster, two):
    log_topic(two[0], count=30)
    two[0].post("/pub?topic=t", b"\xff\x00binary")
    admin = cluster.admin()
    seen(admin, "/topics/l", lambda data: data["logs"] and data["depth"] == 30)
    node = address(two[0])
    queued = admin.get(f"{API}/messages?node={node}&topic=t&channel=c")
    assert [message.get("body") for message in queued["messages"]] == ['{"n": 1}', None]
    assert queued["messages"][1]["body_base64"] == "/wBiaW5hcnk=" and queued["count"] == 2
    page = admin.get(f"{API}/messages?node={node}&topic=l&state=history&limit=4")
    assert [message["offset"] for message in page["messages"]] == [0, 1, 2, 3] and page["messages"][0]["size"] == 13
    page = admin.get(f"{API}/messages?node={node}&topic=l&state=history&limit=4&offset={page['next']}")
    assert [message["offset"] for message in page["messages"]] == [4, 5, 6, 7]
    found = admin.get(f"{API}/messages?node={node}&topic=l&state=history&search=%2029")
    assert [message["offset"] for message in found["messages"]] == [29] and found["scanned"] == 30
    found = admin.get(f"{API}/messages?node={node}&topic=t&channel=c&search=binary")
    assert len(found["messages"]) == 1 and found["next"] is None
    # A live tail waits for new messages.
    got = []
    tail = threading.Thread(target=lambda: got.append(
        admin.get(f"{API}/messages?node={node}&topic=l&state=history&offset=30&wait_ms=20000")))
    tail.start()
    two[0].post("/pub?topic=l", b"late")
    tail.join()
    assert [message["body"] for message in got[0]["messages"]] in (["late"], [])
    for query, status, word in (("topic=none", 404, "TOPIC_NOT_FOUND"), ("topic=t&state=history", 400, "NO_LOG"),
                                ("topic=l&state=history&offset=99", 416, "OFFSET_BEYOND_END"), ("topic=a%20b", 400, "INVALID_ARG_TOPIC"),
                                ("topic=t&state=x", 400, "INVALID_ARG_STATE")):
        answer = admin.call("GET", f"{API}/messages?node={node}&{query}")
        assert answer.status == status and answer.json["message"].startswith(word)
    body = {"topic": "copy", "node": node, "body_base64": "/wA=", "confirm": "copy"}
    assert admin.call("POST", f"{API}/publish", {**body, "confirm": "cop"}).status == 400
    assert admin.call("POST", f"{API}/publish", body).json["results"][0]["ok"]
    assert two[0].stats("copy")["message_bytes"] == 2


# ---------------------------------------------------------------------- actions


def test_actions_on_all_nodes(cluster, two):
    admin = cluster.admin()
    seen(admin, "/nodes", lambda data: len(data["nodes"]) == 2)

    def act(**body):
        return admin.call("POST", f"{API}/actions", body)

    answer = act(action="pause", topic="t", channel="c")
    assert sorted((each["target"], each["ok"]) for each in answer.json["results"]) == sorted((address(node), True) for node in two)
    assert all(node.channel("t", "c")["paused"] for node in two)
    two[1].post("/channel/create?topic=t&channel=mine")
    refused = act(action="empty", topic="t", channel="mine", confirm="mine", nodes=[address(node) for node in two]).json["results"]
    assert [(each["ok"], each["message"]) for each in refused] == [(False, "CHANNEL_NOT_FOUND"), (True, "")]
    two[1].post("/channel/delete?topic=t&channel=mine")
    assert act(action="unpause", topic="t", channel="c", nodes=[address(two[0])]).status == 200
    assert [node.channel("t", "c")["paused"] for node in two] == [False, True]
    for action in ("empty", "delete"):
        refused = act(action=action, topic="t", channel="c", confirm="C")
        assert refused.status == 400 and refused.json["message"].startswith("NOT_CONFIRMED")
    assert act(action="empty", topic="t", channel="c", confirm="c").status == 200
    assert [node.channel("t", "c")["depth"] for node in two] == [0, 0]
    assert act(action="create", topic="fresh").json["results"][0]["kind"] == "nsqlookupd"
    assert act(action="create", topic="t", channel="c2").status == 200
    assert all(len(node.stats("t")["channels"]) == 2 for node in two)
    # A node that does not answer has its own result and does not delay the others.
    os.kill(two[1].pid, signal.SIGKILL)
    results = {each["target"]: each for each in act(action="pause", topic="t").json["results"]}
    assert results[address(two[0])]["ok"] and two[0].stats("t")["paused"]
    dead = results[address(two[1])]
    assert (dead["ok"], dead["status"]) == (False, 0) and dead["message"]
    changes = admin.get(f"{API}/audit")["changes"]
    assert changes[0]["action"] == "pause" and changes[0]["target"] == "t"
    wait_until(lambda: "pause t: 1 of 2 done" in admin.log)
    assert act(action="delete", topic="t", confirm="t").status == 200
    for body, word in (({"action": "explode"}, "INVALID_ACTION"), ({"action": "pause", "topic": "a b"}, "INVALID_TOPIC"),
                       ({"action": "pause", "topic": "t", "nodes": ["x:1"]}, "NODE_NOT_FOUND"), ({"action": "seek", "topic": "t"}, "INVALID_SEEK"),
                       ({"action": "tombstone", "topic": "t"}, "INVALID_NODES"), ({"action": 1}, "INVALID_BODY")):
        answer = act(**body)
        assert answer.status in (400, 404) and answer.json["message"].startswith(word), answer


def test_a_node_that_stops_in_the_middle(cluster, two):
    """The node accepts the call and never answers: the result is "unknown"."""
    admin = cluster.admin("--http-client-request-timeout=1s")
    seen(admin, "/nodes", lambda data: len(data["nodes"]) == 2)
    os.kill(two[1].pid, signal.SIGSTOP)
    try:
        answer = admin.call("POST", f"{API}/actions", {"action": "pause", "topic": "t"})
    finally:
        os.kill(two[1].pid, signal.SIGCONT)
    results = {each["target"]: each for each in answer.json["results"]}
    assert results[address(two[0])]["ok"]
    assert not results[address(two[1])]["ok"] and "may or may not have been carried out" in results[address(two[1])]["message"]


def test_seek_with_a_preview(cluster, two):
    log_topic(two[0], count=10)
    client = two[0].connect().sub("l", "c", 10)
    client.messages(10, finish=True)
    admin = cluster.admin()
    seen(admin, "/topics/l", lambda data: data["logs"])
    body = {"action": "seek", "topic": "l", "channel": "c", "to": "3"}
    preview = wait_until(lambda: [each for each in admin.call("POST", f"{API}/actions", {**body, "preview": True}).json["preview"]
                                  if each.get("again") == 7])
    assert preview == [{"node": address(two[0]), "from": 10, "target": 3, "first": 0, "end": 10, "again": 7, "left_out": 0}]
    for to, again in (("beginning", 10), ("end", 0), ("1h", 10)):
        shown = admin.call("POST", f"{API}/actions", {**body, "to": to, "preview": True}).json["preview"]
        assert shown[0]["again"] == again
    assert "does not exist" in admin.call("POST", f"{API}/actions", {**body, "to": "11", "preview": True}).json["preview"][0]["error"]
    assert admin.call("POST", f"{API}/actions", {**body, "confirm": "c"}).json["results"][0]["ok"]
    assert client.messages(7)[0].body == b'{"number": 3}'


# ---------------------------------------------------------------------- permissions


def test_browsers_need_a_token(cluster, two):
    admin = cluster.admin()
    seen(admin, "/nodes", lambda data: data["nodes"])
    origin = {"Origin": admin.url}
    body = {"action": "pause", "topic": "t"}
    session = admin.call("GET", f"{API}/session")
    cookie = session.headers["Set-Cookie"].partition(";")[0]
    assert "HttpOnly" in session.headers["Set-Cookie"] and "SameSite=Strict" in session.headers["Set-Cookie"]
    token = session.json["csrf"]
    for headers in ({}, {"X_CSRF_Token": token}, {"Cookie": cookie}, {"Cookie": cookie, "X_CSRF_Token": ("b" if token[0] == "a" else "a") + token[1:]}):
        refused = admin.call("POST", f"{API}/actions", body, **origin, **headers)
        assert refused.status == 403 and refused.json["message"].startswith("CSRF_TOKEN")
    assert admin.call("POST", f"{API}/actions", body, **origin, Cookie=cookie, X_CSRF_Token=token).status == 200
    foreign = admin.call("POST", f"{API}/actions", body, Origin="http://evil.example", Cookie=cookie, X_CSRF_Token=token)
    assert foreign.status == 403 and foreign.json["message"].startswith("FOREIGN_ORIGIN")
    # DNS rebinding: a page's own name resolves to this server.
    rebound = admin.call("GET", f"{API}/topics", Host="evil.example")
    assert rebound.status == 403 and rebound.json["message"].startswith("HOST_NOT_ALLOWED")


def test_the_page_is_guarded(cluster):
    admin = cluster.admin()
    page = admin.call("GET", "/topics/t/c")
    assert page.status == 200 and page.headers["Cache-Control"] == "no-cache"
    policy = page.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    text = page.body.decode()
    assert "<style" not in text and " style=" not in text and "onclick" not in text and text.count("<script") == 1
    script = text.partition('src="')[2].partition('"')[0]
    file = admin.call("GET", "/" + script, Accept_Encoding="gzip")
    assert file.headers["Content-Encoding"] == "gzip" and "immutable" in file.headers["Cache-Control"]
    assert admin.call("GET", "/static/0123/main.js").status == 404
    assert admin.call("GET", "/static/..%2fserver.py").status == 404


# ---------------------------------------------------------------------- one daemon


def test_the_page_of_a_daemon(cluster):
    node = cluster.node()
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.post("/pub?topic=t", b"hello")

    def call(path, body=None):
        status, answer = node.http("GET" if body is None else "POST", "/ui" + path, body and json.dumps(body).encode())
        return status, json.loads(answer)

    status, page = node.http("GET", "/ui/")
    assert status == 200 and b'<base href="/ui/">' in page
    assert call("/api/v1/session")[1]["mode"] == "node"
    assert call("/api/v1/topics")[1]["topics"][0]["depth"] == 1
    name = call("/api/v1/nodes")[1]["nodes"][0]["address"]
    assert call(f"/api/v1/messages?node={name}&topic=t&channel=c")[1]["messages"][0]["body"] == "hello"
    assert call("/api/v1/actions", {"action": "pause", "topic": "t", "channel": "c"})[1]["results"][0]["ok"]
    assert node.channel("t", "c")["paused"]
    log_topic(node, count=400)      # more than one chunk
    assert len(call(f"/api/v1/messages?node={name}&topic=l&state=history&limit=200")[1]["messages"]) == 200
    assert node.stop() == 0
    assert "was destroyed" not in node.log


# ---------------------------------------------------------------------- rules and limits


def find(moment, history, lookup_errors):
    """All concerns of a Moment."""
    finding = Finding()
    for concern in look(moment, history, lookup_errors):
        finding.add(concern)
    return finding.result()


def moment_of(**channel):
    moment = Moment()
    row = TopicRow("t", channels={"c": ChannelRow("t", "c", **channel)})
    moment.topics["t"] = row
    return moment


@pytest.mark.parametrize("rule, channel", [
    ("stuck", {"clients": 1, "in_flight": 3, "still_since": 1.0}),
    ("no-consumer", {"depth": 3, "alone_since": 1.0}),
    ("paused", {"paused": 1, "clients": 1, "still_since": 1.0}),
])
def test_rules_of_channels(rule, channel):
    assert [each.rule for each in find(moment_of(**channel), History(), {}).listed] == [rule]


def test_a_pause_on_purpose_is_no_alarm():
    """Neither during the pause nor at its end: consumers have a minute from then."""
    def at(seconds, paused, before):
        moment = moment_of(clients=1, depth=9, nodes=1, paused=paused)
        moment.at = seconds
        list(moment.compare(before))
        return moment

    moment = at(1000.0, 0, None)
    for seconds in range(1060, 5000, 60):
        moment = at(float(seconds), 1, moment)
        assert [(each.rule, each.severity) for each in find(moment, History(), {}).listed] == [("paused", "note")]
    for seconds in (4990, 5010):
        moment = at(float(seconds), 0, moment)
        assert find(moment, History(), {}).listed == []
    assert [each.rule for each in find(at(5030.0, 0, moment), History(), {}).listed] == ["stuck"]


def test_messages_of_a_missing_node_are_no_alarm():
    """Consumers of the other nodes cannot take them."""
    def at(seconds, live_depth, before):
        moment = Moment()
        moment.at = seconds
        for node, depth in ((NodeRow("gone:1", error="gone"), 5), (NodeRow("n:1", health="OK"), live_depth)):
            moment.nodes[node.address] = node
            moment.add(TopicStats(topic_name="t", channels=[ChannelStats(channel_name=name, depth=depth, client_count=clients)
                                                            for name, clients in (("used", 2), ("alone", 0))]), node)
            moment.add(TopicStats(topic_name="none", depth=depth), node)
        list(moment.compare(before))
        return moment

    for depth, found in ((0, {"node-missing": ""}), (3, {
            "node-missing": "", "stuck": "t/used: 3 messages wait, 0 in flight", "no-consumer": "t/alone: 3 messages wait",
            "no-channel": "3 messages wait in none"})):
        moment = at(1000.0, depth, None)
        for seconds in (1060.0, 1120.0, 1180.0):
            moment = at(seconds, depth, moment)
        concerns = {each.rule: each.text for each in find(moment, History(), {}).listed}
        assert concerns.keys() == found.keys() and all(text in concerns[rule] for rule, text in found.items())


@pytest.mark.parametrize("rule, severity, node", [
    ("unhealthy", "bad", {"health": "NOK - no space"}), ("disk-low", "warn", {"disk_free": 8.0, "disk_size": 100.0}),
    ("disk-low", "bad", {"disk_free": 4.0, "disk_size": 100.0}), ("draining", "note", {"draining": True}),
    ("node-missing", "bad", {"error": "gone"}), ("node-unlisted", "warn", {"listed": False}),
    ("bucket-lags", "bad", {"bucket": {"lag_seconds": 61.0, "lag_bytes": 5.0}}), ("bucket-fenced", "bad", {"bucket": {"fenced": 1.0}}),
])
def test_rules_of_nodes(rule, severity, node):
    moment = Moment()
    moment.nodes["n:1"] = NodeRow("n:1", **{"health": "OK", **node})
    assert [(each.rule, each.severity) for each in find(moment, History(), {}).listed] == [(rule, severity)]


def test_rules_of_the_fleet():
    moment = Moment()
    moment.nodes = {"a:1": NodeRow("a:1", version="1.3.0"), "b:1": NodeRow("b:1", version="1.2.0")}
    moment.topics = {"d": TopicRow("d", damaged=2, channels={}), "u": TopicRow("u", depth=4, unread_since=1.0, channels={}),
                     "u.dead": TopicRow("u.dead", depth=4, unread_since=1.0, channels={}),
                     "lost": TopicRow("lost", depth=4, unread_since=1.0, channels={})}
    moment.feeders = {"lost": []}
    found = find(moment, History(), {"l:1": "gone"}).listed
    assert {each.rule for each in found} == {"lookup-down", "versions", "damage", "no-channel", "dead-letters"}
    assert {each.topic for each in found if each.rule == "dead-letters"} == {"u.dead", "lost"}


def test_a_point_has_the_mean_rate_of_its_polls():
    """A burst that is over at the point's last poll shows; so does the time after it."""
    history = History()
    for at, rate, depth in ((1000.0, 8.0, 1), (1003.0, 0.0, 2), (1006.0, 1.0, 3), (1009.0, -1.0, 4), (1012.0, 0.0, 5)):
        moment = Moment()
        moment.at, moment.totals.came, moment.totals.went, moment.totals.depth = at, rate, rate, depth
        list(history.add(moment))
    values = history.series(())["values"]
    assert values["came"] == values["went"] == [3.0, 0.0] and values["depth"] == [4, 5]


def test_polls_that_are_further_apart_than_points_leave_no_gaps():
    """Only a server that did not look at all does, as at /ui while no page is open."""
    history = History()
    for at, rate in ((1000.0, -1.0), (1055.0, 4.0), (1065.0, 2.0), (1065.0 + 900, 1.0)):
        moment = Moment()
        moment.at, moment.totals.came, moment.totals.depth = at, rate, 7
        list(history.add(moment))
    values = history.series(())["values"]
    assert values["came"] == [None, *[4.0] * 5, 2.0, *[None] * 89, 1.0]
    assert values["depth"] == [*[7] * 7, *[None] * 89, 7]


def test_the_history_is_bounded():
    history = History()
    moment = Moment()
    moment.topics = {f"t{number}": TopicRow(f"t{number}", messages=number, came=float(number), channels={
        "c": ChannelRow(f"t{number}", "c")}) for number in range(MOST_SERIES)}
    list(history.add(moment))
    assert len(history) <= MOST_SERIES + 1
    busiest = f"t{MOST_SERIES - 1}"
    assert history.series((busiest,)) is not None and history.series(("t0",)) is None
    # New names that arrive before the busiest topics are chosen again do not make it grow.
    soon = Moment()
    soon.at = moment.at + 10
    soon.topics = {**moment.topics, **{f"new{number}": TopicRow(f"new{number}", channels={}) for number in range(MOST_SERIES)}}
    history._chosen = None
    list(history.add(soon))
    assert len(history) <= MOST_SERIES + 500
    later = Moment()
    later.at = moment.at + 7200
    later.topics = {busiest: moment.topics[busiest]}
    list(history.add(later))
    assert history.series((busiest,))["values"]["depth"] == [0.0]      # older than an hour
    assert len(history.series((busiest,))["values"]["came"]) <= SLOTS


def test_charts_from_prometheus(cluster, two, prometheus):
    """A server that answers like Prometheus, then stops: the charts switch back to the admin server's own data."""
    admin = cluster.admin(f"--prometheus-url={prometheus.url}")
    assert admin.get(f"{API}/session")["ranges"] == ["1h", "6h", "1d", "1w"]
    series = seen(admin, "/topics/t/c", lambda data: data["series"])["series"]
    week = admin.get(f"{API}/topics/t/c?range=1w")["series"]
    assert (week["step"], len(week["values"]["depth"]), week["values"]["depth"][0]) == (1680, 360, 7)
    assert 'sum(rate(nsqc_channel_messages_total{topic="t",channel="c"}[1680s]))' in [query for _, query in prometheus.asked]
    assert admin.call("GET", f"{API}/topics/t/c?range=1y").status == 400
    prometheus.close()
    assert series["values"]["depth"][0] == series["values"]["depth"][-1] == 7 and series["values"]["depth"].count(None) == 358
    assert set(series["values"]["came"]) == {None}
    assert {path for path, _ in prometheus.asked} == {"/prom/api/v1/query_range"}
    assert 'sum(nsqc_channel_depth{topic="t",channel="c"})' in [query for _, query in prometheus.asked]
    assert seen(admin, "/topics/t", lambda data: data["series"])["series"]["values"]["depth"][-1] == 2
    wait_until(lambda: "failed to query http://127.0.0.1" in admin.log)
