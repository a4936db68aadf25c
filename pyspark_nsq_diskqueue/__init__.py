"""Where Spark finds the format nsq_diskqueue: it imports every top-level module named pyspark_*."""

from nsqc.spark.diskqueue import DiskQueueSource as DefaultSource

__all__ = ["DefaultSource"]
