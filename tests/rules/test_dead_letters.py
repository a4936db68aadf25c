"""max_attempts and dead_letter: messages that fail too often are moved, in memory and in logs, across kills and full
disks."""

import json
import signal

import pytest

from tests.rules.support import dead, make, publish, set_rule, subscribe, until_channel
from tests.support.daemon import wait_until


def fail(client, count: int, attempts: int) -> None:
    """Requeues `count` messages with 0 until each has failed this often."""
    for _ in range(count * attempts):
        client.command(f"REQ {client.message().id.decode()} 0")


def test_a_message_that_always_fails_is_moved(node):
    set_rule(node, "t", "c", max_attempts=3)
    client = subscribe(node, "t")
    publish(node, "t", b"poison")
    fail(client, 1, 3)
    stats = until_channel(node, "t", dead_letter_count=1, depth=0, in_flight_count=0, deferred_count=0, requeue_count=3)
    assert stats["rules"] == {"max_attempts": 3}
    assert dead(node, "t.dead", 1) == [b"poison"]
    publish(node, "t", b"next")
    client.fin(client.message())
    until_channel(node, "t", dead_letter_count=1, in_flight_count=0)
    metrics = node.http("GET", "/metrics")[1].decode()
    assert 'nsqc_channel_dead_letters_total{topic="t",channel="c"} 1' in metrics


def test_other_channels_keep_their_copy(node):
    set_rule(node, "t", "c", max_attempts=1, dead_letter="graveyard")
    client, other = subscribe(node, "t", rdy=10), subscribe(node, "t", "other", rdy=10)
    publish(node, "t", b"a", b"b")
    fail(client, 2, 1)
    assert sorted(dead(node, "graveyard", 2)) == [b"a", b"b"]
    assert {message.body for message in other.messages(2, finish=True)} == {b"a", b"b"}


def test_time_outs_and_lost_connections_count(node):
    set_rule(node, "t", "c", max_attempts=1, requeue_on_disconnect=True)
    client = subscribe(node, "t", msg_timeout=1000)
    publish(node, "t", b"slow")
    client.message()
    until_channel(node, "t", timeout_count=1, dead_letter_count=1, in_flight_count=0)
    publish(node, "t", b"lost")
    client.message()
    client.close()
    until_channel(node, "t", dead_letter_count=2, in_flight_count=0, depth=0)
    assert sorted(dead(node, "t.dead", 2)) == [b"lost", b"slow"]


def test_a_delay_of_the_client_does_not_save_a_message(node):
    set_rule(node, "t", "c", max_attempts=1)
    client = subscribe(node, "t")
    publish(node, "t", b"x")
    client.command(f"REQ {client.message().id.decode()} 600000")
    until_channel(node, "t", dead_letter_count=1, deferred_count=0)


def test_a_rule_set_later_moves_what_waits(node):
    first = subscribe(node, "t", rdy=10)
    publish(node, "t", b"a", b"b")
    received = first.messages(2)
    first.command("RDY 0")
    for message in received:
        first.command(f"REQ {message.id.decode()} 0")
    until_channel(node, "t", depth=2)
    set_rule(node, "t", "c", max_attempts=1)
    first.command("RDY 10")
    until_channel(node, "t", depth=0, dead_letter_count=2, in_flight_count=0)
    assert sorted(dead(node, "t.dead", 2)) == [b"a", b"b"]


def test_many_at_once(node):
    set_rule(node, "t", "c", max_attempts=2, max_in_flight=700)
    client = subscribe(node, "t", rdy=1000)
    publish(node, "t", *(b"%d" % number for number in range(3000)))
    fail(client, 3000, 2)
    until_channel(node, "t", dead_letter_count=3000, depth=0, in_flight_count=0, deferred_count=0)
    assert {int(body) for body in dead(node, "t.dead", 3000)} == set(range(3000))


def test_messages_do_not_circle(node):
    set_rule(node, "t.dead", "c", max_attempts=1)
    set_rule(node, "g", "c", max_attempts=1, dead_letter="g")
    for topic in ("t.dead", "g"):
        client = subscribe(node, topic)
        publish(node, topic, b"x")
        fail(client, 1, 5)
        assert client.message().attempts == 6
        assert "dead_letter_count" not in node.channel(topic, "c")
    assert {topic["topic_name"] for topic in node.stats()["topics"]} == {"t.dead", "g"}


