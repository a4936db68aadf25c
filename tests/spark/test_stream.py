"""spark.readStream.format("nsq") and spark.read.format("nsq_diskqueue") through Spark itself.

Slow: each query or job starts Python workers, and plans and commits batches; the first one waits for Java.
"""

import json
import re
import shutil
import time
import uuid

import pytest

from tests.spark.conftest import address, bodies
from tests.support.daemon import batch, wait_until
from tests.support.ports import kept


class Flow:
    """A topic into a folder of Parquet files."""

    def __init__(self, spark, folder, name, *daemons, **more):
        self.spark, self.folder, self.daemons = spark, folder, daemons
        self.topic = name
        self.options = {"topic": name, "channel": "c", "stagingDir": str(folder / "stage"), "idleMs": "150",
                        "nsqd": address(*daemons), **more}
        if "nsqlookupd" in more:
            del self.options["nsqd"]
        self.checkpoint = str(folder / "checkpoint")

    def publish(self, start: int, end: int) -> None:
        client = self.daemons[0].connect()
        client.ok(f"MPUB {self.topic}", batch(*(b"%06d" % n for n in range(start, end))))
        client.close()

    def start(self, sink="parquet", **trigger):
        stream = self.spark.readStream.format("nsq").options(**self.options).load()
        writer = stream.writeStream.format(sink).option("checkpointLocation", self.checkpoint)
        if sink == "parquet":
            writer = writer.option("path", str(self.folder / "out"))
        return (writer.trigger(**trigger) if trigger else writer).queryName(f"q{uuid.uuid4().hex}").start()

    def drain(self):
        query = self.start(availableNow=True)
        query.awaitTermination()
        return query

    def got(self) -> list[bytes]:
        return sorted(bodies(self.folder / "out"))

    def channel(self) -> dict:
        return self.daemons[0].channel(self.topic, "c")


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%06d" % n for n in range(start, end)]


@pytest.fixture
def flow(spark, tmp_path, topic, nsqd):
    """flow(option=...): from the shared daemon, or flow(daemons=[...])."""
    def make(daemons=(nsqd,), **more):
        return Flow(spark, tmp_path, topic, *daemons, **more)

    yield make
    for query in spark.streams.active:
        query.stop()


def test_available_now_in_batches_of_a_limit_and_over_restarts(flow, nsqd):
    run = flow(maxRowsPerBatch="700")
    run.publish(0, 2000)
    first = run.drain()
    assert [progress["numInputRows"] for progress in first.recentProgress] == [700, 700, 600]
    assert run.got() == numbered(0, 2000)
    assert run.channel()["depth"] == run.channel()["in_flight_count"] == 0
    offset = first.lastProgress["sources"][0]["endOffset"]
    offset = json.loads(offset) if isinstance(offset, str) else offset
    assert offset["rows"] == 2000 and len(offset["log"]) == 32
    run.publish(2000, 2100)
    run.drain()
    assert run.got() == numbered(0, 2100)
    assert sum(progress["numInputRows"] for progress in run.drain().recentProgress) == 0


def test_columns(flow, spark, nsqd):
    run = flow(transport="inline", numPartitions="3")
    before = time.time()
    run.publish(0, 10)
    run.drain()
    rows = spark.read.parquet(str(run.folder / "out")).collect()
    assert sorted(bytes(row.value) for row in rows) == numbered(0, 10)
    assert {(row.topic, row.nsqd, row.attempts) for row in rows} == {(run.topic, address(nsqd), 1)}
    assert len({row.id for row in rows}) == 10
    assert all(before - 5 < row.timestamp.timestamp() < time.time() + 5 for row in rows)


def test_two_nsqd_and_two_connections_each(flow, nsqd, daemon, spark):
    other = daemon()
    run = flow([nsqd, other], connections="2")
    run.publish(0, 1000)
    client = other.connect()
    client.ok(f"MPUB {run.topic}", batch(*numbered(1000, 2000)))
    run.drain()
    assert run.got() == numbered(0, 2000)


