"""df.write and df.writeStream through Spark itself.

Slow: each query or job starts Python workers, and plans and commits batches; the first one waits for Java.
"""

import json

import pytest

from tests.spark.conftest import address, depth, received
from tests.support.daemon import wait_until


def write(frame, nsqd, mode="append", **more):
    writer = frame.write.format("nsq").mode(mode).option("nsqd", address(nsqd))
    for name, value in more.items():
        writer = writer.option(name, value)
    writer.save()


def rows(spark, count: int, partitions: int = 2):
    return spark.range(0, count, 1, partitions).selectExpr("concat('row ', id) as value")


@pytest.mark.parametrize("large", ["false", "true"])
def test_every_row_once(spark, nsqd, topic, large, tmp_path):
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", large)
    try:
        write(rows(spark, 30_000), nsqd, topic=topic, totalsPath=str(tmp_path / "totals"))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert depth(nsqd, topic) == 30_000
    assert sorted(received(nsqd, topic, 30_000)) == sorted(b"row %d" % n for n in range(30_000))
    assert json.loads((tmp_path / "totals").read_text()) | {"commands": 0, "bytes": 0} == {
        "rows": 30_000, "bytes": 0, "commands": 0, "deferred": 0, "resent": 0, "skipped": 0, "retries": 0}


def test_topic_and_delay_by_column(spark, nsqd, topic):
    frame = spark.range(100).selectExpr("cast(id as string) as value", f"concat('{topic}-', id % 2) as topic",
                                        "case when id >= 90 then 60000 end as defer_ms")
    for number in range(2):
        nsqd.post(f"/topic/create?topic={topic}-{number}")
        nsqd.post(f"/channel/create?topic={topic}-{number}&channel=c")
    write(frame, nsqd)
    wait_until(lambda: nsqd.channel(f"{topic}-1", "c")["deferred_count"] == 5, "the deferred rows")
    assert nsqd.channel(f"{topic}-0", "c")["depth"] == 45


def test_no_rows_are_no_error(spark, nsqd, topic):
    write(rows(spark, 10).where("value = 'none'"), nsqd, topic=topic)
    assert depth(nsqd, topic) == 0


@pytest.mark.parametrize(("columns", "options", "says"), [
    (["'a' as value"], {"topic": "bad topic!"}, "option topic=bad topic!: a name is 1 to 64"),
    (["'a' as value"], {}, "give the topic either as an option or as a column"),
    (["'a' as value", "'t' as topic"], {"topic": "t"}, "either as an option or as a column"),
    (["'a' as value", "1 as other"], {"topic": "t"}, "column other is not published"),
    (["1 as value"], {"topic": "t"}, "column value must be binary or string, not int"),
    (["'a' as body"], {"topic": "t"}, "column body is not published"),
    (["'a' as value"], {"topic": "t", "tpoic": "x"}, "unknown option tpoic"),
    (["'a' as value"], {"topic": "t", "mode": "overwrite"}, "cannot be overwritten"),
    (["cast(null as string) as value"], {"topic": "t"}, "row 0 of the partition: value is null"),
])
def test_what_is_wrong_is_said(spark, nsqd, columns, options, says):
    with pytest.raises(Exception, match=says):
        write(spark.range(1).selectExpr(*columns), nsqd, **options)


def test_a_task_that_fails_is_tried_again_and_its_rows_are_doubled_at_most(spark, nsqd, topic, tmp_path):
    from pyspark.sql.functions import col, udf

    mark = str(tmp_path / "failed")

    def once(value):
        import os

        if value == "row 19000" and not os.path.exists(mark):
            open(mark, "w").close()
            os._exit(9)     # the worker dies as by kill -9
        return value

    write(rows(spark, 20_000, 1).select(udf(once)(col("value")).alias("value")), nsqd, topic=topic, batchRows="100")
    assert (tmp_path / "failed").exists()
    count = depth(nsqd, topic)
    assert set(received(nsqd, topic, count)) == {b"row %d" % n for n in range(20_000)}
    assert 20_000 <= count <= 40_000


def test_a_stream_is_published(spark, nsqd, topic, tmp_path):
    for number in range(2):
        rows(spark, 500, 1).write.mode("append").json(str(tmp_path / "in"))
        query = (spark.readStream.schema("value string").json(str(tmp_path / "in")).writeStream.format("nsq")
                 .option("nsqd", address(nsqd)).option("topic", topic)
                 .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start())
        query.awaitTermination()
        assert depth(nsqd, topic) == 500 * (number + 1)


def test_the_formats_are_found_by_their_names():
    """As Spark looks for them: the only DefaultSource of a top-level module pyspark_*."""
    from importlib import import_module
    from pkgutil import iter_modules

    from pyspark.sql.datasource import DataSource

    found = {info.name: import_module(info.name).DefaultSource for info in iter_modules()
             if info.name.startswith("pyspark_nsq")}
    assert {name: source.name() for name, source in found.items()} == {
        "pyspark_nsq": "nsq", "pyspark_nsq_diskqueue": "nsq_diskqueue"}
    assert all(issubclass(source, DataSource) for source in found.values())
