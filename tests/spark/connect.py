"""A Spark Connect client and its server: a table into a topic and the topic as a stream. Arguments: nsqd, folder."""

import sys

from pyspark.sql import SparkSession

from nsqc.spark import sessions


def main(nsqd: str, folder: str) -> None:
    """Prints how many rows came back."""
    sessions.prepare()
    builder = SparkSession.builder.remote("local[2]")
    for key, value in {**sessions.SETTINGS, "spark.connect.grpc.binding.port": "0"}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.range(1000).selectExpr("cast(id as string) as value").write.format("nsq").mode("append").option(
        "nsqd", nsqd).option("topic", "t").save()
    stream = (spark.readStream.format("nsq").option("nsqd", nsqd).option("topic", "t").option("channel", "c")
              .option("stagingDir", f"{folder}/stage").option("idleMs", "300").load())
    query = (stream.writeStream.format("parquet").option("path", f"{folder}/out")
             .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start())
    query.awaitTermination()
    print("rows", spark.read.parquet(f"{folder}/out").select("value").distinct().count(), type(spark).__module__)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
