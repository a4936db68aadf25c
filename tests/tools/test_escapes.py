"""Text from nodes and clients that a terminal would interpret: shown as escapes; JSON stays JSON."""

import json
import re
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from nsqc.commands.output import print_text
from nsqc.log.formats import visible, visible_bytes, visible_json, visible_lines
from nsqc.options.option import Kind
from nsqc.spark.jobs.running import Progress
from nsqc.tools.cluster import names
from tests.support.screens import InTerminal
from tests.support.tcpserver import Answering
from tests.tools.conftest import ENV, Tools

# Characters that a terminal interprets, or would reorder: C0, DEL, C1, separators, bidi controls; and harmless ones.
OBEYED = "\x1b[31m\x07\x08\r\x7f\x9b2J\x85\u2028\u202e\u2066\u200f\ufeff"
SHOWN = r"\x1b[31m\x07\x08\r\x7f\x9b2J\x85\u2028\u202e\u2066\u200f\ufeff"
HARMLESS = "é日本\u3000\u200d👩‍👩‍👧 \N{NO-BREAK SPACE}ﷺ"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def test_text():
    assert visible(OBEYED + HARMLESS + "\n\t") == SHOWN + HARMLESS + r"\n\t"
    assert visible_lines(OBEYED + HARMLESS + "\n\t") == SHOWN + HARMLESS + "\n\t"
    assert visible_bytes(b"a\xff\n" + OBEYED.encode()) == rb"a\xff" + b"\n" + SHOWN.encode()
    assert visible("\ud800\udcff") == r"\ud800\udcff"


def test_json():
    value = {"a" + OBEYED: [OBEYED, "\ud800", HARMLESS, "\u2028\n"]}
    text = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value and not CONTROLS.search(text) and "\ud800" not in text
    assert HARMLESS in text


# ---------------------------------------------------------------------- bodies

BODIES = [OBEYED.encode(), HARMLESS.encode(), b"\xff\x9b", b"two\nlines"]
ON_TERMINAL = [SHOWN, HARMLESS.split()[0], r"\xff\x9b", "two", "lines"]


def logged(tools: Tools) -> str:
    topic = tools.topic()
    assert tools.node.http("PUT", f"/topic/rules?topic={topic}", b'{"storage":"log"}')[0] == 200
    return topic


@pytest.mark.parametrize("words", [("tail", "-n", "4", "--channel", "c"), ("tail", "-n", "4", "--from", "beginning"), ("topic", "read")])
def test_bodies_on_a_terminal_and_in_a_pipe(tools, words):
    topic = logged(tools)
    tools.node.post(f"/channel/create?topic={topic}&channel=c")
    tools.publish(topic, *BODIES)
    if "--channel" not in words:
        done = tools.run(*words, topic)
        assert (done.returncode, done.stdout) == (0, b"\n".join([*BODIES, b""]))
    terminal = InTerminal(*words, topic, *tools.nodes, columns=200)
    try:
        assert terminal.end() == 0
        shown = terminal.output.decode()
    finally:
        terminal.close()
    assert not CONTROLS.search(shown.replace("\r\n", "\n"))
    for text in ON_TERMINAL:
        assert text in shown


@pytest.mark.parametrize("words", [("tail", "--json", "-n", "4", "--channel", "c"), ("tail", "--json", "-n", "4", "--from", "beginning"),
                                   ("topic", "read", "--json"), ("peek", "--json"), ("peek", "--json", "--body", "json")])
def test_bodies_as_json(tools, words):
    topic = logged(tools)
    tools.node.post(f"/channel/create?topic={topic}&channel=c")
    bodies = [*BODIES[:2], BODIES[3], json.dumps({OBEYED: OBEYED}, ensure_ascii=False).encode()]
    tools.publish(topic, *bodies)
    done = tools.run(*words, topic, *(["c"] if words[0] == "peek" else []))
    text = done.stdout.decode()
    assert done.returncode == 0 and not CONTROLS.search(text)
    found = [json.loads(line) for line in text.splitlines()]
    assert [one.get("body", json.dumps(one.get("body_json"), ensure_ascii=False)).encode() for one in found] == bodies


def test_nsq_tail_on_a_terminal(tools, links):
    """Like nsqc tail; in a pipe like the original."""
    topic = tools.topic("c")
    tools.publish(topic, BODIES[0])
    terminal = InTerminal(command=[links("nsq_tail"), f"--topic={topic}", "--channel=c", "-n=1", f"--nsqd-tcp-address={tools.tcp}"],
                          columns=200, environment=ENV)
    try:
        assert terminal.end() == 0
        assert SHOWN in terminal.output.decode() and not CONTROLS.search(terminal.output.decode().replace("\r\n", "\n"))
    finally:
        terminal.close()


def test_commands_that_are_no_tools(capfd):
    """`nsqc log` prints names from files; jobs on Spark print answers of nodes."""
    print_text(f"a{OBEYED}\n\tb")
    progress = Progress()
    progress.result(f"a{OBEYED}\n\tb")
    progress.note(f"c{OBEYED}\nforged")
    assert capfd.readouterr() == (f"a{SHOWN}\n\tb\n" * 2, f"nsqc spark: c{SHOWN}\\nforged\n")


# ---------------------------------------------------------------------- clients

