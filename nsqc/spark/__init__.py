"""NSQ topics as PySpark data sources.

spark.read, spark.readStream, df.write and df.writeStream support the formats nsq and nsq_diskqueue; docs/spark.md
describes their options and guarantees. Nothing here imports pyspark before it is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from nsqc.spark.checkup import Finding
    from nsqc.spark.stager import StreamMetrics

__all__ = ["doctor", "headers", "json", "metrics", "reason", "register", "session", "text"]

if MARK := os.environ.get("NSQC_SPARK_LOG"):
    # In a worker of a job: of Java's output, the job shows only lines with this mark.
    _handler = logging.StreamHandler()
    _handler.setFormatter(logging.Formatter(f"{MARK}%(message)s"))
    logging.getLogger("nsqc").addHandler(_handler)


def session(name: str = "nsqc", master: str = "local[*]", settings: Mapping[str, str] | None = None,
            log_level: str = "ERROR") -> SparkSession:
    """The running SparkSession or a new local one, with the formats; see nsqc.spark.sessions.session."""
    from nsqc.spark import sessions

    return sessions.session(name, master, settings, log_level)


def register(spark: SparkSession) -> None:
    """Registers the formats with a session whose workers do not find them by name."""
    from nsqc.spark import sessions

    sessions.register(spark)


def doctor(nsqd: Iterable[str] = ()) -> list[Finding]:
    """Checks this environment: (what, well, text) for each check; nsqd: addresses that must answer."""
    from nsqc.spark import checkup

    return checkup.examine(nsqd)


def reason(error: BaseException) -> str:
    """The cause of an exception from Spark in one line, without the stack traces of Java and Python."""
    from nsqc.spark import mistakes

    return mistakes.reason(error)


# Any: see stager.metrics
def metrics(of: Any) -> list[StreamMetrics]:
    """The metrics of the nsq sources of a query, or of a StreamingQueryProgress: see docs/spark.md."""
    from nsqc.spark import stager

    return stager.metrics(of)


def json(frame: DataFrame, schema: StructType | str) -> DataFrame:
    """The frame with its column value parsed as JSON: adds a column for each field of the schema (a StructType, or DDL
    such as 'price double, customer string'), and the boolean column bad, true for a body that does not match:
    unreadable fields are null, and value keeps the original body. Headers before the JSON are skipped. For tables and
    streams. Raises ValueError if a column of that name exists."""
    from nsqc.spark import options

    return options.json(frame, schema)


def headers(frame: DataFrame) -> DataFrame:
    """The frame with the headers that nsqc.client.with_headers has put before bodies in a column headers, a map of
    strings, null for a body without any; value is the rest of the body. For tables and streams. Raises ValueError if a
    column of that name exists."""
    from nsqc.spark import options

    return options.headers(frame)


def text(frame: DataFrame) -> DataFrame:
    """The frame with its column value as a string instead of bytes; invalid UTF-8 becomes U+FFFD. For tables and
    streams."""
    from nsqc.spark import options

    return options.text(frame)
