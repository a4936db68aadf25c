"""The sink without Spark: Arrow batches to real daemons, their failures, and refusals before sending."""

import json
import threading

import pyarrow as pa
import pytest

from nsqc.client import PublishFailed, Refused
from nsqc.spark import options, sink
from tests.spark.conftest import address, depth, received
from tests.support.daemon import wait_until
from tests.support.ports import kept


def publisher(where: str, **more: str) -> sink.Publisher:
    return sink.Publisher(options.sink({"nsqd": where, "topic": "t", "backoff": "0.01", "timeout": "5", **more}), 0)


def columns_publisher(where: str, **more: str) -> sink.Publisher:
    return sink.Publisher(options.sink({"nsqd": where, "backoff": "0.01", **more}), 0)


def batch(**columns) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def published(one: sink.Publisher, *batches: pa.RecordBatch) -> sink.Totals:
    try:
        for each in batches:
            one.publish(each)
        one.finish()
    finally:
        one.close()
    return one.totals


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(),
                                  pa.string_view()])
def test_every_kind_of_text_and_bytes(nsqd, topic, kind):
    values = [f"body {n}" for n in range(500)]
    one = publisher(address(nsqd), topic=topic, batchRows="37")
    totals = published(one, batch(value=pa.array(values, kind)), batch(value=pa.array(values, kind)[100:200]))
    assert (totals.rows, totals.commands, totals.resent) == (600, 14 + 3, 0)
    assert received(nsqd, topic, 600) == [value.encode() for value in values + values[100:200]]


def test_topics_by_column_keep_their_order(nsqd, topic):
    names = [f"{topic}-{n % 3}" for n in range(300)]
    totals = published(columns_publisher(address(nsqd)), batch(value=[b"%d" % n for n in range(300)], topic=names))
    assert totals.rows == 300
    for number in range(3):
        assert received(nsqd, f"{topic}-{number}", 100) == [b"%d" % n for n in range(number, 300, 3)]


def test_deferred_rows_wait_and_others_do_not(nsqd, topic):
    delays = pa.array([None, 0, 60_000, 1, 60_000] * 500, pa.int32())
    nsqd.post(f"/topic/create?topic={topic}")
    nsqd.post(f"/channel/create?topic={topic}&channel=c")
    totals = published(publisher(address(nsqd), topic=topic),
                       batch(value=[b"%d" % n for n in range(2500)], defer_ms=delays))
    assert (totals.rows, totals.deferred) == (2500, 1500)
    wait_until(lambda: nsqd.channel(topic, "c")["depth"] == 1500 and nsqd.channel(topic, "c")["deferred_count"] == 1000,
               "the deferred rows")


@pytest.mark.parametrize(("size", "fits"), [(999, True), (1000, True), (1001, False)])
def test_the_largest_message_and_one_byte_more(nsqd, topic, size, fits):
    rows = batch(value=[b"x", b"y" * size])
    one = publisher(address(nsqd), topic=topic, maxMsgSize="1000")
    if fits:
        assert published(one, rows).rows == 2
        return
    with pytest.raises(sink.BadRow, match="row 1 of the partition: value is too big: 1001 bytes, maxMsgSize is 1000"):
        published(one, rows)
    assert depth(nsqd, topic) == 0


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_limits_of_the_daemon_itself_are_met_exactly(nsqd, topic, extra):
    """A daemon takes a message of 1 MiB and a body of 5 MiB; batchBytes counts the whole body."""
    size = (1 << 20) - 4 - (1 if extra > 0 else 0)
    values = [b"z" * size] * 4 + [b"z" * (size - 4 + extra)] * 2
    totals = published(publisher(address(nsqd), topic=topic, batchBytes="5m"), batch(value=values))
    assert (totals.rows, totals.commands) == (6, 2)
    assert depth(nsqd, topic) == 6


@pytest.mark.parametrize(("columns", "says"), [
    ({"value": [b"a", None]}, "row 1 of the partition: value is null"),
    ({"value": [b"a", b"b", b""]}, "row 2 of the partition: value is empty"),
    ({"value": [b"a", b"b"], "topic": ["fine", "bad topic!"]}, "row 1 .* topic is 'bad topic!'"),
    ({"value": [b"a", b"b"], "topic": ["fine", None]}, "row 1 .* topic is None"),
    ({"value": [b"a", b"b"], "topic": ["fine", ""]}, "row 1 .* topic is ''"),
    ({"value": [b"a"], "topic": ["fine"], "defer_ms": [-1]}, "row 0 .* defer_ms is -1"),
    ({"value": [b"a"], "topic": ["fine"], "defer_ms": [3_600_001]}, "row 0 .* maxDeferMs=3600000"),
])
def test_bad_rows_are_named_and_nothing_of_their_batch_is_sent(nsqd, columns, says):
    where = address(nsqd)
    one = columns_publisher(where) if "topic" in columns else publisher(where, topic="bad-rows")
    with pytest.raises(sink.BadRow, match=says):
        published(one, batch(**columns))
    assert depth(nsqd, "bad-rows") == depth(nsqd, "fine") == depth(nsqd, "bad") == 0


