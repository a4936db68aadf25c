"""Tasks and batches that Spark retries are stored once, in a topic with the rule dedupe."""

import json
from pathlib import Path

import pytest

from tests.publishing.support import remember, stored
from tests.spark.conftest import SPARK_SECONDS


@pytest.fixture
def node(daemon):
    node = daemon()
    remember(node)
    return node


def test_a_task_that_runs_again(spark, node, tmp_path):
    """Its first attempt fails after it has published rows."""
    mark = str(tmp_path / "failed")
    stats = f"http://127.0.0.1:{node.http_port}/stats?format=json"

    def rows(batches):
        import os
        import time
        import urllib.request

        for number, batch in enumerate(batches):
            yield batch
            if number == 20 and not os.path.exists(mark):
                for _ in range(6000):
                    if b'"message_count"' in urllib.request.urlopen(stats).read():
                        break
                    time.sleep(0.01)
                with open(mark, "w"):
                    pass
                raise RuntimeError("the first attempt fails")

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        frame = spark.range(0, 3000, 1, 1).selectExpr("concat(id, repeat('x', 2000)) as value")
        frame.mapInArrow(rows, "value string").write.format("nsq").options(
            nsqd=f"127.0.0.1:{node.tcp_port}", topic="t", batchRows="50").mode("append").save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert (tmp_path / "failed").exists()
    assert stored(node) == 3000
    assert node.stats("t")["deduplicated"] > 0


def test_a_batch_of_a_stream_that_runs_again(spark, node, tmp_path):
    """The query ends after it has published, and before Spark has recorded that."""
    source, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    source.mkdir()
    (source / "a.txt").write_text("".join(f"row {number}\n" for number in range(500)))

    def run() -> None:
        query = (spark.readStream.format("text").load(str(source)).writeStream.format("nsq")
                 .options(nsqd=f"127.0.0.1:{node.tcp_port}", topic="t")
                 .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start())
        assert query.awaitTermination(SPARK_SECONDS)

    run()
    assert stored(node) == 500
    for path in Path(checkpoint, "commits").iterdir():
        path.unlink()
    assert json.loads((checkpoint / "metadata").read_text())["id"]
    run()
    assert stored(node) == 500
    assert node.stats("t")["deduplicated"] > 0
