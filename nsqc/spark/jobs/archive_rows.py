"""The rows of an archive as a frame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nsqc.spark.columns import MESSAGE
from nsqc.spark.jobs.ledger import Ledger

SCHEMA = f"{MESSAGE}, archived_at timestamp"


@contextmanager
def rows(spark: Any, ledger: Ledger, start: int | None = None, end: int | None = None) -> Iterator[Any]:
    """The messages published from start up to end (microseconds since 1970), as the archive is now and for as long as
    this lasts, whatever compaction does."""
    from pyspark.sql import functions

    with ledger.pinned(start, end) as (paths, _):
        if not paths:
            yield spark.createDataFrame([], SCHEMA)
            return
        frame = spark.read.schema(SCHEMA).parquet(*(f"file://{path}" for path in paths))
        micros = functions.unix_micros("timestamp")
        if start is not None:
            frame = frame.where(micros >= start)
        if end is not None:
            frame = frame.where(micros < end)
        yield frame
