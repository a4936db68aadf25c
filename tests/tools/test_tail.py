"""nsqc tail: lines, finished when they are written."""

import base64
import json
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from tests.support.daemon import wait_until
from tests.support.patience import WAIT_SECONDS
from tests.tools.conftest import ENV, Tools


def test_lines_and_no_more_than_asked_for(tools):
    topic = tools.topic("c")
    tools.publish(topic, b"a", b"b", b"\xff\0\n", b"d", b"e")
    done = tools.run("tail", "--topic", topic, "--channel", "c", "-n", "3")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"a\nb\n\xff\0\n\n", b"")
    # The others are available at once, and were not finished.
    assert tools.node.channel(topic, "c")["depth"] == 2
    done = tools.run("tail", "--topic", topic, "--channel", "c", "-n2", "--print-topic")
    assert sorted(done.stdout.decode().splitlines()) == [f"{topic} | d", f"{topic} | e"]
    tools.drained(topic, "c")


def test_json(tools):
    topic = tools.topic("c")
    tools.publish(topic, "ä".encode(), b"\xff")
    done = tools.run("tail", "--topic", topic, "--channel", "c", "-n", "2", "--json")
    first, second = map(json.loads, done.stdout.splitlines())
    assert (first["body"], first["topic"], first["nsqd"], first["attempts"]) == ("ä", topic, tools.tcp, 1)
    assert base64.b64decode(second["body_base64"]) == b"\xff"
    assert len(first["id"]) == 16 and first["timestamp"] > 10**18


def test_several_topics_and_a_channel_of_its_own(tools):
    first, second = tools.topic("other"), tools.topic("other")
    running = tools.start("tail", "--topic", first, "--topic", second, "-n", "2", "--print-topic")
    wait_until(lambda: len(tools.node.stats(first)["channels"]) == len(tools.node.stats(second)["channels"]) == 2)
    tools.publish(first, b"x")
    tools.publish(second, b"y")
    assert running.wait() == 0
    assert sorted(running.out.decode().splitlines()) == sorted([f"{first} | x", f"{second} | y"])
    # The ephemeral channels are gone, and the others lost nothing.
    wait_until(lambda: len(tools.node.stats(first)["channels"]) == 1)
    assert tools.node.channel(first, "other")["depth"] == 1


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_signals_end_it_cleanly(tools, number, code):
    topic = tools.topic("c")
    tools.publish(topic, b"one")
    running = tools.start("tail", "--topic", topic, "--channel", "c").says(b"one\n")
    assert running.stop(number) == code
    assert running.err == ""
    assert tools.node.channel(topic, "c")["depth"] == tools.node.channel(topic, "c")["in_flight_count"] == 0


def test_a_reader_that_leaves(tools):
    topic = tools.topic("c")
    tools.publish(topic, *[b"%d" % number for number in range(500)])
    read, write = os.pipe()
    running = tools.start("tail", "--topic", topic, "--channel", "c", stdout=write)
    os.close(write)
    assert os.read(read, 2) == b"0\n"
    tools.drained(topic, "c")
    os.close(read)
    assert (running.wait(), running.err) == (141, "")


def test_a_reader_that_is_slow(tools):
    """Unread messages stay with nsqd, apart from those in flight; none is lost."""
    topic = tools.topic("c")
    bodies = [b"%06d" % number + b"x" * 1000 for number in range(20_000)]
    for at in range(0, len(bodies), 2000):
        tools.publish(topic, *bodies[at:at + 2000])
    read, write = os.pipe()
    running = tools.start("tail", "--topic", topic, "--channel", "c", "-n", "20000", stdout=write)
    os.close(write)
    wait_until(lambda: tools.node.channel(topic, "c")["in_flight_count"] > 200)
    assert tools.node.channel(topic, "c")["depth"] > 10_000
    with os.fdopen(read, "rb") as out:
        lines = out.read().splitlines()
    assert running.wait() == 0
    assert sorted(lines) == bodies
    tools.drained(topic, "c")


def test_stdout_that_is_full(tools):
    topic = tools.topic("c")
    tools.publish(topic, b"one")
    with open("/dev/full", "wb") as full:
        done = subprocess.run([sys.executable, "-m", "nsqc", "tail", "--topic", topic, "--channel", "c", *tools.nodes],
                              stdout=full, stderr=subprocess.PIPE, timeout=WAIT_SECONDS, env=ENV)
    assert (done.returncode, done.stderr) == (1, b"nsqc tail: No space left on device\n")
    assert tools.node.channel(topic, "c")["depth"] == 1