@pytest.fixture
def hostile(tools):
    """A consumer that calls itself names; returns its topic."""
    topic = tools.topic("c")
    body = json.dumps({"client_id": "id" + OBEYED, "hostname": "host" + OBEYED, "user_agent": "agent" + OBEYED + "\nforged"}).encode()
    client = tools.node.connect()
    client.send(b"IDENTIFY\n" + struct.pack(">i", len(body)) + body)
    assert client.frame()[1] == b"OK"
    client.sub(topic, "c", 1)
    tools.publish(topic, b"x")
    client.message()
    yield topic
    client.close()


def test_statistics_as_text(tools, hostile):
    text = tools.node.http("GET", f"/stats?topic={hostile}")[1].decode()
    assert not CONTROLS.search(text)
    assert f"agent{SHOWN}\\nforged" in text and f"host{SHOWN}:" in text
    found = tools.node.channel(hostile, "c")["clients"][0]      # JSON has them as they are
    assert (found["hostname"], found["user_agent"]) == ("host" + OBEYED, f"agent{OBEYED}\nforged")


def test_producers_in_the_statistics(tools):
    topic = tools.topic()
    body = json.dumps({"user_agent": "made by" + OBEYED}).encode()
    client = tools.node.connect()
    client.send(b"IDENTIFY\n" + struct.pack(">i", len(body)) + body)
    assert client.frame()[1] == b"OK"
    client.pub(topic, b"x")
    text = tools.node.http("GET", "/stats")[1].decode()
    assert f"made by{SHOWN}" in text and not CONTROLS.search(text)
    client.close()


def test_clients_in_peek_and_top(tools, hostile):
    done = tools.run("peek", hostile, "c", "--state", "in_flight")
    assert f"id{SHOWN}" in done.stdout.decode() and not CONTROLS.search(done.stdout.decode())
    terminal = InTerminal("top", *tools.nodes, "--view", "clients", "--filter", "agent", columns=250)
    try:
        terminal.until(r"id\x1b[31m\x07")
        assert b"\x1b[31m\x07" not in terminal.output and b"\xc2\x9b" not in terminal.output
        terminal.press("q")
        assert terminal.end() == 0
    finally:
        terminal.close()


# ---------------------------------------------------------------------- nodes

@pytest.fixture(scope="module", params=["names", "values"])
def liar(request):
    """An nsqd, and an nsqlookupd, with names or other values that no real one gives; its answers, by path."""
    lie = OBEYED if request.param == "names" else ""
    channel = {"channel_name": "c" + lie, "depth": 0, "in_flight_count": 0, "deferred_count": 0, "message_count": 0, "paused": False}
    topic = {"topic_name": "x" + lie, "depth": 0, "message_count": 0, "channels": [channel]}
    answers = {
        "/info": {"version": "v" + OBEYED, "hostname": "h" + OBEYED, "tcp_port": 1},
        "/stats": {"version": "v" + OBEYED, "health": "H" + OBEYED, "start_time": 1, "topics": [topic]},
        "/topic/rules": {"storage": "s" + OBEYED, "source": "S" + OBEYED},
        "/drain": {"state": "d" + OBEYED, "keep": True, "in_flight": 0, "consumers": 0, "deadline": 0},
        "/topic/log": {"first_offset": 0, "next_offset": 0, "bytes": 0, "local_bytes": 0, "segments": 0, "damaged": 0, "missing": 0, "sync": "y" + OBEYED,
                       "channels": [{"channel_name": "c" + OBEYED, "position": 0, "oldest_unfinished": 0, "lag_messages": 0,
                                     "in_flight": 0, "deferred": 0}]},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = self.path.partition("?")[0]
            body = json.dumps(answers.get(path, {"message": "m" + OBEYED})).encode()
            self.send_response(200 if path in answers else 500)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_GET

        def log_message(self, *_):
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"127.0.0.1:{server.server_port}", request.param
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("words", ["topic list", "channel list x", "topic rules x", "drain --no-wait", "nodes", "topic log x",
                                   "topic create x", "peek x", "topic pause x"])
def test_nodes_that_lie(inside, liar, words, form):
    address, lies_about = liar
    done = inside(*words.split(), "--nsqd", "127.0.0.1:1", "--http", address, *form)
    assert not CONTROLS.search(done.stdout) and not CONTROLS.search(done.stderr) and "Traceback" not in done.stderr
    refused = lies_about == "names" and done.returncode == 3 and f"{address}: is not an nsqd: it has no statistics" in done.stderr
    assert done.stdout or SHOWN[:20] in done.stderr or refused
    if form:
        for line in done.stdout.splitlines():
            json.loads(line)


def test_what_a_shell_completes_are_names(liar):
    """bash expands what it is given: `$(...)` as the name of a topic would run a command."""
    address, lies_about = liar
    for kind, name in ((Kind.TOPIC, "x"), (Kind.CHANNEL, "c")):
        expected = [] if lies_about == "names" else [name]
        assert names(kind, {"nsqd": ["127.0.0.1:1"], "http": [address]}, ["x"]) == expected


def test_an_nsqd_that_refuses_with_escapes(inside):
    """Its words go into an error, not to the terminal."""
    text = b"E_INVALID " + OBEYED.encode() + b"\nforged"
    with Answering(struct.pack(">ii", len(text) + 4, 1) + text) as server:
        done = inside("pub", "t", "--nsqd", server.address, "--retries", "0", "/etc/hostname")
        assert done.returncode != 0 and r"E_INVALID \x1b[31m\x07\x08" in done.stderr and not CONTROLS.search(done.stderr)
        assert len(done.stderr.splitlines()) == 2
