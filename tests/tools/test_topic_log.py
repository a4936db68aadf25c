"""nsqc topic log, nsqc topic read and nsqc tail --from: log-backed topics, by offset and time."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.support.daemon import Daemon, wait_until
from tests.support.lookupd import LookupServer
from tests.support.ports import kept
from tests.tools.conftest import ENV, NAMES, SECONDS

SMALL_SEGMENTS = "--max-bytes-per-file=100000"


def logged(*nodes: Daemon) -> str:
    """A new log-backed topic, on some nodes."""
    name = f"log{next(NAMES)}"
    for node in nodes:
        assert node.http("PUT", f"/topic/rules?topic={name}", b'{"storage":"log"}')[0] == 200
        node.post(f"/topic/create?topic={name}")
    return name


def where(*nodes: Daemon) -> list[str]:
    return [word for node in nodes for word in ("--nsqd", f"127.0.0.1:{node.tcp_port}", "--http", f"127.0.0.1:{node.http_port}")]


def objects(text: bytes) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


# ---------------------------------------------------------------------- topic log

def test_topic_log(tools, node):
    topic = logged(node)
    node.post(f"/channel/create?topic={topic}&channel=c")
    node.publish(topic, b"a", b"b", b"c")
    done = tools.run("topic", "log", topic)
    head, row, _, titles, channel = done.stdout.decode().splitlines()
    assert head.split("  ")[0] == "NODE" and titles.startswith("CHANNEL  NODE")
    cells = row.split()[:9]
    assert 80 <= int(cells.pop(3)) == int(cells.pop(3)) <= 3 * 72       # messages of a moment share a frame
    assert cells == [tools.http, "0", "3", "1", "0", "0", "write"]
    assert [bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", cell)) for cell in row.split()[9:]] == [True, True]
    assert channel.split()[:5] == ["c", tools.http, "0", "0", "3"]
    assert "SEGMENT" in tools.run("topic", "log", topic, "--segments").stdout.decode()
    [state] = objects(tools.run("topic", "log", topic, "--json").stdout)
    assert (state["node"], state["next_offset"], state["channels"][0]["lag_messages"]) == (tools.http, 3, 3)


@pytest.mark.parametrize("words", ["topic log", "topic read", "tail --from end"])
def test_what_has_no_log(tools, node, words):
    memory = tools.topic()
    done = tools.run(*words.split(), memory)
    assert (done.returncode, done.stdout) == (1, b"")
    assert f"topic '{memory}' is not log-backed" in done.stderr.decode()
    assert f"nsqc topic rules {memory} --storage log" in done.stderr.decode()
    done = tools.run(*words.split(), memory + "s")
    assert (done.returncode, done.stdout) == (4, b"") and f"did you mean '{memory}'?" in done.stderr.decode()


# ---------------------------------------------------------------------- topic read

def test_topic_read(tools, node):
    topic = logged(node)
    bodies = [b"%d" % number for number in range(10)]
    node.publish(topic, *bodies)

    def read(*words: str) -> list[bytes]:
        done = tools.run("topic", "read", topic, *words)
        assert (done.returncode, done.stderr) == (0, b""), done
        return done.stdout.split(b"\n")[:-1]

    assert read() == read("--from", "beginning", "--until", "end") == bodies
    assert read("--from", "3", "--until", "6") == read("--from=3", "-n", "3") == bodies[3:6]
    assert read("--from", "10") == read("--from", "end") == read("--until", "0") == []
    assert read("--until", "99") == bodies
    assert read("--from", "-1h") == read("--from", "7d", "--until", "0s") == bodies
    assert read("--until", "1h") == []
    found = objects(tools.run("topic", "read", topic, "--json", "--from", "8").stdout)
    assert [(one["offset"], one["body"], one["node"], one["topic"]) for one in found] == [
        (8, "8", tools.http, topic), (9, "9", tools.http, topic)]
    assert re.fullmatch("[0-9a-f]{16}", found[0]["id"]) and found[0]["attempts"] == 0
    moment = found[1]["timestamp"]
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment // 10**9)) + f".{moment % 10**9:09d}Z"
    node.publish(topic, b"later")
    assert read("--until", stamp) == [] or len(read("--until", stamp)) < 11
    assert read("--from", stamp)[-2:] == [b"9", b"later"]
    assert not node.stats(topic)["channels"]


@pytest.mark.parametrize("words, code, text", [
    (("--from", "soon"), 2, "'soon' is not beginning, end, an offset"), (("--from", "1w"), 2, "'1w' is not"), (("--from", ""), 2, "'' is not"),
    (("--from", "5", "--until", "4"), 2, "--until 4 is before --from 5"),
    (("--from", "9"), 1, "there is no offset 9: the next message gets offset 3"), (("-n", "x"), 2, "not an integer")])
def test_places_that_are_not_there(tools, node, words, code, text):
    topic = logged(node)
    node.publish(topic, b"a", b"b", b"c")
    done = tools.run("topic", "read", topic, *words)
    assert (done.returncode, done.stdout) == (code, b"") and text in done.stderr.decode() and len(done.stderr.splitlines()) == 1


def test_many_messages_and_large_ones(tools, node):
    topic = logged(node)
    bodies = [b"%06d" % number * 30 for number in range(20_000)] + [b"x" * 1_000_000] * 3
    for at in range(0, len(bodies), 2000):
        node.publish(topic, *bodies[at:at + 2000])
    done = tools.run("topic", "read", topic)
    assert (done.returncode, done.stdout) == (0, b"\n".join([*bodies, b""]))
    done = tools.run("topic", "read", topic, "--json", "--from", "19990", "-n", "11")
    assert [one["offset"] for one in objects(done.stdout)] == list(range(19_990, 20_001))


def test_several_nodes(tools, node, other, tmp_path):
    topic = logged(node, other)
    node.publish(topic, b"a", b"b")
    other.publish(topic, b"c")
    nodes = where(node, other)
    done = tools.run("topic", "read", topic, *nodes, nodes=False)
    assert (done.returncode, done.stdout) == (0, b"a\nb\nc\n")
    assert tools.run("topic", "read", topic, "-n", "1", *nodes, nodes=False).stdout == b"a\n"
    assert len(objects(tools.run("topic", "log", topic, "--json", *nodes, nodes=False).stdout)) == 2
    for words in (("topic", "read", topic, "--from", "1"), ("tail", topic, "--from", "1")):
        done = tools.run(*words, *nodes, nodes=False)
        assert done.returncode in (1, 2) and b"an offset belongs to one node, but 2 " in done.stderr
    assert tools.run("topic", "read", topic, "--from", "1", *where(other), nodes=False).stdout == b""
    # A node that does not answer does not keep it from the other.
    done = tools.run("topic", "read", topic, *where(node), "--nsqd", "127.0.0.1:1", "--http", "127.0.0.1:2", nodes=False)
    assert (done.returncode, done.stdout) == (1, b"a\nb\n") and b"127.0.0.1:2: Connection refused" in done.stderr


def test_what_retention_has_removed(tools, daemon):
    node = daemon("--topic-storage=log", SMALL_SEGMENTS)
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    for _ in range(10):
        node.publish("t", *[b"x" * 1000] * 50)
    node.post("/channel/empty?topic=t&channel=c")
    first = wait_until(lambda: json.loads(node.http("GET", "/topic/log?topic=t")[1])["first_offset"], seconds=60)
    for words in (("topic", "read"), ("tail", "-n", "1")):
        done = tools.run(*words, "t", "--from", "0", *where(node), nodes=False)
        assert (done.returncode, done.stdout) == (1, b"")
        assert f"offset 0 is gone: retention has removed everything before offset {first}\n" in done.stderr.decode()
    assert len(tools.run("topic", "read", "t", *where(node), nodes=False).stdout) == (500 - first) * 1001


def test_damaged_messages_are_left_out_and_said(tools, daemon):
    node = daemon("--topic-storage=log")
    for body in b"first", b"damaged", b"last":
        node.publish("t", body)
        time.sleep(0.01)        # messages of a moment share a frame, and would be lost together
    assert node.stop() == 0
    [segment] = (node.data_path / "t.log").glob("*.log")
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"damaged", b"DAMAGED"))
    node.start()
    done = tools.run("topic", "read", "t", *where(node), nodes=False)
    assert (done.returncode, done.stdout) == (1, b"first\nlast\n")
    assert "1 damaged messages skipped" in done.stderr.decode()
    done = tools.run("tail", "t", "-n", "2", "--from", "beginning", *where(node), nodes=False)
    assert (done.returncode, done.stdout) == (0, b"first\nlast\n") and b"1 damaged messages before offset 2 skipped" in done.stderr


# ---------------------------------------------------------------------- tail --from

def test_it_follows(tools, node):
    topic = logged(node)
    node.publish(topic, b"a", b"b")
    running = [tools.start("tail", topic, "--from", place) for place in ("beginning", "1", "end", "-1h", "1h")]
    for tail, text in zip(running, (b"a\nb\n", b"b\n", b"", b"a\nb\n", b"a\nb\n"), strict=True):
        tail.says(text)
    # The start of a reader at the end is not visible: messages published until then may or may not be its.
    wait_until(lambda: (node.publish(topic, b"."), running[2].out)[1], seconds=60)
    node.publish(topic, b"c")
    for tail in running:
        tail.says(b"c\n")
    assert running[0].out.startswith(b"a\nb\n") and running[1].out.startswith(b"b\n.\n")
    assert [tail.stop(number) for tail, number in zip(running, (signal.SIGINT, signal.SIGTERM, signal.SIGTERM, signal.SIGTERM, signal.SIGTERM),
                                                      strict=True)] == [130, 0, 0, 0, 0]
    assert [tail.err for tail in running] == [""] * 5
    assert not node.stats(topic)["channels"]        # nothing remains


def test_a_number_of_messages_as_json_and_with_the_topic(tools, node):
    topic, second = logged(node), logged(node)
    node.publish(topic, b"a", b"b", b"c")
    done = tools.run("tail", topic, "--from", "beginning", "-n", "2", "--json")
    assert [(one["offset"], one["body"], one["nsqd"]) for one in objects(done.stdout)] == [(0, "a", tools.tcp), (1, "b", tools.tcp)]
    node.publish(second, b"z")
    done = tools.run("tail", topic, "--topic", second, "--from", "beginning", "-n", "4", "--print-topic")
    assert done.returncode == 0
    assert sorted(done.stdout.decode().splitlines()) == sorted(
        [f"{topic} | a", f"{topic} | b", f"{topic} | c", f"{second} | z"])


def test_a_node_that_is_restarted(tools, daemon):
    """The output is complete, without repeats: it continues at its offset."""
    node = daemon("--topic-storage=log", kept(), kept("http"))
    expected = [b"%d" % number for number in range(50)]
    node.publish("t", *expected[:20])
    running = tools.start("tail", "t", "--from", "beginning", "--print-topic", *where(node), nodes=False).says(b"t | 19\n")
    assert node.stop() == 0
    running.says("retrying")
    node.start()
    node.publish("t", *expected[20:])
    running.says(b"t | 49\n").says("connected again")
    assert running.stop() == 130
    assert running.out == b"".join(b"t | %s\n" % body for body in expected)
    assert len(running.err.splitlines()) == 2


def test_a_topic_that_is_created_again(tools, node):
    topic = logged(node)
    node.publish(topic, b"old", b"old too")
    running = tools.start("tail", topic, "--from", "beginning").says(b"old too\n")
    node.post(f"/topic/delete?topic={topic}")
    running.says("was deleted")
    assert node.http("PUT", f"/topic/rules?topic={topic}", b'{"storage":"log"}')[0] == 200
    node.publish(topic, b"new")
    running.says(b"new\n")
    assert running.out == b"old\nold too\nnew\n"


def test_a_topic_that_comes_later(tools, node):
    topic = f"log{next(NAMES)}"
    assert tools.run("tail", topic, "--from", "end").returncode == 4
    running = tools.start("tail", topic, "--from", "end", "--wait", "-n", "1")
    assert node.http("PUT", f"/topic/rules?topic={topic}", b'{"storage":"log"}')[0] == 200
    # It may start after the first of them, which are then before its end.
    wait_until(lambda: (node.publish(topic, b"came"), time.sleep(0.2), running.out)[2], seconds=60)
    assert (running.wait(), running.out, running.err) == (0, b"came\n", "")


def test_nodes_of_a_lookup_server(tools, daemon, tmp_path):
    lookup = LookupServer(tmp_path / "lookupd.log")
    try:
        flags = (f"--lookupd-tcp-address={lookup.tcp_address}", "--broadcast-address=127.0.0.1", "--topic-storage=log")
        nodes = [daemon(*flags, data_path=tmp_path / name) for name in ("one", "two")]
        for number, each in enumerate(nodes):
            each.publish("t", b"%d" % number)
        wait_until(lambda: len(lookup.get("/nodes")["producers"]) == 2 and len(lookup.get("/lookup?topic=t")["producers"]) == 2, seconds=60)
        running = tools.start("tail", "t", "--from", "-1h", "--nsqlookupd", lookup.http_address, nodes=False)
        running.says(b"0\n").says(b"1\n")
        nodes[1].publish("t", b"more")
        running.says(b"more\n")
        assert running.stop() == 130 and running.err == ""
    finally:
        lookup.close()


def test_a_reader_that_has_gone_ends_it(tools, node):
    topic = logged(node)
    node.publish(topic, b"a", b"b")
    process = subprocess.Popen([sys.executable, "-m", "nsqc", "tail", topic, "--from", "beginning", *tools.nodes], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=ENV)
    assert process.stdout.readline() == b"a\n"
    process.stdout.close()      # nothing more is published: it is noticed all the same
    assert process.wait(SECONDS) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_slow_reader_costs_no_memory(tools, daemon):
    node = daemon("--topic-storage=log")
    for _ in range(90):
        node.publish("t", *[b"x" * 100_000] * 40)
    read, write = os.pipe()
    running = tools.start("tail", "t", "--from", "beginning", "-n", "3600", *where(node), nodes=False, stdout=write)
    os.close(write)
    size, most = 0, 0
    with os.fdopen(read, "rb", buffering=0) as out:
        while data := out.read(1 << 16):
            size += len(data)
            with open(f"/proc/{running.process.pid}/status", encoding="ascii") as status:
                most = max(most, int(next((line.split()[1] for line in status if line.startswith("VmRSS")), 0)))
    assert running.wait() == 0 and size == 3600 * 100_001
    assert most < 200_000       # KiB; all of it is 352,000


@pytest.mark.parametrize("words", [("--channel", "c"), ("--max-in-flight", "1"), ("--auth-secret", "x"), ("--deflate", "1"), ("--snappy",)])
def test_options_that_mean_nothing_with_it(inside, tools, words):
    done = inside("tail", "t", "--from", "end", *words, *tools.nodes)
    assert done.returncode == 2 and f"it excludes {words[0]}" in done.stderr


def test_nsqd_without_logs(inside, monkeypatch):
    """NSQ's own nsqd has none of these calls."""
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            answers = {"/info": {"version": "1.3.0", "tcp_port": 1},
                       "/stats": {"version": "1.3.0", "topics": [{"topic_name": "t", "depth": 0, "message_count": 0, "channels": []}]}}
            body = json.dumps(answers.get(path, {"message": "NOT_FOUND"})).encode()
            self.send_response(200 if path in answers else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        for words in (("topic", "log"), ("topic", "read"), ("tail", "--from", "end")):
            done = inside(*words, "t", "--nsqd", "127.0.0.1:1", "--http", f"127.0.0.1:{server.server_port}")
            assert done.returncode == 1 and "is an nsqd, which has no logs" in done.stderr
    finally:
        server.shutdown()
        server.server_close()


# ---------------------------------------------------------------------- seek

@pytest.mark.parametrize("words, position", [(("1h",), 0), (("-1h",), 0), (("--to", "-1h"), 0), (("--to=7d",), 0), (("0s",), 3), (("--to", "2"), 2),
                                             (("end",), 3), (("2026-01-01T00:00:00Z",), 0)])
def test_seek(tools, node, words, position):
    topic = logged(node)
    node.post(f"/channel/create?topic={topic}&channel=c")
    node.publish(topic, b"a", b"b", b"c")
    for names in ((topic, "c"), ("--topic", topic, "--channel", "c")):
        done = tools.run("channel", "seek", *names, *words)
        assert (done.returncode, done.stderr) == (0, b""), done
    assert json.loads(node.http("GET", f"/topic/log?topic={topic}")[1])["channels"][0]["position"] == position
    done = tools.run("channel", "create", topic, "d", "--from", words[-1].removeprefix("--to="))
    assert done.returncode == 0
    assert json.loads(node.http("GET", f"/topic/log?topic={topic}")[1])["channels"][1]["position"] == position


def test_seek_to_nowhere(inside, tools):
    done = inside("channel", "seek", "t", "c", "1w", *tools.nodes)
    assert done.returncode == 2 and "PLACE: '1w' is not beginning, end, an offset" in done.stderr
    assert inside("channel", "seek", "t", "c", *tools.nodes).returncode == 2
    done = inside("channel", "seek", "t", "c", "1", "--to", "1", *tools.nodes)
    assert done.returncode == 2 and "unexpected word '1'" in done.stderr