def test_names_that_do_not_exist(tools):
    topic = tools.topic()
    done = tools.run("tail", "--topic", topic + "s")
    assert (done.returncode, done.stderr.decode()) == (
        4, f"nsqc tail: topic '{topic}s' does not exist, did you mean {topic!r}?\n")
    running = tools.start("tail", "--topic", topic + "s", "--wait", "-n", "1")
    wait_until(lambda: any(one["topic_name"] == topic + "s" and one["channels"] for one in tools.node.stats()["topics"]))
    tools.publish(topic + "s", b"it came")
    assert (running.wait(), running.out) == (0, b"it came\n")


def test_one_nsqd_of_several_dies_and_comes_back(tools, daemon):
    other = daemon(data_path=None)
    topic = tools.topic("c")
    other.post(f"/topic/create?topic={topic}")
    address = f"127.0.0.1:{other.tcp_port}"
    running = tools.start("tail", "--topic", topic, "--channel", "c", "--nsqd", tools.tcp, "--nsqd", address,
                          "--http", tools.http, "--http", f"127.0.0.1:{other.http_port}", nodes=False)
    wait_until(lambda: other.stats(topic)["channels"] and other.channel(topic, "c")["client_count"])
    other.kill()
    running.says("trying again")
    tools.publish(topic, b"from the other")
    running.says(b"from the other\n")
    other.start(f"--tcp-address={address}")
    other.post(f"/topic/create?topic={topic}")
    wait_until(lambda: other.stats(topic)["channels"] and other.channel(topic, "c")["client_count"])
    other.post(f"/pub?topic={topic}", b"again here")
    running.says(b"again here\n")
    assert running.stop() == 130
    lines = running.err.splitlines()
    assert len(lines) == 2 and lines[0].endswith("trying again") and lines[1] == f"nsqc tail: {address}: connected again"


def test_messages_that_wait_for_a_reader_do_not_time_out(daemon, tmp_path):
    tools = Tools(daemon("--msg-timeout=1s"), tmp_path)
    topic = tools.topic("c")
    tools.publish(topic, *[b"x" * 60_000] * 40)
    read, write = os.pipe()
    running = tools.start("tail", "--topic", topic, "--channel", "c", "-n", "40", stdout=write)
    os.close(write)
    wait_until(lambda: tools.node.channel(topic, "c")["in_flight_count"])
    begin = time.monotonic()
    wait_until(lambda: time.monotonic() > begin + 2.5)      # two timeouts and a half
    with os.fdopen(read, "rb") as out:
        assert len(out.read()) == 40 * 60_001
    assert running.wait() == 0
    assert tools.node.channel(topic, "c")["timeout_count"] == 0


def test_without_stdout_nothing_is_finished(tools):
    topic = tools.topic("c")
    tools.publish(topic, b"one")
    done = subprocess.run(f"exec {sys.executable} -m nsqc tail --topic {topic} --channel c {' '.join(tools.nodes)} >&-", shell=True,
                          stderr=subprocess.PIPE, timeout=WAIT_SECONDS, env=ENV)
    assert (done.returncode, done.stderr) == (1, b"nsqc tail: Bad file descriptor\n")
    assert tools.node.channel(topic, "c")["depth"] == 1


def test_large_messages_are_few_at_a_time(tools):
    topic = tools.topic("c")
    for _ in range(4):
        tools.publish(topic, *[b"x" * 1_000_000] * 4)
    running = tools.start("tail", "--topic", topic, "--channel", "c", "-n", "16", stdout=subprocess.PIPE)
    assert len(running.process.stdout.read()) == 16 * 1_000_001
    assert running.wait() == 0
    running.process.stdout.close()


def test_it_may_open_as_many_files_as_the_system_allows(tools):
    topic = tools.topic("c")
    running = tools.start("tail", "--topic", topic, "--channel", "c",
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    wait_until(lambda: tools.node.channel(topic, "c")["clients"])
    soft, hard = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
    assert soft == hard > 64
    assert running.stop() == 130
