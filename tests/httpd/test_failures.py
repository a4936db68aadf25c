"""A disk that takes nothing more, seen over HTTP."""

import resource

import pytest

EXITING = (503, {"message": "EXITING"})


@pytest.fixture
def full(start):
    """A server that keeps nothing in memory, and a switch that lets its files grow no more."""
    server = start("--mem-queue-size=0")

    def switch(on):
        limit = 0 if on else resource.RLIM_INFINITY
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    return server, switch


def test_publishing_is_refused_and_heals(full):
    server, switch = full
    with server.wire() as wire:
        # The third of these is of a kind that the connection knows by then.
        for _ in range(3):
            wire.request("POST", "/pub?topic=t", b"x")
            assert wire.reply().body == b"OK"
        switch(True)
        for path, body in (("/pub?topic=t", b"x"), ("/pub?topic=t", b"long" * 100), ("/pub?topic=t&defer=0", b"x"),
                           ("/mpub?topic=t", b"x\ny"), ("/mpub?topic=t&binary=1", b"\0\0\0\1\0\0\0\1x")):
            wire.request("POST", path, body)
            reply = wire.reply()
            assert (reply.status, reply.json) == EXITING
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
