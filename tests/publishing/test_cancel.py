"""POST /message/cancel: takes back deferred messages, in memory and in logs."""

import json
import subprocess
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest

from tests.access.files import AccessFile
from tests.publishing.support import drained, post, publisher, remember
from tests.rules.support import subscribe, until_channel
from tests.support.daemon import Daemon, batch, wait_until

LONG = 600_000


@pytest.fixture(params=["memory", "log"])
def node(request, daemon) -> Daemon:
    node = daemon(f"--topic-storage={request.param}")
    node.post("/topic/create?topic=t")
    for channel in ("c", "d"):
        node.post(f"/channel/create?topic=t&channel={channel}")
    return node


def named(node: Daemon, body: bytes, defer_ms: int = LONG, topic: str = "t") -> str:
    """Publishes a message; returns its id."""
    status, answer = post(node, f"/pub?topic={topic}&defer={defer_ms}&id=true", body)
    assert status == 200, answer
    return json.loads(answer)["id"]


def cancel(node: Daemon, message_id: str, more: str = "") -> tuple[int, dict]:
    status, answer = post(node, f"/message/cancel?topic=t&id={message_id}{more}", b"")
    return status, json.loads(answer)


def test_a_publisher_takes_its_message_back(node):
    ids = [named(node, b"%d" % number) for number in range(50)]
    assert len(set(ids)) == 50
    for number in range(0, 50, 2):
        assert cancel(node, ids[number]) == (200, {"channels": ["c", "d"]})
        assert cancel(node, ids[number]) == (404, {"message": "MESSAGE_NOT_DEFERRED"})
    until_channel(node, "t", "c", deferred_count=25)
    until_channel(node, "t", "d", deferred_count=25)


def test_in_one_channel_only(node):
    wanted = named(node, b"x")
    assert cancel(node, wanted, "&channel=c") == (200, {"channels": ["c"]})
    until_channel(node, "t", "c", deferred_count=0, depth=0)
    until_channel(node, "t", "d", deferred_count=1)
    assert cancel(node, wanted, "&channel=c")[0] == 404
    assert cancel(node, wanted) == (200, {"channels": ["d"]})


def test_what_is_cancelled_is_not_delivered(node):
    gone, kept = named(node, b"gone", 1500), named(node, b"kept", 1500)
    assert cancel(node, gone)[0] == 200
    assert drained(node, channel="c", count=1) == [b"kept"]
    assert cancel(node, kept) == (404, {"message": "MESSAGE_NOT_DEFERRED"}) or cancel(node, kept)[0] == 200


def test_a_message_that_a_client_has_requeued_with_a_delay(node):
    client = subscribe(node, "t", "c")
    wanted = named(node, b"x", 0)
    message = client.message()
    assert message.id.decode() == wanted
    assert cancel(node, wanted) == (404, {"message": "MESSAGE_NOT_DEFERRED"})
    client.command(f"REQ {wanted} {LONG}")
    until_channel(node, "t", "c", deferred_count=1, in_flight_count=0)
    assert cancel(node, wanted) == (200, {"channels": ["c"]})
    until_channel(node, "t", "c", deferred_count=0, depth=0)
    assert client.quiet(0.1)


def test_deferred_batches_and_ids_that_peek_shows(node):
    publisher(node).ok(f"DMPUB t {LONG}", batch(b"a", b"b", b"c"))
    until_channel(node, "t", "c", deferred_count=3)
    answer = json.loads(node.http("GET", "/channel/peek?topic=t&channel=c&state=deferred")[1])
    assert len(answer["messages"]) == 3
    for message in answer["messages"]:
        assert cancel(node, message["id"], "&channel=c")[0] == 200
    until_channel(node, "t", "c", deferred_count=0)


