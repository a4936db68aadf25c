"""Topics whose rule changes while they hold messages, and logs at the limit of their rule."""

import json

import pytest

from tests.support.daemon import Client, Daemon, batch, wait_until


def put(node: Daemon, topic: str, **rule) -> None:
    """PUT /topic/rules."""
    status, answer = node.http("PUT", f"/topic/rules?topic={topic}", json.dumps(rule).encode())
    assert status == 200, answer


def state(node: Daemon, topic: str = "t") -> dict:
    """/topic/log."""
    return json.loads(node.http("GET", f"/topic/log?topic={topic}")[1])


def bodies(consumer: Client, count: int) -> list[bytes]:
    return [message.body for message in consumer.messages(count, finish=True)]


def new(node: Daemon) -> Daemon:
    """With a topic and a channel."""
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    return node


def again(node: Daemon, how: str) -> None:
    """Begins a new run after a kill or stop, or keeps the same one."""
    if how == "kill":
        node.kill()
        node.start()
    elif how == "restart":
        node.restart()


HOW = pytest.mark.parametrize("how", ["at once", "restart", "kill"])


# ---------------------------------------------------------------------- there and back

@HOW
def test_what_waits_comes_before_what_the_log_gets(daemon, how):
    node = new(daemon("--mem-queue-size=0"))
    node.connect().pub("t", b"m0", b"m1")
    wait_until(lambda: node.channel("t", "c")["depth"] == 2)
    put(node, "t", storage="log")
    node.connect().pub("t", b"l0", b"l1")
    again(node, how)
    assert node.channel("t", "c")["depth"] == 4
    consumer = node.connect().sub("t", "c", 1)
    assert bodies(consumer, 4) == [b"m0", b"m1", b"l0", b"l1"]
    assert consumer.quiet(0.2)


@HOW
def test_what_waits_in_the_old_form_comes_first(daemon, how):
    """From memory to a log and back, with a deferred message in each form."""
    node = new(daemon("--mem-queue-size=0"))
    node.connect().pub("t", b"m0", b"m1")
    node.connect().ok("DPUB t 3000", b"deferred m")
    wait_until(lambda: node.channel("t", "c")["depth"] == 2)
    put(node, "t", storage="log")
    node.connect().pub("t", b"l0", b"l1")
    node.connect().ok("DPUB t 3000", b"deferred l")
    again(node, how)
    put(node, "t", storage="memory")
    node.connect().pub("t", b"n0", b"n1")
    again(node, how)
    consumer = node.connect().sub("t", "c", 1)
    wanted = [b"m0", b"m1", b"l0", b"l1", b"n0", b"n1", b"deferred l"]
    if how != "kill":
        wanted.append(b"deferred m")    # a kill loses messages that wait in memory
    got = bodies(consumer, len(wanted))
    assert sorted(got) == sorted(wanted)
    in_order = [body for body in got if not body.startswith(b"deferred")]
    # The log is the previous form and is read first; m and n share a queue.
    assert in_order == [b"l0", b"l1", b"m0", b"m1", b"n0", b"n1"]
    assert consumer.quiet(0.2)
    wait_until(lambda: not list(node.data_path.glob("t.log*/")), "the log to go")


@HOW
def test_a_log_that_was_left_is_continued_by_number(daemon, how):
    """Offsets never repeat: the topic's next log begins where the last one ended."""
    node = new(daemon("--topic-storage=log"))
    log_id = None
    consumer = node.connect().sub("t", "c", 10)
    last = 0
    for turn in range(3):
        node.connect().pub("t", b"a", b"b", b"c")
        bodies(consumer, 3)
        known = state(node)
        assert known["first_offset"] == last and known["next_offset"] == last + 3 and known["id"] != log_id
        log_id, last = known["id"], known["next_offset"]
        put(node, "t", storage="memory")
        wait_until(lambda: not list(node.data_path.glob("t.log*/")), "the log to go")
        consumer.close()
        again(node, how)
        if turn == 1:
            # A log that was never written reports the same.
            put(node, "t", storage="log")
            put(node, "t", storage="memory")
            wait_until(lambda: node.http("GET", "/topic/log?topic=t")[0] == 400)
            again(node, how)
        put(node, "t", storage="log")
        assert state(node)["first_offset"] == state(node)["next_offset"] == last
        again(node, how)
        assert state(node)["next_offset"] == last
        consumer = node.connect().sub("t", "c", 10)
    assert len(list(node.data_path.glob("t.log.next.*"))) == 1
    # A deleted topic begins at 0 again.
    put(node, "t", storage="memory")
    wait_until(lambda: node.http("GET", "/topic/log?topic=t")[0] == 400)
    consumer.close()
    node.post("/topic/delete?topic=t")
    wait_until(lambda: not list(node.data_path.glob("t.log*")), "the mark to go")
    new(node).connect().pub("t", b"x")
    assert state(node)["first_offset"] == 0


