"""nsqc topic, channel, peek, drain and bench: output, effects, exit codes."""

import contextlib
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from urllib.request import urlopen

import pytest

from tests.support import nested
from tests.support.daemon import Daemon, wait_until
from tests.support.lookupd import LookupServer
from tests.support.patience import WAIT_SECONDS
from tests.support.screens import InTerminal
from tests.tools.calling import call

DEAD = ("--nsqd", "127.0.0.1:9")


def where(*nodes):
    return [word for node in nodes for word in ("--nsqd", f"127.0.0.1:{node.tcp_port}",
                                                "--http", f"127.0.0.1:{node.http_port}")]


def nsqc(*words, code=0):
    """stdout and stderr of a call."""
    done = call(*map(str, words))
    assert done.code == code, (words, done)
    return done.out, done.err


def objects(text):
    """The output of --json: an object a line."""
    return [json.loads(line) for line in text.splitlines()]


def table(text):
    """The cells of a table."""
    return [line.split() for line in text.splitlines()]


# ---------------------------------------------------------------------- topic

def test_a_topic_from_its_creation_to_its_end(node):
    out, _ = nsqc("topic", "create", "life", *where(node))
    assert out == f"127.0.0.1:{node.http_port}: topic life exists\n"
    nsqc("channel", "create", "life", "c", *where(node))
    nsqc("topic", "pause", "life", *where(node))
    node.connect().pub("life", b"a", b"b")
    rows = table(nsqc("topic", "list", *where(node))[0])
    assert rows[0][0] == "TOPIC"
    assert ["life", "1", "1", "2", "0", "0", "2", "paused"] in rows
    listed = objects(nsqc("topic", "list", "--json", *where(node))[0])
    assert next(topic for topic in listed if topic["topic"] == "life") == {
        "node": f"127.0.0.1:{node.http_port}", "topic": "life", "depth": 2, "backend_depth": 0, "message_count": 2,
        "paused": True, "channels": ["c"]}
    nsqc("topic", "empty", "life", "--yes", *where(node))
    nsqc("topic", "unpause", "life", *where(node))
    assert node.stats("life")["depth"] == 0
    out, _ = nsqc("topic", "delete", "life", "-y", "--json", *where(node))
    assert json.loads(out) == {"node": f"127.0.0.1:{node.http_port}", "done": True, "error": None}
    assert "topic 'life' does not exist" in nsqc("topic", "pause", "life", *where(node), code=4)[1]


def test_several_nodes(node, other):
    nsqc("topic", "create", "both", *where(node, other))
    nsqc("channel", "create", "both", "c", *where(node, other))
    node.connect().pub("both", b"a")
    other.connect().pub("both", b"a", b"b")
    assert ["both", "2", "1", "0", "3", "0", "3"] in table(nsqc("topic", "list", *where(node, other))[0])
    assert table(nsqc("channel", "list", "both", *where(node, other))[0])[1][:3] == ["c", "2", "3"]
    # One of them does not answer: the rest is done, and the exit code says so.
    out, err = nsqc("topic", "pause", "both", *where(node), "--nsqd", "127.0.0.1:9", "--http", "127.0.0.1:10", code=1)
    assert f"127.0.0.1:{node.http_port}: topic both paused" in out
    assert len(err.splitlines()) >= 1
    assert "127.0.0.1:10: Connection refused" in err
    assert ["both", "2", "1", "0", "3", "0", "3", "paused", "on", "1"] in table(
        nsqc("topic", "list", *where(node, other))[0])
    # Only one has the other topic.
    nsqc("topic", "create", "single", *where(other))
    nsqc("channel", "create", "single", "c", *where(node, other))
    out, _ = nsqc("channel", "pause", "single", "c", *where(node, other))
    assert out == f"127.0.0.1:{other.http_port}: channel c of topic single paused\n"
    out, _ = nsqc("topic", "delete", "single", "--yes", *where(node, other))
    assert out == f"127.0.0.1:{other.http_port}: topic single deleted\n"


