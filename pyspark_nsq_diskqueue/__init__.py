"""The format nsq_diskqueue for Spark, which imports every top-level package named pyspark_*."""

from nsqc.spark.diskqueue import DiskQueueSource as DefaultSource

__all__ = ["DefaultSource"]
