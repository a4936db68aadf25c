"""Log-backed topics by offset: tables and streams through a real Spark and real daemons.

Slow: each query or job starts Python workers, and plans and commits batches; the first one waits for Java.
"""

import json
import subprocess
import time
from datetime import UTC, datetime

import pytest

from nsqc.spark import columns, metrics, reason
from tests.rules.letters import die
from tests.spark.conftest import bodies
from tests.spark.logs import FLAGS, got, name_of, publish, where
from tests.support.daemon import Daemon, wait_until


def table(spark, *nodes: Daemon, **options: str):
    return spark.read.format("nsq").options(**where(*nodes, **options))


def values(frame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def why(work) -> str:
    """The error, in one line."""
    with pytest.raises(Exception) as caught:
        work()
    return reason(caught.value)


# ---------------------------------------------------------------------- tables


def test_a_table_has_each_message_once_with_its_offset(spark, nodes, topic):
    publish(nodes[0], topic, range(1000))
    publish(nodes[1], topic, range(1000, 1500))
    frame = table(spark, *nodes, topic=topic).load()
    assert [field.simpleString() for field in frame.schema] == [
        "value:binary", "topic:string", "id:string", "timestamp:timestamp", "attempts:int", "nsqd:string",
        "offset:bigint", f"origin:{columns.ORIGIN}"]
    rows = frame.collect()
    assert sorted((row.nsqd, row.offset, int(row.value)) for row in rows) == sorted(
        [(name_of(nodes[0]), number, number) for number in range(1000)]
        + [(name_of(nodes[1]), number, 1000 + number) for number in range(500)])
    assert {(row.topic, row.attempts) for row in rows} == {(topic, 0)}
    lines = got(nodes[0], f"/topic/read?topic={topic}&max_messages=3", Accept="application/x-ndjson")[1]
    first = json.loads(lines.splitlines()[0])
    row = next(row for row in rows if row.offset == 0 and row.nsqd == name_of(nodes[0]))
    assert (row.id, row.timestamp.timestamp()) == (first["id"], pytest.approx(first["timestamp"] / 1e9, abs=1e-5))
    # Reading removes nothing, and the same rows come again.
    assert frame.count() == 1500


@pytest.mark.parametrize(("options", "count"), [
    ({}, 1), ({"minPartitions": "7"}, 7), ({"maxRecordsPerPartition": "150"}, 7)])
def test_partitions(spark, nodes, topic, options, count):
    publish(nodes[0], topic, range(1000))
    frame = table(spark, nodes[0], topic=topic, **options).load()
    assert frame.rdd.getNumPartitions() == count
    assert values(frame) == list(range(1000))


def test_bodies_of_every_size_and_pieces_of_every_length(spark, nodes, topic):
    sent = [b"x" * size for size in (1, 2, 70_000, 3, 200_000, 4)]
    client = nodes[0].connect()
    for body in sent:
        client.pub(topic, body)
    client.close()
    rows = table(spark, nodes[0], topic=topic, fetchBytes="64k", batchRows="2").load().orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == sent
    assert "maxMsgSize" in why(lambda: table(spark, nodes[0], topic=topic, fetchBytes="64k", maxMsgSize="100k",
                                             failWhenUnreachable="0").load().collect())


def test_from_and_to_offsets_and_times(spark, nodes, topic):
    publish(nodes[0], topic, range(100))
    time.sleep(0.01)
    middle = time.time_ns() // 1_000_000 + 1
    time.sleep(0.01)
    publish(nodes[0], topic, range(100, 300))
    node = name_of(nodes[0])

    def read(**options: str) -> list[int]:
        return values(table(spark, nodes[0], topic=topic, **options).load())

    def place(offset: int) -> str:
        return json.dumps({topic: {node: offset}})
    assert read(startingOffsets=place(250), endingOffsets=place(260)) == list(range(250, 260))
    assert read(startingOffsets=place(-2), endingOffsets=place(-1)) == list(range(300))
    assert read(startingOffsets=place(300)) == []
    assert read(startingTimestamp=str(middle)) == list(range(100, 300))
    assert read(endingTimestamp=str(middle)) == list(range(100))
    assert read(startingTimestamp=str(middle + 3_600_000)) == []
    assert read(startingTimestamp=str(middle), startingOffsetsByTimestampStrategy="error") == list(range(100, 300))
    assert f"topic {topic} at {node} has no message published at {middle + 3_600_000} ms" in why(
        lambda: read(startingTimestamp=str(middle + 3_600_000), startingOffsetsByTimestampStrategy="error"))


def test_columns_and_sql(spark, nodes, topic):
    publish(nodes[0], topic, range(10))
    assert table(spark, nodes[0], topic=topic).schema("offset bigint, value binary").load().collect()[3] == (3, b"3")
    assert "unknown column key string" in why(
        lambda: table(spark, nodes[0], topic=topic).schema("key string").load().collect())
    options = ", ".join(f"{key} '{value}'" for key, value in where(nodes[0], topic=topic).items())
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING nsq OPTIONS ({options})")
    assert spark.sql("SELECT sum(CAST(CAST(value AS STRING) AS INT)) AS s FROM messages").collect()[0].s == 45
    # Spark plans a view, or a frame, once.
    publish(nodes[0], topic, range(10, 20))
    assert spark.sql("SELECT count(*) AS n FROM messages").collect()[0].n == 10
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW messages USING nsq OPTIONS ({options})")
    assert spark.sql("SELECT count(*) AS n FROM messages").collect()[0].n == 20
    # It does not tell a source which columns a query needs.
    plan = spark._jvm.PythonSQLUtils.explainString(
        spark.table("messages").select("offset")._jdf.queryExecution(), "formatted")
    assert "ReadSchema: struct<value:binary,topic" in plan


def test_origins_of_dead_letters(spark, nodes, topic):
    """A struct beside the body; other messages have null."""
    node = nodes[0]
    die(node, topic, "c", *(b"%d" % number for number in range(20)))
    publish(node, f"{topic}.dead", range(100, 120))
    rows = table(spark, node, topic=f"{topic}.dead").load().orderBy("offset").collect()
    letters = [row for row in rows if row.origin is not None]
    assert len(rows) == 40 and sorted(int(row.value) for row in letters) == list(range(20))
    assert [int(row.value) for row in rows if row.origin is None] == list(range(100, 120))
    origin = letters[0].origin
    assert (origin.topic, origin.channel, origin.attempts, origin.reason) == (topic, "c", 1, "requeued")
    assert origin.timestamp <= letters[0].timestamp and len(origin.id) == 16
    assert origin.client.remote_address.startswith("127.0.0.1:")
    counted = (table(spark, node, topic=f"{topic}.dead").schema(f"origin {columns.ORIGIN}").load()
               .groupBy("origin.channel").count().collect())
    assert sorted((row[0] or "", row[1]) for row in counted) == [("", 20), ("c", 20)]


def test_filters_skip_nodes_and_segments(spark, nodes, topic):
    publish(nodes[0], topic, range(500))
    time.sleep(0.01)
    middle = time.time()
    time.sleep(0.01)
    publish(nodes[0], topic, range(500, 1000))
    publish(nodes[1], topic, range(1000, 1100))
    assert "spark.sql.python.filterPushdown.enabled" in why(
        lambda: table(spark, *nodes, topic=topic, pushFilters="true").load().filter("offset < 3").count())
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:

        def frame():
            # A new one for each query: Spark 4.3 keeps a query's filters for the next one without any.
            return table(spark, *nodes, topic=topic, clockStep="0", pushFilters="true").load()
        at = datetime.fromtimestamp(middle, UTC).strftime("TIMESTAMP '%Y-%m-%d %H:%M:%S.%f'")
        first = f"nsqd = '{name_of(nodes[0])}'"
        few = frame().filter(f"offset >= 10 AND offset < 20 AND {first}")
        assert values(few) == list(range(10, 20)) and few.rdd.getNumPartitions() == 1
        assert values(frame().filter(f"timestamp < {at} AND offset > 400")) == list(range(401, 500))
        assert values(frame().filter(f"timestamp >= {at} AND {first}")) == list(range(500, 1000))
        assert frame().filter("nsqd = 'nowhere:1'").count() == 0
        assert values(frame().filter(f"nsqd IN ('nowhere:1', '{name_of(nodes[1])}')")) == list(range(1000, 1100))
        assert values(frame().filter(f"offset < 3 OR NOT {first}")) == [0, 1, 2, *range(1000, 1100)]
        assert frame().count() == 1100
        # Why pushFilters is not the default: Spark 4.3 reads all parts of a query as it planned the last one.
        one = frame()
        assert one.filter("offset < 3").union(one.filter("offset >= 500")).count() != 2 * 3 + 500
        plan = spark._jvm.PythonSQLUtils.explainString(few._jdf.queryExecution(), "formatted")
        assert "GreaterThanOrEqual(offset,10)" in plan, plan
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_topics_by_pattern_pass_over_those_in_memory(spark, nodes, topic, tmp_path):
    publish(nodes[0], topic + "-a", range(10))
    publish(nodes[0], topic + "-b", range(10, 30))
    assert nodes[0].http("PUT", f"/topic/rules?topic={topic}-c", b'{"storage": "memory"}')[0] == 200
    publish(nodes[0], topic + "-c", range(5))
    assert values(table(spark, nodes[0], topicPattern=f"{topic}-.").load()) == list(range(30))
    assert values(table(spark, nodes[0], topic=f"{topic}-a,{topic}-b").load()) == list(range(30))
    assert f"{topic}-c is kept in memory" in (text := why(lambda: table(spark, nodes[0], topic=f"{topic}-c").load().count()))
    assert 'storage = "log"' in text
    assert "no node has topic nowhere" in why(lambda: table(spark, nodes[0], topic="nowhere").load().count())


# ---------------------------------------------------------------------- errors


def test_nodes_that_do_not_answer(spark, nodes, topic):
    publish(nodes[0], topic, range(10))
    gone = {"nsqd": f"{name_of(nodes[0])},127.0.0.1:1", "http": f"127.0.0.1:{nodes[0].http_port},127.0.0.1:1"}

    def read(**options: str):
        return spark.read.format("nsq").options(**gone, topic=topic, **options).load()
    text = why(lambda: read().count())
    assert "127.0.0.1:1: 127.0.0.1:1: Connection refused" in text and "failOnDataLoss=false" in text
    assert values(read(failOnDataLoss="false")) == list(range(10))
    assert "do not answer" in why(lambda: spark.read.format("nsq").option("nsqd", "127.0.0.1:1").option("topic", topic)
                                  .load().count())
    # The port after TCP's is not this node's HTTP port.
    assert "option http" in why(lambda: spark.read.format("nsq").option("nsqd", f"127.0.0.1:{nodes[0].http_port - 1}")
                                .option("topic", topic).load().count())


def test_wrong_options_are_refused_by_name(spark, tmp_path):
    given = {"nsqd": "127.0.0.1:1", "topic": "t"}
    reads = spark.read.format("nsq").options(**given)
    assert "maxOffsetsPerTrigger is for spark.readStream only" in why(
        lambda: reads.option("maxOffsetsPerTrigger", "5").load().collect())
    streams = spark.readStream.format("nsq").options(**given)
    assert "endingOffsets is for spark.read only" in why(
        lambda: streams.option("endingOffsets", "latest").load().writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path)).start().awaitTermination())


