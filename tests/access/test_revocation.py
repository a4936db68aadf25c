"""The access file changes while clients are connected: they lose revoked permissions."""

import contextlib
import os
import signal
import struct

import pytest

from tests.httpd.wire import Closed
from tests.support.daemon import batch, wait_until

# The daemon notices a change on its own, or with SIGHUP.


def signalled(node, access):
    access.write()
    os.kill(node.pid, signal.SIGHUP)


def noticed(node, access):
    access.write()


CHANGES = pytest.mark.parametrize("change", [signalled, noticed])


def auth(node, access, name):
    client = node.connect()
    client.command("AUTH", access.tokens[name].encode())
    assert client.frame()[0] == 0
    return client


@CHANGES
def test_a_consumer_is_closed(start, access, change):
    access.user("a", consume=["t/c", "u/*"])
    access.user("b", consume=["t/c"])
    node = start(access.write().flag)
    lost, kept, other = (auth(node, access, name).sub(*what, rdy=1) for name, what in (
        ("a", ("t", "c")), ("b", ("t", "c")), ("a", ("u", "c"))))
    access.user("a", consume=["u/*"])
    change(node, access)
    assert lost.frame() == (1, b"E_UNAUTHORIZED SUB is no longer permitted")
    assert lost.frame() is None
    wait_until(lambda: '"target":"t/c","result":"REVOKED"' in node.log)
    [line] = [line for line in node.log.splitlines() if '"result":"REVOKED"' in line]
    assert '"user":"a"' in line
    for topic, client in (("t", kept), ("u", other)):
        node.call("POST", f"/pub?topic={topic}", b"x", access.bearer("root"))
        assert client.message().body == b"x"


