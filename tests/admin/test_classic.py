"""nsqadmin's API as recorded (keys and their order, wording, order of checks), against real nodes."""

import asyncio
import json
import ssl
import threading
import zlib
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from nsqc.admin.upstream import Ask, HttpNodes, Trust
from nsqc.options.servers import AdminOptions
from tests.admin.conftest import address
from tests.support.daemon import wait_until
from tests.support.log import RecordingLog
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import make_certificates

TOPIC_KEYS = ["node", "hostname", "topic_name", "depth", "memory_depth", "backend_depth", "message_count", "nodes",
              "channels", "paused", "e2e_processing_latency"]
CHANNEL_KEYS = ["node", "hostname", "topic_name", "channel_name", "depth", "memory_depth", "backend_depth",
                "in_flight_count", "deferred_count", "requeue_count", "timeout_count", "message_count", "client_count",
                "nodes", "clients", "paused", "e2e_processing_latency"]
CLIENT_KEYS = ["node", "remote_address", "version", "client_id", "hostname", "user_agent", "connect_ts", "connected",
               "in_flight_count", "ready_count", "finish_count", "requeue_count", "message_count", "sample_rate",
               "deflate", "snappy", "authed", "auth_identity", "auth_identity_url", "tls", "tls_cipher_suite",
               "tls_version", "tls_negotiated_protocol", "tls_negotiated_protocol_is_mutual"]


class Hook:
    """A server that stores the bodies POSTed to it."""

    def __init__(self):
        hook = self
        self.got: list[dict] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                hook.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(500)     # ignored
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/hook?x=1"


@pytest.fixture
def hook():
    hook = Hook()
    yield hook
    hook.server.shutdown()
    hook.server.server_close()


@pytest.fixture
def two(cluster):
    """Two nodes with a topic and a channel, and messages in both."""
    one, other = cluster.node(), cluster.node()
    for node in (one, other):
        node.post("/topic/create?topic=t")
        node.post("/channel/create?topic=t&channel=c")
        node.post("/pub?topic=t", b"hello")
    cluster.registered("t", one, other)
    return one, other


def test_topics_and_sums_over_nodes(cluster, two):
    admin = cluster.admin()
    assert admin.call("GET", "/ping").body == b"OK"
    answer = admin.call("GET", "/api/topics")
    assert answer.body == b'{"topics":["t"],"message":""}'
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert answer.headers["X-Nsq-Content-Type"] == "nsq; version=1.0"
    client = two[0].connect().sub("t", "c", 1)
    assert client.message().body == b"hello"
    topic = admin.get("/api/topics/t")
    assert list(topic) == [*TOPIC_KEYS, "message"]
    assert (topic["node"], topic["hostname"], topic["message_count"], topic["depth"]) == ("*", "", 2, 0)
    assert [list(part) for part in topic["nodes"]] == [TOPIC_KEYS] * 2 and topic["nodes"][0]["nodes"] is None
    assert sorted(part["node"] for part in topic["nodes"]) == sorted(map(address, two))
    # By mistake, nsqadmin puts the sum into the first node.
    assert {part["channels"][0]["message_count"] for part in topic["nodes"]} == {1}
    assert list(topic["channels"][0]) == CHANNEL_KEYS and topic["channels"][0]["clients"] is None
    assert topic["e2e_processing_latency"] == {"count": 0, "percentiles": None, "topic": "t", "channel": "", "host": "*"}
    channel = admin.get("/api/topics/t/c")
    assert list(channel) == [*CHANNEL_KEYS, "message"]
    assert (channel["node"], channel["depth"], channel["in_flight_count"], channel["client_count"]) == ("*", 1, 1, 1)
    assert len(channel["nodes"]) == 2
    assert list(channel["clients"][0]) == CLIENT_KEYS
    assert channel["clients"][0]["connected"] % 10**9 == 0
    assert admin.get("/api/topics/t/none") == {"message": ""}
    unknown = admin.call("GET", "/api/topics/none")
    assert unknown.status == 502 and unknown.json == {
        "message": "UPSTREAM_ERROR: failed to query any nsqlookupd: got response 404 Not Found "
                   '"{\\"message\\":\\"TOPIC_NOT_FOUND\\"}"'}