def test_offsets_that_are_not_there(spark, nodes, topic):
    publish(nodes[0], topic, range(10))
    node = name_of(nodes[0])

    def read(offsets: dict, **options: str):
        return table(spark, nodes[0], topic=topic, startingOffsets=json.dumps(offsets), **options).load()
    assert "has offsets 0 to 10, not 11" in why(lambda: read({topic: {node: 11}}).count())
    assert read({topic: {node: 11}}, failOnDataLoss="false").count() == 0
    assert "where there is no such log" in why(lambda: read({topic: {"other:1": 1}}).count())
    assert "where there is no such log" in why(lambda: read({"other": {node: 1}}).count())


# ---------------------------------------------------------------------- streams


class Stream:
    """A stream of logs into Parquet files."""

    def __init__(self, spark, folder):
        self.spark, self.folder = spark, folder

    def run(self, *nodes: Daemon, **options: str):
        """Runs until it has read everything."""
        frame = self.spark.readStream.format("nsq").options(**(where(*nodes) if nodes else {}), **options).load()
        query = (frame.writeStream.format("parquet").option("path", str(self.folder / "out"))
                 .option("checkpointLocation", str(self.folder / "check")).trigger(availableNow=True).start())
        query.awaitTermination()
        return query

    def values(self) -> list[int]:
        return sorted(map(int, bodies(self.folder / "out")))


