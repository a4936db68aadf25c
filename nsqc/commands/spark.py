"""`nsqc spark`: the jobs of nsqc.spark.jobs. Spark is imported by the job that runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated

import typer

from nsqc.commands.output import EXIT_REFUSED


def build() -> typer.Typer:
    """One sub-command per job."""
    from nsqc.spark.jobs import JOBS

    app = typer.Typer(help="Move messages between topics, files and archives by Spark.")
    for job in JOBS:
        app.command(job)(import_module(f"nsqc.spark.jobs.{job}").command)
    app.command("doctor")(doctor)
    return app


def doctor(
    nsqd: Annotated[list[str] | None, typer.Argument(
        help="nsqd that must answer", metavar="HOST:PORT")] = None,
) -> int:
    """Check this environment: Java, Python packages, network, nsqd."""
    from nsqc.spark import checkup

    return checkup.main(nsqd or [])


def refuse(context: typer.Context) -> int:
    """Move messages between topics, files and archives by Spark. It needs the Python package."""
    print("nsqc spark: not part of the executable; install the Python package: pip install 'nsqc[spark]'",
          file=sys.stderr)
    return EXIT_REFUSED


# The executable omits nsqc.spark.
is_here = find_spec("nsqc.spark") is not None
command: typer.Typer | Callable[[typer.Context], int] = build() if is_here else refuse
settings = None if is_here else {"ignore_unknown_options": True, "allow_extra_args": True}