def test_nodes_and_counters(cluster, two):
    admin = cluster.admin()
    nodes = admin.get("/api/nodes")["nodes"]
    assert list(nodes[0]) == ["remote_addresses", "remote_address", "hostname", "broadcast_address", "tcp_port",
                              "http_port", "version", "topics", "out_of_date"]
    assert nodes[0]["remote_addresses"] == [f"{cluster.lookupd.http_address}/{nodes[0]['remote_address']}"]
    assert nodes[0]["topics"] == [{"topic": "t", "tombstoned": False}] and not nodes[0]["out_of_date"]
    node = admin.get(f"/api/nodes/{address(two[0])}")
    assert (node["node"], node["total_messages"], node["total_clients"]) == (address(two[0]), 1, 0)
    assert node["topics"][0]["channels"][0]["clients"] == []
    assert admin.call("GET", "/api/nodes/nope:1").json == {"message": "NODE_NOT_FOUND"}
    assert admin.get("/api/counter")["stats"][f"t:c:{address(two[1])}"] == {
        "node": address(two[1]), "topic_name": "t", "channel_name": "c", "message_count": 1}


def test_nsqd_mode(cluster):
    node = cluster.node()
    node.post("/topic/create?topic=t")
    admin = cluster.admin(source=f"--nsqd-http-address=127.0.0.1:{node.http_port}")
    listed = admin.get("/api/nodes")["nodes"][0]
    assert (listed["remote_addresses"], listed["remote_address"]) == (None, "")
    assert admin.get("/api/topics?inactive=true") == {"topics": {}, "message": ""}
    # nsqadmin answers 200 and creates nothing.
    assert admin.call("POST", "/api/topics", {"topic": "made", "channel": "c"}).json == {"message": ""}
    assert admin.get("/api/topics/made")["channels"][0]["channel_name"] == "c"
    assert admin.call("POST", "/api/topics/made/c", {"action": "pause"}).status == 200
    assert node.channel("made", "c")["paused"]
    assert admin.call("DELETE", "/api/topics/made").status == 200
    assert admin.get("/api/topics")["topics"] == ["t"]


def test_changes(cluster, two):
    admin = cluster.admin()
    for action, field in (("pause", True), ("unpause", False)):
        assert admin.call("POST", "/api/topics/t", {"action": action}).body == b'{"message":""}'
        assert [node.stats("t")["paused"] for node in two] == [field] * 2
        assert admin.call("POST", "/api/topics/t/c", {"action": action}).status == 200
        assert [node.channel("t", "c")["paused"] for node in two] == [field] * 2
    assert admin.call("POST", "/api/topics/t/c", {"action": "empty"}).status == 200
    assert [node.channel("t", "c")["depth"] for node in two] == [0, 0]
    assert admin.call("POST", "/api/topics", {"topic": "new", "channel": "c1"}).json == {"message": ""}
    assert admin.get("/api/topics?inactive=true")["topics"] == {"new": ["c1"]}
    missing = admin.call("POST", "/api/topics/t/none", {"action": "pause"})
    assert missing.status == 200 and missing.json["message"].startswith(
        'WARNING: got response 404 Not Found "{\\"message\\":\\"CHANNEL_NOT_FOUND\\"}"')
    assert admin.call("DELETE", "/api/topics/t/c").json == {"message": ""}
    assert [node.stats("t")["channels"] for node in two] == [[], []]
    assert admin.call("DELETE", "/api/topics/t").json == {"message": ""}
    assert admin.call("DELETE", "/api/topics/t").status == 502


