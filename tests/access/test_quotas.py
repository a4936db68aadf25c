"""Quotas of users."""

import re
import time

import pytest

from nsqc.access.keeper import LONGEST_S, Account
from nsqc.access.rules import Limits
from tests.support.daemon import batch, wait_until


@pytest.fixture
def limited(start, access):
    """limited(**keys): a daemon whose user a has every permission, within these limits."""
    def run(**keys):
        access.user("a", publish=["*"], consume=["*"], admin=["*"], **keys)
        return start(access.write().flag)

    return run


def auth(node, access, name="a"):
    client = node.connect()
    client.command("AUTH", access.tokens[name].encode())
    return client


# ---------------------------------------------------------------------- connections


def test_connections(limited, access):
    node = limited(max_connections=2)
    clients = [auth(node, access) for _ in range(3)]
    kinds = [client.frame() for client in clients]
    assert [kind for kind, _ in kinds] == [0, 0, 1]
    assert kinds[2][1] == b"E_AUTH_FAILED AUTH failed user a has 2 connections, and max_connections is 2"
    reply = node.call("POST", "/pub?topic=t", b"x", access.bearer("a"))
    assert (reply.status, reply.json["message"]) == (429, "QUOTA - user a has 2 connections, and max_connections is 2")
    clients[0].close()
    with node.wire() as wire:
        def publish():
            wire.request("POST", "/pub?topic=t", b"x", access.bearer("a"))
            return wire.reply().status == 200
        wait_until(publish)
        # The refused connection stays open: once more two are in use.
        refused = auth(node, access)
        assert refused.frame()[0] == 1
    wait_until(lambda: auth(node, access).frame()[0] == 0)
    assert auth(node, access, "root").frame()[0] == 0


def test_they_change_while_clients_are_connected(limited, access):
    node = limited(max_connections=1)
    client = auth(node, access)
    assert client.frame()[0] == 0
    assert auth(node, access).frame()[0] == 1
    access.user("a", publish=["*"], max_connections=2)
    access.write()
    node.wait_for("ACCESS: 2 users in")
    second, third = auth(node, access), auth(node, access)
    assert sorted(one.frame()[0] for one in (second, third)) == [0, 1]
    client.pub("t", b"x")


# ---------------------------------------------------------------------- rates


@pytest.mark.parametrize("keys", [{"max_messages_per_second": 20}, {"max_bytes_per_second": 200}])
@pytest.mark.parametrize("way", ["PUB", "DPUB", "MPUB", "http", "mpub"])
def test_a_publisher_is_delayed(limited, access, keys, way):
    """60 messages of 10 bytes: a burst of 20, the others at 20 a second."""
    node = limited(**keys)
    body = b"0123456789"
    began = time.monotonic()
    if way in ("http", "mpub"):
        with node.wire() as wire:
            for _ in range(60 if way == "http" else 12):
                wire.request("POST", "/pub?topic=t" if way == "http" else "/mpub?topic=t", body if way == "http" else b"\n".join([body[:9]] * 5),
                             access.bearer("a"))
                assert wire.reply().status == 200
    else:
        client = auth(node, access)
        assert client.frame()[0] == 0
        for _ in range(60 if way != "MPUB" else 12):
            if way == "MPUB":
                client.ok("MPUB t", batch(*[body] * 5))
            else:
                client.ok("PUB t" if way == "PUB" else "DPUB t 1", body)
        client.ok("PUB t", b"x")    # waits for the debt of the previous publish
    # More than two seconds' worth exceeds the burst; a busy machine only takes longer.
    assert time.monotonic() - began > 1.5


def test_a_crowd_is_refused(limited, access):
    """Many connections together owe more than any one of them would wait for."""
    node = limited(max_messages_per_second=1)
    clients = [auth(node, access) for _ in range(12)]
    for client in clients:
        assert client.frame()[0] == 0
        client.command("PUB t", b"x")
    frames = [client.frame() for client in clients]
    refused = [client for client, frame in zip(clients, frames, strict=True) if frame[0] == 1]
    assert refused
    assert {data for kind, data in frames if kind == 1} == {b"E_PUB_FAILED PUB failed quota: user a publishes faster than max_messages_per_second = 1"}
    reply = node.call("POST", "/pub?topic=t", b"x", access.bearer("a"))
    assert (reply.status, reply.json["message"]) == (429, "QUOTA - user a publishes faster than max_messages_per_second = 1")
    metrics = node.call("GET", "/metrics", headers=access.bearer("root")).body.decode()
    assert re.search(r'nsqc_publishes_refused_total\{[^}]*reason="quota"[^}]*\} (\d+)', metrics)[1] == str(len(refused) + 1), metrics
    # The connection stays open, and other users publish.
    refused[0].command("NOP")
    client = auth(node, access, "root")
    client.frame()
    client.pub("t", *[b"x"] * 100)
    time.sleep(LONGEST_S)
    for _ in range(60):
        refused[0].command("PUB t", b"x")
        if refused[0].frame() == (0, b"OK"):
            break
        time.sleep(1)
    else:
        raise AssertionError("it was never served again")


def test_large_messages_and_batches(limited, access):
    """Under a quota, bodies are not gathered in messages, because no limit would see them."""
    node = limited(max_bytes_per_second=1 << 30)
    client = auth(node, access)
    client.frame()
    client.pub("t", b"x" * 500_000)
    client.pub("t", *[b"x" * 100_000] * 8)
    assert node.call("GET", "/stats?format=json", headers=access.bearer("root")).json["topics"][0]["message_count"] == 9


def test_numbers():
    account = Account("a", Limits(messages=10))
    assert account.publish(10, 0) == (0.0, "")
    wait, refusal = account.publish(10, 0)
    assert 0.9 < wait <= 1.0
    assert not refusal
    # A batch above the limit is taken once, followed by a long wait.
    account = Account("a", Limits(messages=10))
    assert account.publish(1000, 0)[1] == ""
    assert account.publish(1, 0)[1]
    assert Account("a", Limits()).publish(10**9, 10**12) == (0.0, "")


# ---------------------------------------------------------------------- topics


def test_topics(limited, access):
    node = limited(max_topics=2)
    client = auth(node, access)
    client.frame()
    client.pub("a", b"x")
    assert node.call("POST", "/pub?topic=b", b"x", access.bearer("a")).status == 200
    client.command("PUB c", b"x")
    answer = client.frame()
    assert answer == (1, b"E_PUB_FAILED PUB failed user a has created 2 topics, and max_topics is 2"), answer
    reply = node.call("POST", "/topic/create?topic=c", headers=access.bearer("a"))
    assert reply.status == 503
    assert "max_topics is 2" in reply.json["message"]
    assert node.call("POST", "/topic/create?topic=c", headers=access.bearer("root")).status == 200
    # The user may use existing topics, and deleting one frees its slot.
    auth_again = auth(node, access)
    auth_again.frame()
    auth_again.pub("c", b"x")
    assert node.call("POST", "/topic/delete?topic=a", headers=access.bearer("a")).status == 200
    auth_again.pub("d", b"x")