def test_a_stream_goes_on_where_it_was(spark, nodes, topic, tmp_path):
    stream = Stream(spark, tmp_path)
    publish(nodes[0], topic, range(1000))
    first = stream.run(nodes[0], topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger="400")
    assert [progress["numInputRows"] for progress in first.recentProgress] == [400, 400, 200]
    log_id = json.loads(got(nodes[0], f"/topic/log?topic={topic}")[1])["id"]
    assert json.loads(first.lastProgress.json)["sources"][0]["endOffset"] == {
        "topics": {topic: {name_of(nodes[0]): 1000}}, "joined": {}, "logs": {topic: {name_of(nodes[0]): log_id}}}
    assert stream.values() == list(range(1000))
    publish(nodes[0], topic, range(1000, 1200))
    # A node that joins is read from its start.
    publish(nodes[1], topic, range(1200, 1300))
    stream.run(*nodes, topic=topic)
    assert stream.values() == list(range(1300))
    stream.run(*nodes, topic=topic)
    assert stream.values() == list(range(1300))


def test_a_new_stream_begins_at_the_end(spark, nodes, topic, tmp_path):
    publish(nodes[0], topic, range(10))
    frame = spark.readStream.format("nsq").options(**where(nodes[0], topic=topic)).load()
    query = (frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
             .option("checkpointLocation", str(tmp_path / "check")).start())
    try:
        wait_until(lambda: query.lastProgress is not None, "the first progress")
        publish(nodes[0], topic, range(10, 30))
        wait_until(lambda: sorted(map(int, bodies(tmp_path / "out"))) == list(range(10, 30)), "the rows")
        wait_until(lambda: metrics(query) and metrics(query)[0]["logs"][topic][name_of(nodes[0])]["latest"] == 30,
                   "the metrics")
        assert metrics(query)[0] == {
            "source": f"nsqd={name_of(nodes[0])} topic={topic} http=127.0.0.1:{nodes[0].http_port}", "lagRows": 0, "lagSeconds": 0.0, "lostRows": 0, "nsqdDown": {},
            "logs": {topic: {name_of(nodes[0]): {"latest": 30, "lagRows": 0, "lagSeconds": 0.0}}}}
    finally:
        query.stop()


