"""NSQ's topics as Spark data sources, by PySpark.

spark.read, spark.readStream, df.write and df.writeStream know the formats nsq and nsq_diskqueue; docs/spark.md has
their options and promises. Nothing here imports pyspark before it is used.
"""

from __future__ import annotations

from typing import Any

__all__ = ["doctor", "register", "session"]


def session(*given: Any, **named: Any) -> Any:
    """A local Spark session with the formats; see nsqc.spark.session.session."""
    from nsqc.spark.session import session

    return session(*given, **named)
