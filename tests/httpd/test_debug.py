"""The /debug pages."""

import contextlib
import select
import sys

import pytest

from tests.httpd.wire import request
from tests.support.daemon import COMMAND


def test_index_names_every_path(server):
    text = server.call("GET", "/debug/pprof/").body.decode()
    for path in ("cmdline", "profile", "heap", "goroutine", "threadcreate"):
        assert f"/debug/pprof/{path} " in text
        query = "?seconds=0.1" if path == "profile" else ""
        reply = server.call("GET", f"/debug/pprof/{path}{query}")
        assert (reply.status, reply.headers["content-type"]) == (200, "text/plain; charset=utf-8")


def test_index_without_its_slash(server):
    reply = server.call("GET", "/debug/pprof")
    assert (reply.status, reply.headers["location"]) == (301, "/debug/pprof/")


def test_command_line(start):
    server = start(command=COMMAND)
    parts = server.call("GET", "/debug/pprof/cmdline").body.decode().split("\0")
    assert parts[0] == sys.executable
    assert any(part.startswith("--data-path=") for part in parts)


def test_profile_samples_the_loop_while_it_goes_on(server):
    with server.wire() as wire:
        wire.request("GET", "/debug/pprof/profile?seconds=3")
        while "profile" not in server.call("GET", "/debug/pprof/threadcreate").body.decode().split():
            pass
        reply = server.call("GET", "/debug/pprof/profile?seconds=1")
        assert (reply.status, reply.body) == (500, b"Could not enable CPU profiling: cpu profiling already in use")
        lines = wire.reply().body.decode().splitlines()
    assert lines
    assert sum(int(line.rpartition(" ")[2]) for line in lines) > 3
    assert any("nsqc.daemon.run:" in line for line in lines)


def test_profile_ends_when_its_client_goes(server):
    with server.wire() as wire:
        wire.request("GET", "/debug/pprof/profile?seconds=600")
        while "profile" not in server.call("GET", "/debug/pprof/threadcreate").body.decode().split():
            pass
    while server.call("GET", "/debug/pprof/profile?seconds=0.05").status != 200:
        pass


def test_heap(server):
    server.call("POST", "/topic/create?topic=heap")
    lines = dict(line.rsplit(" ", 1) for line in server.call("GET", "/debug/pprof/heap").body.decode().splitlines())
    assert int(lines["VmRSS"]) > 1 << 20
    assert int(lines["heap_in_use_bytes"]) > 1 << 16
    assert int(lines["topics"]) >= 1
    assert int(lines["http_connections"]) >= 1
    assert int(lines["objects nsqc.httpd.connection.Connection"]) >= 1


def test_stacks_of_threads(server):
    text = server.call("GET", "/debug/pprof/goroutine").body.decode()
    assert "thread MainThread" in text
    assert "debug.py" in text


def test_free_memory_and_block_rate(server):
    for path in ("PUT /debug/setblockrate?rate=-5", "POST /debug/freememory"):
        reply = server.call(*path.split())
        assert (reply.status, reply.json) == (500, {"message": "INTERNAL_ERROR"})
    reply = server.call("PUT", "/debug/setblockrate?rate=%221")
    assert reply.body == b'invalid block rate : strconv.Atoi: parsing "\\"1": invalid syntax'


@pytest.mark.long
def test_counting_live_objects_holds_nobody_up(start):
    """With 30,000 topics that takes more than a hundred iterations; other requests are answered in each of them."""
    server = start("--max-create-rate=0")
    with server.wire() as wire, server.wire() as other:
        for begin in range(0, 30_000, 500):
            wire.send(b"".join(request("POST", f"/topic/create?topic=t{number}") for number in range(begin, begin + 500)))
            assert {wire.reply().status for _ in range(500)} == {200}
        server.call("GET", "/debug/pprof/heap")     # its modules are imported
        wire.request("GET", "/debug/pprof/heap")
        for _ in range(20):
            other.request("GET", "/ping")
            assert other.reply().status == 200
        assert select.select([wire.sock], [], [], 0)[0] == []
        assert b"objects nsqc.broker.topic.Topic 30000\n" in wire.reply().body
    assert server.call("POST", "/debug/freememory").status == 500
    refused = server.call("GET", "/debug/pprof/heap?exact=true")
    assert refused.status == 503
    assert refused.body.endswith(b" blocks of memory are too many to list at once: omit exact=true")


def test_exact_counts_what_nothing_refers_to(server):
    for query, status in (("", 200), ("?exact=false", 200), ("?exact=true", 200), ("?exact=maybe", 400)):
        reply = server.call("GET", f"/debug/pprof/heap{query}")
        assert reply.status == status
        assert status == 400 or b"objects nsqc.httpd.connection.Connection " in reply.body


def test_those_who_ask_at_once_share_a_count(server):
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(server.wire()) for _ in range(50)]
        for wire in wires:
            wire.request("GET", "/debug/pprof/heap")
        for number, wire in enumerate(wires):
            if number % 2:
                assert wire.reply().status == 200
    assert server.call("GET", "/debug/pprof/heap").status == 200
