"""The /debug pages."""

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
def test_many_objects_are_not_listed(start):
    server = start("--max-create-rate=0")
    with server.wire() as wire:
        for begin in range(0, 30_000, 500):
            wire.send(b"".join(request("POST", f"/topic/create?topic=t{number}") for number in range(begin, begin + 500)))
            assert {wire.reply().status for _ in range(500)} == {200}
    lines = server.call("GET", "/debug/pprof/heap").body.splitlines()
    assert b"topics 30000" in lines
    assert lines[-1].startswith(b"objects are not listed: there are too many blocks of memory, ")
