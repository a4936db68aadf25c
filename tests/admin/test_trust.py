"""The nodes that the admin server gives its secret to, and the addresses that it connects to."""

import asyncio
import json
import socket

import pytest

from nsqc.admin import actions, upstream
from nsqc.admin.fleet import Fleet
from nsqc.admin.history import queries
from nsqc.admin.upstream import Ask, HttpNodes, Producer, Trust, UpstreamError
from nsqc.peers.http import Answer
from nsqc.wire.nodehosts import NodeHosts
from tests.admin.conftest import made, seen
from tests.support.daemon import wait_until
from tests.support.log import RecordingLog
from tests.support.lookupd import LookupServer
from tests.support.network import outside
from tests.support.patience import WAIT_SECONDS
from tests.support.secure import make_certificates
from tests.support.stranger import SECRET, Stranger


@pytest.fixture
def stranger():
    found = Stranger()
    yield found
    found.close()


def test_a_stranger_gets_no_secret(cluster, stranger):
    stranger.announce(cluster.lookupd)
    admin = cluster.admin(f"--node-auth-secret={SECRET}")
    found = seen(admin, "/overview", lambda data: data["attention"])["attention"]
    assert any("permit it by --node-addresses=127.0.0.1" in each["text"].lower() for each in found), found
    result = admin.call("POST", "/api/v1/actions", {"action": "drain", "nodes": [stranger.address], "confirm": stranger.address})
    assert "UNAUTHORIZED" in result.json["results"][0]["message"]
    # A lookup server that a client of PUT /config names is not the operator's either.
    other = Stranger((200, {"producers": [{"broadcast_address": "127.0.0.1", "tcp_port": 1, "http_port": stranger.port,
                                           "remote_address": "127.0.0.1:9", "authorised": True}]}))
    assert admin.call("PUT", "/config/nsqlookupd_http_addresses", json.dumps([other.address]).encode()).status == 200
    before = len(stranger.requests)
    wait_until(lambda: other.requests and len(stranger.requests) > before)
    assert not stranger.secrets and not other.secrets
    other.close()


@pytest.mark.parametrize("by", ["--node-addresses=127.0.0.0/8,*.example", "--node-addresses=127.0.0.1"])
def test_the_operator_permits_addresses(cluster, stranger, by):
    stranger.announce(cluster.lookupd)
    cluster.admin(f"--node-auth-secret={SECRET}", by)
    wait_until(lambda: stranger.secrets)


@pytest.mark.parametrize(("table", "listed", "gets"), [
    ("topics = ['*']", True, True), ("addresses = ['127.0.0.1']", True, True), ("addresses = ['*.example']", False, False)])
def test_the_access_file_of_a_lookup_server_vouches_for_nodes(cluster, tmp_path, stranger, table, listed, gets):
    token, stored = made()
    rules = tmp_path / "lookupd.toml"
    rules.write_text(f'[users.admin]\ntokens = ["{stored}"]\nstats = ["*"]\n[nodes."127.0.0.1"]\n{table}\n')
    lookupd = LookupServer(tmp_path / "guarded.log", f"--access-file={rules}")
    try:
        stranger.announce(lookupd)
        admin = cluster.admin(f"--node-auth-secret={token}", source=f"--lookupd-http-address={lookupd.http_address}")
        if listed:
            wait_until(lambda: any(token in authorization for _, authorization in stranger.requests))
        else:
            seen(admin, "/lookup", lambda data: data["lookupds"])
            wait_until(lambda: "may not announce address 127.0.0.1" in lookupd.log)
            assert admin.get("/api/nodes")["nodes"] == [] and not stranger.requests
    finally:
        lookupd.close()


def ask_once(address, trust):
    """The answer of a node, or the error."""
    async def ask():
        nodes = HttpNodes(asyncio.get_running_loop(), RecordingLog(), connect_s=WAIT_SECONDS, request_s=WAIT_SECONDS, trust=trust, secret=SECRET)
        try:
            return await nodes.ask(address, Ask("GET", "/stats"))
        except UpstreamError as error:
            return str(error)
        finally:
            nodes.close()

    return asyncio.run(ask())


def closed_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.mark.parametrize("refusal", [
    (403, {"message": "TLS_REQUIRED", "https_port": 1}), (401, {"message": "UNAUTHORIZED", "https_port": 1})])
def test_a_node_with_https_never_gets_it_in_clear_text(refusal):
    host = "127.0.0.1" if refusal[0] == 403 else outside()
    node = Stranger((refusal[0], {**refusal[1], "https_port": closed_port()}), host=host)
    answer = ask_once(node.address, Trust([node.address]))
    assert "https://" in answer and node.requests == [("/info", "")]
    node.close()


def test_a_node_without_https_gets_it(stranger):
    assert ask_once(stranger.address, Trust([stranger.address])).status == 401
    assert stranger.secrets == ["/stats"]


@pytest.mark.parametrize("source", ["192.0.2.9", "10.1.2.3", ""])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "127.1"])
def test_strangers_cannot_aim_at_this_machine(stranger, source, host):
    trust = Trust(["127.0.0.1:4161"])
    trust.heard("127.0.0.1:4161", [Producer(remote_address=f"{source}:99", broadcast_address=host, http_port=stranger.port)], True)
    answer = ask_once(f"{host}:{stranger.port}", trust)
    assert "was not announced from there" in answer and not stranger.requests