@CHANGES
def test_a_publisher_is_refused(start, access, change):
    access.user("a", publish=["t"])
    node = start(access.write().flag)
    client = auth(node, access, "a")
    client.pub("t", b"x")
    access.user("a", publish=["u"])
    change(node, access)
    node.wait_for("ACCESS: 2 users in")
    client.command("PUB t", b"x")
    assert client.frame() == (1, b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""')


@pytest.mark.parametrize("command", ["PUB", "MPUB"])
@pytest.mark.parametrize("size", [1000, 200_000])
def test_a_publish_whose_body_is_still_coming(start, access, command, size):
    """Large bodies are read straight into messages while they arrive."""
    access.user("a", publish=["t"])
    node = start(access.write().flag)
    client = auth(node, access, "a")
    body = b"x" * size if command == "PUB" else batch(*[b"x" * (size // 2)] * 2)
    client.pub("t", b"first")
    client.ok(f"{command} t", body)
    client.send(f"{command} t\n".encode() + struct.pack(">i", len(body)) + body[:-1])
    node.call("GET", "/ping")
    access.user("a", publish=["u"])
    noticed(node, access)
    node.wait_for("ACCESS: 2 users in")
    client.send(body[-1:])
    assert client.frame() == (1, f'E_UNAUTHORIZED AUTH failed for {command} on "t" ""'.encode())
    assert client.frame() is None
    depth = node.call("GET", "/stats?format=json&topic=t", headers=access.bearer("root")).json["topics"][0]["depth"]
    assert depth == (2 if command == "PUB" else 3)


def test_the_audit_log_names_a_user_whose_token_was_removed(start, access):
    access.head = 'anonymous = ["numbers"]\n[roles.numbers]\nstats = ["*"]\n'
    access.user("a", consume=["t/c"], publish=["t"])
    node = start(access.write().flag)
    consumer, publisher = auth(node, access, "a").sub("t", "c", rdy=1), auth(node, access, "a")
    publisher.pub("t", b"x")
    del access.users["a"]
    noticed(node, access)
    wait_until(lambda: '"result":"REVOKED"' in node.log)
    publisher.command("PUB t", b"x")
    assert publisher.frame()[0] == 1
    consumer.close()

    def refused():
        return [line for line in node.log.splitlines() if "AUDIT" in line and '"CREATE"' not in line]

    wait_until(lambda: len(refused()) == 2)
    assert all('"user":"a"' in line for line in refused())


def test_a_removed_token_ends_everything(start, access):
    access.user("a", publish=["t"], consume=["t/*"])
    node = start(access.write().flag)
    publisher, consumer = auth(node, access, "a"), auth(node, access, "a").sub("t", "c")
    publisher.pub("t", b"x")
    access.user("a", tokens=[], publish=["t"], consume=["t/*"])
    noticed(node, access)
    assert consumer.frame()[1].startswith(b"E_UNAUTHORIZED")
    publisher.command("PUB t", b"x")
    assert publisher.frame() == (1, b"E_AUTH_FIRST AUTH required before PUB")
    again = node.connect()
    again.command("AUTH", access.tokens["a"].encode())
    assert again.frame() == (1, b"E_AUTH_FAILED AUTH failed")


def test_a_new_token_is_a_new_one(start, access):
    """A proven hash counts only for the token with that hash."""
    access.user("a", publish=["t"])
    node = start(access.write().flag)
    client = auth(node, access, "a")
    client.pub("t", b"x")
    old = access.tokens.pop("a")
    access.user("a", publish=["t"])
    noticed(node, access)
    node.wait_for("ACCESS: 2 users in")
    client.command("PUB t", b"x")
    assert client.frame()[1].startswith(b"E_AUTH_FIRST")
    auth(node, access, "a").pub("t", b"x")
    assert node.call("POST", "/pub?topic=t", b"x", f"Authorization: Bearer {old}\r\n").status == 401


@CHANGES
def test_http_publishers_with_known_heads(start, access, change):
    access.user("a", publish=["t"])
    node = start(access.write().flag)
    with node.wire() as wire:
        for _ in range(3):
            wire.request("POST", "/pub?topic=t", b"x", access.bearer("a"))
            assert wire.reply().body == b"OK"
        with node.wire() as other:      # sends the same head, which proves nothing on another connection
            other.request("POST", "/pub?topic=t", b"x", access.bearer("a").replace("nsqc_", "nsqd_"))
            assert other.reply().status == 401
        access.user("a", publish=["u"])
        change(node, access)
        assert wire.is_closed()
    assert node.call("POST", "/pub?topic=t", b"x", access.bearer("a")).status == 403
    assert node.call("POST", "/pub?topic=u", b"x", access.bearer("a")).status == 200


def test_a_long_poll_is_ended(start, access):
    access.user("a", read=["t"])
    node = start(access.write().flag)
    assert node.call("PUT", "/topic/rules?topic=t", b'{"storage":"log","retain_time":"1h"}', access.bearer("root")).status == 200
    assert node.call("POST", "/pub?topic=t", b"x", access.bearer("root")).status == 200
    with node.wire() as wire:
        wire.request("GET", "/topic/read?topic=t", headers=access.bearer("a"))
        assert wire.reply().status == 200
        wire.request("GET", "/topic/read?topic=t&offset=1&wait_ms=60000", headers=access.bearer("a"))
        node.call("GET", "/ping")
        access.user("a", read=["u"])
        noticed(node, access)
        with contextlib.suppress(Closed, ConnectionError):
            assert wire.reply().status == 403       # the answer had not begun yet


def test_more_rights_come_at_once(start, access):
    access.user("a", publish=["t"])
    node = start(access.write().flag)
    with node.wire() as wire:
        wire.request("POST", "/pub?topic=u", b"x", access.bearer("a"))
        assert wire.reply().status == 403
        access.user("a", publish=["t", "u"])
        noticed(node, access)
        node.wait_for("ACCESS: 2 users in")
        wire.request("POST", "/pub?topic=u", b"x", access.bearer("a"))
        assert wire.reply().status == 200


def test_a_broken_file_changes_nothing(start, access):
    node = start(access.flag)
    good = access.path.read_text()
    access.path.write_text(good + '\n[users.x]\ntokens = ["scrypt:secret"]\n')
    node.wait_for(r"ERROR: ACCESS: keeping the old rules - access file \S+: users.x: token 1: not the hash of a token")
    assert node.call("GET", "/stats", headers=access.bearer("root")).status == 200
    access.path.unlink()
    node.wait_for("ERROR: ACCESS: keeping the old rules - access file .*: No such file or directory")
    assert node.call("GET", "/stats", headers=access.bearer("root")).status == 200
    access.path.write_text(good)
    node.wait_for("ACCESS: 1 users in")
    assert "scrypt" not in node.log


def test_many_connections(start, access):
    """Rules are applied in slices."""
    access.user("a", publish=["t"], consume=["t/*"])
    node = start(access.write().flag)
    clients = [auth(node, access, "a").sub("t", "c") for _ in range(600)]
    access.user("a", publish=["t"])
    noticed(node, access)
    for client in clients:
        assert client.frame()[1].startswith(b"E_UNAUTHORIZED")
    wait_until(lambda: node.call("GET", "/stats?format=json", headers=access.bearer("root")).json["topics"][0]["channels"][0]["clients"] == [])
