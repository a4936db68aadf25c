"""nsqc pub: arrivals, refusals, reports."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nsqc.access.rules import make
from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.tcpserver import Answering
from tests.tools.conftest import ENV


def test_lines_become_messages(tools):
    topic = tools.topic("c")
    done = tools.run("pub", "--topic", topic, input=b"one\n\ntw\xff o\r\nlast")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert sorted(tools.taken(topic, "c")) == [b"last", b"one", b"tw\xff o\r"]


def test_files_delimiters_and_json(tools, tmp_path):
    topic = tools.topic("c")
    (tmp_path / "a").write_bytes(b"1\0002\0")
    (tmp_path / "b").write_bytes(b"3\n4\0" * 2)
    done = tools.run("pub", "--topic", topic, "-d", "\\0", "--json", "a", "-", "b", input=b"in")
    assert json.loads(done.stdout) == {"published": 5, "refused": 0, "unacknowledged": 0}
    assert sorted(tools.taken(topic, "c")) == [b"1", b"2", b"3\n4", b"3\n4", b"in"]


def test_many_lines_arrive_once(tools, tmp_path):
    topic = tools.topic("c")
    lines = [b"%d" % number + b"x" * (number % 300) for number in range(60_000)]
    (tmp_path / "lines").write_bytes(b"\n".join(lines))
    assert tools.run("pub", "--topic", topic, "lines").returncode == 0
    assert sorted(tools.taken(topic, "c")) == sorted(lines)


def test_whole_files_deferred(tools, tmp_path):
    topic = tools.topic("c")
    (tmp_path / "a").write_bytes(b"of\nlines\n")
    (tmp_path / "empty").write_bytes(b"")
    assert tools.run("pub", "--topic", topic, "--whole", "--defer", "1h", "a", "empty", "a").returncode == 0
    assert tools.node.channel(topic, "c")["deferred_count"] == 2


def test_what_is_too_large_is_left_out_and_reported(tools):
    topic = tools.topic("c")
    big = b"x" * 1_100_000
    done = tools.run("pub", "--topic", topic, input=b"\n".join([b"a", big + big + big, b"b", big]))
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "nsqc pub: a message of 3300000 bytes is too large: at most 1048576 are allowed",
        "nsqc pub: a message of 1100000 bytes is too large: at most 1048576 are allowed",
        "nsqc pub: 2 messages published, 2 refused"]
    # nsqd's limit is lower than the tool's: the message at fault is found, the others arrive once.
    done = tools.run("pub", "--topic", topic, "--max-msg-size", "2M", input=b"\n".join([b"c", big, b"d", b"e"]))
    assert done.returncode == 1
    assert "E_BAD_MESSAGE" in done.stderr.decode() and "3 messages published, 1 refused" in done.stderr.decode()
    done = tools.run("pub", "--topic", topic, "--max-msg-size", "2M", "--defer", "1ms", input=b"\n".join([b"f", big, b"g"]))
    assert done.returncode == 1
    wait_until(lambda: tools.node.channel(topic, "c")["depth"] == 7)
    assert sorted(tools.taken(topic, "c")) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]


def test_a_rate(tools):
    topic = tools.topic("c")
    done = tools.run("pub", "--topic", topic, "--rate", "50", "--json", input=b"x\n" * 20)
    assert json.loads(done.stdout)["published"] == 20


def has_read_all(pid: int, port: int) -> bool:
    """Whether a process, which is connected to a port, has read all input from it, and waits. It must ignore an OK that
    it has not read when the other side dies."""
    if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        return False
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return all(int(row[4].partition(":")[2], 16) == 0 for row in rows if int(row[2].partition(":")[2], 16) == port)


def test_the_next_nsqd_takes_over_and_all_get_everything(tools, daemon):
    other = daemon()
    nodes = ("--nsqd", f"127.0.0.1:{other.tcp_port}", "--nsqd", tools.tcp)
    topic = tools.topic("c")
    other.post(f"/topic/create?topic={topic}")
    other.post(f"/channel/create?topic={topic}&channel=c")
    assert tools.run("pub", "--topic", topic, "--all", *nodes, input="both\n", nodes=False).returncode == 0
    assert other.channel(topic, "c")["depth"] == tools.node.channel(topic, "c")["depth"] == 1
    running = tools.start("pub", "--topic", topic, *nodes, nodes=False, stdin=subprocess.PIPE)
    running.process.stdin.write(b"first\n")
    running.process.stdin.flush()
    wait_until(lambda: other.channel(topic, "c")["depth"] == 2)
    assert other.http("GET", "/ping")[0] == 200     # in a later iteration than the OK
    wait_until(lambda: has_read_all(running.process.pid, other.tcp_port))
    other.kill()
    running.process.stdin.write(b"second\nthird\n")
    running.process.stdin.close()
    assert running.wait() == 0
    assert sorted(tools.taken(topic, "c")) == [b"both", b"second", b"third"]


def test_nobody_answers(tools):
    done = tools.run("pub", "--topic", "x", "--nsqd", "127.0.0.1:1", "--retries", "1", input="a\n", nodes=False)
    assert (done.returncode, done.stderr.decode().splitlines()) == (3, [
        "nsqc pub: 127.0.0.1:1: Connection refused", "nsqc pub: 0 messages published"])


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\6\0\0\0\0OK", b"\xff" * 100])
def test_garbage_instead_of_an_nsqd(tools, answer):
    with Answering(answer) as server:
        done = tools.run("pub", "--topic", "x", "--retries", "0", "--nsqd", server.address, input="a\n", nodes=False)
        assert done.returncode == 3
        assert done.stderr.decode().startswith(f"nsqc pub: {server.address}: ") and len(done.stderr.splitlines()) == 2


@pytest.mark.parametrize("words, code, text", [
    (("--topic", "a b"), 2, "topic 'a b': a name is"), ((), 2, "TOPIC is missing"),
    (("--topic", "x", "--delimiter", "ab"), 2, "--delimiter must be one byte"), (("--topic", "x", "/nowhere"), 1, "/nowhere: No such file"),
    (("--topic", "x", "/"), 1, "/: is a folder"), (("--topic", "x", "--rate", "-1"), 2, "--rate: -1 is not 0 or more"),
    (("--topic", "x", "--snapy"), 2, "No such option: --snapy")])
def test_what_cannot_begin(inside, tools, words, code, text):
    done = inside("pub", *words, *tools.nodes)
    assert done.returncode == code
    assert text in done.stderr and len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_in_the_middle(tools, number, code):
    topic = tools.topic("c")
    running = tools.start("pub", "--topic", topic, stdin=subprocess.PIPE)
    running.process.stdin.write(b"sent\nnot complete")
    running.process.stdin.flush()
    wait_until(lambda: tools.node.channel(topic, "c")["depth"] == 1)
    assert running.stop(number) == code
    assert running.err == "nsqc pub: interrupted: 1 message published\n"
    running.process.stdin.close()


def test_progress_on_a_terminal_only(tools, tmp_path):
    topic = tools.topic()
    (tmp_path / "lines").write_bytes(b"x\n" * 30)
    master, slave = pty.openpty()
    process = subprocess.Popen([sys.executable, "-m", "nsqc", "pub", "--topic", topic, "--rate", "40", "lines", *tools.nodes],
                               stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, cwd=tmp_path, env=ENV)
    os.close(slave)
    shown = b""
    try:
        while data := os.read(master, 4096):
            shown += data
    except OSError:
        pass    # the other end is closed
    os.close(master)
    assert process.wait(WAIT_SECONDS) == 0
    assert b"\r\x1b[K" in shown and b"100%" in shown and shown.endswith(b"nsqc pub: 30 messages published\r\n")


def test_an_nsqd_that_stalls(tools, daemon):
    node = daemon()
    words = ("pub", "--topic", "x", "--nsqd", f"127.0.0.1:{node.tcp_port}", "--timeout", "500ms", "--retries", "0")
    running = tools.start(*words, nodes=False, stdin=subprocess.PIPE)
    running.process.stdin.write(b"one\n")
    running.process.stdin.flush()
    wait_until(lambda: node.stats()["topics"] and node.stats("x")["depth"] == 1)
    os.kill(node.pid, signal.SIGSTOP)
    try:
        running.process.stdin.write(b"two\n")
        running.process.stdin.flush()
        assert running.wait() == 3
    finally:
        os.kill(node.pid, signal.SIGCONT)
    assert running.err.splitlines() == [f"nsqc pub: 127.0.0.1:{node.tcp_port}: no answer in time",
                                        "nsqc pub: 1 message published, 1 sent and not acknowledged"]
    running.process.stdin.close()


def test_refused_messages_are_not_in_doubt(tools, daemon, tmp_path):
    """nsqd has closed the connection: it has none of them."""
    file = tmp_path / "access.toml"
    token, stored = make()
    file.write_text(f'[users.reader]\ntokens = ["{stored}"]\nstats = ["*"]\n')
    node = daemon(f"--access-file={file}")
    done = tools.run("pub", "--topic", "x", "--nsqd", f"127.0.0.1:{node.tcp_port}", "--auth-secret", token, input=b"one\ntwo\nthree\n", nodes=False)
    assert done.returncode != 0
    lines = done.stderr.decode().splitlines()
    assert "E_UNAUTHORIZED" in lines[0], lines
    assert lines[-1] == "nsqc pub: 0 messages published", lines