def test_rules(node):
    row = table(nsqc("topic", "rules", "ruled", *where(node))[0])[1]
    assert row == [f"127.0.0.1:{node.http_port}", "memory", "write", "0s", "0", "0", "refuse", "0s", "drop",
                   "0", "0", "0s", "1000000", "default"]
    out, _ = nsqc("topic", "rules", "ruled", "--storage", "log", "--retain-bytes", "1G", "--retain-time", "72h", "--json",
                  *where(node))
    [rule] = objects(out)
    assert (rule["storage"], rule["retain_bytes"], rule["retain_time"]) == ("log", 1 << 30, "72h0m0s")
    out, _ = nsqc("topic", "rules", "ruled", "--message-ttl", "1h", "--expired", "dead-letter", "--max-depth", "5",
                  "--max-bytes", "1M", "--overflow", "dead-letter", "--json", *where(node))
    [rule] = objects(out)
    assert (rule["message_ttl"], rule["expired"], rule["max_depth"], rule["max_bytes"], rule["overflow"]) == (
        "1h0m0s", "dead-letter", 5, 1 << 20, "dead-letter")
    [rule] = objects(nsqc("channel", "rules", "ruled", "c", "--max-depth", "0", "--json", *where(node))[0])
    assert (rule["message_ttl"], rule["max_depth"], rule["max_bytes"]) == ("1h0m0s", 0, 1 << 20)
    nsqc("topic", "rules", "ruled", "--reset", *where(node))
    assert "memory" in nsqc("topic", "rules", "ruled", *where(node))[0]
    assert "--reset and --sync" in nsqc("topic", "rules", "ruled", "--reset", "--sync", "fsync", *where(node), code=2)[1]
    assert "cannot be used" in nsqc("topic", "rules", "ruled", "--retain-time", "soon", *where(node), code=1)[1]


# ---------------------------------------------------------------------- channel

def test_a_channel(node):
    node.connect().pub("piped", b"a", b"b", b"c")
    nsqc("channel", "create", "piped", "c", *where(node))
    wait_until(lambda: node.channel("piped", "c")["depth"] == 3)
    rows = table(nsqc("channel", "list", "piped", *where(node))[0])
    assert rows[1] == ["c", "1", "3", "0", "0", "0", "0", "0"]
    nsqc("channel", "pause", "piped", "c", *where(node))
    assert node.channel("piped", "c")["paused"]
    assert objects(nsqc("channel", "list", "piped", "--json", *where(node))[0])[0]["paused"] is True
    nsqc("channel", "unpause", "piped", "c", *where(node))
    nsqc("channel", "empty", "piped", "c", "--yes", *where(node))
    assert node.channel("piped", "c")["depth"] == 0
    assert "did you mean 'c'" not in nsqc("channel", "empty", "piped", "billing", "--yes", *where(node), code=4)[1]
    nsqc("channel", "delete", "piped", "c", "--yes", *where(node))
    assert node.stats("piped")["channels"] == []


def test_seek(node, other):
    for one in (node, other):
        assert one.http("PUT", "/topic/rules?topic=logged", b'{"storage":"log"}')[0] == 200
        one.connect().pub("logged", b"a", b"b", b"c")
        one.post("/channel/create?topic=logged&channel=c")
    nsqc("channel", "seek", "logged", "c", "beginning", *where(node, other))
    wait_until(lambda: node.channel("logged", "c")["depth"] == 3)
    nsqc("channel", "seek", "logged", "c", "2", *where(node))
    assert node.channel("logged", "c")["depth"] == 1
    assert "an offset belongs to one node" in nsqc("channel", "seek", "logged", "c", "2", *where(node, other), code=2)[1]
    assert "OFFSET_BEYOND_END" in nsqc("channel", "seek", "logged", "c", "99", *where(node), code=1)[1]
    nsqc("channel", "create", "logged", "d", "--from", "beginning", *where(node))
    assert node.channel("logged", "d")["depth"] == 3


