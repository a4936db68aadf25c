"""Log-backed topics, read by offset: see nsqc.spark.log.table and .stream."""
