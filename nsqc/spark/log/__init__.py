"""Topics that are kept in a log, read by offset: see nsqc.spark.log.batch and .stream."""
