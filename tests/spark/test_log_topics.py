"""The logs that a query reads, through a real Spark: topics that are missing, deleted or assigned, and times by topic.

Slow: each query plans and commits batches; the first one waits for Java.
"""

import json
import time

import pytest

from nsqc.spark import metrics
from tests.spark.logs import name_of, publish, where
from tests.spark.test_log import Stream, table, values, why
from tests.support.daemon import wait_until


def start(spark, folder, options: dict[str, str]):
    """A stream that runs until it is stopped."""
    return (spark.readStream.format("nsq").options(**options).load().writeStream.format("noop")
            .option("checkpointLocation", str(folder)).start())


# ---------------------------------------------------------------------- missing


@pytest.mark.parametrize(("selection", "says"), [
    ({"topic": "ordres"}, "no node has topic ordres"),
    ({"topicPattern": "ordres-.*"}, "no log-backed topic matches topicPattern=ordres-.*"),
])
def test_a_misspelt_topic_is_an_error_at_the_start(spark, nodes, topic, tmp_path, selection, says):
    text = why(lambda: Stream(spark, tmp_path).run(nodes[0], **selection))
    assert says in text and "allowMissingTopics=true" in text
    assert says in why(lambda: start(spark, tmp_path / "running", where(nodes[0], **selection)).awaitTermination())
    assert says in why(lambda: table(spark, nodes[0], **selection).load().collect())
    assert table(spark, nodes[0], **selection, allowMissingTopics="true").load().count() == 0


def test_a_misspelt_topic_that_nsqlookupd_does_not_know(spark, nodes, lookupd, tmp_path):
    """It is in another checkpoint's options, too: earlier reads of a query do not hide it."""
    other = lookupd(nodes[0])
    given = {"nsqlookupd": other, "topic": "ordres"}
    assert "no node has topic ordres" in why(lambda: start(spark, tmp_path, given).awaitTermination())


def test_a_topic_may_come_later_if_that_is_allowed(spark, nodes, topic, tmp_path):
    stream = Stream(spark, tmp_path)
    allowed = {"topic": topic, "allowMissingTopics": "true", "startingOffsets": "earliest"}
    stream.run(nodes[0], **allowed)
    publish(nodes[0], topic, range(10))
    stream.run(nodes[0], **allowed)
    assert stream.values() == list(range(10))


def test_a_topic_that_is_added_to_a_query_may_not_be_misspelt(spark, nodes, topic, tmp_path):
    stream = Stream(spark, tmp_path)
    publish(nodes[0], topic, range(10))
    stream.run(nodes[0], topic=topic, startingOffsets="earliest")
    assert "no node has topic ordres" in why(lambda: stream.run(nodes[0], topic=f"{topic},ordres"))


# ---------------------------------------------------------------------- deleted


@pytest.mark.parametrize("by", ["topic", "topicPattern"])
def test_a_deleted_topic_fails_at_once_unless_losses_are_allowed(spark, nodes, topic, tmp_path, by):
    stream = Stream(spark, tmp_path)
    publish(nodes[0], topic, range(100))
    stream.run(nodes[0], **{by: topic}, startingOffsets="earliest")
    nodes[0].post(f"/topic/delete?topic={topic}")
    # failWhenUnreachable: no wait.
    said = f"topic {topic} at {name_of(nodes[0])} was deleted; the previous batch ended at offset 100"
    assert said in why(lambda: stream.run(nodes[0], **{by: topic}, failWhenUnreachable="10000000"))
    stream.run(nodes[0], **{by: topic}, failOnDataLoss="false", failWhenUnreachable="10000000")
    # It is read from its beginning when it is there again.
    publish(nodes[0], topic, range(100, 120))
    stream.run(nodes[0], **{by: topic}, failOnDataLoss="false")
    assert stream.values() == list(range(120))


def test_a_topic_that_is_deleted_while_a_query_runs_fails_it(spark, nodes, topic, tmp_path):
    publish(nodes[0], topic, range(100))
    publish(nodes[0], f"{topic}-other", range(5))
    given = where(nodes[0], topic=f"{topic},{topic}-other", startingOffsets="earliest")
    query = start(spark, tmp_path / "a", given)
    other = start(spark, tmp_path / "b", {**given, "failOnDataLoss": "false"})
    try:
        for one in (query, other):
            wait_until(lambda one=one: metrics(one) and metrics(one)[0]["logs"] and not metrics(one)[0]["lagRows"], "all rows")
        nodes[0].post(f"/topic/delete?topic={topic}")
        assert "was deleted; the previous batch ended at offset 100" in why(query.awaitTermination)
        publish(nodes[0], f"{topic}-other", range(5, 10))
        wait_until(lambda: metrics(other)[0]["logs"].get(f"{topic}-other", {}).get(name_of(nodes[0]), {}).get("latest") == 10,
                   "the other topic")
        assert other.isActive
    finally:
        query.stop()
        other.stop()


