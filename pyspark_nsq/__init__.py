"""Where Spark finds the format nsq: it imports every top-level module named pyspark_*."""

from nsqc.spark.source import NsqSource as DefaultSource

__all__ = ["DefaultSource"]
