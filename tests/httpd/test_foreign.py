"""Calls from web pages of other origins change nothing; under a name that is not the server's they read nothing."""

import socket

import pytest

from nsqc.httpd import router
from nsqc.httpd.reply import is_foreign
from nsqc.lookupd import views as lookupd_router
from tests.httpd.wire import Wire, request
from tests.support.lookupd import LookupServer

EVIL = "Origin: http://evil.example\r\n"
# As request() sends it: the host is localhost.
OWN = ["", "Origin: http://localhost\r\n", "Origin: https://LOCALHOST\r\n", "Sec-Fetch-Site: none\r\n",
       "Origin: http://shown.example\r\nSec-Fetch-Site: same-origin\r\n"]
FOREIGN = [EVIL, "Origin: null\r\n", "Origin: http://localhost:81\r\n", "Origin: http://localhost.evil.example\r\n", "Sec-Fetch-Site: cross-site\r\n",
           "Sec-Fetch-Site: same-site\r\n", "Origin: http://localhost\r\nSec-Fetch-Site: cross-site\r\n", "Origin:\r\n"]


def changing(table, free=()) -> list[tuple[str, str]]:
    """Methods and paths of all calls that change state."""
    paths = [(method.decode(), path.decode()) for method, paths in table.items() if method != b"GET" for path in paths]
    paths += [(method.decode(), path.decode() + "log_level") for method, paths in dict(free).items() if method != b"GET" for path in paths]
    return paths


@pytest.mark.parametrize("headers", FOREIGN)
def test_nothing_is_changed(server, headers):
    before = server.call("GET", "/config/log_level").body
    for method, path in changing(router.ROUTES, router.FREE_ROUTES):
        reply = server.call(method, f"{path}?topic=foreign&channel=c", b"fatal" if "config" in path else b"x", headers)
        assert (reply.status, reply.json["message"].split()[0]) == (403, "FOREIGN_ORIGIN"), path
    assert server.call("GET", "/drain").json["state"] == "serving"
    assert server.call("GET", "/config/log_level").body == before
    assert "foreign" not in [topic["topic_name"] for topic in server.stats()["topics"]]


def test_it_is_logged(start):
    server = start()        # repeated lines are only counted
    server.call("POST", "/topic/create?topic=logged", headers=EVIL)
    server.wait_for(r"WARNING: refused POST /topic/create\?topic=logged \(127\.0\.0\.1:\d+\): it comes from a web page of another origin")


@pytest.mark.parametrize("headers", FOREIGN + OWN)
def test_reading_is_open(server, headers):
    assert server.call("GET", "/stats?format=json", headers=headers).status == 200


def test_a_known_head_does_not_let_pages_publish(server):
    """Plain publishes are recognised by their heads, byte by byte."""
    with server.wire() as wire:
        for _ in range(3):
            wire.request("POST", "/pub?topic=known", b"x")
            assert wire.reply().body == b"OK"
            wire.request("POST", "/pub?topic=known", b"x", EVIL)
            assert wire.reply().status == 403
            wire.request("POST", "/pub?topic=known", b"x", OWN[1])
            assert wire.reply().body == b"OK"
    assert server.stats("known")["message_count"] == 6


@pytest.mark.parametrize("headers", OWN)
def test_its_own_pages_may_change_things(server, headers):
    assert server.call("POST", "/pub?topic=own", b"x", headers).body == b"OK"
    assert server.call("POST", "/topic/create?topic=own", b"", headers).status == 200
    assert server.call("POST", "/topic/delete?topic=own", b"", headers).status == 200
    assert server.call("PUT", "/config/log_level", b"info", headers).status == 200


def lookupd_wire(server: LookupServer) -> Wire:
    return Wire(socket.create_connection(("127.0.0.1", server.http_port), 60))


def test_the_lookup_server(tmp_path):
    lookupd = LookupServer(tmp_path / "lookupd.log")
    try:
        for method, path in changing(lookupd_router.ROUTES):
            for headers in FOREIGN:
                with lookupd_wire(lookupd) as wire:
                    wire.send(request(method, f"{path}?topic=t&channel=c&node=a:1", b"", headers))
                    assert wire.reply().status == 403
        with lookupd_wire(lookupd) as wire:
            wire.send(request("GET", "/topics", headers=EVIL) + request("POST", "/topic/create?topic=t", b"", OWN[1]))
            assert wire.reply().json == {"topics": []}
            assert wire.reply().status == 200
        assert lookupd.stop() == 0
    finally:
        lookupd.close()


@pytest.mark.parametrize(("host", "origin", "site", "foreign"), [
    (None, None, None, False), (None, b"null", None, True), (b"", b"null", None, True), (b"a:1", b"http://A:1", None, False),
    (b"a", b"http://a:80", None, True), (b"[::1]:4151", b"http://[::1]:4151", None, False), (b"a", b"a", None, True),
    (b"a", b"http://b", b"", True), (b"a", None, b"cross-site", True),
])
def test_is_foreign(host, origin, site, foreign):
    assert is_foreign(host, origin, site) is foreign
