"""Permissions to view and act: proxy users, access files, other machines; on the admin server and at /ui."""

import http.client
import json

import pytest

from tests.admin.conftest import API, address, log_topic, made, seen
from tests.support import network
from tests.support.daemon import wait_until


def test_who_may_change_and_who_may_read_messages(cluster, two):
    admin = cluster.admin("--admin-user=ann")
    seen(admin, "/nodes", lambda data: data["nodes"])
    body = {"action": "pause", "topic": "t"}
    assert admin.call("POST", f"{API}/actions", body).json["message"] == "FORBIDDEN"
    assert admin.call("POST", f"{API}/actions", body, X_Forwarded_User="ann").status == 200
    assert admin.get(f"{API}/session", X_Forwarded_User="ann")["may_change"] and not admin.get(f"{API}/session")["may_change"]
    read_only = cluster.admin("--read-only")
    assert read_only.call("POST", f"{API}/actions", body).json["message"] == "READ_ONLY"
    assert not read_only.get(f"{API}/session")["may_change"]


def test_an_access_file(cluster, two, tmp_path):
    token, stored = made()
    reader, stored_reader = made()
    file = tmp_path / "access.toml"
    file.write_text(f'[users.ops]\ntokens = ["{stored}"]\nstats = ["*"]\nadmin = ["*"]\nread = ["*"]\npublish = ["t"]\n'
                    f'[users.eyes]\ntokens = ["{stored_reader}"]\nstats = ["*"]\n')
    admin = cluster.admin(f"--access-file={file}")
    assert admin.call("GET", f"{API}/topics").status == 401
    assert admin.call("GET", "/api/topics").status == 401
    assert admin.call("GET", "/").status == 200       # the page itself is public
    ops, eyes = {"Authorization": f"Bearer {token}"}, {"Authorization": f"Bearer {reader}"}
    assert wait_until(lambda: admin.call("GET", f"{API}/topics", **eyes).status == 200)
    body = {"action": "pause", "topic": "t"}
    assert admin.call("POST", f"{API}/actions", body, **eyes).status == 403
    assert admin.call("GET", f"{API}/messages?node={address(two[0])}&topic=t&channel=c", **eyes).status == 403
    assert admin.call("POST", f"{API}/actions", body, **ops).status == 200
    wait_until(lambda: '"user":"ops"' in admin.log)
    body = {"topic": "t", "node": address(two[0]), "body": "again", "confirm": "t"}
    assert admin.call("POST", f"{API}/publish", body, **eyes).status == 403
    assert admin.call("POST", f"{API}/publish", {**body, "topic": "u", "confirm": "u"}, **ops).status == 403
    assert admin.call("POST", f"{API}/publish", body, **ops).json["results"][0]["ok"]
    wait_until(lambda: admin.log.count('"call":"POST /api/v1/publish"') == 3)      # both permitted and refused calls


@pytest.fixture
def team(tmp_path):
    """An access file with a user granted orders.* and the channel billing of shop, and that user's headers."""
    token, stored = made()
    file = tmp_path / "access.toml"
    file.write_text(f'[users.team]\ntokens = ["{stored}"]\nstats = ["orders.*"]\nread = ["orders.*/c"]\n'
                    'admin = ["orders.*", "shop/billing"]\npublish = ["orders.*"]\n')
    return file, {"Authorization": f"Bearer {token}"}


def fill_for_team(node):
    for topic in ("orders.a", "orders.b", "shop", "secret"):
        node.post(f"/topic/create?topic={topic}")
        for channel in ("c", "billing"):
            node.post(f"/channel/create?topic={topic}&channel={channel}")
        node.post(f"/pub?topic={topic}", b"body")


def place_for(cluster, team, place):
    """A node with topics, and API calls by the user: through an admin server, or at /ui of the node."""
    file, headers = team
    node = cluster.node()
    fill_for_team(node)
    if place == "admin":
        cluster.registered("secret", node)
        server = cluster.admin(f"--access-file={file}")

        def call(method, path, body=None):
            answer = server.call(method, API + path, body, **headers)
            return answer.status, answer.json
    else:
        node.restart(f"--access-file={file}")      # the topics exist before their rules
        direct = _Direct(node, headers)

        def call(method, path, body=None):
            return direct.call(method, f"/ui{API}{path}", body)
    return call


