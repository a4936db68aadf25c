"""nsqc top, in a real terminal: its screen and its keys."""

import os
import re
import signal
import subprocess
import sys
import threading

import pytest

from nsqc import __version__
from nsqc.tools.top.screen import age, cell, keys_of, number, spark
from tests.support.daemon import Daemon, wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.screens import InTerminal


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A daemon with three topics, and messages in one of them."""
    daemon = Daemon(tmp_path_factory.mktemp("node") / "data")
    for topic in ("orders", "refunds", "clicks"):
        daemon.post(f"/topic/create?topic={topic}")
        for channel in ("audit", "billing"):
            daemon.post(f"/channel/create?topic={topic}&channel={channel}")
    daemon.connect().pub("orders", *[b"x"] * 25)
    yield daemon
    daemon.close()


@pytest.fixture
def top(node):
    """top(*words, columns=, lines=) runs it; it is ended with the test."""
    running = []

    def start(*words, **more):
        running.append(InTerminal("top", *where(node), "--interval", "200ms", *words, **more))
        return running[-1]

    yield start
    for one in running:
        one.close()


def where(node):
    return ("--nsqd", f"127.0.0.1:{node.tcp_port}", "--http", f"127.0.0.1:{node.http_port}")


def rows(text):
    """The lines of the table: after the titles."""
    return [line for line in text.splitlines()[3:-1] if line]


def test_what_it_shows(node, top):
    screen = top("--view", "channels")
    screen.until("6 channels")
    text = screen.until(lambda text: len(rows(text)) == 6 and rows(text)[2].rstrip().endswith("s"))
    assert text.splitlines()[0].startswith(f"nsqc top {__version__}  1 node  3 topics  6 channels")
    assert rows(text)[2].split()[:2] == ["orders", "audit"]
    assert rows(text)[2].split()[4] == "25"
    assert len(text.splitlines()) == 24
    screen.press("1")
    screen.until(lambda text: rows(text) and rows(text)[1].split()[0] == "orders")
    screen.press("4")
    screen.until(f"127.0.0.1:{node.http_port}")
    before = screen.attributes()
    screen.press("q")
    assert screen.end() == 0
    assert screen.output.endswith(b"\x1b[?1049l")
    assert screen.attributes() != before


def test_rates_and_clients(node, top):
    consumer = node.connect().sub("clicks", "billing", 5)
    publisher = node.connect()
    ended = threading.Event()

    def publish():
        while not ended.wait(0.02):
            publisher.pub("clicks", b"x")

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        screen = top("--filter", "clicks")
        text = screen.until(lambda text: len(rows(text)) == 1 and float(rows(text)[0].split()[1]) > 5)
        assert "█" in screen.until("█")
        screen.press("\r")
        text = screen.until("of clicks")
        screen.until(lambda text: len(rows(text)) == 2)
        screen.press("j\r")
        text = screen.until(lambda text: "of clicks / billing" in text and "127.0.0.1:" in text)
        assert len(rows(text)) == 1
        screen.press("\x1b")
        screen.until("channels  of clicks")
        screen.press("\x1b")
        screen.until("3 shown")
        assert "\N{BLACK DOWN-POINTING TRIANGLE}" not in text
    finally:
        ended.set()
        thread.join()
        consumer.close()


def test_sorting_filtering_and_help(node, top):
    screen = top()
    screen.until(lambda text: [row.split()[0] for row in rows(text)] == ["clicks", "orders", "refunds"])
    screen.press("r")
    screen.until(lambda text: [row.split()[0] for row in rows(text)] == ["refunds", "orders", "clicks"])
    screen.press("sss")
    screen.until("IN CHANS▼")
    screen.press("/oRd")
    screen.until(lambda text: "filter: oRd" in text and [row.split()[0] for row in rows(text)] == ["orders"])
    screen.press("\r")
    screen.until("with 'oRd'")
    screen.press("\x1b")
    screen.until("3 shown")
    screen.press("/nothing\r")
    screen.until("nothing with 'nothing'")
    screen.press("\x1b?")
    screen.until("reverse the order")
    screen.press("?")
    screen.without("reverse the order")


def test_pausing_and_emptying(node, top):
    topic = "todo"
    node.post(f"/topic/create?topic={topic}")
    node.post(f"/channel/create?topic={topic}&channel=c")
    node.connect().pub(topic, *[b"x"] * 7)
    screen = top("--view", "channels", "--filter", topic)
    screen.until(lambda text: len(rows(text)) == 1 and rows(text)[0].split()[4] == "7")
    screen.press("p")
    screen.until("channel c of topic todo paused")
    assert node.channel(topic, "c")["paused"]
    screen.until("c (paused)")
    screen.press("p")
    screen.until("unpaused")
    wait_until(lambda: not node.channel(topic, "c")["paused"])
    screen.press("e")
    screen.until("Drop 7 messages of channel c of topic todo? [y/N]")
    screen.press("n")
    screen.without("Drop")
    assert node.channel(topic, "c")["depth"] == 7
    screen.press("e")
    screen.until("Drop 7")
    screen.press("y")
    screen.until("emptied")
    assert node.channel(topic, "c")["depth"] == 0
    node.post(f"/topic/delete?topic={topic}")


def test_other_sizes(node, top):
    screen = top(columns=200, lines=50)
    screen.until(lambda text: len(rows(text)) == 3)
    assert len(screen.text.splitlines()) == 50
    screen.resize(60, 12)
    text = screen.until(lambda text: len(rows(text)) == 3 and "MESSAGES" not in text)
    assert "DEPTH" in text
    screen.resize(30, 6)
    screen.until("30x6 is too small")
    screen.resize(40, 8)
    screen.until(lambda text: "orders" in text)
    screen.press("q")
    assert screen.end() == 0


@pytest.mark.parametrize("columns", [40, 60, 80, 90, 200])
def test_the_clock_stays(node, top, columns):
    """It stays visible at every width, stopped or not, and keeps running."""
    screen = top(columns=columns)
    clock = re.compile(r"\d\d:\d\d:\d\d$")

    def head(text):
        return text.splitlines()[0] if text.strip() else ""

    def shown():
        return clock.search(head(screen.text))[0]

    screen.until(lambda text: clock.search(head(text)), "a clock")
    assert head(screen.text).startswith(f"nsqc top {__version__}  1 node") and len(head(screen.text)) == columns
    before = shown()
    screen.until(lambda text: shown() != before, "a later time")
    screen.press(" ")
    screen.until(lambda text: re.search(r" stopped \d\d:\d\d:\d\d$", head(text)), "a clock beside stopped")
    before = shown()
    screen.until(lambda text: shown() != before, "a later time while it is stopped")
    screen.resize(columns + 5, 20)
    screen.until(lambda text: len(head(text)) == columns + 5 and clock.search(head(text)), "a clock in another place")
    screen.press(" ")
    screen.until(lambda text: "stopped" not in head(text) and clock.search(head(text)))


def test_the_clock_of_a_node_that_does_not_answer(daemon):
    node = daemon()
    screen = InTerminal("top", *where(node), "--interval", "200ms", columns=80)
    try:
        screen.until("1 node")
        node.kill()
        text = screen.until("1 silent")
        before = text.splitlines()[0][-8:]
        assert re.fullmatch(r"\d\d:\d\d:\d\d", before)
        screen.until(lambda text: re.fullmatch(r"\d\d:\d\d:\d\d", text.splitlines()[0][-8:]) and text.splitlines()[0][-8:] != before)
    finally:
        screen.close()


def test_long_lists_are_scrolled(node, top):
    for number_ in range(40):
        node.post(f"/topic/create?topic=many{number_:02}")
    screen = top("--filter", "many", lines=14)
    screen.until("many09")
    assert "many10" not in screen.text
    screen.press("\x1b[F")
    screen.until(lambda text: "many39" in text and "many30" in text and "many29" not in text)
    screen.press("\x1b[5~")
    screen.until("many30")
    screen.press("\x1b[H")
    screen.until("many00")
    for number_ in range(40):
        node.post(f"/topic/delete?topic=many{number_:02}")


def test_signals(node, top):
    screen = top()
    screen.until("orders")
    os.kill(screen.pid, signal.SIGINT)
    assert screen.end() == 130
    assert screen.output.endswith(b"\x1b[?1049l")
    screen = top()
    screen.until("orders")
    os.kill(screen.pid, signal.SIGTERM)
    assert screen.end() == 143
    screen = top()
    screen.until("orders")
    os.kill(screen.pid, signal.SIGTSTP)
    wait_until(lambda: state_of(screen.pid) == "T", "it is stopped")
    screen.read()
    os.kill(screen.pid, signal.SIGCONT)
    screen.press("4")
    screen.until("HEALTH")


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_node_that_goes_and_comes_back(daemon):
    first, second = daemon(), daemon()
    first.post("/topic/create?topic=here")
    second.post("/topic/create?topic=there")
    screen = InTerminal("top", *where(first), *where(second), "--interval", "200ms")
    try:
        screen.until(lambda text: "2 nodes" in text and "here" in text and "there" in text)
        second.kill()
        screen.until(lambda text: "2 nodes, 1 silent" in text and "there" not in text)
        screen.press("4")
        screen.until(f"127.0.0.1:{second.http_port}  Connection refused")
        # After the last one nothing arrives any more, and the screen shows that as well.
        screen.press("1")
        screen.until("here")
        first.kill()
        screen.until(lambda text: "2 nodes, 2 silent" in text and "here" not in text)
        first.start(f"--tcp-address=127.0.0.1:{first.tcp_port}", f"--http-address=127.0.0.1:{first.http_port}")
        first.post("/topic/create?topic=again")
        screen.until(lambda text: "2 nodes, 1 silent" in text and "again" in text)
    finally:
        screen.close()


def test_without_a_terminal(node):
    done = subprocess.run([sys.executable, "-m", "nsqc", "top", *where(node)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=WAIT_SECONDS, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == ("nsqc top: needs a terminal; `nsqc topic list --json` and `nsqc stat --json` are for "
                           "scripts\n")


def test_no_node():
    screen = InTerminal("top", "--nsqd", "127.0.0.1:9")
    try:
        assert screen.end() == 3
        assert "no nsqd answers: 127.0.0.1:10: Connection refused" in screen.text
        assert b"\x1b[?1049h" not in screen.output
    finally:
        screen.close()


def test_keys():
    assert keys_of("a\x1b[A\x1b[6~\t\r\x1bq\x1b[200zb\x1b") == ["a", "up", "pgdn", "tab", "enter", "esc", "q", "b", "esc"]
    assert keys_of("ü/") == ["ü", "/"]


def test_numbers():
    assert [number(value) for value in (0, 999, 1234567, 12345678, 5e12)] == ["0", "999", "1,234,567", "12.3M", "5.00T"]
    assert number(2.5, True) == "2.5"
    assert [age(value) for value in (-1, 0.5, 59, 61, 3600, 90000)] == ["", "0.5s", "59s", "1m01s", "1h00m", "1d01h"]
    assert cell("世界和平", 5) == "世界 "
    assert cell("abcdef", 4) == "abc~"
    assert spark((1.0, 0.0, 8.0), 5, True) == "  ▁ █"
    assert all(len(number(10.0 ** power)) <= 9 for power in range(18))