def test_rows_are_counted_over_batches(nsqd, topic):
    one = publisher(address(nsqd), topic=topic)
    one.publish(batch(value=[b"a"] * 10))
    with pytest.raises(sink.BadRow, match="row 12 of the partition"):
        one.publish(batch(value=[b"a", b"b", None]))
    one.close()


def test_bad_rows_are_skipped_on_request(nsqd, topic):
    rows = batch(value=[b"a", None, b"", b"x" * 11, b"b"], topic=[topic] * 4 + ["!"])
    totals = published(columns_publisher(address(nsqd), onBadRecord="skip", maxMsgSize="10"), rows)
    assert (totals.rows, totals.skipped) == (1, 4)
    assert received(nsqd, topic, 1) == [b"a"]


def test_what_the_daemon_refuses_is_not_tried_again(daemon):
    one = daemon("--max-msg-size=100", "--max-body-size=1000")
    with pytest.raises(Refused, match=r"E_BAD_MESSAGE|E_BAD_BODY"):
        published(publisher(address(one), batchBytes="1000"), batch(value=[b"x" * 200]))


def test_nobody_there(daemon):
    one = daemon(kept())
    where = address(one)
    one.kill()
    with pytest.raises(PublishFailed, match=r"given up after 3 tries: 127.0.0.1:.*refused"):
        published(publisher(where, retries="2"), batch(value=[b"x"]))


def test_a_listener_that_never_answers(daemon):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(PublishFailed, match="no answer in time"):
            published(publisher(where, retries="0", timeout="0.1"), batch(value=[b"x"]))


def test_an_nsqd_that_wants_auth_is_refused_clearly(daemon):
    one = daemon("--auth-http-address=127.0.0.1:1")
    with pytest.raises(options.OptionError, match=r"asks for AUTH, but there is no auth_secret: give option authSecret$"):
        published(publisher(address(one)), batch(value=[b"x"]))


def test_sigkill_of_one_of_two_loses_nothing_that_was_acknowledged(daemon):
    """The dead one's acknowledged messages are in its files: the queue is on disk and synced at each message."""
    first, second = daemon("--mem-queue-size=0", kept()), daemon("--mem-queue-size=0")
    for each in (first, second):    # known after kill -9 only once nsqd.dat has it
        each.post("/topic/create?topic=t")
        wait_until(lambda each=each: '"t"' in (each.data_path / "nsqd.dat").read_text(), "the topic in nsqd.dat")
    one = publisher(address(first, second), topic="t", batchRows="50")
    sent, killer = 0, None
    for number in range(400):
        one.publish(batch(value=[b"%06d" % n for n in range(sent, sent + 100)]))
        sent += 100
        if number == 100:
            killer = threading.Thread(target=first.kill)
            killer.start()
    one.finish()
    one.close()
    killer.join()
    assert one.totals.rows == sent and one.totals.retries >= 1
    first.start()
    found = [body for each in (first, second) for body in received(each, "t", each.stats("t")["depth"])]
    assert set(found) == {b"%06d" % n for n in range(sent)}
    assert len(found) - sent <= one.totals.resent <= 4 * 50


def test_the_first_nsqd_is_chosen_by_partition(daemon):
    nodes = [daemon(), daemon()]
    chosen = options.sink({"nsqd": address(*nodes), "topic": "t"})
    for partition in range(4):
        published(sink.Publisher(chosen, partition), batch(value=[b"x"] * (partition + 1)))
    assert [depth(one, "t") for one in nodes] == [1 + 3, 2 + 4]


def test_lookupd_says_where(daemon, lookupd):
    one = daemon()
    where = lookupd(one)
    chosen = options.sink({"nsqlookupd": f"127.0.0.1:1,{where}", "topic": "t", "backoff": "0.01"})
    published(sink.Publisher(chosen, 0), batch(value=[b"x"]))
    assert depth(one, "t") == 1
    empty = options.sink({"nsqlookupd": lookupd(), "topic": "t", "backoff": "0.01", "retries": "1"})
    with pytest.raises(PublishFailed, match="no nsqd registered"):
        published(sink.Publisher(empty, 0), batch(value=[b"x"]))


def test_totals_are_added_up_in_a_file(nsqd, topic, tmp_path):
    chosen = options.sink({"nsqd": address(nsqd), "topic": topic, "totalsPath": str(tmp_path / "sub" / "totals.json")})
    for _ in range(2):
        one = sink.Publisher(chosen, 0)
        sink.report(chosen, published(one, batch(value=[b"x"] * 5)), "published")
    assert json.loads((tmp_path / "sub" / "totals.json").read_text())["rows"] == 10