@pytest.mark.parametrize("place", ["admin", "ui"])
def test_grants_for_some_topics(cluster, team, place):
    """Users may view and do exactly what the access file grants: on the admin server, and at /ui of a daemon."""
    call = place_for(cluster, team, place)
    overview = wait_until(lambda: (found := call("GET", "/overview"))[0] == 200 and len(found[1]["deepest"]) == 2 and found[1])
    assert (overview["totals"]["topics"], overview["totals"]["channels"], overview["totals"]["depth"]) == (2, 4, 4)
    assert overview["series"] is None and overview["totals"]["answering"] == 1
    session = call("GET", "/session")[1]
    assert session["may_change"] and session["may_extend"] and not session["sees_all"]
    assert [row["name"] for row in call("GET", "/topics")[1]["topics"]] == ["orders.a", "orders.b"]
    assert {found["topic"] for found in call("GET", "/search?q=c")[1]["found"] if "topic" in found} == {"orders.a", "orders.b"}
    listed = call("GET", "/nodes")[1]["nodes"]
    assert len(listed) == 1 and listed[0]["depth"] is None and listed[0]["answer_ms"] is None and listed[0]["memory"] is None and listed[0]["nsqc"]
    address_of = listed[0]["address"]
    assert [row["name"] for row in call("GET", f"/nodes/{address_of}")[1]["topic_rows"]] == ["orders.a", "orders.b"]
    for path in ("/topics/secret", "/topics/secret/c", "/topics/shop", "/topics/shop/billing", "/topics/none",
                 f"/messages?node={address_of}&topic=secret", f"/messages?node={address_of}&topic=orders.a",
                 f"/messages?node={address_of}&topic=orders.a&channel=billing", "/lookup"):
        status, answer = call("GET", path)
        assert status == 403 and answer["message"].startswith("FORBIDDEN"), path
    topic = call("GET", "/topics/orders.a")[1]
    assert topic["may_change"] and not topic["may_read"] and topic["series"]
    channel = call("GET", "/topics/orders.a/c")[1]
    assert channel["may_change"] and channel["may_read"]
    assert call("GET", f"/messages?node={address_of}&topic=orders.a&channel=c")[1]["messages"][0]["body"] == "body"

    def act(**body):
        return call("POST", "/actions", body)

    for body in ({"action": "pause", "topic": "secret"}, {"action": "pause", "topic": "shop"},
                 {"action": "pause", "topic": "shop", "channel": "c"}, {"action": "create", "topic": "shop", "channel": "billing"},
                 {"action": "create", "topic": "other"}, {"action": "delete", "topic": "secret", "confirm": "secret"},
                 {"action": "tombstone", "topic": "shop", "channel": "billing", "nodes": [address_of], "confirm": "billing"},
                 {"action": "rules", "topic": "secret", "channel": "c", "rules": {"max_attempts": 3}},
                 {"action": "rules", "topic": "orders.a", "channel": "c", "rules": {"dead_letter": "secret"}},
                 {"action": "rules", "topic": "shop", "channel": "billing", "rules": {"max_attempts": 3}},
                 {"action": "redrive", "topic": "orders.a"},
                 {"action": "drain", "nodes": [address_of], "confirm": address_of}, {"action": "undrain", "nodes": [address_of]}):
        status, answer = act(**body)
        assert status == 403 and answer["message"].startswith("FORBIDDEN"), body
    # Adding a topic does not turn a drain into a topic action.
    assert act(action="drain", topic="orders.a", nodes=[address_of], confirm=address_of)[0] == 400
    assert act(action="pause", topic="orders.a")[1]["results"][0]["ok"]
    assert act(action="pause", topic="shop", channel="billing")[1]["results"][0]["ok"]
    publish = {"node": address_of, "body": "again"}
    assert call("POST", "/publish", {**publish, "topic": "secret", "confirm": "secret"})[0] == 403
    assert call("POST", "/publish", {**publish, "topic": "orders.b", "confirm": "orders.b"})[1]["results"][0]["ok"]
    assert [change["target"] for change in call("GET", "/audit")[1]["changes"]] == ["orders.b", "orders.a"]


