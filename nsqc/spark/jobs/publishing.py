"""A frame to a topic by the sink, at a pace where one is asked for, and the totals of what was published."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from nsqc.spark.sink import Totals


def publish(spark: Any, frame: Any, options: dict[str, str], rate: float | None = None,
            speed: float | None = None) -> Totals:
    """Publishes all rows. rate: messages a second over all tasks. speed: how fast the column due goes by, 1 being as
    it was. Raises what Spark raises; then some rows may be published."""
    form, pace = "nsq", {}
    if rate is not None or speed is not None:
        from nsqc.spark.jobs.pace import PacedSink

        spark.dataSource.register(PacedSink)
        form = PacedSink.name()
        frame, tasks = side_by_side(spark, frame)
        pace = {"rate": repr(rate / tasks)} if rate is not None else {"speed": repr(speed)}
    with tempfile.TemporaryDirectory(prefix="nsqc-totals-") as folder:
        path = Path(folder) / "totals.json"
        frame.write.format(form).mode("append").options(**options, **pace, totalsPath=str(path)).save()
        return Totals(**json.loads(path.read_text())) if path.exists() else Totals()


def side_by_side(spark: Any, frame: Any) -> tuple[Any, int]:
    """The frame in no more partitions than run at a time, in their order, and how many these are."""
    slots = spark.sparkContext.defaultParallelism
    count = max(frame.rdd.getNumPartitions(), 1)
    return (frame.coalesce(slots), slots) if count > slots else (frame, count)


def tell(totals: Totals, topic: str, started: float) -> None:
    """The totals, for people; started: time.monotonic() before."""
    seconds = max(time.monotonic() - started, 1e-6)
    more = [text for count, text in ((totals.skipped, "{:,} rows left out that nsqd would refuse"),
                                     (totals.resent, "{:,} published again after a broken connection, perhaps twice"))
            if count for text in [text.format(count)]]
    print(f"published {totals.rows:,} messages to {topic} in {seconds:.1f} s, {totals.rows / seconds:,.0f} a second"
          + "".join(f"; {text}" for text in more))
