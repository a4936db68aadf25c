"""Checks of arguments before Spark starts: names, files, times.

All raise typer.BadParameter, which ends a job with one line and exit code 2.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import typer

from nsqc import paths
from nsqc.spark.values import read_name

T = TypeVar("T")


def reads(read: Callable[[str], object]) -> Callable[[T], T]:
    """A typer callback that checks a text, or each of a list, by a reader of nsqc.spark.values and returns it."""
    def callback(given: T) -> T:
        for text in given if isinstance(given, list) else [given]:
            if isinstance(text, str):
                try:
                    read(text)
                except ValueError as error:
                    raise typer.BadParameter(f"{text}: {error}") from None
        return given
    return callback


def path(text: str | Path) -> Path:
    """The typer parser of a local path. spark-submit may start the driver in a temporary folder, which is removed when
    the job ends."""
    try:
        return Path((paths.absolute if "PYSPARK_GATEWAY_PORT" in os.environ else paths.local)(str(text)))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def inputs(texts: list[str]) -> list[str]:
    """A typer callback: URIs, which Spark checks, and local paths: files, folders with files, or patterns with
    matches."""
    return [text if paths.is_foreign(text) else str(readable(path(text))) for text in texts]


def readable(path: Path) -> Path:
    """A file, a folder with files, or a pattern with matches."""
    if not path.exists() and not glob.glob(str(path)):
        raise typer.BadParameter(f"no such file or folder: {path}")
    try:
        if path.is_dir() and not any(entry.name[0] not in "._" for entry in path.iterdir()):
            raise typer.BadParameter(f"no files in {path}")
        if path.is_file():
            path.open("rb").close()
    except OSError as error:
        raise typer.BadParameter(f"{path} is not readable: {error.strerror}") from None
    return path


def folder(path: Path) -> Path:
    """An existing folder."""
    if not path.is_dir():
        raise typer.BadParameter(f"{path} is not a folder")
    return path


def writable(path: Path | None) -> Path | None:
    """A file in an existing folder, or none."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise typer.BadParameter(f"{path} is not a file in an existing folder")
    return path


def archive(path: Path) -> Path:
    """A folder written by the archive job."""
    if not (folder(path) / "_ledger.json").is_file():
        raise typer.BadParameter(f"{path} is not an archive: it has no _ledger.json")
    return path


def archive_or_none(path: Path | None) -> Path | None:
    """The same, or none."""
    return None if path is None else archive(path)


def moment(text: str | None) -> str | None:
    """A time that micros() can read, or none."""
    if text is not None:
        micros(text)
    return text


def micros(text: str) -> int:
    """Microseconds since 1970 of a date or time in ISO 8601, in UTC unless it names another zone."""
    from nsqc.spark.jobs.ledger import micros as since_1970

    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text} is not a time such as 2026-11-21, 2026-11-21T13:00 or "
                                 "2026-11-21T13:00:00+02:00") from None
    return since_1970(time if time.tzinfo else time.replace(tzinfo=UTC))


def micros_range(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """The range of --from and --to in microseconds since 1970; None: unbounded."""
    return (micros(since) if since else None), (micros(until) if until else None)


def topic(name: str | None) -> str | None:
    """A topic name, or none."""
    return reads(read_name)(name)