def test_grants_for_some_topics_with_the_api_of_nsqadmin(cluster, team):
    file, headers = team
    node = cluster.node()
    fill_for_team(node)
    cluster.registered("secret", node)
    admin = cluster.admin(f"--access-file={file}")
    assert wait_until(lambda: admin.call("GET", "/api/topics", **headers).status == 200)
    assert admin.get("/api/topics", **headers)["topics"] == ["orders.a", "orders.b"]
    assert admin.get("/api/topics/orders.a/c", **headers)["depth"] == 1
    for method, path, body in (
            ("GET", "/api/topics/secret", None), ("GET", "/api/topics/shop/billing", None), ("GET", "/api/nodes", None),
            ("GET", f"/api/nodes/{address(node)}", None), ("GET", "/api/counter", None), ("GET", "/config/log_level", None),
            ("POST", "/api/topics/secret", {"action": "pause"}), ("POST", "/api/topics/shop/c", {"action": "empty"}),
            ("DELETE", "/api/topics/secret", None), ("POST", "/api/topics", {"topic": "other"}),
            ("DELETE", f"/api/nodes/{address(node)}", {"topic": "secret"}), ("PUT", "/config/log_level", b"info")):
        answer = admin.call(method, path, body, **headers)
        assert answer.status == 403 and answer.json["message"].startswith("FORBIDDEN"), (method, path)
    assert admin.call("POST", "/api/topics/orders.a/c", {"action": "empty"}, **headers).status == 200
    assert admin.call("POST", "/api/topics/shop/billing", {"action": "empty"}, **headers).status == 200
    assert [each["depth"] for each in node.stats("shop")["channels"]] == [0, 1]


@pytest.fixture
def outside():
    return network.outside()


def test_other_machines_read_no_messages(cluster, two, outside):
    """The admin server runs on the node's machine, so the node sees local calls."""
    log_topic(two[0])
    node = address(two[0])
    extended = [("GET", f"{API}/messages?node={node}&topic=t&channel=c", None),
                ("POST", f"{API}/publish", {"topic": "t", "node": node, "body": "x", "confirm": "t"}),
                *(("POST", f"{API}/actions", body) for body in (
                    {"action": "seek", "topic": "l", "channel": "c", "to": "end", "preview": True},
                    {"action": "rules", "topic": "l", "rules": {"storage": "memory"}},
                    {"action": "drain", "nodes": [node], "confirm": node}, {"action": "undrain", "nodes": [node]}))]
    admin = cluster.admin("--http-address=0.0.0.0:0")
    seen(admin, "/nodes", lambda data: len(data["nodes"]) == 2)
    admin.host = outside
    assert not admin.get(f"{API}/session")["may_extend"]
    for method, path, body in extended:
        answer = admin.call(method, path, body)
        assert answer.status == 403 and answer.json["message"].startswith("NOT_LOCAL"), path
    assert admin.call("POST", f"{API}/actions", {"action": "pause", "topic": "t"}).status == 200      # as in nsqadmin
    assert two[0].stats("t")["message_count"] == 1 and json.loads(two[0].http("GET", "/drain")[1])["state"] == "serving"
    for flags, headers in (("--http-extended-api=all", {}), ("--admin-user=ann", {"X_Forwarded_User": "ann"})):
        opened = cluster.admin("--http-address=0.0.0.0:0", flags)
        seen(opened, "/nodes", lambda data: len(data["nodes"]) == 2)
        opened.host = outside
        assert opened.call(*extended[0], **headers).status == 200


def test_a_node_with_an_access_file(cluster, tmp_path):
    token, stored = made()
    rules, secret = tmp_path / "access.toml", tmp_path / "token"
    rules.write_text(f'[users.admin]\ntokens = ["{stored}"]\nstats = ["*"]\nadmin = ["*"]\nread = ["*"]\n')
    secret.write_text(token + "\n")
    node = cluster.node(f"--access-file={rules}")
    source = f"--nsqd-http-address={address(node)}"
    shut = cluster.admin(source=source)
    overview = seen(shut, "/overview", lambda data: data["attention"])
    assert [each["rule"] for each in overview["attention"]] == ["node-missing"] and "401" in overview["attention"][0]["text"]
    admin = cluster.admin(f"--node-auth-secret=@{secret}", source=source)
    seen(admin, "/overview", lambda data: data["totals"]["answering"] == 1)
    assert admin.call("POST", f"{API}/actions", {"action": "create", "topic": "t"}).json["results"][0]["ok"]
    assert admin.get("/api/topics")["topics"] == ["t"]
    assert admin.call("GET", "/config/node_auth_secret").status == 400 and token not in admin.log