def put_rule(node, target: str, **changes: object) -> tuple[int, str]:
    """PUT /channel/rules or /topic/rules; the message of a refusal."""
    kind = "channel" if "channel=" in target else "topic"
    status, answer = node.http("PUT", f"/{kind}/rules?{target}", json.dumps(changes).encode())
    return status, json.loads(answer).get("message", "")


def test_rules_by_which_dead_letters_would_circle_are_refused(node):
    set_rule(node, "a", "x", max_attempts=1, dead_letter="b")
    set_rule(node, "b", "y", dead_letter="c")      # without effect so far
    set_rule(node, "c", "z", message_ttl="1h", expired="dead-letter", dead_letter="a")
    for changes in ({"max_attempts": 1}, {"max_depth": 9, "overflow": "dead-letter"}):
        status, message = put_rule(node, "topic=b&channel=y", **changes)
        assert status == 400 and "would circle: b/y to c, c/z to a, a/x to b" in message
    status, message = put_rule(node, "topic=b", max_depth=9, overflow="dead-letter")
    assert status == 400 and "b/y to c, c/z to a, a/x to b" in message
    set_rule(node, "c", "z", expired="drop")
    set_rule(node, "b", "y", max_attempts=1)
    assert put_rule(node, "topic=c&channel=z", expired="dead-letter")[0] == 400


def test_the_config_file_may_not_make_dead_letters_circle(daemon, tmp_path):
    config = tmp_path / "nsqd.toml"
    config.write_text('[channels."a/*"]\nmax_attempts = 1\ndead_letter = "b"\n')
    node = daemon(f"--config={config}")
    status, message = put_rule(node, "topic=b&channel=y", max_attempts=1, dead_letter="a")
    assert status == 400 and 'b/y to a, [channels."a/*"] to b' in message
    config.write_text(config.read_text() + '[channels."b*/y"]\nmax_attempts = 1\ndead_letter = "a"\n')
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "no option is changed" in node.log and "would circle" in node.log)
    assert node.stop() == 0
    with pytest.raises(AssertionError):
        node.start()
    assert node.log.count("dead letters would circle") == 2


@pytest.mark.parametrize("name", ["a b", "x#ephemeral", "a" * 65])
def test_a_name_that_is_none_is_refused(daemon, name):
    node = daemon()
    status, answer = node.http("PUT", "/channel/rules?topic=t&channel=c", json.dumps({"dead_letter": name}).encode())
    assert status == 400 and "is not a topic name" in json.loads(answer)["message"]


def test_a_topic_with_a_long_or_ephemeral_name(daemon):
    node = daemon("--topic-storage=memory")
    long = "n" * 64
    set_rule(node, long, "c", max_attempts=1)
    client = subscribe(node, long)
    publish(node, long, b"x")
    fail(client, 1, 1)
    assert dead(node, "n" * 59 + ".dead", 1) == [b"x"]


def test_without_room_they_wait_and_are_moved_later(daemon):
    """The dead-letter topic cannot be created; then it can."""
    node = daemon("--max-topics=1", "--topic-storage=log")
    set_rule(node, "t", "c", max_attempts=1)
    client = subscribe(node, "t")
    publish(node, "t", b"x")
    fail(client, 1, 1)
    until_channel(node, "t", deferred_count=1, in_flight_count=0)
    wait_until(lambda: "cannot be moved to topic t.dead and wait" in node.log)
    assert node.stop() == 0
    node.start("--max-topics=0")
    client = subscribe(node, "t")
    until_channel(node, "t", dead_letter_count=1, deferred_count=0, depth=0)
    assert client.quiet(0.1)
    assert dead(node, "t.dead", 1) == [b"x"]


def test_emptying_drops_those_that_wait(daemon):
    node = daemon("--max-topics=1")
    set_rule(node, "t", "c", max_attempts=1)
    client = subscribe(node, "t", rdy=10)
    publish(node, "t", b"a", b"b")
    fail(client, 2, 1)
    until_channel(node, "t", deferred_count=2, in_flight_count=0)
    node.post("/channel/empty?topic=t&channel=c")
    until_channel(node, "t", deferred_count=0, depth=0)
    node.post("/channel/delete?topic=t&channel=c")
    assert node.stop() == 0