def test_a_node_that_is_gone_is_waited_for_and_goes_on_where_it_was(spark, topic, tmp_path):
    nodes = [Daemon(tmp_path / f"data{number}", *FLAGS) for number in range(2)]
    try:
        for number, node in enumerate(nodes):
            publish(node, topic, range(100 * number, 100 * number + 50))
        frame = spark.readStream.format("nsq").options(**where(
            *nodes, topic=topic, startingOffsets="earliest", backoff="10ms")).load()
        query = (frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
                 .option("checkpointLocation", str(tmp_path / "check")).start())
        try:
            wait_until(lambda: len(bodies(tmp_path / "out")) == 100, "all rows")
            nodes[1].kill()
            publish(nodes[0], topic, range(50, 100))
            wait_until(lambda: len(bodies(tmp_path / "out")) == 150, "the rows of the other node")
            wait_until(lambda: metrics(query)[0]["nsqdDown"], "the metric of the node that is down")
            again = [f"--tcp-address=127.0.0.1:{nodes[1].tcp_port}", f"--http-address=127.0.0.1:{nodes[1].http_port}"]
            nodes[1].start(*again)
            publish(nodes[1], topic, range(150, 200))
            wait_until(lambda: sorted(map(int, bodies(tmp_path / "out"))) == list(range(200)), "the rest")
        finally:
            query.stop()
    finally:
        for node in nodes:
            node.close()


