"""A Spark program of its own, to be killed: the channel c of topic t, and the log of topic l, into Parquet files.

Arguments: nsqd, its HTTP address, folder, end (now or never)."""

import sys
import threading
from pathlib import Path

from nsqc.spark import session
from tests.spark.conftest import SETTINGS


def main(nsqd: str, http: str, folder: str, end: str) -> None:
    """Until nothing is left; or for ever, starting a query again when it fails."""
    spark = session("driver", "local[2,4]", settings=SETTINGS, log_level="OFF")
    ways = {
        "": {"topic": "t", "channel": "c", "stagingDir": f"{folder}/stage", "maxRowsPerBatch": "4000", "idleMs": "1500",
             "maxInFlight": "200"},
        "-log": {"topic": "l", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4000", "minPartitions": "3",
                 "http": http, "fetchBytes": "64k"},
    }

    def start(name: str, **trigger):
        stream = spark.readStream.format("nsq").option("nsqd", nsqd).options(**ways[name]).load()
        query = (stream.writeStream.format("parquet").option("path", f"{folder}/out{name}")
                 .option("checkpointLocation", f"{folder}/checkpoint{name}"))
        return (query.trigger(**trigger) if trigger else query).start()

    def run(name: str) -> None:
        while True:
            try:
                query = start(name)
                Path(folder, f"running{name}").touch()
                query.awaitTermination()
            except Exception as error:
                print(f"once more: {error}", flush=True)

    if end == "now":
        for query in [start(name, availableNow=True) for name in ways]:
            query.awaitTermination()
        return
    threading.Thread(target=run, args=("-log",), daemon=True).start()
    run("")


if __name__ == "__main__":
    main(*sys.argv[1:])
