"""The format nsq for Spark, which imports every top-level package named pyspark_*."""

from nsqc.spark.source import NsqSource as DefaultSource

__all__ = ["DefaultSource"]
