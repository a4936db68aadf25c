"""Ready scripts on the data sources: `nsqc spark JOB …`, or the same by `spark-submit nsqc/spark/jobs/JOB.py …`.

A job is a module of this folder with a `command` for typer. It checks its words before Spark starts, returns the exit
code (0 done, 1 failed, 2 usage) and imports pyspark and pyarrow only when it runs.
"""

from __future__ import annotations

import sys

JOBS = ("produce", "archive", "compact", "replay", "report", "backfill")


def main(job: str) -> None:
    """What a job's file does when it is run by itself, as spark-submit does."""
    from nsqc.app import run

    sys.exit(run(["spark", job, *sys.argv[1:]]))