def test_a_batch_that_fills_the_window_does_not_block(flow, spark):
    """FIN does not wait for Spark's commit, which comes with the next batch only."""
    run = flow(maxInFlight="10")
    run.publish(0, 500)
    query = run.start()
    wait_until(lambda: len(run.got()) == 500, "500 rows with 10 in flight")
    run.publish(500, 600)
    wait_until(lambda: run.channel()["depth"] == run.channel()["in_flight_count"] == 0, "FIN while idle")
    wait_until(lambda: len(run.got()) == 600, "the last rows")
    assert run.got() == numbered(0, 600)
    query.stop()


def test_a_full_staging_directory_is_emptied_by_sparks_progress_alone(flow):
    """No commit comes when a batch took everything: the start of the next one must make up for it."""
    run = flow(maxStagedBytes="64k", segmentBytes="8k", maxInFlight="100")
    run.publish(0, 5000)
    run.drain()
    assert run.got() == numbered(0, 5000)


def test_stopping_a_query_hands_its_messages_back(flow, nsqd):
    run = flow(lingerMs="60000")
    run.publish(0, 200)
    nsqd.post(f"/channel/create?topic={run.topic}&channel=c")
    query = run.start()
    wait_until(lambda: run.channel()["in_flight_count"] == 200, "all in flight")
    # Spark cannot resume from a checkpoint whose first batch it was about to write.
    wait_until((run.folder / "checkpoint" / "commits" / "0").exists, "the first, empty batch")
    query.stop()
    wait_until(lambda: run.channel()["depth"] == 200, "everything back")
    assert run.channel()["in_flight_count"] == run.channel()["timeout_count"] == 0
    run.options["lingerMs"] = "5"
    run.drain()
    assert run.got() == numbered(0, 200)


def test_one_query_for_each_staging_directory(flow):
    run = flow()
    run.publish(0, 1)
    query = run.start()
    wait_until(lambda: run.got(), "the first row")
    from nsqc.spark.stagelog import StageError, StageLog

    with pytest.raises(StageError, match="in use by another query"):
        StageLog(run.options["stagingDir"], run.topic, "c", 1 << 20, wait=0)
    query.stop()


@pytest.mark.parametrize("text", ["dbfs:/stage", "s3a://bucket/stage", "stage"])
def test_a_staging_directory_that_would_be_another_folder_is_refused(flow, monkeypatch, tmp_path, text):
    """A relative folder of the driver: messages would be finished once they are there, and be lost with it."""
    monkeypatch.chdir(tmp_path)
    run = flow(stagingDir=text)
    run.publish(0, 10)
    with pytest.raises(Exception, match=f"option stagingDir={text}: {text} is "):
        run.drain()
    assert not list(tmp_path.iterdir())


def test_a_staging_directory_as_a_uri(flow, tmp_path):
    run = flow(stagingDir=f"file:{tmp_path}/stage")
    run.publish(0, 10)
    run.drain()
    assert run.got() == numbered(0, 10)
    assert (tmp_path / "stage" / "log.json").exists()


def test_a_lost_staging_directory_is_told_before_anything_is_consumed(flow):
    run = flow()
    run.publish(0, 100)
    run.drain()
    shutil.rmtree(run.options["stagingDir"])
    run.publish(100, 300)
    with pytest.raises(Exception, match=r"belongs to another staging log.*failOnDataLoss=false"):
        run.drain()
    assert run.channel()["depth"] == 200 and run.channel()["in_flight_count"] == 0
    run.options["failOnDataLoss"] = "false"
    run.drain()
    assert run.got() == numbered(0, 300)


def test_a_new_checkpoint_begins_where_spark_was_done(flow):
    run = flow()
    run.publish(0, 100)
    run.drain()
    run.publish(100, 150)
    run.drain()
    run.checkpoint += "-2"
    shutil.rmtree(run.folder / "out")
    run.publish(150, 200)
    run.drain()
    # The last batch of the earlier checkpoint was not committed to the source: only that one may come again.
    assert run.got() in (numbered(150, 200), numbered(100, 200))


