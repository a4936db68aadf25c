"""NSQ's topics as Spark data sources, by PySpark.

spark.read, spark.readStream, df.write and df.writeStream know the formats nsq and nsq_diskqueue; docs/spark.md has
their options and promises. Nothing here imports pyspark before it is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["doctor", "metrics", "reason", "register", "session"]

if MARK := os.environ.get("NSQC_SPARK_LOG"):
    # In a worker of a job, which shows its user the lines that are marked so and nothing else of what Java prints.
    _handler = logging.StreamHandler()
    _handler.setFormatter(logging.Formatter(f"{MARK}%(message)s"))
    logging.getLogger("nsqc").addHandler(_handler)


def session(name: str = "nsqc", master: str = "local[*]", settings: Mapping[str, str] | None = None,
            log_level: str = "ERROR") -> Any:
    """The running SparkSession or a new local one, with the formats; see nsqc.spark.sessions.session."""
    from nsqc.spark import sessions

    return sessions.session(name, master, settings, log_level)


def register(spark: Any) -> None:
    """Makes the formats known to a session whose workers do not find them by themselves."""
    from nsqc.spark import sessions

    sessions.register(spark)


def doctor(nsqd: Iterable[str] = ()) -> list[Any]:
    """What is wrong here: (what, well, text) for all that was looked at; nsqd: addresses that must answer."""
    from nsqc.spark import checkup

    return checkup.examine(nsqd)


def reason(error: BaseException) -> str:
    """One line for what went wrong in Spark, without Java's and Python's stacks."""
    from nsqc.spark import reasons

    return reasons.reason(error)


def metrics(of: Any) -> list[dict[str, Any]]:
    """What the nsq sources of a query, or of a StreamingQueryProgress, say of themselves: see docs/spark.md."""
    from nsqc.spark import progress

    return progress.metrics(of)