def test_a_seek_brings_back_those_that_wait(daemon):
    node = daemon("--max-topics=1", "--topic-storage=log", "--log-retain-time=1h")
    set_rule(node, "t", "c", max_attempts=1)
    client = subscribe(node, "t", rdy=10)
    publish(node, "t", b"a", b"b")
    fail(client, 2, 1)
    until_channel(node, "t", deferred_count=2, in_flight_count=0)
    set_rule(node, "t", "c", max_attempts=None)
    node.post("/channel/seek?topic=t&channel=c&to=beginning")
    assert [message.body for message in client.messages(2, finish=True)] == [b"a", b"b"]
    until_channel(node, "t", deferred_count=0, depth=0, in_flight_count=0)


@pytest.mark.parametrize("storage", ["memory", "log"])
def test_what_waits_survives_a_stop(daemon, storage):
    node = daemon("--max-topics=1", f"--topic-storage={storage}")
    set_rule(node, "t", "c", max_attempts=2)
    client = subscribe(node, "t", rdy=10)
    publish(node, "t", *(b"%d" % number for number in range(50)))
    fail(client, 50, 2)
    until_channel(node, "t", deferred_count=50, in_flight_count=0)
    assert node.stop() == 0
    node.start("--max-topics=0")
    client = subscribe(node, "t", rdy=100)
    until_channel(node, "t", dead_letter_count=50, depth=0)
    assert client.quiet(0.1)
    assert {int(body) for body in dead(node, "t.dead", 50)} == set(range(50))


@pytest.mark.parametrize("sync", ["write", "fsync"])
def test_a_kill_at_any_moment_loses_nothing(daemon, sync):
    """kill -9 while messages are moved, several times: each message ends in the dead-letter topic. A kill that comes
    between the write there and the one in the channel's journal has it moved once more."""
    node = daemon("--topic-storage=log", f"--log-sync={sync}")
    set_rule(node, "t", "c", max_attempts=1)
    count, rounds = 400, 4
    for turn in range(rounds):
        client = subscribe(node, "t", rdy=1000)
        publish(node, "t", *(b"%d" % number for number in range(turn * count, (turn + 1) * count)))
        try:
            # The kill comes while the answers are in transit: some messages failed, some are being moved.
            for message in client.messages(count)[:count * (turn + 1) // rounds]:
                client.command(f"REQ {message.id.decode()} 0")
        finally:
            node.stop(signal.SIGKILL)
        node.start()
    client = subscribe(node, "t", rdy=1000)

    def finished() -> bool:
        stats = node.channel("t", "c")
        return stats["depth"] == stats["deferred_count"] == stats["in_flight_count"] == 0

    while not finished():
        try:
            client.command(f"REQ {client.message(0.1).id.decode()} 0")
        except TimeoutError:
            continue
    moved: dict[int, int] = {}
    total = next(topic["depth"] for topic in node.stats()["topics"] if topic["topic_name"] == "t.dead")
    for body in dead(node, "t.dead", total):
        moved[int(body)] = moved.get(int(body), 0) + 1
    assert set(moved) == set(range(count * rounds))
    for number, copies in moved.items():
        kills = rounds - number // count        # since it was published
        assert copies <= 1 + kills, (number, copies)


def test_a_circle_that_no_check_has_seen(daemon, tmp_path):
    """The table comes after a channel's rule: the channel that would close the circle keeps its messages."""
    config = tmp_path / "nsqd.toml"
    config.write_text("")
    node = daemon(f"--config={config}")
    set_rule(node, "b", "y", max_attempts=1, dead_letter="a")
    client, other = subscribe(node, "a", "x"), subscribe(node, "b", "y")
    config.write_text('[channels."a/*"]\nmax_attempts = 1\ndead_letter = "b"\n')
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "channel x of topic a keeps its messages: its dead-letter topic b sends" in node.log)
    assert b"nsqc_dead_letters_circling 1" in node.http("GET", "/metrics")[1]
    publish(node, "b", b"m")
    fail(other, 1, 1)
    fail(client, 1, 3)
    assert client.message().attempts == 4 and other.quiet(0.1)
    assert "dead_letter_count" not in node.channel("a", "x")
    node.stop()
    node.start()
    assert b"nsqc_dead_letters_circling 1" in node.http("GET", "/metrics")[1]


