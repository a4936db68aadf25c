"""A Spark Connect server that has the formats, until its input ends. Argument: the port."""

import sys

from nsqc.spark import session


def main(port: str) -> None:
    """Says when it is ready."""
    spark = session("connect", "local[2]", {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }, log_level="OFF")
    print("ready", flush=True)
    sys.stdin.read()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
