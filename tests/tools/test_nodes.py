"""nsqc nodes: output for nodes that answer, and for those that do not."""

import json
import time

from tests.support.daemon import wait_until
from tests.support.lookupd import LookupServer, Node


def test_one_node(tools):
    topic = tools.topic("a", "b")
    tools.publish(topic, b"x")
    wait_until(lambda: tools.node.channel(topic, "b")["depth"] == 1, seconds=60)
    done = tools.run("nodes")
    head, row = done.stdout.decode().splitlines()
    assert (done.returncode, done.stderr) == (0, b"")
    assert head.split() == ["NODE", "HTTP", "HOST", "VERSION", "TOPICS", "CHANNELS", "DEPTH", "UP", "HEALTH"]
    assert row.split()[:2] == [tools.tcp, tools.http] and row.split()[3] == "1.3.0" and row.endswith("  OK")
    found = json.loads(tools.run("nodes", "--json").stdout)
    stats = tools.node.stats()
    assert (found["node"], found["tcp"], found["version"], found["health"], found["error"]) == (tools.http, tools.tcp, "1.3.0", "OK", None)
    assert found["topics"] == len(stats["topics"]) and found["channels"] >= 2 and found["depth"] >= 2
    assert found["start_time"] == stats["start_time"] and 0 <= found["uptime_seconds"] <= time.time() - stats["start_time"] + 1


def test_nodes_that_are_registered(tools, daemon, tmp_path):
    lookup = LookupServer(tmp_path / "lookupd.log")
    try:
        where = ("--nsqlookupd", lookup.http_address)
        assert tools.run("nodes", *where, nodes=False).stdout == b"no nodes\n"
        node = daemon(f"--lookupd-tcp-address={lookup.tcp_address}", "--broadcast-address=127.0.0.1")
        node.post("/topic/create?topic=t")
        wait_until(lambda: lookup.found("t"), seconds=60)
        # A registered, unreachable node: nsqlookupd's knowledge of it is shown.
        gone = Node(lookup)
        body = json.dumps({"version": "1.2.1", "tcp_port": 1, "http_port": 2, "hostname": "gone", "broadcast_address": "127.0.0.1"}).encode()
        gone.send(b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body)
        assert gone.reply()
        done = tools.run("nodes", *where, nodes=False)
        rows = {line.split()[0]: line for line in done.stdout.decode().splitlines()[1:]}
        assert (done.returncode, done.stderr) == (1, b"")
        assert rows[f"127.0.0.1:{node.tcp_port}"].endswith("OK")
        assert rows["127.0.0.1:1"].split() == ["127.0.0.1:1", "127.0.0.1:2", "gone", "1.2.1", "Connection", "refused"]
        found = {one["tcp"]: one for one in map(json.loads, tools.run("nodes", "--json", *where, nodes=False).stdout.splitlines())}
        assert found["127.0.0.1:1"] == {
            "node": "127.0.0.1:2", "tcp": "127.0.0.1:1", "hostname": "gone", "version": "1.2.1", "topics": None, "channels": None,
            "depth": None, "start_time": None, "uptime_seconds": None, "health": None, "bucket": None, "error": "Connection refused"}
        assert found[f"127.0.0.1:{node.tcp_port}"]["topics"] == 1
        gone.close()
    finally:
        lookup.close()
    done = tools.run("nodes", *where, nodes=False)
    assert (done.returncode, done.stdout) == (3, b"") and b"no nsqlookupd answers" in done.stderr


def test_no_node_answers(tools):
    done = tools.run("nodes", "--nsqd", "127.0.0.1:1", nodes=False)
    assert done.returncode == 3
    assert "Connection refused; this is a guess from 127.0.0.1:1: give the HTTP address by --http" in done.stdout.decode()
