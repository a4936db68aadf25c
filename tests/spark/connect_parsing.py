"""A Spark Connect client that has nsqc: bodies as columns. Argument: the port."""

import sys

from pyspark.sql import SparkSession

import nsqc.spark


def main(port: str) -> None:
    """Prints how two bodies were parsed."""
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    frame = spark.createDataFrame([(bytearray(b'{"a": 1}'),), (bytearray(b"no"),)], "value binary")
    rows = nsqc.spark.json(nsqc.spark.text(frame), "a int").collect()
    print(sorted((row.value, row.a, row.bad) for row in rows), type(spark).__module__)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