def test_nobody_to_read_from_is_an_error_for_available_now(flow, daemon):
    dead = daemon(kept())
    run = flow([dead], timeout="0.3")
    dead.kill()
    with pytest.raises(Exception, match=r"no nsqd is reachable: 127.0.0.1"):
        run.drain()


def test_lookupd(flow, nsqd, lookupd):
    run = flow(nsqlookupd=lookupd(nsqd))
    run.publish(0, 20)
    run.drain()
    assert run.got() == numbered(0, 20)


@pytest.mark.parametrize(("more", "says"), [
    ({"topic": "bad topic!"}, "a name is 1 to 64"),
    ({"stagingdir": ""}, "must not be empty"),
    ({"nosuch": "1"}, "unknown option nosuch"),
    ({"maxInFlight": "0"}, "maxInFlight=0"),
])
def test_wrong_options_are_told(flow, more, says):
    with pytest.raises(Exception, match=says):
        flow(**more).drain()


def test_a_bounded_read_is_refused_and_says_what_to_do(spark, nsqd):
    with pytest.raises(Exception, match="availableNow=True"):
        spark.read.format("nsq").option("nsqd", address(nsqd)).option("topic", "t").option("channel", "c").option(
            "stagingDir", "/stage").load().count()


def test_there_and_back(flow, spark, nsqd):
    """nsq to Spark to nsq, both as streams."""
    run = flow()
    run.publish(0, 300)
    stream = spark.readStream.format("nsq").options(**run.options).load()
    out = f"{run.topic}-out"
    query = (stream.selectExpr("concat('seen ', cast(value as string)) as value").writeStream.format("nsq")
             .option("nsqd", address(nsqd)).option("topic", out).option("checkpointLocation", run.checkpoint)
             .trigger(availableNow=True).start())
    query.awaitTermination()
    assert nsqd.stats(out)["message_count"] == 300


def test_disk_queues_as_a_table(spark, daemon):
    one = daemon("--max-bytes-per-file=20000", "--mem-queue-size=0", "--sync-every=1")
    client = one.connect()
    client.ok("MPUB t", batch(*numbered(0, 2000)))
    held = one.stats("t")["depth"]
    assert one.stop() == 0
    table = spark.read.format("nsq_diskqueue").option("path", str(one.data_path)).option("topic", "t").load()
    assert table.count() == held == 2000
    assert table.rdd.getNumPartitions() == len(list(one.data_path.glob("t.diskqueue.0*.dat"))) > 3
    got = table.selectExpr("cast(value as string) as v", "file", "pos").orderBy("file", "pos").collect()
    assert [row.v.encode() for row in got] == numbered(0, 2000)
    narrow = (spark.read.format("nsq_diskqueue").schema("value binary").option("path", str(one.data_path)).load())
    assert narrow.columns == ["value"] and narrow.distinct().count() == 2000
    empty = spark.read.format("nsq_diskqueue").option("path", str(one.data_path)).option("topic", "none").load()
    assert empty.count() == 0


@pytest.mark.parametrize(("schema", "more", "says"), [
    (None, {"path": "/nowhere"}, "path=/nowhere does not exist"),
    ("body binary", {}, "unknown column body binary"),
    ("value string", {}, "column value has type string; declare it as value binary"),
    (None, {"range": "some"}, "must be unread or all"),
])
def test_wrong_questions_to_disk_queues_are_told(spark, tmp_path, schema, more, says):
    reader = spark.read.format("nsq_diskqueue").option("path", str(tmp_path)).options(**more)
    with pytest.raises(Exception, match=says):
        (reader.schema(schema) if schema else reader).load().count()


def test_a_torn_end_of_a_disk_queue(spark, tmp_path):
    from tests.spark.test_queue_files import record

    (tmp_path / "t.diskqueue.000000.dat").write_bytes(record(b"whole") + record(b"torn")[:-2])
    reader = spark.read.format("nsq_diskqueue").option("path", str(tmp_path))
    with pytest.raises(Exception, match="no record at offset 35"):
        reader.load().count()
    assert [bytes(row.value) for row in reader.option("onBadRecord", "skip").load().collect()] == [b"whole"]