def test_the_id_of_a_publish_that_is_not_stored_again(node):
    remember(node)
    first = json.loads(post(node, f"/pub?topic=t&defer={LONG}&id=true", b"x", "one")[1])["id"]
    assert first is not None
    assert post(node, f"/pub?topic=t&defer={LONG}&id=true", b"x", "one") == (200, b'{"id":null}')
    assert cancel(node, first)[0] == 200
    # Cancelled messages count as published: a retry does not restore them.
    assert post(node, f"/pub?topic=t&defer={LONG}&id=true", b"x", "one") == (200, b'{"id":null}')


@pytest.mark.parametrize("end", ["restart", "kill"])
def test_a_log_keeps_what_was_cancelled_over_the_end_of_the_daemon(daemon, end):
    node = daemon("--topic-storage=log")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    ids = [named(node, b"%d" % number) for number in range(10)]
    consumer = subscribe(node, "t", "c")
    node.publish("t", b"now")
    consumer.fin(consumer.message())        # the channel has reached the first ten
    until_channel(node, "t", "c", deferred_count=10, in_flight_count=0)
    more = [named(node, b"%d" % number) for number in range(10, 20)]
    consumer.close()
    for wanted in (*ids[:5], *more[:5]):
        assert cancel(node, wanted)[0] == 200
    if end == "kill":
        node.kill()
        node.start()
    else:
        node.restart()
    until_channel(node, "t", "c", deferred_count=10)
    for wanted in (*ids[:5], *more[:5]):
        assert cancel(node, wanted)[0] == 404
    for wanted in (*ids[5:], *more[5:]):
        assert cancel(node, wanted)[0] == 200
    until_channel(node, "t", "c", deferred_count=0, depth=0)