def test_what_retention_has_removed_is_an_error_or_a_count(spark, nodes, topic, tmp_path):
    stream = Stream(spark, tmp_path)
    publish(nodes[0], topic, range(100))
    stream.run(nodes[0], topic=topic, startingOffsets="earliest")
    publish(nodes[0], topic, range(100, 3000))
    # Without a channel, all of it waits for the first one.
    nodes[0].post(f"/channel/create?topic={topic}&channel=c&from=end")
    assert nodes[0].http("PUT", f"/topic/rules?topic={topic}", b'{"storage": "log", "retain_bytes": 1, "retain_time": "1ms"}'
                         )[0] == 200
    wait_until(lambda: json.loads(nodes[0].http("GET", f"/topic/log?topic={topic}")[1])["first_offset"] > 100, "retention")
    text = why(lambda: stream.run(nodes[0], topic=topic))
    assert f"topic {topic} at {name_of(nodes[0])} begins at offset" in text and "the checkpoint at 100" in text
    first = json.loads(nodes[0].http("GET", f"/topic/log?topic={topic}")[1])["first_offset"]
    query = stream.run(nodes[0], topic=topic, failOnDataLoss="false")
    assert stream.values() == [*range(100), *range(first, 3000)]
    assert metrics(query)[0]["lostRows"] == first - 100


def test_a_topic_that_was_made_again(spark, nodes, topic, tmp_path):
    stream = Stream(spark, tmp_path)
    publish(nodes[0], topic, range(100))
    stream.run(nodes[0], topic=topic, startingOffsets="earliest")
    nodes[0].post(f"/topic/delete?topic={topic}")
    publish(nodes[0], topic, range(1000, 1010))
    assert "was deleted and created again since the previous batch ended at offset 100" in why(lambda: stream.run(nodes[0], topic=topic))
    stream.run(nodes[0], topic=topic, failOnDataLoss="false")
    assert stream.values() == [*range(100), *range(1000, 1010)]


def test_a_batch_waits_for_enough_messages_or_long_enough(spark, nodes, topic, tmp_path):
    publish(nodes[0], topic, range(10))
    frame = spark.readStream.format("nsq").options(**where(
        nodes[0], topic=topic, startingOffsets="earliest", minOffsetsPerTrigger="50", maxTriggerDelay="15m")).load()
    query = (frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
             .option("checkpointLocation", str(tmp_path / "check")).start())
    try:
        wait_until(lambda: query.lastProgress is not None and metrics(query)[0]["lagRows"] == 10, "the first look")
        assert bodies(tmp_path / "out") == []
        publish(nodes[0], topic, range(10, 60))
        wait_until(lambda: len(bodies(tmp_path / "out")) == 60, "the rows")
    finally:
        query.stop()


def test_a_certificate_that_does_not_fit(spark, tmp_path, topic):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "k.pem", "-out",
                    tmp_path / "c.pem", "-days", "2", "-subj", "/CN=x", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)
    node = Daemon(tmp_path / "data", *FLAGS, f"--tls-cert={tmp_path}/c.pem", f"--tls-key={tmp_path}/k.pem")
    try:
        publish(node, topic, range(20))
        port = next(line.rsplit(":", 1)[1] for line in node.log.splitlines() if "HTTPS: listening on" in line)
        options = {"nsqd": name_of(node), "http": f"127.0.0.1:{port}", "topic": topic, "tls": "true"}
        assert "give others by tlsCaFile" in why(lambda: spark.read.format("nsq").options(**options).load().count())
        assert values(spark.read.format("nsq").options(**options, tlsCaFile=str(tmp_path / "c.pem")).load()) == list(range(20))
    finally:
        node.close()
