"""A frame to a topic by the sink, at a pace where one is asked for, and the totals of what was published."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from nsqc.spark.jobs.task_rows import TaskRows
from nsqc.spark.jobs.progress import Rate, Progress, counted
from nsqc.spark.sink import Totals

NOTHING = "nothing was published"


def publish(spark: Any, frame: Any, options: dict[str, str], progress: Progress, rate: float | None = None,
            speed: float | None = None, total: int | None = None) -> Totals:
    """Publishes all rows. rate: messages a second over all tasks. speed: how fast the column due goes by, 1 being as
    it was. total: how many rows there are, where that is known. Raises what Spark raises; then some rows may be
    published, and progress.summary says how many at least."""
    from nsqc.spark.jobs.paced_sink import PacedSink

    spark.dataSource.register(PacedSink)
    pace = {}
    if rate is not None or speed is not None:
        frame, tasks = side_by_side(spark, frame)
        pace = {"rate": repr(rate / tasks)} if rate is not None else {"speed": repr(speed)}
    task_rows = TaskRows(spark.conf.get("spark.driver.host"))
    progress.count, progress.summary = (lambda: task_rows.rows), (lambda: so_far(task_rows.rows))
    progress.show(counted("published", lambda: task_rows.rows, Rate(), total))
    try:
        with tempfile.TemporaryDirectory(prefix="nsqc-totals-") as folder:
            path = Path(folder) / "totals.json"
            frame.write.format(PacedSink.name()).mode("append").options(
                **options, **pace, task_rows=task_rows.address, totalsPath=str(path)).save()
            return Totals(**json.loads(path.read_text())) if path.exists() else Totals()
    finally:
        task_rows.close()


def so_far(rows: int) -> str:
    """What a job that ends too early has done. Acknowledgements may have been on their way."""
    return f"at least {rows:,} messages were published" if rows else NOTHING


def side_by_side(spark: Any, frame: Any) -> tuple[Any, int]:
    """The frame in no more partitions than run at a time, in their order, and how many these are."""
    slots = spark.sparkContext.defaultParallelism
    count = max(frame.rdd.getNumPartitions(), 1)
    return (frame.coalesce(slots), slots) if count > slots else (frame, count)


def tell(progress: Progress, totals: Totals, topic: str, started: float) -> None:
    """The totals, for people; started: time.monotonic() before."""
    progress.count, progress.summary = (lambda: totals.rows), (lambda: f"{totals.rows:,} messages were published")
    seconds = max(time.monotonic() - started, 1e-6)
    more = [text for count, text in ((totals.skipped, "{:,} rows left out that nsqd would refuse"),
                                     (totals.resent, "{:,} published again after a broken connection, perhaps twice"))
            if count for text in [text.format(count)]]
    progress.result(f"published {totals.rows:,} messages to {topic} in {seconds:.1f} s, "
               f"{totals.rows / seconds:,.0f} a second"
               + "".join(f"; {text}" for text in more))