def test_a_tombstone(cluster, two):
    admin = cluster.admin()
    node = address(two[0])
    assert admin.call("DELETE", f"/api/nodes/{node}", {"topic": "t"}).json == {"message": ""}
    assert two[0].stats()["topics"] == []
    assert two[1].stats("t")["message_count"] == 1
    two[1].kill()
    gone = admin.call("DELETE", f"/api/nodes/{address(two[1])}", {"topic": "t"})
    assert gone.status == 502 and "connection refused" in gone.json["message"]


@pytest.mark.parametrize("method, path, body, status, message", [
    ("POST", "/api/topics", b"", 400, "EOF"),
    ("POST", "/api/topics", b"x", 400, "invalid character 'x' looking for beginning of value"),
    ("POST", "/api/topics", {"topic": "a b"}, 400, "INVALID_TOPIC"),
    ("POST", "/api/topics", {"topic": "a", "channel": "b c"}, 400, "INVALID_CHANNEL"),
    ("POST", "/api/topics/t", {"action": "explode"}, 400, "INVALID_ACTION"),
    ("DELETE", "/api/nodes/n:1", b"x", 400, "INVALID_BODY"),
    ("DELETE", "/api/nodes/n:1", {"topic": ""}, 400, "INVALID_TOPIC"),
    ("GET", "/nope", None, 404, "NOT_FOUND"),
    ("PUT", "/api/topics", None, 405, "METHOD_NOT_ALLOWED"),
    ("HEAD", "/api/topics", None, 405, None),
    ("GET", "/api/graphite?metric=x", None, 400, "INVALID_ARG_METRIC"),
    ("GET", "/api/graphite?metric=rate", None, 400, "INVALID_ARG_TARGET"),
    ("GET", "/config/nope", None, 400, "INVALID_OPTION"),
    ("PUT", "/config/log_level", b"nope", 400, "INVALID_VALUE"),
    ("PUT", "/config/base_path", b"/x", 400, "INVALID_OPTION"),
    ("PUT", "/config/log_level", b"", 413, "INVALID_VALUE"),
    ("PUT", "/config/nsqlookupd_http_addresses", b"x", 400, "INVALID_VALUE"),
])
def test_refusals(cluster, method, path, body, status, message):
    answer = cluster.admin().call(method, path, body)
    assert answer.status == status
    assert message is None or answer.json == {"message": message}
    if status == 405:
        assert answer.headers["Allow"] == "GET, OPTIONS, POST"


def test_graphite(cluster):
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            body = b'[{"target":"x","datapoints":[[740.4,1],[null,2]]}]' if "json" in self.path else b"\x89PNG..."
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        admin = cluster.admin(f"--graphite-url=http://127.0.0.1:{server.server_address[1]}", "--proxy-graphite")
        assert admin.get("/api/graphite?metric=rate&target=a.b(c)") == {"rate": "12.34"}
        picture = admin.call("GET", "/render?target=a&width=3")
    finally:
        server.shutdown()
        server.server_close()
    assert (picture.body, picture.headers["Content-Type"]) == (b"\x89PNG...", "image/png")
    assert asked == ["/render?from=-120sec&until=-60sec&format=json&target=a.b%28c%29", "/render?target=a&width=3"]
    assert admin.call("GET", "/api/graphite?metric=rate&target=a").json == {"message": "INTERNAL_ERROR"}
    assert cluster.admin().call("GET", "/render?target=a").status == 404


