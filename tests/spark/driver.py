"""A standalone Spark program, to be killed: the channel c of topic t, and the log of topic l, into Parquet files.

Arguments: nsqd, its HTTP address, folder, end (now or never), localFiles of the log."""

import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from nsqc.spark import session
from tests.spark.conftest import SETTINGS
from tests.support.patience import WAIT_SECONDS


def main(nsqd: str, http: str, folder: str, end: str, local: str) -> None:
    """Runs until everything is read; or for ever, restarting a query that fails."""
    spark = session("driver", "local[2,4]", settings=SETTINGS, log_level="OFF")
    ways = {
        "": {"topic": "t", "channel": "c", "stagingDir": f"{folder}/stage", "maxRowsPerBatch": "4000", "idleMs": "1500",
             "maxInFlight": "200"},
        "-log": {"topic": "l", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4000", "minPartitions": "3",
                 "http": http, "fetchBytes": "64k", "localFiles": local},
    }

    def start(name: str, **trigger):
        stream = spark.readStream.format("nsq").option("nsqd", nsqd).options(**ways[name]).load()
        query = (stream.writeStream.format("parquet").option("path", f"{folder}/out{name}")
                 .option("checkpointLocation", f"{folder}/checkpoint{name}"))
        return (query.trigger(**trigger) if trigger else query).start()

    # Sequentially: two queries that begin at once may corrupt a table of Spark's in which both register their
    # variables, and then each task fails with OptionalDataException for as long as the driver runs. Registered entries
    # stay.
    beginning = threading.Lock()

    def run(name: str) -> None:
        with beginning:
            query = start(name)
            until = time.monotonic() + WAIT_SECONDS
            while query.isActive and query.lastProgress is None and time.monotonic() < until:
                time.sleep(0.05)
        Path(folder, f"running{name}").touch()
        while True:
            try:
                query.awaitTermination()
                query = start(name)
            except Exception as error:
                print(f"once more: {error}", flush=True)
                with suppress(Exception):
                    query = start(name)

    if end == "now":
        for name in ways:
            start(name, availableNow=True).awaitTermination()
        return
    threading.Thread(target=run, args=("-log",), daemon=True).start()
    run("")


if __name__ == "__main__":
    main(*sys.argv[1:])
