"""A Spark program of its own, to be killed: a topic into Parquet files. Arguments: nsqd, folder, end (now or never)."""

import sys
from pathlib import Path

from nsqc.spark import session
from tests.spark.conftest import SETTINGS


def main(nsqd: str, folder: str, end: str) -> None:
    """Runs until nothing is left, or for ever."""
    spark = session("driver", "local[2,4]", settings=SETTINGS, log_level="OFF")
    stream = (spark.readStream.format("nsq").option("nsqd", nsqd).option("topic", "t").option("channel", "c")
              .option("stagingDir", f"{folder}/stage").option("maxRowsPerBatch", "3000").option("idleMs", "1500")
              .option("maxInFlight", "300").load())
    query = (stream.writeStream.format("parquet").option("path", f"{folder}/out")
             .option("checkpointLocation", f"{folder}/checkpoint"))
    query = query.trigger(availableNow=True).start() if end == "now" else query.start()
    Path(folder, "running").touch()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
