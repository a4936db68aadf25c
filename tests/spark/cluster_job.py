"""A job for a cluster: publishes a table and reads it back. Arguments: nsqd, its HTTP address, master or nothing."""

import sys

from pyspark.sql import SparkSession

from nsqc.spark import reason


def main(nsqd: str, http: str, master: str = "") -> None:
    """Prints the number of rows, or the reason why there are none."""
    if master:
        from nsqc.spark import session

        spark = session("cluster", master, {
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.executor.memory": "512m"}, log_level="OFF")
    else:
        spark = SparkSession.builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
    given = {"nsqd": nsqd, "topic": "t"}
    rows = spark.range(1000, numPartitions=2).selectExpr("cast(id as string) as value")
    try:
        rows.write.format("nsq").mode("append").options(**given).save()
        print("rows", spark.read.format("nsq").options(**given, http=http).load().select("value").distinct().count())
    except Exception as error:
        print("failed:", reason(error))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
