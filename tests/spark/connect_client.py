"""A Spark Connect client without nsqc: a table into a topic, a channel of it as a stream, its log as a table and in SQL.

Arguments: port, nsqd, its HTTP address, folder."""

import sys
from importlib.util import find_spec

from pyspark.sql import SparkSession


def main(port: str, nsqd: str, http: str, folder: str) -> None:
    """Prints the number of returned rows, and the kind of session."""
    assert find_spec("nsqc") is None
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    rows = spark.range(1000).selectExpr("cast(id as string) as value")
    rows.write.format("nsq").mode("append").option("nsqd", nsqd).option("topic", "t").save()
    stream = (spark.readStream.format("nsq").option("nsqd", nsqd).option("topic", "t").option("channel", "c")
              .option("stagingDir", f"{folder}/stage").option("idleMs", "300").load())
    query = (stream.writeStream.format("parquet").option("path", f"{folder}/out")
             .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start())
    query.awaitTermination()
    print("rows", spark.read.parquet(f"{folder}/out").select("value").distinct().count(), type(spark).__module__)
    log = spark.read.format("nsq").option("nsqd", nsqd).option("http", http).option("topic", "t").load()
    spark.sql(f"CREATE TEMPORARY VIEW log USING nsq OPTIONS (nsqd '{nsqd}', http '{http}', topic 't')")
    print("log", log.select("offset").distinct().count(), spark.sql("SELECT max(offset) AS last FROM log").first().last)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