def test_many_deferred_messages(node):
    """The search continues over several slices, while messages are added."""
    client = publisher(node)
    wanted = named(node, b"wanted", 2 * LONG)
    for _ in range(20):
        client.ok(f"DMPUB t {LONG}", batch(*(b"%d" % number for number in range(10_000))))
    last = named(node, b"last", LONG // 2)
    assert cancel(node, wanted, "&channel=c")[0] == 200
    assert cancel(node, last, "&channel=c")[0] == 200
    assert cancel(node, last, "&channel=c")[0] == 404
    until_channel(node, "t", "c", deferred_count=200_000)


def test_ids_whose_time_is_not_that_of_the_message(daemon):
    """After an idle time they are behind the clock, after kills ahead of it. Slow: it is idle."""
    node = daemon("--topic-storage=log")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    made = [named(node, b"first")]
    wait_until(lambda: time.time_ns() > time_of(made[0]) + 8 * 10**9)
    made += [named(node, b"%d" % number) for number in range(3)]
    assert time_of(made[1]) < time.time_ns() - 10**9
    for _ in range(3):
        node.kill()
        node.start()
        made.append(named(node, b"later"))
    assert time_of(made[-1]) > time.time_ns() + 10**9
    for message_id in made:
        assert cancel(node, message_id) == (200, {"channels": ["c"]})


def time_of(message_id: str) -> int:
    """The time in an id, nanoseconds since 1970."""
    return (int(message_id, 16) >> 22) + 1288834974288 << 20


def test_messages_that_are_still_in_the_topic(daemon):
    node = daemon()
    wanted = named(node, b"x")
    status, answer = cancel(node, wanted)
    assert status == 409 and answer["message"].startswith("MESSAGE_IN_TOPIC")
    node.post("/channel/create?topic=t&channel=c")
    until_channel(node, "t", "c", deferred_count=1)
    assert cancel(node, wanted)[0] == 200


def test_messages_on_disk(daemon):
    node = daemon("--mem-queue-size=0")
    node.post("/topic/create?topic=t")
    node.post("/topic/pause?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    wanted = named(node, b"x")
    assert cancel(node, wanted)[0] == 409
    node.post("/topic/unpause?topic=t")
    subscribe(node, "t", "c").close()
    status, answer = cancel(node, wanted)
    assert status in (200, 409), answer


def test_wrong_calls(node):
    for path, status, text in (
            ("", 400, "MISSING_ARG_TOPIC"), ("?topic=a%20b", 400, "INVALID_ARG_TOPIC"),
            ("?topic=none&id=0123456789abcdef", 404, "TOPIC_NOT_FOUND"), ("?topic=t", 400, "MISSING_ARG_ID"),
            ("?topic=t&id=x", 400, "INVALID_ARG_ID"), ("?topic=t&id=0123456789ABCDEF", 400, "INVALID_ARG_ID"),
            ("?topic=t&channel=none&id=0123456789abcdef", 404, "CHANNEL_NOT_FOUND"),
            ("?topic=t&channel=a%20b&id=0123456789abcdef", 400, "INVALID_ARG_CHANNEL"),
            ("?topic=t&id=0123456789abcdef", 404, "MESSAGE_NOT_DEFERRED"),
            ("?topic=t&id=ffffffffffffffff", 404, "MESSAGE_NOT_DEFERRED")):
        answer = post(node, f"/message/cancel{path}", b"")
        assert (answer[0], json.loads(answer[1])["message"]) == (status, text)
    assert post(node, "/pub?topic=t&id=maybe", b"x") == (400, b'{"message":"INVALID_ARG_ID"}')
    assert node.http("GET", "/message/cancel?topic=t")[0] == 405


def nsqc(node: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    where = (f"--nsqd=127.0.0.1:{node.tcp_port}", f"--http=127.0.0.1:{node.http_port}")
    return subprocess.run([sys.executable, "-m", "nsqc", *words, *where], capture_output=True, text=True, check=False,
                          timeout=120)


def test_from_the_command_line(daemon):
    node = daemon()
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    wanted = named(node, b"x")
    done = nsqc(node, "channel", "cancel", "t", "c", wanted)
    assert done.returncode == 0 and f"message {wanted} of channel c of topic t cancelled" in done.stdout, done
    done = nsqc(node, "channel", "cancel", "t", "c", wanted)
    assert done.returncode != 0 and "MESSAGE_NOT_DEFERRED" in done.stderr, done
    done = nsqc(node, "topic", "rules", "t", "--dedupe", "90s", "--dedupe-ids", "500", "--json")
    assert done.returncode == 0, done
    rule = json.loads(done.stdout)
    assert (rule["dedupe"], rule["dedupe_ids"]) == ("1m30s", 500)


def test_who_may_publish_or_administer_the_topic_may_cancel(daemon, tmp_path):
    access = AccessFile(tmp_path / "access.toml")
    for name, grants in {"writer": {"publish": ["t"]}, "owner": {"admin": ["t"]}, "reader": {"read": ["t"]},
                         "other": {"publish": ["u"]}}.items():
        access.user(name, **grants)
    node = daemon(access.write().flag)
    answers = {name: post(node, "/pub?topic=t&id=true", b"x", token=access.tokens.get(name))[0]
               for name in (*access.users, "")}
    assert answers == {"writer": 200, "owner": 403, "reader": 403, "other": 403, "": 401}
    answers = {name: post(node, "/message/cancel?topic=t&id=0123456789abcdef", b"", token=access.tokens.get(name))[0]
               for name in (*access.users, "")}
    assert answers == {"writer": 409, "owner": 409, "reader": 403, "other": 403, "": 401}


def test_many_searches_leave_readers_their_share(daemon):
    """Searches of a long log for ids that it does not have; a reader is answered among the first of them."""
    node = daemon("--topic-storage=log")
    node.post("/topic/create?topic=t")
    node.post("/channel/create?topic=t&channel=c")
    last = ""
    for number in range(8):
        last = named(node, b"%d" % number)
        node.publish("t", *(b"x" * 20 for _ in range(20_000)), size=1000)
    missing = f"{int(last, 16) + 1:016x}"
    count = 40
    with ThreadPoolExecutor(count) as clients:
        answers = [clients.submit(cancel, node, missing) for _ in range(count)]
        wait([*answers], return_when=FIRST_COMPLETED)
        assert node.http("GET", "/topic/read?topic=t&max_messages=10")[0] == 200
        assert sum(answer.done() for answer in answers) < count // 2
        assert {answer.result()[0] for answer in answers} == {404}
