"""What was published of a dead nsqd's data path, noted in a file in it: so that nothing is published twice unasked.

    nsqc.backfill.json      a list of runs: begun, ended (null: it did not), published, and the bytes of each data file
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from nsqc.spark.jobs.running import JobError
from nsqc.store.files import replace_file

NAME = "nsqc.backfill.json"


class Run(msgspec.Struct):
    """One run. begun, ended: ISO 8601; published: messages, at least where it did not end; files: start and end by name
    of a data file."""

    begun: str
    ended: str | None
    published: int
    files: dict[str, tuple[int, int]]


class Record:
    """The runs of a data path. Raises JobError where its file cannot be read."""

    def __init__(self, folder: Path):
        self.path = folder / NAME
        self.runs: list[Run] = []
        try:
            self.runs = msgspec.json.decode(self.path.read_bytes(), type=list[Run])
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError) as error:
            raise JobError(f"{self.path} cannot be read, what was published before is not known: {error}; without that "
                           "file, everything is published") from None

    def refuse_again(self, spans: Iterable[Any]) -> None:
        """Raises JobError where an earlier run had some of it. spans: nsqc.spark.queue_files.Span."""
        files = by_name(spans)
        for run in reversed(self.runs):
            if any(name in files and start < files[name][1] and files[name][0] < end
                   for name, (start, end) in run.files.items()):
                what = (f"was published on {run.begun} ({run.published:,} messages): --again publishes it once more"
                        if run.ended else
                        f"was being published on {run.begun} by a run that did not end, after at least "
                        f"{run.published:,} messages: --again publishes everything, and those twice")
                raise JobError(f"{self.path.parent} {what}")

    def begin(self, spans: Iterable[Any], note: Callable[[str], Any]) -> None:
        """Before the first message."""
        self.runs.append(Run(now(), None, 0, by_name(spans)))
        try:
            self._write()
        except OSError as error:
            note(f"what is published cannot be noted, so that another run would publish it again: {error}")

    def end(self, published: int, is_whole: bool) -> None:
        """After the last message, or where the run has failed."""
        self.runs[-1].published = published
        self.runs[-1].ended = now() if is_whole else None
        try:
            self._write()
        except OSError:
            return      # begin() has told

    def _write(self) -> None:
        replace_file(self.path, msgspec.json.format(msgspec.json.encode(self.runs), indent=1), mode=0o644)


def by_name(spans: Iterable[Any]) -> dict[str, tuple[int, int]]:
    """Which bytes of which files."""
    return {os.path.basename(span.path): (span.start, span.limit) for span in spans}


def now() -> str:
    """To the second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
