"""The rows of an archive as a frame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nsqc.spark.columns import LOG
from nsqc.spark.jobs.inputs import LITERAL, uri
from nsqc.spark.jobs.ledger import Ledger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# offset: of messages read from a log, otherwise null.
SCHEMA = f"{LOG}, archived_at timestamp"


@contextmanager
def read(spark: SparkSession, ledger: Ledger, start: int | None = None,
         end: int | None = None) -> Iterator[DataFrame]:
    """The messages published from start to end (microseconds since 1970), in the current archive; compaction does not
    affect the block."""
    with ledger.pinned(start, end) as (paths, _):
        if not paths:
            yield spark.createDataFrame([], SCHEMA)
            return
        frame = spark.read.schema(SCHEMA).options(**LITERAL).parquet(*(uri(path) for path in paths))
        yield within(frame, start, end)


def within(frame: DataFrame, start: int | None, end: int | None) -> DataFrame:
    """The rows published from start to end."""
    from pyspark.sql import functions

    micros = functions.unix_micros("timestamp")
    if start is not None:
        frame = frame.where(micros >= start)
    return frame if end is None else frame.where(micros < end)
