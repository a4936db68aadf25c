"""System failures and unexpected input: each gets an answer that says so."""

import errno
import os
import resource

import pytest

from tests.httpd.wire import request

FULL = (503, {"message": f"FAILED - {os.strerror(errno.EFBIG)}"})


@pytest.fixture
def full(start):
    """A server that keeps nothing in memory, and a switch that stops its files from growing."""
    server = start("--mem-queue-size=0")

    def switch(on):
        limit = 0 if on else resource.RLIM_INFINITY
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    return server, switch


def test_publishing_is_refused_and_heals(full):
    server, switch = full
    with server.wire() as wire:
        # By the third request the connection knows their head.
        for _ in range(3):
            wire.request("POST", "/pub?topic=t", b"x")
            assert wire.reply().body == b"OK"
        switch(True)
        for path, body in (("/pub?topic=t", b"x"), ("/pub?topic=t", b"long" * 100), ("/pub?topic=t&defer=0", b"x"),
                           ("/mpub?topic=t", b"x\ny"), ("/mpub?topic=t&binary=1", b"\0\0\0\1\0\0\0\1x")):
            wire.request("POST", path, body)
            reply = wire.reply()
            assert (reply.status, reply.json) == FULL
        wire.request("GET", "/ping")
        reply = wire.reply()
        assert reply.status == 500
        assert reply.body.startswith(b"NOK - ")
        assert reply.headers["content-type"] == "text/plain; charset=utf-8"
        switch(False)
        wire.request("POST", "/pub?topic=t", b"x")
        assert wire.reply().body == b"OK"
        while True:
            wire.request("GET", "/ping")
            if wire.reply().body == b"OK":
                break
    topic = server.call("GET", "/stats?format=json&topic=t").json["topics"][0]
    assert (topic["message_count"], topic["depth"]) == (4, 4)


CREATING = [("/pub?topic=u%d", b"x"), ("/pub?topic=v%d&defer=0", b"x"), ("/mpub?topic=w%d", b"x\ny"),
            ("/topic/create?topic=x%d", b""), ("/channel/create?topic=t&channel=c%d", b"")]


def test_a_data_path_that_is_gone(start, tmp_path):
    """Each call is answered, the connection stays open, and topics in memory still work."""
    server = start()
    server.call("POST", "/pub?topic=t", b"x")
    server.data_path.rename(tmp_path / "elsewhere")
    with server.wire() as wire:
        for number in range(3):
            for path, body in CREATING:
                wire.request("POST", path % number, body)
                reply = wire.reply()
                assert reply.status in (200, 503), path
                assert reply.status == 200 or reply.json["message"].startswith("FAILED - "), reply
        wire.request("POST", "/pub?topic=t", b"x")
        assert wire.reply().body == b"OK"


def test_no_descriptor_for_a_new_topic(start):
    """The shortage is reported, and the next call after its end succeeds."""
    server = start("--mem-queue-size=0")
    server.call("POST", "/pub?topic=t", b"x")
    with server.wire() as wire:
        wire.request("GET", "/ping")
        assert wire.reply().body == b"OK"
        limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (8, limits[1]))
        refused = []
        for path, body in CREATING:
            wire.request("POST", path % 1, body)
            reply = wire.reply()
            assert reply.status in (200, 503), path
            if reply.status == 503:
                refused.append(reply.json["message"])
        assert set(refused) == {f"FAILED - {os.strerror(errno.EMFILE)}"}
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
        wire.request("POST", "/pub?topic=again", b"x")
        assert wire.reply().body == b"OK"


HOSTILE_NAMES = [b"%ff%fe", b"%00", b"%0d%0aX:%20y", b"a" * 5000, b"%ED%A0%80", b"..%2f..%2fetc", b"%F0%9F%98%80",
                 b"t%23ephemeral%23ephemeral", b"", b"+", "\u00e4".encode(), b"\xff\xfe", b"a&topic=b", b"a;b", b"%zz"]
NAMED = [b"/pub?topic=%s", b"/mpub?topic=%s&binary=%s", b"/topic/create?topic=%s", b"/topic/delete?topic=%s",
         b"/topic/empty?topic=%s", b"/topic/pause?topic=%s", b"/channel/create?topic=t&channel=%s",
         b"/channel/pause?topic=%s&channel=%s", b"/pub?topic=t&defer=%s", b"/%s"]
HOSTILE_BODIES = [b"", b"[" * 100_000, b'["\xff\xfe"]', b'["\\ud800"]', b"{}", b"1e999", b'[1]', b'"x"', b"\x00" * 1000,
                  b"\xff" * 100, b'[""]', b'["' + b"a" * 100_000 + b'"]', b'["no address", ":", "a:b:c:d"]']


def test_hostile_names_and_bodies_are_answered(start):
    server = start()
    with server.wire() as wire:
        for name in HOSTILE_NAMES:
            for path in NAMED:
                target = path.replace(b"%s", name)
                wire.send(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx" % target)
                reply = wire.reply()
                assert reply.status in (200, 307, 400, 404, 405, 413), (target, reply.status)
                if reply.headers.get("connection") == "close":
                    wire.sock.close()
                    wire.__init__(server.wire().sock)
            wire.send(b"GET /stats?topic=%b&channel=%b&format=json HTTP/1.1\r\nHost: x\r\n\r\n" % (name, name))
            if wire.reply().headers.get("connection") == "close":
                wire.__init__(server.wire().sock)
        for option in ("log_level", "nsqlookupd_tcp_addresses", "nothing", "%ff", "a" * 3000):
            for body in HOSTILE_BODIES:
                wire.send(request("PUT", f"/config/{option}", body))
                assert wire.reply().status in (200, 400, 413), (option, body[:50])
            wire.request("PUT", "/config/nsqlookupd_tcp_addresses", b"[]")
            assert wire.reply().status == 200
    with server.wire() as wire:
        wire.send(b"GET /stats?" + b"a=%ff&" * 9000 + b"format=json HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.reply().status == 200
    assert "panic" not in server.log
    assert server.stop() == 0