def test_a_circle_that_ends(daemon, tmp_path):
    config = tmp_path / "nsqd.toml"
    config.write_text("")
    node = daemon(f"--config={config}")
    set_rule(node, "b", "y", max_attempts=1, dead_letter="a")
    client, other = subscribe(node, "a", "x"), subscribe(node, "b", "y")
    config.write_text('[channels."a/*"]\nmax_attempts = 1\ndead_letter = "b"\n')
    node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: b"nsqc_dead_letters_circling 1" in node.http("GET", "/metrics")[1])
    other.close()
    node.post("/channel/delete?topic=b&channel=y")
    wait_until(lambda: b"nsqc_dead_letters_circling 0" in node.http("GET", "/metrics")[1])
    publish(node, "a", b"m")
    fail(client, 1, 1)
    assert dead(node, "b", 1) == [b"m"]


@pytest.mark.parametrize("storage", ["memory", "log"])
def test_a_full_dead_letter_topic_keeps_letters_waiting(daemon, storage):
    node = daemon(f"--topic-storage={storage}")
    make(node, "t.dead", "d")
    set_rule(node, "t.dead", "d", max_depth=2)
    set_rule(node, "t", "c", max_attempts=1)
    client = subscribe(node, "t", rdy=10)
    publish(node, "t", *(b"%d" % number for number in range(5)))
    fail(client, 5, 1)
    until_channel(node, "t", dead_letter_count=2, deferred_count=3, in_flight_count=0)
    wait_until(lambda: "cannot be moved to topic t.dead and wait - channel d has 2 messages, its max_depth is 2" in node.log)
    assert "no space left" not in node.log
    reader = subscribe(node, "t.dead", "d", rdy=10)
    assert {message.body for message in reader.messages(5, finish=True)} == {b"%d" % number for number in range(5)}
    until_channel(node, "t", dead_letter_count=5, deferred_count=0)


def test_each_kind_of_dead_letter_is_named(node):
    make(node)
    set_rule(node, "t", "c", message_ttl="100ms", expired="dead-letter", max_attempts=1)
    publish(node, "t", b"x")
    wait_until(lambda: "channel c of topic t have expired and go to topic t.dead" in node.log)
    assert "failed too often" not in node.log
    set_rule(node, "t", "c", message_ttl=None, max_depth=1, overflow="dead-letter")
    publish(node, "t", b"1", b"2")
    wait_until(lambda: "channel c of topic t exceed its max_depth or max_bytes and go to topic t.dead" in node.log)
    assert "failed too often" not in node.log
    fail(subscribe(node, "t"), 1, 1)
    wait_until(lambda: "channel c of topic t have failed too often and go to topic t.dead" in node.log)


@pytest.mark.parametrize("more", [0, 5])
def test_after_a_start_they_need_no_consumer(node, more):
    """Those of an earlier run, when there was no room; others wait in the channel."""
    set_rule(node, "t.dead", "d", max_depth=1)
    make(node, "t.dead", "d")
    set_rule(node, "t", "c", max_attempts=2)
    client = subscribe(node, "t", rdy=20)
    publish(node, "t", *(b"%d" % number for number in range(20)))
    fail(client, 20, 2)
    until_channel(node, "t", dead_letter_count=1, deferred_count=19, in_flight_count=0)
    client.close()
    until_channel(node, "t", client_count=0)
    if more:
        publish(node, "t", *(b"other %d" % number for number in range(more)))
    assert node.stop() == 0
    (node.data_path / "nsqc.channel-rules.json").write_text('{"channels": {"t/c": {"max_attempts": 2}}}')
    node.start()
    until_channel(node, "t", dead_letter_count=19, deferred_count=0, depth=more)
    until_channel(node, "t.dead", "d", depth=20)
