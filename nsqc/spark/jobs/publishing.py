"""Publishes a frame to a topic, at a limited rate if requested, and reports the totals."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from nsqc.spark.jobs.progress import Progress, Rate, counted
from nsqc.spark.jobs.task_rows import TaskRows
from nsqc.spark.sink import Totals
from nsqc.wire.outside import decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTHING = "nothing was published"


def publish(spark: SparkSession, frame: DataFrame, options: dict[str, str], progress: Progress,
            rate: float | None = None, speed: float | None = None, total: int | None = None) -> Totals:
    """Publishes all rows. rate: messages per second over all tasks. speed: factor for the times in the column due.
    total: the number of rows, if known. Raises Spark's exceptions; some rows may be published then, and
    progress.summary has a lower bound."""
    from nsqc.spark.jobs.paced_sink import PacedSink

    spark.dataSource.register(PacedSink)
    pace: dict[str, str] = {}
    if rate is not None or speed is not None:
        frame, tasks = side_by_side(spark, frame)
        pace = {"rate": repr(rate / tasks)} if rate is not None else {"speed": repr(speed)}
    task_rows = TaskRows(str(spark.conf.get("spark.driver.host")))
    progress.count, progress.summary = (lambda: task_rows.rows), (lambda: so_far(task_rows.rows))
    progress.show(counted("published", lambda: task_rows.rows, Rate(), total))
    try:
        with tempfile.TemporaryDirectory(prefix="nsqc-totals-") as folder:
            path = Path(folder) / "totals.json"
            frame.write.format(PacedSink.name()).mode("append").options(
                **options, **pace, reporter=task_rows.address, totalsPath=str(path)).save()
            return Totals(**decode(path.read_text())) if path.exists() else Totals()
    finally:
        task_rows.close()


def so_far(rows: int) -> str:
    """The minimum result of an aborted job: acknowledgements may have been in flight."""
    return f"at least {rows:,} messages were published" if rows else NOTHING


def side_by_side(spark: SparkSession, frame: DataFrame) -> tuple[DataFrame, int]:
    """The frame in no more partitions than can run at once, in order, and their number."""
    slots = spark.sparkContext.defaultParallelism
    count = max(frame.rdd.getNumPartitions(), 1)
    return (frame.coalesce(slots), slots) if count > slots else (frame, count)


def report(progress: Progress, totals: Totals, topic: str, started: float) -> None:
    """Prints the totals; started: time.monotonic() at the start."""
    progress.count, progress.summary = (lambda: totals.rows), (lambda: f"{totals.rows:,} messages were published")
    seconds = max(time.monotonic() - started, 1e-6)
    remarks = ""
    if totals.skipped:
        remarks += f"; {totals.skipped:,} invalid rows skipped"
    if totals.resent:
        remarks += f"; {totals.resent:,} published again after a broken connection, possibly duplicates"
    progress.result(f"published {totals.rows:,} messages to {topic} in {seconds:.1f} s, "
                    f"{totals.rows / seconds:,.0f} a second{remarks}")