def test_metadata_servers_are_not_nodes():
    trust = Trust(["10.0.0.1:4161"], NodeHosts(["10.0.0.0/8"]))
    for host, ip in (("169.254.169.254", "169.254.169.254"), ("x.example", "169.254.169.254"), ("[fe80::1%eth0]", "fe80::1")):
        trust.heard("10.0.0.1:4161", [Producer(remote_address="10.9.9.9:1", broadcast_address=host, http_port=80)], True)
        assert trust.why_unreachable(f"{host}:80", ip)
    assert not trust.why_unreachable("10.2.3.4:80", "10.2.3.4") and trust.is_trusted("10.2.3.4:80")
    assert not trust.is_trusted("10.2.3.4.example:80")


NAMES = ['a"}) or vector(1) #', "a\nb", "../x", "<script>alert(1)</script>", "x" * 65, "", "t\n"]


def test_names_that_no_node_has(cluster, stranger):
    """They would end up in PromQL, paths and terminals."""
    def topic(name, channel):
        return {"topic_name": name, "channels": [{"channel_name": channel, "depth": 1, "clients": []}], "depth": 1}

    topics = [topic("good", "good#ephemeral"), *(topic(name, "c") for name in NAMES), *(topic(f"t{at}", name) for at, name in enumerate(NAMES))]
    stranger.answers["/stats"] = (200, {"version": "1.3.0", "health": "OK", "topics": topics})
    stranger.announce(cluster.lookupd)
    admin = cluster.admin()
    data = seen(admin, "/topics", lambda data: data["total"])
    assert [each["name"] for each in data["topics"]] == ["good"]


def test_promql_quotes_names():
    assert queries(('a"}', "b\\"), 15)["depth"] == r'sum(nsqc_channel_depth{topic="a\"}",channel="b\\"})'


@pytest.mark.long
def test_a_node_cannot_fill_the_memory_of_the_admin_server(cluster, stranger):
    """Millions of elements that are no topics, and of names."""
    head = b'{"version":"1.3.0","health":"OK","topics":['
    stranger.announce(cluster.lookupd)
    admin = cluster.admin()
    for answer, error in (
            (head + b"0," * 15_000_000 + b"0]}", ""),
            (head + b'{"topic_name":"t","channels":[' + b'{"channel_name":"c"},' * 500_000 + b"{}]}]}", ""),
            (head + b",".join(b'{"topic_name":"t%d"}' % number for number in range(250_001)) + b"]}", "more than 250,000"),
            (head + b" " * (64 << 20) + b"]}", "larger than 67108864 bytes")):
        stranger.answers["/stats"] = (200, answer)
        asked = len(stranger.requests)
        wait_until(lambda asked=asked: any(path.startswith("/stats") for path, _ in stranger.requests[asked + 2:]))
        seen(admin, "/nodes", lambda data, error=error: error in (data["nodes"][0]["error"] or ""))
        with open(f"/proc/{admin.process.pid}/status") as status:
            peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        assert peak < 400_000, (error, peak)


@pytest.mark.parametrize("advances", [False, True])
def test_letters_without_end(cluster, stranger, advances, monkeypatch):
    """A node that always names a next place is not asked for ever."""
    page = {"redriven": 1, "skipped": [], "next": 0}
    asked = []

    async def ask(address, ask):
        asked.append(ask)
        return Answer(200, {}, json.dumps({**page, "next": len(asked) if advances else 0}).encode())

    monkeypatch.setattr(actions, "MOST_CALLS", 50)
    fleet = Fleet(ask, RecordingLog(), (), ("127.0.0.1:1",), Trust(("127.0.0.1:1",)))
    result = asyncio.run(actions.move(fleet, ["127.0.0.1:1"], "redrive", actions.Letters("t", "", "", 0)))
    assert len(asked) == 50 and result[0].message == "50 redriven; the node has more: repeat the action"


def test_tombstones_are_for_known_nodes(cluster, stranger):
    """Otherwise users could have the server call any address."""
    admin = cluster.admin()
    answer = admin.call("DELETE", f"/api/nodes/{stranger.address}", {"topic": "t"})
    assert answer.status == 404 and not stranger.requests


def test_connections_to_nodes_that_are_gone_are_closed(monkeypatch, stranger):
    monkeypatch.setattr(upstream, "IDLE_S", 0.05)

    async def ask():
        nodes = HttpNodes(asyncio.get_running_loop(), RecordingLog(), connect_s=WAIT_SECONDS, request_s=WAIT_SECONDS, trust=Trust([stranger.address]))
        await nodes.ask(stranger.address, Ask("GET", "/stats"))
        while nodes._idle:
            await asyncio.sleep(0.01)
        assert not nodes._each

    asyncio.run(asyncio.wait_for(ask(), WAIT_SECONDS))


def test_a_user_named_twice_is_none(cluster):
    """A client has sent the header, and the proxy added its own."""
    admin = cluster.admin("--admin-user=ann", "--acl-http-header=X-User")
    with socket.create_connection(("127.0.0.1", admin.port), WAIT_SECONDS) as sock:
        sock.sendall(b"POST /api/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-User: ann\r\nX-User: eve\r\nContent-Length: 13\r\n\r\n" + b'{"topic":"t"}')
        assert sock.recv(4096).startswith(b"HTTP/1.1 403 ")
    assert admin.call("POST", "/api/topics", {"topic": "t"}, X_User="ann").status == 200


def test_a_lookup_server_with_nothing_but_tls(cluster, tmp_path):
    certs = make_certificates(tmp_path)
    server = LookupServer(tmp_path / "tls.log", f"--tls-cert={certs}/server.pem", f"--tls-key={certs}/server.key")
    admin = cluster.admin(f"--http-client-tls-root-ca-file={certs}/server.pem",
                          source=f"--lookupd-http-address=https://127.0.0.1:{server.http_port}")
    wait_until(lambda: "200 GET /nodes" in server.log)
    assert not seen(admin, "/overview", lambda data: not data["attention"])["attention"]
    assert "http request" not in server.log
    assert server.stop() == 0