# ---------------------------------------------------------------------- at the limit

FULL = "the log is full: it has"
FILL = 19       # messages of 1,000 bytes, one per frame, that fill 20,000 bytes


@pytest.fixture
def full(daemon) -> Daemon:
    """A log at its limit; its channel has read nothing."""
    node = new(daemon("--topic-storage=log", "--log-retain-bytes=20000"))
    producer = node.connect()
    for _ in range(FILL):
        producer.pub("t", b"x" * 1000)
    return node


def refusals(node: Daemon) -> list[bytes]:
    """Errors of each way to publish over TCP."""
    found = []
    for line, body in (("PUB t", b"x"), ("MPUB t", batch(b"x", b"y")), ("DPUB t 10", b"x")):
        producer = node.connect()
        producer.command(line, body)
        found.append(producer.frame()[1])
    return found


def test_a_full_log_refuses_in_the_protocols_terms(full):
    found = refusals(full)
    assert [error.split()[0] for error in found] == [b"E_PUB_FAILED", b"E_MPUB_FAILED", b"E_DPUB_FAILED"]
    assert all(FULL.encode() in error for error in found), found
    status, answer = full.http("POST", "/pub?topic=t", b"x")
    assert status == 503 and FULL.encode() in answer
    # None of the refused messages is stored, and publishing recovers once the channel makes progress.
    consumer = full.connect().sub("t", "c", 100)
    assert bodies(consumer, FILL) == [b"x" * 1000] * FILL
    wait_until(lambda: full.http("POST", "/pub?topic=t", b"new")[0] == 200)
    assert bodies(consumer, 1) == [b"new"]


@pytest.mark.parametrize("rule", [{"retain_bytes": 0}, {"retain_bytes": 30_000}, {"overflow": "drop-oldest"}])
def test_a_new_rule_holds_once_it_is_answered(full, rule):
    put(full, "t", **rule)
    full.connect().pub("t", b"new")


def test_age_removes_nothing_that_a_channel_needs(daemon):
    """Segments past the rule's age stay until the channel has finished them."""
    node = new(daemon("--topic-storage=log", "--log-retain-time=10ms", "--max-bytes-per-file=3000"))
    producer = node.connect()
    for number in range(30):
        producer.pub("t", b"%03d" % number * 100)
    consumer = node.connect().sub("t", "c", 1)
    assert bodies(consumer, 1) == [b"000" * 100]
    wait_until(lambda: node.http("GET", "/ping")[0] == 200 and state(node)["channels"][0]["lag_seconds"] > 1.2)
    assert state(node)["first_offset"] <= 1 and state(node)["segments"] > 2
    consumer.command("RDY 100")
    assert bodies(consumer, 29) == [b"%03d" % number * 100 for number in range(1, 30)]
    wait_until(lambda: state(node)["segments"] <= 1)


# ---------------------------------------------------------------------- large amounts

def test_much_is_finished_ahead_of_one_that_is_stuck(daemon):
    """The number of messages finished after a stuck one is unlimited: none comes again."""
    count = 80_000
    node = new(daemon("--topic-storage=log", "--msg-timeout=15m"))
    producer = node.connect()
    for begin in range(0, count, 1000):
        producer.pub("t", *(b"%d" % number for number in range(begin, begin + 1000)))
    consumer = node.connect().sub("t", "c", 2500)
    stuck = consumer.message()
    consumer.messages(count - 1, finish=True)
    wait_until(lambda: state(node)["channels"][0]["lag_messages"] == 1)
    node.kill()
    node.start()
    consumer = node.connect().sub("t", "c", 2500)
    again = consumer.message()
    assert again.body == stuck.body == b"0"
    assert consumer.quiet(0.5)
