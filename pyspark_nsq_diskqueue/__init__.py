"""The format nsq_diskqueue for Spark, which imports every top-level package named pyspark_*."""

from nsqc.spark.queue_files import DiskQueueSource as DefaultSource

__all__ = ["DefaultSource"]