@pytest.mark.parametrize("words", [("topic", "empty", "asked"), ("topic", "delete", "asked"),
                                   ("channel", "empty", "asked", "c"), ("channel", "delete", "asked", "c")])
def test_what_loses_messages_is_asked_for(node, words):
    node.post("/topic/create?topic=asked")
    node.post("/channel/create?topic=asked&channel=c")
    assert "give --yes" in nsqc(*words, *where(node), code=2)[1]
    terminal = InTerminal(*words, *where(node), columns=150)
    try:
        terminal.until("[y/N]")
        terminal.press("n\n")
        assert terminal.end() == 1
        assert "nothing was done" in terminal.text
    finally:
        terminal.close()
    assert node.stats("asked")["channels"]
    terminal = InTerminal(*words, *where(node), columns=150)
    try:
        terminal.until("[y/N]")
        terminal.press("y\n")
        assert terminal.end() == 0
    finally:
        terminal.close()


# ---------------------------------------------------------------------- peek

def test_peek(node):
    node.connect().pub("seen", b'{"a": 1}', b"two\nlines", b"\xff\x1b[31m", b"x" * 100)
    node.post("/channel/create?topic=seen&channel=c")
    wait_until(lambda: node.channel("seen", "c")["depth"] == 4)
    lines = nsqc("peek", "seen", "c", "--max-bytes", "20", *where(node))[0].splitlines()
    assert [line.split(" B  ")[1] for line in lines] == ['{"a": 1}', "two\\nlines", "\\xff\\x1b[31m", "x" * 20 + "..."]
    assert "queued  attempts 0" in lines[0]
    found = [json.loads(line) for line in nsqc("peek", "seen", "c", "-n", "0", "--json", "--body", "json",
                                               *where(node))[0].splitlines()]
    assert (found[0]["body_json"], found[1]["body"], found[0]["node"]) == (
        {"a": 1}, "two\nlines", f"127.0.0.1:{node.http_port}")
    assert len(nsqc("peek", "seen", "c", "-n", "2", *where(node))[0].splitlines()) == 2
    client = node.connect().sub("seen", "c", 1)
    client.message()
    line = nsqc("peek", "seen", "c", "--state", "in_flight", *where(node))[0]
    assert " to 127.0.0.1 127.0.0.1:" in line
    assert " until 2" in line
    assert nsqc("peek", "seen", *where(node))[0] == ""
    assert "needs a CHANNEL" in nsqc("peek", "seen", "--state", "deferred", *where(node), code=2)[1]
    assert "did you mean 'seen'" in nsqc("peek", "sene", "c", *where(node), code=4)[1]
    assert "channel 'd' does not exist in topic 'seen'" in nsqc("peek", "seen", "d", *where(node), code=4)[1]