def latest(query) -> dict:
    """The metrics of the only source, from the newest progress."""
    import nsqc.spark

    found = nsqc.spark.metrics(query)
    return found[0] if found else {}


@pytest.fixture
def lively(spark):
    """Progress of an idle query every 100 ms instead of every 10 s."""
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "100")
    yield
    spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


def test_the_metrics_are_in_the_progress(flow, nsqd, daemon, lively, tmp_path):
    import nsqc.spark

    dead = daemon(kept())
    dead.kill()
    run = flow([nsqd, dead], http=f"127.0.0.1:{nsqd.http_port}", maxRowsPerBatch="60")
    run.publish(0, 100)
    query = run.start()
    wait_until(lambda: len(run.got()) == 100, "all rows")
    # The source asks nsqd for its depth now and then.
    told = wait_until(lambda: (found := latest(query)).get("backlog") == found.get("depth") == 0 and found,
                      "a progress that says so")
    assert told["nsqdUp"] == 1 and list(told["nsqdDown"]) == [address(dead)]
    assert "Connection refused" in told["nsqdDown"][address(dead)]
    assert (told["depth"], told["oldestAgeSeconds"], told["reconnects"], told["paused"]) == (0, None, 0, False)
    busy = [nsqc.spark.metrics(progress)[0] for progress in query.recentProgress if progress["numInputRows"] == 60]
    assert any(metrics["backlog"] and metrics["oldestAgeSeconds"] > 0 for metrics in busy), busy
    query.stop()
    checkpoint = "".join(path.read_text() for path in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))
    assert '"rows"' in checkpoint and "metrics" not in checkpoint


def test_a_stream_without_any_nsqd_says_so_and_fails_after_a_while(flow, daemon, lively):
    one = daemon(kept())
    run = flow([one], failWhenUnreachable="2.5s")
    run.publish(0, 10)
    query = run.start()
    wait_until(lambda: len(run.got()) == 10, "the first rows")
    one.kill()
    told = wait_until(lambda: (found := latest(query)).get("unreachableSeconds") and found, "a progress that says so")
    assert told["nsqdUp"] == 0 and list(told["nsqdDown"]) == [address(one)]
    with pytest.raises(Exception) as caught:
        query.awaitTermination(30)
    import nsqc.spark

    assert re.fullmatch(r"no nsqd could be reached for 2\.5 s \(failWhenUnreachable\): 127\.0\.0\.1:\d+: .*",
                        nsqc.spark.reason(caught.value))


def test_options_are_looked_at_by_load(spark, tmp_path):
    from nsqc.spark import reason

    good = {"nsqd": "127.0.0.1:1", "topic": "t", "channel": "c", "stagingDir": str(tmp_path / "stage")}
    spark.readStream.format("nsq").options(**good).load()
    assert not (tmp_path / "stage").exists()
    with pytest.raises(Exception) as caught:
        spark.readStream.format("nsq").options(**good, subscribe="t").load()
    assert reason(caught.value) == "nsq: unknown option subscribe is Kafka's: give topic, one for a stream of a channel"
    lines = [line for line in str(caught.value).splitlines() if line.strip()]
    assert lines[-1].strip() == "SQLSTATE: 38000" and lines[-2].startswith("nsqc.spark.options.OptionError: nsq: unknown")


def test_what_is_wrong_with_a_schema_of_ones_own_is_the_reason(spark, tmp_path):
    """load() asks for no schema then; and Spark's runner raises its own error if no reader is made."""
    from nsqc.spark import reason

    stream = (spark.readStream.format("nsq").schema("value binary").option("nsqd", "127.0.0.1:1")
              .option("topic", "t").option("channel", "c").option("stagingDir", str(tmp_path / "stage")).load())
    with pytest.raises(Exception) as caught:
        stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(30)
    assert reason(caught.value).startswith("nsq: a stream of a channel has all of its columns: value binary")
    assert "UnboundLocalError" not in str(caught.value)
