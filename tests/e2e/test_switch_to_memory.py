"""A log whose topic's rule is now memory: its history is never lost silently or without a request."""

import json
import signal

import pytest

from nsqc.commands.app import run
from tests.support.daemon import Daemon, wait_until

WARNING = "TOPIC(t): it has a log with {} messages, and its rule ({}) says memory: "
STAYS = "the log stays readable until DELETE /topic/log"
GOES = "the log is removed once its channels have finished them"
NAMES = ["a", "b", "c"]


def put(node: Daemon, **rule) -> None:
    assert node.http("PUT", "/topic/rules?topic=t", json.dumps(rule).encode())[0] == 200


def filled(node: Daemon) -> Daemon:
    """Three messages in a log, all finished."""
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    node.connect().pub("t", *(name.encode() for name in NAMES))
    consumer = node.connect().sub("t", "c", 10)
    consumer.messages(3, finish=True)
    wait_until(lambda: node.channel("t", "c")["in_flight_count"] == 0)
    consumer.close()
    return node


def history(node: Daemon) -> list[str]:
    status, answer = node.http("GET", "/topic/read?topic=t&offset=0")
    assert status == 200, answer
    return [json.loads(line)["body"] for line in answer.splitlines()]


def deleted(node: Daemon) -> tuple[int, str]:
    """DELETE /topic/log."""
    status, answer = node.http("DELETE", "/topic/log?topic=t")
    return status, json.loads(answer)["message"] if answer else ""


def folders(node: Daemon) -> list[str]:
    return [path.name for path in node.data_path.glob("t.log*/")]


def test_history_stays_until_it_is_deleted(daemon, capfd):
    node = filled(daemon("--topic-storage=log", "--log-retain-time=1h"))
    put(node, storage="memory")
    wait_until(lambda: WARNING.format(3, "PUT /topic/rules") + STAYS in node.log)
    for again in (False, True):
        if again:
            node.restart()
            wait_until(lambda: node.log.count(WARNING.format(3, "PUT /topic/rules") + STAYS) == 2)
        assert history(node) == NAMES
        assert json.loads(node.http("GET", "/topic/log?topic=t")[1])["next_offset"] == 3
        # The topic is now in memory, for old channels and new ones.
        node.post(f"/channel/create?topic=t&channel=new{again}")
        node.connect().pub("t", b"in memory")
        for channel in ("c", f"new{again}"):
            consumer = node.connect().sub("t", channel, 10)
            assert [message.body for message in consumer.messages(1, finish=True)] == [b"in memory"]
            consumer.close()
        assert json.loads(node.http("GET", "/topic/log?topic=t")[1])["next_offset"] == 3
    address = f"127.0.0.1:{node.http_port}"
    where = ("--nsqd", f"127.0.0.1:{node.tcp_port}", "--http", address)
    assert run(["topic", "read", "t", *where]) == 0
    assert capfd.readouterr()[0].split() == NAMES
    assert run(["log", "inspect", "--json", str(node.data_path)]) == 0
    assert json.loads(capfd.readouterr()[0])[0]["messages"] == 3
    assert run(["topic", "delete-log", "t", *where]) == 2        # not confirmed
    assert history(node) == NAMES
    capfd.readouterr()
    assert run(["topic", "delete-log", "t", "--yes", *where]) == 0
    assert capfd.readouterr()[0] == f"{address}: log of topic t deleted\n"
    assert folders(node) == [] and node.http("GET", "/topic/read?topic=t")[0] == 400
    assert deleted(node)[0] == 400
    # The next log continues its offsets.
    put(node, storage="log")
    assert json.loads(node.http("GET", "/topic/log?topic=t")[1])["next_offset"] == 3


def test_a_rule_that_is_lost(daemon):
    """Started without the option, and reloaded without the table."""
    node = filled(daemon("--topic-storage=log"))
    assert node.stop() == 0
    plain = daemon(data_path=node.data_path)
    wait_until(lambda: WARNING.format(3, "default") + STAYS in plain.log)
    plain.connect().pub("t", b"in memory")
    assert plain.connect().sub("t", "c", 10).message().body == b"in memory"
    assert history(plain) == NAMES
    assert plain.stop() == 0
    node.start()
    assert history(node) == NAMES
    node.connect().pub("t", b"d")
    assert history(node) == [*NAMES, "d"]


def test_a_reload(daemon, tmp_path):
    config = tmp_path / "nsqc.cfg"
    config.write_text('[topics.t]\nstorage = "log"\n')
    node = filled(daemon(f"--config={config}"))
    config.write_text("")
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: WARNING.format(3, "default") + STAYS in node.log)
    assert history(node) == NAMES


def test_without_history_to_keep(daemon):
    """A rule with memory storage that keeps no finished messages."""
    node = filled(daemon("--topic-storage=log"))
    node.connect().pub("t", b"unfinished")
    put(node, storage="memory")
    wait_until(lambda: WARNING.format(4, "PUT /topic/rules") + GOES in node.log)
    assert deleted(node) == (409, "LOG_IN_USE: channels of t have not finished 1 messages of its log; consume them, or "
                                  "empty or delete these channels")
    assert node.connect().sub("t", "c", 10).messages(1, finish=True)[0].body == b"unfinished"
    wait_until(lambda: folders(node) == [], "the log to go")


@pytest.mark.parametrize("method", ["empty", "delete"])
def test_a_channel_that_nobody_consumes(daemon, method):
    node = filled(daemon("--topic-storage=log", "--log-retain-bytes=1000000"))
    node.connect().pub("t", b"unfinished")
    assert deleted(node)[1].startswith('LOG_IN_USE: the rule of t says storage = "log"')
    put(node, storage="memory")
    assert deleted(node)[0] == 409
    node.post(f"/channel/{method}?topic=t&channel=c")
    assert history(node) == [*NAMES, "unfinished"]
    assert deleted(node) == (200, "")
    assert folders(node) == []
