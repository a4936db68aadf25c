"""What is looked at before Spark starts: addresses, names, files, times. Shared arguments of the jobs.

All raise typer.BadParameter, which ends a job with one line and exit code 2.
"""

from __future__ import annotations

import glob
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from nsqc.spark import options

CONNECT_SECONDS = 5.0


def reads(read: Callable[[str], Any]) -> Callable[[Any], Any]:
    """A callback for typer that has text read by one of nsqc.spark.options' functions, and keeps the text."""
    def callback(given: Any) -> Any:
        for text in given if isinstance(given, list) else [given]:
            if text is not None:
                try:
                    read(text)
                except ValueError as error:
                    raise typer.BadParameter(f"{text}: {error}") from None
        return given
    return callback


def all_exist(paths: list[str]) -> list[str]:
    """Each a file, a folder or a pattern that something matches; of a URI Spark will find out."""
    for path in paths:
        if "://" not in path and not Path(path).exists() and not glob.glob(path):
            raise typer.BadParameter(f"there is no {path}")
    return paths


def folder(path: Path) -> Path:
    """A folder that is there."""
    if not path.is_dir():
        raise typer.BadParameter(f"{path} is no folder")
    return path


def archive(path: Path) -> Path:
    """A folder that the archive job has written."""
    if not (folder(path) / "_ledger.json").is_file():
        raise typer.BadParameter(f"{path} is no archive, it has no _ledger.json")
    return path


def moment(text: str | None) -> str | None:
    """A time that micros() can read."""
    if text is not None:
        micros(text)
    return text


def micros(text: str) -> int:
    """Microseconds since 1970 of a date or time in ISO 8601, in UTC where it says nothing else."""
    from nsqc.spark.jobs.ledger import micros as since_1970

    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text} is no time such as 2026-11-21, 2026-11-21T13:00 or 2026-11-21T13:00:00+02:00"
                                 ) from None
    return since_1970(found if found.tzinfo else found.replace(tzinfo=UTC))


def topic(name: str | None) -> str | None:
    """A topic's name, or none."""
    return reads(options.name)(name)


def peers(nsqd: str | None, nsqlookupd: str | None) -> dict[str, str]:
    """The data sources' options that say where the nsqd are."""
    given = {key: text for key, text in (("nsqd", nsqd), ("nsqlookupd", nsqlookupd)) if text is not None}
    if len(given) != 1:
        raise typer.BadParameter("give one of --nsqd and --nsqlookupd")
    return given


def reachable(given: dict[str, str]) -> None:
    """Raises OSError where none of the peers takes a connection, which saves the start of Spark."""
    reasons = []
    for address in options.addresses(*given.values()):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
            return
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
    raise OSError(f"no {next(iter(given))} can be reached: {'; '.join(reasons)}")


Nsqd = Annotated[str | None, typer.Option(
    help="nsqd's TCP address HOST:PORT, several divided by commas", callback=reads(options.addresses))]
Nsqlookupd = Annotated[str | None, typer.Option(
    help="instead: nsqlookupd's HTTP address HOST:PORT, several divided by commas", callback=reads(options.addresses))]
Topic = Annotated[str, typer.Option(help="the topic", callback=topic)]
Rate = Annotated[float | None, typer.Option(help="messages a second at most, over all tasks", min=0.001)]
Archive = Annotated[Path, typer.Argument(help="the archive", metavar="FOLDER", callback=archive)]
Since = Annotated[str | None, typer.Option(
    "--from", help="leave out messages published before this time (ISO 8601, UTC)", callback=moment)]
Until = Annotated[str | None, typer.Option(
    "--to", help="leave out messages published at this time or later", callback=moment)]