def test_the_page_of_a_daemon_with_access_rules(cluster, tmp_path):
    """Each call is checked against the user's grants and audited once."""
    token, stored = made()
    file = tmp_path / "access.toml"
    file.write_text(f'[users.team]\ntokens = ["{stored}"]\nstats = ["*"]\nadmin = ["mine.*"]\nread = ["mine.*"]\n'
                    f'[users.boss]\ntokens = ["{made()[1]}"]\nadmin = ["*"]\n')
    audit = tmp_path / "audit.log"
    node = cluster.node(f"--access-file={file}", f"--audit-file={audit}")
    admin = _Direct(node, {"Authorization": f"Bearer {token}"})
    assert _Direct(node, {}).call("GET", "/ui/api/v1/session")[0] == 401
    assert admin.call("GET", "/ui/api/v1/topics")[0] == 200
    status, answer = admin.call("POST", "/ui/api/v1/actions", {"action": "create", "topic": "mine.a"})
    assert status == 200 and answer["results"][0]["ok"], answer
    status, answer = admin.call("POST", "/ui/api/v1/actions", {"action": "create", "topic": "other"})
    assert status == 403 and answer["message"].startswith("FORBIDDEN - user team has no grant admin for topic other")

    def written():
        found = [json.loads(line) for line in audit.read_text().splitlines()]
        return found if any("other" in each["target"] for each in found) else None

    lines = wait_until(written)
    created = [each for each in lines if "mine.a" in each["target"]]
    assert [(each["call"], each["target"]) for each in lines if each["result"].startswith("403")] == [
        ("POST /api/v1/actions", "create other")]
    assert [(each["user"], each["call"], each["result"]) for each in created] == [("team", "POST /topic/create", "200 OK")]


def test_the_page_of_a_daemon_is_for_its_own_machine(cluster, outside):
    node = cluster.node("--http-address=0.0.0.0:0")
    for path in ("/ui/", "/ui/api/v1/session", "/ui/api/v1/topics"):
        connection = http.client.HTTPConnection(outside, node.http_port, timeout=60)
        for _ in range(2):      # the first request imports the module
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == 403 and b"NOT_LOCAL" in answer.read()
        connection.close()
    assert node.http("GET", "/ui/")[0] == 200


class _Direct:
    """Calls with headers."""

    def __init__(self, node, headers):
        self._node, self._headers = node, headers

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self._node.http_port, timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body), self._headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, json.loads(data) if "json" in answer.headers["Content-Type"] else data


@pytest.mark.parametrize("where", ["admin", "ui"])
def test_publishing_by_the_page_counts_towards_quotas(cluster, tmp_path, where):
    """A message larger than the rate for seconds is accepted, and the next one refused meanwhile."""
    token, stored = made()
    file = tmp_path / "access.toml"
    file.write_text(f'[users.team]\ntokens = ["{stored}"]\npublish = ["t"]\nmax_bytes_per_second = 1\n'
                    f'[users.root]\ntokens = ["{made()[1]}"]\nstats = ["*"]\n')
    headers = {"Authorization": f"Bearer {token}"}
    if where == "ui":
        node = cluster.node(f"--access-file={file}")
        prefix, name, server = "/ui", f"127.0.0.1:{node.http_port}", _Direct(node, headers)
    else:
        node = cluster.node()
        admin = cluster.admin(f"--access-file={file}")
        prefix, name = "", address(node)

        class Server:
            def call(self, method, path, body):
                answer = admin.call(method, path, body, **headers)
                return answer.status, answer.json

        server = Server()
    publish = {"topic": "t", "node": name, "body": "x" * 1000, "confirm": "t"}

    def published():
        status, answer = server.call("POST", f"{prefix}/api/v1/publish", publish)
        return answer if status != 404 else None    # the first look at the nodes may not be over

    assert wait_until(published)["results"][0]["ok"]
    status, answer = server.call("POST", f"{prefix}/api/v1/publish", publish)
    text = answer["message"] if status == 429 else answer["results"][0]["message"]
    assert "QUOTA - user team publishes faster than max_bytes_per_second = 1" in text
    assert where == "ui" or node.stats("t")["message_count"] == 1
