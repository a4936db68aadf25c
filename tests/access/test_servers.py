"""An access file beside auth servers: a grant of either is enough."""

import json
import time

import pytest

from nsqc.access.keeper import Answers
from tests.access.files import AccessFile
from tests.peers.authd import AuthServer, reply
from tests.peers.conftest import factory
from tests.support.daemon import wait_until

authd = factory(AuthServer)

ORDERS = [{"topic": "^orders$", "channels": [".*"], "permissions": ["publish", "subscribe"]}]


@pytest.fixture
def server(authd):
    return authd(reply(authorizations=ORDERS))


@pytest.fixture
def node(start, access: AccessFile, server):
    access.head = 'anonymous = ["open"]\n[roles.open]\npublish = ["open"]\n'
    access.user("a", publish=["local"])
    return start(access.write().flag, f"--auth-http-address=127.0.0.1:{server.port}")


def auth(node, secret):
    client = node.connect()
    client.command("AUTH", secret.encode())
    return client, client.frame()


def test_tcp(node, access, server):
    client, (kind, data) = auth(node, "sesame")
    assert (kind, json.loads(data)["identity"]) == (0, "me")
    assert json.loads(data)["permission_count"] == 2    # one from the server, one from the rule for everybody
    client.pub("orders", b"x")
    client.pub("open", b"x")
    client.command("PUB local", b"x")
    assert client.frame()[1].startswith(b"E_UNAUTHORIZED")
    auth(node, "sesame")[0].sub("orders", "c")
    assert len(server.asked) == 2


def test_tokens_are_not_shown_to_servers(node, access, server):
    client, (kind, _) = auth(node, access.tokens["a"])
    assert kind == 0
    client.pub("local", b"x")
    client.command("PUB orders", b"x")
    assert client.frame()[1].startswith(b"E_UNAUTHORIZED")
    assert auth(node, access.tokens["a"][:17] + "_" + "A" * 43)[1][0] == 1
    assert node.call("POST", "/pub?topic=local", b"x", access.bearer("a")).status == 200
    assert server.asked == []


def test_without_auth(node):
    client = node.connect()
    client.pub("open", b"x")
    client.command("PUB orders", b"x")
    assert client.frame()[1].startswith(b"E_AUTH_FIRST")


def test_http(node, access, server):
    secret = "Authorization: Bearer sesame\r\n"
    for _ in range(3):
        assert node.call("POST", "/pub?topic=orders", b"x", secret).status == 200
    assert node.call("POST", "/mpub?topic=orders", b"x\ny", secret).status == 200
    assert len(server.asked) == 1       # the answer is cached for its TTL
    assert node.call("POST", "/pub?topic=open", b"x", secret).status == 200
    assert node.call("POST", "/pub?topic=local", b"x", secret).status == 403
    for path in ("/stats", "/stats?topic=orders", "/topic/peek?topic=orders"):
        assert node.call("GET", path, headers=secret).status == 403, path
    for path in ("/topic/delete?topic=orders", "/message/cancel?topic=orders&id=0123456789abcdef"):
        assert node.call("POST", path, headers=secret).status == 403, path
    server.answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    assert node.call("POST", "/pub?topic=orders", b"x", "Authorization: Bearer other\r\n").status == 401
    assert "sesame" not in node.log


def test_answers_end(node, server):
    server.answer = reply(ttl=1, authorizations=ORDERS)
    secret = "Authorization: Bearer brief\r\n"
    with node.wire() as wire:
        for _ in range(3):
            wire.request("POST", "/pub?topic=orders", b"x", secret)
            assert wire.reply().status == 200
        server.answer = reply(authorizations=[])
        for _ in range(600):
            wire.request("POST", "/pub?topic=orders", b"x", secret)
            if wire.reply().status != 200:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the answer counted for ever")


def test_a_stop_waits_for_no_server(start, access, authd):
    server = authd(hangs=True)
    node = start(access.flag, f"--auth-http-address=127.0.0.1:{server.port}", "--http-client-request-timeout=1h")
    client = node.connect()
    client.command("AUTH", b"sesame")
    with node.wire() as wire:
        wire.request("POST", "/pub?topic=orders", b"x", "Authorization: Bearer sesame\r\n")
        wait_until(lambda: len(server.asked) == 2)
        assert node.stop() == 0
    assert "AUTH failed" not in node.log and "ended: " not in node.log


def test_a_remembered_answer_is_of_one_client():
    """The answer may depend on address, TLS and certificate."""
    class Loop:
        def time(self):
            return 0.0

    answers = Answers(None, Loop())
    who = ("1.2.3.4:5", "1.2.3.4", False, "")
    assert answers._place(who, b"s") == answers._place(("1.2.3.4:6", "1.2.3.4", False, ""), b"s")
    for other in (("", "1.2.3.5", False, ""), ("", "1.2.3.4", True, ""), ("", "1.2.3.4", False, "cn")):
        assert answers._place(other, b"s") != answers._place(who, b"s")
    assert answers._place(who, b"t") != answers._place(who, b"s")
    assert b"s" not in answers._place(who, b"s")[:1]
