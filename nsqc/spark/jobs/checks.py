"""What is looked at before Spark starts: addresses, names, files, times. Shared arguments of the jobs.

All raise typer.BadParameter, which ends a job with one line and exit code 2.
"""

from __future__ import annotations

import glob
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from nsqc.spark import options


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
    """Each a file, a folder with files or a pattern that something matches; of a URI Spark will find out."""
    for path in paths:
        if "://" in path:
            continue
        if not Path(path).exists() and not glob.glob(path):
            raise typer.BadParameter(f"there is no {path}")
        try:
            if Path(path).is_dir() and not any(entry.name[0] not in "._" for entry in Path(path).iterdir()):
                raise typer.BadParameter(f"there are no files in {path}")
            if Path(path).is_file():
                Path(path).open("rb").close()
        except OSError as error:
            raise typer.BadParameter(f"{path} cannot be read: {error.strerror}") from None
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
    return reads(values.read_name)(name)


Topic = Annotated[str, typer.Option(help="the topic", callback=topic)]
Rate = Annotated[float | None, typer.Option(help="messages a second at most, over all tasks", min=0.001)]
Archive = Annotated[Path, typer.Argument(help="the archive", metavar="FOLDER", callback=archive)]
Since = Annotated[str | None, typer.Option(
    "--from", help="leave out messages published before this time (ISO 8601, UTC)", callback=moment)]
Until = Annotated[str | None, typer.Option(
    "--to", help="leave out messages published at this time or later", callback=moment)]
