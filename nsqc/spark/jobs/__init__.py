"""Ready-made scripts on the data sources: `nsqc spark JOB …`, or `spark-submit nsqc/spark/jobs/JOB.py …`.

A job is a module of this folder with a `command` for typer. It checks its arguments before Spark starts, returns the
exit code (0 done, 1 failed, 2 usage) and imports pyspark and pyarrow only when it runs.
"""

from __future__ import annotations

import sys
from importlib import import_module

import typer

JOBS = ("produce", "archive", "compact", "replay", "report", "sql", "lag", "backfill")


def main(job: str) -> None:
    """Runs a job's file as a script, as spark-submit does. `nsqc` is above this package and not used."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(import_module(f"nsqc.spark.jobs.{job}").command)
    try:
        sys.exit(app(prog_name=f"{job}.py", standalone_mode=False))
    except typer.TyperException as error:
        print(f"nsqc spark: {' '.join(error.format_message().split())}", file=sys.stderr)
        sys.exit(error.exit_code)
