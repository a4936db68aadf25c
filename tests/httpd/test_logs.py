"""/topic/log, /channel/seek, /channel/create with from=, and log statistics in /stats."""

import re
import threading
import time

import pytest

from nsqc.store.files import folder_key
from tests.httpd.conftest import HttpDaemon
from tests.httpd.reading import publish, read, records
from tests.httpd.test_views import TOPIC_KEYS
from tests.support.daemon import wait_until

LOG_KEYS = ["topic", "id", "folder", "folder_key", "first_offset", "next_offset", "first_time", "last_time", "bytes",
            "local_bytes", "segments", "damaged", "missing", "sync", "channels"]
CHANNEL_KEYS = ["channel_name", "position", "oldest_unfinished", "lag_messages", "lag_seconds", "in_flight", "deferred"]


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A daemon that keeps its topics in logs, for tests that do not affect each other."""
    daemon = HttpDaemon(tmp_path_factory.mktemp("node") / "data", "--topic-storage=log", "--log-retain-time=1h")
    yield daemon
    assert daemon.stop() == 0


def log_of(daemon, topic):
    reply = daemon.call("GET", f"/topic/log?topic={topic}")
    assert reply.status == 200, reply
    return reply.json


def channel_of(daemon, topic, channel):
    return next(one for one in log_of(daemon, topic)["channels"] if one["channel_name"] == channel)


def seek(daemon, topic, channel, place):
    return daemon.call("POST", f"/channel/seek?topic={topic}&channel={channel}&{place}")


def numbers(client, count, finish=True):
    """The bodies of the next messages."""
    return [int(message.body) for message in client.messages(count, finish)]


# ---------------------------------------------------------------------- /topic/log

def test_an_empty_log(node):
    node.call("POST", "/topic/create?topic=empty")
    node.call("POST", "/channel/create?topic=empty&channel=c")
    log = log_of(node, "empty")
    assert log.pop("folder_key") == folder_key(log.pop("folder"))
    assert log == {
        "topic": "empty", "id": None, "first_offset": 0, "next_offset": 0, "first_time": None, "last_time": None, "bytes": 0,
        "local_bytes": 0, "segments": 0, "damaged": 0, "missing": 0, "sync": "write",
        "channels": [{"channel_name": "c", "position": 0, "oldest_unfinished": 0, "lag_messages": 0, "lag_seconds": 0.0,
                      "in_flight": 0, "deferred": 0}]}


def test_which_log_it_is(start):
    """The id exists from the first message, stays, and differs for a new topic of that name."""
    daemon = start("--topic-storage=log")
    daemon.call("POST", "/topic/create?topic=t")
    assert log_of(daemon, "t")["id"] is None
    assert "x-nsq-log-id" not in read(daemon, "t").headers
    publish(daemon, "t", [b"1"])
    publish(daemon, "other", [b"1"])
    known = log_of(daemon, "t")["id"]
    assert re.fullmatch("[0-9a-f]{16}", known)
    assert log_of(daemon, "other")["id"] not in (known, None)
    for where in ("&offset=0", "&offset=1"):
        assert read(daemon, "t", where).headers["x-nsq-log-id"] == known
    daemon.kill()
    daemon.start()
    daemon.restart()
    assert log_of(daemon, "t")["id"] == known
    daemon.call("POST", "/topic/delete?topic=t")
    publish(daemon, "t", [b"1", b"2"])
    assert log_of(daemon, "t")["id"] not in (known, None)


def test_what_a_log_holds(node):
    node.call("POST", "/topic/create?topic=held")
    node.call("POST", "/channel/create?topic=held&channel=b")
    publish(node, "held", [b"%d" % number for number in range(10)])
    client = node.connect().sub("held", "a%23ephemeral".replace("%23", "#"), 4)
    client.close()
    client = node.connect().sub("held", "b", 4)
    messages = client.messages(4)
    client.fin(messages[0])
    client.fin(messages[2])
    messages += client.messages(2)
    client.command(f"REQ {messages[3].id.decode()} 60000")
    wait_until(lambda: channel_of(node, "held", "b")["deferred"] == 1)
    time.sleep(0.01)
    log = log_of(node, "held")
    assert list(log) == LOG_KEYS
    stamps = [record.timestamp for record in records(read(node, "held"))]
    assert (log["first_time"], log["last_time"]) == (stamps[0], stamps[-1])
    assert (log["first_offset"], log["next_offset"], log["bytes"], log["segments"]) == (0, 10, 120, 1)
    one = next(one for one in log["channels"] if one["channel_name"] == "b")
    assert list(one) == CHANNEL_KEYS
    assert (one["oldest_unfinished"], one["lag_messages"], one["deferred"]) == (1, 8, 1)
    assert one["position"] == 6 + one["in_flight"] - 3
    assert 0.01 < one["lag_seconds"] < time.time() - stamps[1] / 1e9
    client.close()


def test_what_deleted_and_unknown_topics_answer(node):
    for path, status, message in (("", 400, "MISSING_ARG_TOPIC"), ("?topic=", 400, "INVALID_ARG_TOPIC"),
                                  ("?topic=nobody", 404, "TOPIC_NOT_FOUND"), ("?topic=%zz", 400, "INVALID_REQUEST")):
        reply = node.call("GET", f"/topic/log{path}")
        assert (reply.status, reply.json) == (status, {"message": message})


def test_a_topic_in_memory(start):
    daemon = start()
    daemon.call("POST", "/topic/create?topic=memory")
    daemon.call("POST", "/channel/create?topic=memory&channel=c")
    for method, path in (("GET", "/topic/log?topic=memory"), ("POST", "/channel/seek?topic=memory&channel=c&to=end"),
                         ("POST", "/channel/create?topic=memory&channel=d&from=end")):
        reply = daemon.call(method, path)
        assert reply.status == 400
        assert 'NO_LOG: memory is kept in memory; its rule has to say storage = "log"' in reply.json["message"]
    assert [one["channel_name"] for one in daemon.stats("memory")["channels"]] == ["c"]
    assert list(daemon.stats("memory")) == TOPIC_KEYS


def test_statistics_are_those_of_any_topic_while_nothing_is_damaged(node):
    publish(node, "stats", [b"x" * 70] * 3)
    assert list(node.stats("stats")) == TOPIC_KEYS
    assert "log" not in node.call("GET", "/stats?topic=stats").body.decode()


# ---------------------------------------------------------------------- /channel/seek

def test_seek_in_both_directions(node):
    node.call("POST", "/topic/create?topic=seek")
    node.call("POST", "/channel/create?topic=seek&channel=c")
    publish(node, "seek", [b"%d" % number for number in range(20)])
    client = node.connect().sub("seek", "c", 5)
    assert numbers(client, 10) == list(range(10))
    wait_until(lambda: channel_of(node, "seek", "c")["lag_messages"] == 10)
    client.messages(5)     # 10 to 14 stay in flight
    for place, first in (("to=3", 3), ("to=beginning", 0), ("to=18", 18), ("to=offset&offset=12", 12), ("to=0", 0)):
        client.command("RDY 0")
        client.ok("PUB other", b"x")        # RDY has arrived
        reply = seek(node, "seek", "c", place)
        assert (reply.status, reply.body) == (200, b"")
        state = channel_of(node, "seek", "c")
        assert (state["position"], state["oldest_unfinished"], state["lag_messages"], state["in_flight"]) == (first, first, 20 - first, 0)
        count = min(5, 20 - first)
        client.command(f"RDY {count}")
        assert numbers(client, count, finish=False) == list(range(first, first + count))
    client.close()


def test_a_fin_of_before_the_seek(node):
    node.call("POST", "/topic/create?topic=fin")
    node.call("POST", "/channel/create?topic=fin&channel=c")
    publish(node, "fin", [b"0", b"1", b"2"])
    client = node.connect().sub("fin", "c", 1)
    message = client.message()
    assert seek(node, "fin", "c", "to=2").status == 200
    assert int(client.message().body) == 2
    for command in ("FIN {}", "REQ {} 0", "TOUCH {}"):
        client.command(command.format(message.id.decode()))
        name = command.partition(" ")[0]
        kind, error = client.frame()
        assert (kind, error) == (1, f"E_{name}_FAILED {name} {message.id.decode()} failed ID not in flight".encode())
    client.close()


def test_seek_back_delivers_finished_messages_again(node):
    node.call("POST", "/topic/create?topic=again")
    node.call("POST", "/channel/create?topic=again&channel=c")
    publish(node, "again", [b"%d" % number for number in range(100)])
    client = node.connect().sub("again", "c", 10)
    assert numbers(client, 100) == list(range(100))
    wait_until(lambda: channel_of(node, "again", "c")["lag_messages"] == 0)
    assert channel_of(node, "again", "c") == {"channel_name": "c", "position": 100, "oldest_unfinished": 100,
                                              "lag_messages": 0, "lag_seconds": 0.0, "in_flight": 0, "deferred": 0}
    assert seek(node, "again", "c", "to=90").status == 200
    assert numbers(client, 10) == list(range(90, 100))
    # Earlier requeued and deferred messages no longer count, either.
    assert seek(node, "again", "c", "to=99").status == 200
    client.command(f"REQ {client.message().id.decode()} 2000")
    wait_until(lambda: channel_of(node, "again", "c")["deferred"] == 1)
    assert seek(node, "again", "c", "to=end").status == 200
    assert channel_of(node, "again", "c")["deferred"] == 0
    assert client.quiet(2.2)
    client.close()


def test_seek_to_a_time(node):
    node.call("POST", "/topic/create?topic=when")
    node.call("POST", "/channel/create?topic=when&channel=c")
    for number in range(3):
        publish(node, "when", [b"%d" % number])
        time.sleep(0.03)
    stamps = [record.timestamp for record in records(read(node, "when"))]
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(stamps[1] // 10**9)) + f".{stamps[1] % 10**9:09d}Z"
    for place, position in ((f"to=time&time={stamps[1]}", 1), (f"to={text}", 1), (f"to=time&time={text}", 1),
                            (f"to=time&time={stamps[1] + 1}", 2), ("to=1970-01-01T00:00:00Z", 0),
                            ("to=2200-01-01T00:00:00Z", 3)):
        assert seek(node, "when", "c", place).status == 200
        assert channel_of(node, "when", "c")["position"] == position, place


def test_a_seek_that_was_answered_survives_a_kill(start):
    daemon = start("--topic-storage=log", "--log-retain-time=1h")
    publish(daemon, "kill", [b"%d" % number for number in range(10)])
    daemon.call("POST", "/channel/create?topic=kill&channel=c&from=end")
    daemon.call("POST", "/channel/create?topic=kill&channel=d&from=4")
    assert seek(daemon, "kill", "c", "to=7").status == 200
    daemon.kill()
    daemon.start()
    assert numbers(daemon.connect().sub("kill", "c", 10), 3) == [7, 8, 9]
    assert numbers(daemon.connect().sub("kill", "d", 10), 6) == [4, 5, 6, 7, 8, 9]


def test_a_seek_is_answered_under_load(node):
    """The answer waits for the journal, but not for the journal to be idle."""
    node.call("POST", "/topic/create?topic=load")
    node.call("POST", "/channel/create?topic=load&channel=moved")
    publish(node, "load", [b"%d" % number for number in range(50_000)])
    ended = threading.Event()

    def consume(number):
        client = node.connect().sub("load", f"busy{number}", 50)
        for _ in range(50_000):
            client.messages(1, finish=True)
            if ended.is_set():
                break
        client.close()

    for number in range(3):
        node.call("POST", f"/channel/create?topic=load&channel=busy{number}&from=beginning")
    consumers = [threading.Thread(target=consume, args=(number,)) for number in range(3)]
    for consumer in consumers:
        consumer.start()
    try:
        for place in range(50):
            assert seek(node, "load", "moved", f"to={place}").status == 200
            assert channel_of(node, "load", "moved")["position"] == place
    finally:
        ended.set()
        for consumer in consumers:
            consumer.join()


@pytest.mark.parametrize("ago, position", [("1h", 0), ("-1h", 0), ("7d", 0), ("-90m", 0), ("0s", 3)])
def test_places_are_also_how_long_ago(node, ago, position):
    topic = f"ago{ago.replace('-', 'm')}"
    node.call("POST", f"/topic/create?topic={topic}")
    node.call("POST", f"/channel/create?topic={topic}&channel=c")
    publish(node, topic, [b"a", b"b", b"c"])
    assert seek(node, topic, "c", f"to={ago}").status == 200
    assert channel_of(node, topic, "c")["position"] == position
    assert seek(node, topic, "c", f"to=time&time={ago}").status == 200
    assert channel_of(node, topic, "c")["position"] == position
    assert node.call("POST", f"/channel/create?topic={topic}&channel=d&from={ago}").status == 200
    assert channel_of(node, topic, "d")["position"] == position
    assert node.call("GET", f"/topic/read?topic={topic}&time={ago}").headers["x-nsq-first-offset"] == str(position)


@pytest.mark.parametrize("place, status, message", [
    ("", 400, "MISSING_ARG_TO"),
    *((f"to={value}", 400, "INVALID_ARG_TO") for value in (
        "", "-1", "Beginning", "1.5", "--1h", "1w", "-h", "%2B1h", "9223372036854775808", "%D9%A1", "2026-01-01", "2026-02-30T00:00:00Z", "begin;end"[:5])),
    ("to=offset", 400, "MISSING_ARG_OFFSET"),
    ("to=time", 400, "MISSING_ARG_TIME"),
    ("to=offset&offset=x", 400, "INVALID_ARG_OFFSET"),
    ("to=time&time=x", 400, "INVALID_ARG_TIME"),
    ("to=3", 416, "OFFSET_BEYOND_END"),
    ("to=9223372036854775807", 416, "OFFSET_BEYOND_END"),
])
def test_places_that_are_refused(node, place, status, message):
    node.call("POST", "/topic/create?topic=refused")
    node.call("POST", "/channel/create?topic=refused&channel=c&from=beginning")
    reply = seek(node, "refused", "c", place)
    assert (reply.status, reply.json["message"]) == (status, message)
    if place:
        reply = node.call("POST", f"/channel/create?topic=refused&channel=never&{place.replace('to=', 'from=', 1)}")
        assert (reply.status, reply.json["message"]) == (status, message.replace("ARG_TO", "ARG_FROM"))
        assert "never" not in [one["channel_name"] for one in log_of(node, "refused")["channels"]]


@pytest.mark.parametrize("query, status, message", [
    ("", 400, "MISSING_ARG_TOPIC"),
    ("topic=names", 400, "MISSING_ARG_CHANNEL"),
    ("topic=names&channel=a%20b", 400, "INVALID_ARG_CHANNEL"),
    ("topic=a%20b&channel=c&to=end", 400, "INVALID_ARG_TOPIC"),
    ("topic=nobody&channel=c&to=end", 404, "TOPIC_NOT_FOUND"),
    ("topic=names&channel=nobody&to=end", 404, "CHANNEL_NOT_FOUND"),
])
def test_names_that_are_refused(node, query, status, message):
    node.call("POST", "/topic/create?topic=names")
    reply = node.call("POST", f"/channel/seek?{query}")
    assert (reply.status, reply.json) == (status, {"message": message})


def test_seek_to_what_retention_has_removed(start):
    daemon = start("--topic-storage=log", "--max-bytes-per-file=100000")
    daemon.call("POST", "/topic/create?topic=kept")
    daemon.call("POST", "/channel/create?topic=kept&channel=c")
    for _ in range(10):
        publish(daemon, "kept", [b"x" * 1000] * 50)
    daemon.call("POST", "/channel/empty?topic=kept&channel=c")
    first = wait_until(lambda: log_of(daemon, "kept")["first_offset"], "retention")
    reply = seek(daemon, "kept", "c", f"to={first - 1}")
    assert (reply.status, reply.json) == (410, {"message": "OFFSET_GONE", "first_offset": first})
    assert seek(daemon, "kept", "c", "to=beginning").status == 200
    assert channel_of(daemon, "kept", "c")["position"] == first


def test_the_position_after_messages_were_dropped(start):
    """The offset of the message that is delivered next."""
    daemon = start("--topic-storage=log", "--max-bytes-per-file=100000", "--log-retain-bytes=300000",
                   "--log-overflow=drop-oldest")
    daemon.call("POST", "/topic/create?topic=dropped")
    daemon.call("POST", "/channel/create?topic=dropped&channel=c")
    client = daemon.connect().sub("dropped", "c", 1)
    publish(daemon, "dropped", [b"%04d" % number + b"x" * 1000 for number in range(20)])
    client.command(f"REQ {client.message().id.decode()} 600000")
    wait_until(lambda: channel_of(daemon, "dropped", "c")["deferred"])
    client.close()
    for begin in range(20, 1000, 20):
        publish(daemon, "dropped", [b"%04d" % number + b"x" * 1000 for number in range(begin, begin + 20)])
    log = wait_until(lambda: (log := log_of(daemon, "dropped"))["first_offset"] > 500 and log, "retention")
    one = log["channels"][0]
    assert one["position"] == one["oldest_unfinished"] == log["first_offset"]
    assert int(daemon.connect().sub("dropped", "c", 1).message().body[:4]) == one["position"]


# ---------------------------------------------------------------------- /channel/create

def test_channels_that_begin_at_a_place(node):
    publish(node, "from", [b"%d" % number for number in range(10)])
    for number, (place, first) in enumerate((("beginning", 0), ("7", 7), ("10", 10), ("end", 10), ("2200-01-01T00:00:00Z", 10))):
        reply = node.call("POST", f"/channel/create?topic=from&channel=c{number}&from={place}")
        assert (reply.status, reply.body) == (200, b"")
        assert channel_of(node, "from", f"c{number}")["position"] == first
    assert numbers(node.connect().sub("from", "c1", 5), 3) == [7, 8, 9]
    reply = node.call("POST", "/channel/create?topic=from&channel=e%23ephemeral&from=8")
    assert reply.status == 200
    assert numbers(node.connect().sub("from", "e#ephemeral", 5), 2) == [8, 9]


def test_a_channel_that_exists(node):
    publish(node, "exists", [b"x"])
    node.call("POST", "/channel/create?topic=exists&channel=c&from=beginning")
    for place in ("end", "beginning", "0"):
        reply = node.call("POST", f"/channel/create?topic=exists&channel=c&from={place}")
        assert (reply.status, reply.json) == (409, {"message": "CHANNEL_EXISTS"})
    assert channel_of(node, "exists", "c")["position"] == 0
    # Without from= the call is nsqd's.
    assert node.call("POST", "/channel/create?topic=exists&channel=c").status == 200


def test_many_channels(node):
    """Each has its own place and age."""
    publish(node, "many", [b"%d" % number for number in range(300)])
    for number in range(300):
        node.call("POST", f"/channel/create?topic=many&channel=c{number:03}&from={number}")
    stamps = [record.timestamp for record in records(read(node, "many"))]
    channels = log_of(node, "many")["channels"]
    assert [channel["position"] for channel in channels] == list(range(300))
    assert [channel["lag_messages"] for channel in channels] == list(range(300, 0, -1))
    ages = [channel["lag_seconds"] + stamp / 1e9 for channel, stamp in zip(channels, stamps, strict=True)]
    assert max(ages) - min(ages) < 1e-5