def test_peek_in_a_pipe_that_ends(node):
    node.connect().pub("long", *[b"x" * 1000] * 3000)
    process = subprocess.Popen([sys.executable, "-m", "nsqc", "peek", "long", "-n", "0", *where(node)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(WAIT_SECONDS) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


# ---------------------------------------------------------------------- bench

def test_bench(node, tmp_path):
    chart = tmp_path / "chart.svg"
    out, err = nsqc("bench", "--seconds", "200ms", "--rate", "200", "--svg", str(chart), *where(node))
    assert [line.split()[0] for line in out.splitlines() if line and not line.startswith(" ")] == [
        "publish", "consume", "latency"]
    assert err == ""
    assert ElementTree.parse(chart).getroot().tag.endswith("svg")
    assert not [topic for topic in node.stats()["topics"] if topic["topic_name"].startswith("nsqc_bench")]
    found = json.loads(nsqc("bench", "consume", "--seconds", "200ms", "--batch", "1", "--json", *where(node))[0])
    result = found["results"][0]
    assert (result["what"], result["messages"] > 0, result["rate"] > 0) == ("consume", True, True)


def test_a_bench_of_a_node_that_hangs(daemon):
    hung = daemon()
    process = subprocess.Popen([sys.executable, "-m", "nsqc", "bench", "publish", "--seconds", "60s", "--timeout", "300ms", *where(hung)],
                               stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: any(topic["message_count"] for topic in hung.stats()["topics"]))
        os.kill(hung.pid, signal.SIGSTOP)
        err = process.communicate(timeout=WAIT_SECONDS)[1]
    finally:
        os.kill(hung.pid, signal.SIGCONT)
        process.kill()
    assert (process.returncode, err.decode()) == (3, f"nsqc bench: 127.0.0.1:{hung.tcp_port}: no answer within 0.3 s\n")


def test_a_bench_that_is_interrupted_leaves_nothing(node):
    process = subprocess.Popen([sys.executable, "-m", "nsqc", "bench", "latency", "--seconds", "60s", *where(node)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: [topic for topic in node.stats()["topics"] if topic["topic_name"].startswith("nsqc_bench")])
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert not [topic for topic in node.stats()["topics"] if topic["topic_name"].startswith("nsqc_bench")]


# ---------------------------------------------------------------------- all

@pytest.mark.parametrize(("words", "code", "text"), [
    (("topic", "list", *DEAD), 3, "no nsqd answers: 127.0.0.1:10: Connection refused"),
    (("channel", "list", "t", *DEAD), 3, "no nsqd answers"),
    (("peek", "t", *DEAD), 3, "no nsqd answers"),
    (("drain", *DEAD), 3, "Connection refused"),
    (("bench", *DEAD), 3, "Connection refused"),
    (("bench", "latenzy", *DEAD), 2, "did you mean 'latency'?"),
    (("bench", *DEAD, "--nsqd", "127.0.0.1:99"), 2, "give one --nsqd"),
    (("drain", *DEAD, "--nsqd", "127.0.0.1:99"), 2, "give one --nsqd"),
    (("drain", "--undo", "--keep", *DEAD), 2, "--undo"),
    (("topic", "lits"), 2, "Did you mean 'list'?"),
    (("topic", "create"), 2, "TOPIC is missing"),
    (("channel", "seek", "t", "c"), 2, "PLACE is missing"),
    (("peek", "t", "c", "--state", "lost", *DEAD), 2, "not one of queued, in_flight, deferred"),
])
def test_errors(words, code, text):
    out, err = nsqc(*words, code=code)
    assert out == ""
    assert text in err
    assert len(err.splitlines()) == 1


# ---------------------------------------------------------------------- drain

@pytest.fixture
def draining(daemon):
    """A daemon with a message in flight; its consumer."""
    node = daemon()
    node.connect().pub("t", b"a", b"b")
    consumer = node.connect().sub("t", "c", 1)
    return node, consumer, consumer.message()


def test_drain_and_undo(draining):
    node, consumer, message = draining
    out, _ = nsqc("drain", "--drain-timeout", "1m", "--keep", "--no-wait", *where(node))
    assert "draining, 1 messages in flight to 1 consumers" in out
    consumer.fin(message)
    state = json.loads(nsqc("drain", "--keep", "--json", *where(node))[0])
    assert (state["state"], state["in_flight"]) == ("drained", 0)
    assert "serving" in nsqc("drain", "--undo", *where(node))[0]
    assert consumer.message().body == b"b"


def test_drain_stops_the_daemon(draining):
    node, consumer, message = draining
    process = subprocess.Popen([sys.executable, "-m", "nsqc", "drain", *where(node)], stdout=subprocess.PIPE)
    wait_until(lambda: json.loads(node.http("GET", "/drain")[1])["state"] == "draining")
    consumer.fin(message)
    out, _ = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, out.decode().split(": ")[1]) == (0, "drained and stopped\n")
    assert node.process.wait(WAIT_SECONDS) == 0


def test_drain_whose_time_is_over(draining):
    node, _, _ = draining
    out, _ = nsqc("drain", "--drain-timeout", "100ms", "--keep", *where(node), code=1)
    assert "timed out, 1 messages still in flight" in out


# ---------------------------------------------------------------------- other servers

@pytest.fixture(scope="module")
def stranger():
    """An HTTP server that is not an nsqd's: a node cannot be made to answer like this."""

    class Handler(http.server.BaseHTTPRequestHandler):
        answer = b""

        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.answer)))
            self.end_headers()
            self.wfile.write(self.answer)

        do_POST = do_GET

        def log_message(self, *words):
            """Nothing on stderr."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server, Handler
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("answer", [b"[]", b"<html>", nested.OBJECT, b'{"topics": 1, "x": ' + nested.levels(900) + b"}", b'{"topics": [{"topic_name": "t", "depth": 1, "channels": [{}]}]}'])
def test_answers_of_something_else(stranger, answer):
    server, handler = stranger
    handler.answer = answer
    for words, codes in ((("topic", "list"), (3,)), (("peek", "t"), (3,)), (("drain",), (1, 3))):
        done = call(*words, "--nsqd", "127.0.0.1:9", "--http", f"127.0.0.1:{server.server_port}")
        assert done.code in codes, (words, done)
        assert len(done.err.splitlines()) == 1
        assert done.out == ""


NODE = {"broadcast_address": "127.0.0.1", "tcp_port": 9, "http_port": 9}
CHANNEL = {"channel_name": "c", "depth": 0, "in_flight_count": 0, "deferred_count": 0, "message_count": 0, "paused": False}


@pytest.mark.parametrize("answer", [
    {"producers": 5}, {"producers": {"a": 1}}, {"producers": [5]}, {"producers": [NODE | {"broadcast_address": None}]},
    {"producers": [NODE | {"broadcast_address": "a b\n\x1b[2J"}]}, {"producers": [NODE | {"broadcast_address": ""}]},
    {"producers": [NODE | {"broadcast_address": "/run/x"}]}, {"producers": [NODE | {"broadcast_address": "x" * 7000}]},
    {"producers": [NODE | {"tcp_port": float("inf")}]}, {"producers": [NODE | {"http_port": -4}]},
    {"producers": [], "topics": 7, "channels": 7}, {"producers": [], "topics": [{}], "channels": [None]}, None], ids=lambda answer: str(answer)[:50])
def test_lookup_servers_that_lie(stranger, answer):
    server, handler = stranger
    handler.answer = json.dumps(answer).encode() if answer else b"[" * 100_000
    for words in (("topic", "list"), ("topic", "delete", "t", "--yes"), ("channel", "list", "t"), ("peek", "t", "c"),
                  ("stat", "--topic", "t", "--channel", "c", "-n", "1")):
        done = call(*words, "--nsqlookupd", f"127.0.0.1:{server.server_port}")
        assert done.code in (3, 4) and done.out == "", (words, done)
        assert len(done.err.splitlines()) == 1 and len(done.err) < 200 and "\x1b" not in done.err


@pytest.mark.parametrize("change", [{"depth": "x"}, {"depth": None}, {"requeue_count": []}, {"client_count": "x"}])
def test_statistics_without_numbers(stranger, change):
    server, handler = stranger
    topic = {"topic_name": "t", "depth": 1, "message_count": 1, "paused": False, "channels": [CHANNEL | change]}
    handler.answer = json.dumps({"topics": [topic]}).encode()
    for words in (("topic", "list"), ("topic", "delete", "t", "--yes"), ("channel", "list", "t"), ("channel", "empty", "t", "c", "--yes")):
        done = call(*words, "--nsqd", "127.0.0.1:9", "--http", f"127.0.0.1:{server.server_port}")
        assert (done.code, done.out) == (3, "") and "has no statistics" in done.err and len(done.err.splitlines()) == 1


@pytest.mark.parametrize("page", [
    {"messages": [5], "next": None}, {"messages": []}, {"messages": [{}], "next": None}, {"messages": [], "next": "1"},
    {"messages": [{"id": "a", "state": "queued", "timestamp": "x", "attempts": 1, "size": 1}], "next": None},
    {"messages": [{"id": "a", "state": "queued", "timestamp": 1, "attempts": 1, "size": 1, "delivered": 1, "due": 1, "client": {"client_id": 1}}], "next": None}],
    ids=str)
def test_messages_that_are_not_understood(stranger, page):
    server, handler = stranger
    handler.answer = json.dumps({"topics": [{"topic_name": "t", "depth": 1, "message_count": 1, "channels": [CHANNEL]}], **page}).encode()
    done = call("peek", "t", "c", "--nsqd", "127.0.0.1:9", "--http", f"127.0.0.1:{server.server_port}")
    assert (done.code, done.out) == (1, "") and done.err.endswith(": does not answer as nsqc does\n")


def test_nodes_of_a_lookup_server(tmp_path, daemon):
    server = LookupServer(tmp_path / "lookupd.log")
    try:
        flags = (f"--lookupd-tcp-address=127.0.0.1:{server.tcp_port}", "--broadcast-address=127.0.0.1")
        first, second = daemon(*flags), daemon(*flags)
        lookup = ("--nsqlookupd", f"127.0.0.1:{server.http_port}")
        wait_until(lambda: json.loads(urlopen(f"http://127.0.0.1:{server.http_port}/nodes").read())["producers"][1:])
        assert len(nsqc("topic", "create", "all", *lookup)[0].splitlines()) == 2
        first.post("/topic/create?topic=one")
        wait_until(lambda: "one" in nsqc("topic", "list", *lookup)[0])
        assert nsqc("topic", "pause", "one", *lookup)[0] == f"127.0.0.1:{first.http_port}: topic one paused\n"
        assert next(row for row in table(nsqc("topic", "list", *lookup)[0]) if row[0] == "all")[:2] == ["all", "2"]
        assert "did you mean 'one'" in nsqc("channel", "list", "oen", *lookup, code=4)[1]
        assert second.stats("all")["paused"] is False
    finally:
        server.close()


# ---------------------------------------------------------------------- rules

RULES = '''[topics."orders.*"]
storage = "log"
retain_time = "36h"
[channels."orders.*/*"]
max_attempts = 5
requeue_delay = "1s"
'''


@contextlib.contextmanager
def old_nsqd():
    """The port of a server with the HTTP API of NSQ's nsqd, as far as it matters here."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            found = self.path == "/info"
            body = json.dumps({"version": "1.3.0", "broadcast_address": "n", "hostname": "n", "http_port": 4151, "tcp_port": 4150,
                               "start_time": 1} if found else {"message": "NOT_FOUND"}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_GET

        def log_message(self, *words):
            """Nothing on stderr."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def shown(node, path):
    status, body = node.http("GET", path)
    assert status == 200, body
    return json.loads(body)


def test_declared_rules_reach_every_node_and_names_that_come_later(node, other, tmp_path):
    file, places = tmp_path / "rules.toml", where(node, other)
    file.write_text(RULES)
    addresses = [f"127.0.0.1:{each.http_port}" for each in (node, other)]
    out, _ = nsqc("rules", "diff", file, *places, code=1)
    assert all(address in out for address in addresses) and '+ channels."orders.*/*": max_attempts = 5' in out
    assert nsqc("rules", "apply", file, *places)[0] == "".join(f"{address}: applied\n" for address in addresses)
    assert nsqc("rules", "diff", file, *places) == ("", "")
    assert "has them already" in nsqc("rules", "apply", file, *places)[0]
    for each in (node, other):
        each.connect().pub("orders.new", b"x")
        found = shown(each, "/channel/rules?topic=orders.new&channel=c")
        assert (found["max_attempts"], found["source"]) == (5, 'declared [channels."orders.*/*"]')
        assert shown(each, "/topic/rules?topic=orders.new")["storage"] == "log"
        assert shown(each, "/topic/log?topic=orders.new")["next_offset"] == 1
    digests = {line for each in (node, other) for line in each.http("GET", "/metrics")[1].decode().splitlines() if line.startswith("nsqc_rules_digest ")}
    assert len(digests) == 1
    nsqc("channel", "rules", "orders.x", "c", "--max-attempts", "7", *where(other))
    rows = nsqc("rules", "list", *places)[0].splitlines()
    assert any("declared" in row and "max_attempts = 5" in row and row.endswith("all") for row in rows)
    assert any(row.startswith("set") and "max_attempts = 7" in row and row.endswith(addresses[1]) for row in rows)
    file.write_text("")
    nsqc("rules", "apply", file, *places)
    assert shown(node, "/channel/rules?topic=orders.new&channel=c")["source"] == "default"


def test_a_guessed_port_is_not_blamed():
    assert "this is a guess from 127.0.0.1:9: give the HTTP address by --http" in nsqc("topic", "list", *DEAD, code=3)[1]


def test_rules_say_which_nodes_they_skip(node, tmp_path):
    file = tmp_path / "rules.toml"
    file.write_text(RULES)
    both = (*where(node), *DEAD, "--http", "127.0.0.1:9")
    for words in (("apply", file), ("diff", file), ("list",)):
        assert "127.0.0.1:9" in nsqc("rules", *words, *both, code=1)[1]
    with old_nsqd() as port:
        both = (*where(node), "--nsqd", "127.0.0.1:9", "--http", f"127.0.0.1:{port}")
        assert "skipped: an nsqd has no rules" in nsqc("rules", "apply", file, *both, code=1)[1]
    for text, told in (('[topics."x"]\nstorage = "disk"\n', "one of memory, log"), ("max_attempts = 5\n", "unknown key"), ("[", "rules.toml")):
        file.write_text(text)
        assert told in nsqc("rules", "apply", file, *where(node), code=2)[1]
    file.write_text('[topics."x"]\nsync = "bucket"\n')
    assert '[topics."x"]: sync = bucket needs --bucket' in nsqc("rules", "apply", file, *where(node), code=1)[1]
    assert f"apply: {file}x: No such file or directory (" in nsqc("rules", "apply", f"{file}x", *where(node), code=2)[1]
    file.write_text("")
    nsqc("rules", "apply", file, *where(node))


def test_a_rule_of_a_name_reaches_nodes_that_do_not_have_it_yet(tmp_path):
    lookup = LookupServer(tmp_path / "lookupd.log")
    nodes = [Daemon(tmp_path / sync, f"--lookupd-tcp-address={lookup.tcp_address}", "--broadcast-address=127.0.0.1", f"--log-sync={sync}")
             for sync in ("write", "fsync")]
    try:
        wait_until(lambda: len(lookup.get("/nodes")["producers"]) == 2)
        nodes[0].post("/topic/create?topic=t")
        wait_until(lambda: lookup.call("GET", "/lookup?topic=t")[0] == 200)
        places = ("--nsqlookupd", lookup.http_address)
        nsqc("channel", "rules", "t", "c", "--max-attempts", "5", *places)
        nsqc("topic", "rules", "t", "--storage", "log", *places)
        for node in nodes:
            assert shown(node, "/channel/rules?topic=t&channel=c")["max_attempts"] == 5
            assert shown(node, "/topic/rules?topic=t")["storage"] == "log"
        differing = [row.split() for row in nsqc("rules", "list", *places)[0].splitlines() if row.startswith("defaults")]
        assert differing == [["defaults", 'topics."*":', "sync", "=", f'"{sync}"', f"127.0.0.1:{node.http_port}"]
                             for sync, node in zip(("write", "fsync"), nodes, strict=True)]
        err = nsqc("topic", "rules", "t", *places, "--nsqlookupd", "127.0.0.1:9", code=1)[1]
        assert "an nsqlookupd does not answer, so nodes may be missing: 127.0.0.1:9" in err
    finally:
        for each in (*nodes, lookup):
            each.close()