def test_config(cluster):
    admin = cluster.admin("--admin-user=ann", "--statsd-interval=60s")
    assert admin.call("GET", "/config/log_level").body == b"2"
    assert admin.call("GET", "/config/nsqlookupd_http_addresses").json == [cluster.lookupd.http_address]
    assert admin.call("GET", "/config/admin_users").json == ["ann"]
    assert admin.call("GET", "/config/statsd_interval").body == b"60000000000"
    text = admin.call("GET", "/config/acl_http_header")
    assert (text.body, text.headers["Content-Type"]) == (b"X-Forwarded-User", "text/plain; charset=utf-8")
    ann = {"X_Forwarded_User": "ann"}
    # As recorded: these check no user.
    assert admin.call("PUT", "/config/log_level", b"DEBUG").body == b"1"
    assert admin.call("PUT", "/config/nsqlookupd_http_addresses", b'["127.0.0.1:1"]').json == ["127.0.0.1:1"]
    down = admin.call("GET", "/api/topics")
    assert down.status == 502 and down.json["message"] == (
        'UPSTREAM_ERROR: failed to query any nsqlookupd: Get "http://127.0.0.1:1/topics": dial tcp 127.0.0.1:1: connect: '
        "connection refused")
    # As recorded: changes never report failure.
    created = admin.call("POST", "/api/topics", {"topic": "t"}, **ann)
    assert created.status == 200 and created.json["message"].startswith("WARNING: Post ")
    shut = cluster.admin("--allow-config-from-cidr=10.0.0.0/8")
    assert shut.call("GET", "/config/log_level").json == {"message": "FORBIDDEN"}


def test_users(cluster, two):
    admin = cluster.admin("--admin-user=ann", "--admin-user=bob", "--acl-http-header=X-User")
    for headers in ({}, {"X_User": "ANN"}, {"X_User": "ann2"}, {"X_Forwarded_User": "ann"}):
        # Checked before the body is parsed.
        refused = admin.call("POST", "/api/topics/t", b"x", **headers)
        assert (refused.status, refused.json) == (403, {"message": "FORBIDDEN"})
    assert admin.call("POST", "/api/topics/t", {"action": "pause"}, x_user="bob").status == 200
    wait_until(lambda: '"user":"bob"' in admin.log and "pause t" in admin.log)
    assert admin.call("GET", "/api/topics").status == 200
    assert cluster.admin("--read-only").call("DELETE", "/api/topics/t").json == {"message": "READ_ONLY"}


def test_notifications(cluster, two, hook):
    admin = cluster.admin(f"--notification-http-endpoint={hook.url}")
    admin.call("POST", "/api/topics/t/c", {"action": "pause"}, Authorization="Basic dTE6eA==", User_Agent="curl/7")
    admin.call("POST", "/api/topics", {"topic": "n1", "channel": "c"}, X_Scheme="https")
    admin.call("POST", "/api/topics/none", {"action": "empty"})      # fails, and is notified
    admin.call("POST", "/api/topics", {"topic": "a b"})             # invalid, so not notified
    admin.call("DELETE", f"/api/nodes/{address(two[0])}", {"topic": "t"})
    wait_until(lambda: len(hook.got) == 5)
    assert list(hook.got[0]) == ["action", "topic", "channel", "timestamp", "user", "remote_ip", "user_agent", "url", "via"]
    assert (hook.got[0]["action"], hook.got[0]["user"], hook.got[0]["user_agent"]) == ("pause_channel", "u1", "curl/7")
    assert hook.got[0]["url"] == f"{admin.url}/api/topics/t/c"
    assert [each["action"] for each in hook.got] == ["pause_channel", "create_topic", "create_channel", "empty_topic",
                                                     "tombstone_topic_producer"]
    assert hook.got[1]["url"].startswith("https://") and "channel" not in hook.got[1]
    assert hook.got[4]["node"] == address(two[0])


def test_an_endpoint_that_is_down(cluster, two):
    """nsqadmin crashes on it."""
    admin = cluster.admin("--notification-http-endpoint=http://127.0.0.1:1/x")
    assert admin.call("POST", "/api/topics/t", {"action": "pause"}).status == 200
    wait_until(lambda: "failed to POST notification - " in admin.log)
    assert admin.call("GET", "/ping").status == 200
    assert admin.stop() == 0