def test_a_deleted_topic_of_a_node_that_only_nsqlookupd_knows(spark, nodes, topic, lookupd, tmp_path):
    """nsqlookupd then lists the node itself, but not for the topic."""
    from http.server import BaseHTTPRequestHandler

    stream = Stream(spark, tmp_path)
    publish(nodes[0], topic, range(10))
    address = lookupd(nodes[0])
    handler = lookupd.servers[-1].RequestHandlerClass
    there = handler.do_GET
    deleted = []

    def answer(self: BaseHTTPRequestHandler) -> None:
        if deleted and self.path.startswith("/lookup"):
            body = json.dumps({"message": "TOPIC_NOT_FOUND"}).encode()
            self.send_response(404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            there(self)
    handler.do_GET = answer

    def run() -> None:
        frame = spark.readStream.format("nsq").options(nsqlookupd=address, topic=topic, startingOffsets="earliest").load()
        (frame.writeStream.format("noop").option("checkpointLocation", str(stream.folder)).trigger(availableNow=True)
         .start().awaitTermination())
    run()
    nodes[0].post(f"/topic/delete?topic={topic}")
    deleted.append(True)
    assert f"topic {topic} at {name_of(nodes[0])} was deleted" in why(run)


# ---------------------------------------------------------------------- chosen


def test_nodes_are_assigned(spark, nodes, topic, tmp_path):
    publish(nodes[0], topic, range(10))
    publish(nodes[1], topic, range(10, 30))
    publish(nodes[0], f"{topic}-b", range(30, 40))
    assign = json.dumps({topic: [name_of(nodes[1])], f"{topic}-b": [name_of(nodes[0])]})
    assert values(table(spark, *nodes, assign=assign).load()) == list(range(10, 40))
    stream = Stream(spark, tmp_path)
    stream.run(*nodes, assign=assign, startingOffsets="earliest")
    assert stream.values() == list(range(10, 40))
    wrong = json.dumps({f"{topic}-b": [name_of(nodes[1])]})
    assert f"topic {topic}-b is not at {name_of(nodes[1])}" in why(lambda: table(spark, *nodes, assign=wrong).load().count())


def test_times_by_topic_and_node(spark, nodes, topic, tmp_path):
    other = f"{topic}-b"
    for name in (topic, other):
        publish(nodes[0], name, range(100))
    time.sleep(0.01)
    middle = time.time_ns() // 1_000_000 + 1
    time.sleep(0.01)
    for name in (topic, other):
        publish(nodes[0], name, range(100, 200))
    publish(nodes[1], topic, range(200, 250))

    def read(by: str, times: dict, **options: str) -> dict[str, list[int]]:
        rows = table(spark, *nodes, topic=f"{topic},{other}", **{by: json.dumps(times)}, **options).load().collect()
        return {name: sorted(int(row.value) for row in rows if row.topic == name) for name in (topic, other)}
    assert read("startingOffsetsByTimestamp", {topic: middle, other: 0}) == {
        topic: list(range(100, 250)), other: list(range(200))}
    assert read("startingOffsetsByTimestamp", {
        topic: {name_of(nodes[0]): middle, name_of(nodes[1]): middle + 3_600_000}, other: middle}) == {
        topic: list(range(100, 200)), other: list(range(100, 200))}
    assert read("endingOffsetsByTimestamp", {topic: middle, other: middle}) == {
        topic: list(range(100)), other: list(range(100))}
    assert f"has no entry for topic {other}" in why(lambda: read("startingOffsetsByTimestamp", {topic: middle}))
    assert "names topic nowhere at any node" in why(
        lambda: read("startingOffsetsByTimestamp", {topic: 0, other: 0, "nowhere": 0}))
    stream = Stream(spark, tmp_path)
    stream.run(nodes[0], topic=topic, startingOffsetsByTimestamp=json.dumps({topic: middle}))
    assert stream.values() == list(range(100, 200))
