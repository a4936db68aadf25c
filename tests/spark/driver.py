"""A Spark program of its own, to be killed: a topic into Parquet files. Arguments: nsqd, folder, end (now or never)."""

import sys
from pathlib import Path

from nsqc.spark import session
from tests.spark.conftest import SETTINGS


def main(nsqd: str, folder: str, end: str) -> None:
    """Until nothing is left; or for ever, starting the query again when it fails."""
    spark = session("driver", "local[2,4]", settings=SETTINGS, log_level="OFF")

    def start(**trigger):
        stream = (spark.readStream.format("nsq").option("nsqd", nsqd).option("topic", "t").option("channel", "c")
                  .option("stagingDir", f"{folder}/stage").option("maxRowsPerBatch", "4000").option("idleMs", "1500")
                  .option("maxInFlight", "200").load())
        query = (stream.writeStream.format("parquet").option("path", f"{folder}/out")
                 .option("checkpointLocation", f"{folder}/checkpoint"))
        return (query.trigger(**trigger) if trigger else query).start()

    if end == "now":
        start(availableNow=True).awaitTermination()
        return
    while True:
        try:
            query = start()
            Path(folder, "running").touch()
            query.awaitTermination()
        except Exception as error:
            print(f"once more: {error}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