def test_some_upstreams_fail(cluster, two):
    admin = cluster.admin("--lookupd-http-address=127.0.0.1:1")
    topic = admin.get("/api/topics/t")
    assert topic["message"].startswith('WARNING: Get "http://127.0.0.1:1/lookup?topic=t": dial tcp') and topic["message_count"] == 2


def test_a_base_path_and_compression(cluster):
    admin = cluster.admin("--base-path=adm/")
    assert admin.call("GET", "/adm/ping").body == b"OK"
    assert admin.call("GET", "/ping").status == 404
    moved = admin.call("GET", "/adm/api/topics/")
    assert (moved.status, moved.headers["Location"]) == (301, "/adm/api/topics")
    node = cluster.node()
    for number in range(100):
        node.post(f"/topic/create?topic=topic-{number:03}")
    cluster.registered("topic-099", node)
    for coding, frame in (("gzip", 31), ("deflate", -15)):
        answer = admin.call("GET", "/adm/api/topics", Accept_Encoding=f"br, {coding}")
        assert (answer.headers["Content-Encoding"], answer.headers["Vary"]) == (coding, "Accept-Encoding")
        assert len(json.loads(zlib.decompress(answer.body, frame))["topics"]) == 100


def test_a_node_that_wants_tls(cluster, tmp_path):
    folder = make_certificates(tmp_path)
    node = cluster.node("--tls-required=true", f"--tls-cert={folder}/server.pem", f"--tls-key={folder}/server.key")
    admin = cluster.admin("--http-client-tls-insecure-skip-verify", source=f"--nsqd-http-address=127.0.0.1:{node.http_port}")
    assert admin.get("/api/topics") == {"topics": [], "message": ""}


def test_a_node_that_wants_tls_asked_by_several_at_once(daemon, tmp_path):
    """The first request learns the port; by then the others have been refused."""
    folder = make_certificates(tmp_path)
    node = daemon("--tls-required=true", f"--tls-cert={folder}/server.pem", f"--tls-key={folder}/server.key")

    async def ask() -> list[int]:
        nodes = HttpNodes(asyncio.get_running_loop(), RecordingLog(), connect_s=WAIT_SECONDS, request_s=WAIT_SECONDS,
                          trust=Trust([f"127.0.0.1:{node.http_port}"]), tls=ssl._create_unverified_context())
        asked = [nodes.ask(f"127.0.0.1:{node.http_port}", Ask("GET", "/stats?format=json")) for _ in range(5)]
        return [answer.status for answer in await asyncio.gather(*asked)]

    assert asyncio.run(ask()) == [200] * 5


@pytest.mark.parametrize("options, reason", [
    ({}, "--nsqd-http-address or --lookupd-http-address required"),
    ({"nsqd_http_address": ("a:1",), "lookupd_http_address": ("b:1",)}, "use --nsqd-http-address or --lookupd-http-address not both"),
    ({"nsqd_http_address": ("a:1",), "http_client_tls_cert": "x"}, "--http-client-tls-cert must be specified with --http-client-tls-key"),
    ({"lookupd_http_address": ("127.0.0.1",)},
     "failed to resolve --lookupd-http-address (127.0.0.1) - address 127.0.0.1: missing port in address"),
    ({"nsqd_http_address": ("a:1",), "allow_config_from_cidr": "foo"},
     "failed to parse --allow-config-from-cidr (foo) - invalid CIDR address: foo"),
])
def test_what_stops_a_start(options, reason):
    assert next(AdminOptions().replace(**options).unusable())[1] == reason


def test_the_address_is_taken(cluster, tmp_path):
    from tests.support.forks import run

    with (tmp_path / "second.log").open("wb") as log:
        process = run(["admin", "--http-address", f"127.0.0.1:{cluster.lookupd.http_port}", "--nsqd-http-address=a:1"], log)
    assert process.wait(WAIT_SECONDS) == 1
    assert "FATAL: failed to instantiate nsqadmin - listen (127.0.0.1:" in (tmp_path / "second.log").read_text()
