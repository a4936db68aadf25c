"""A file in a dead nsqd's data path that records the published files, so that nothing is published twice by
accident.

    nsqc.backfill.json      a list of runs: begun, ended (null: it failed), published, and the bytes of each data file
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from nsqc.spark.jobs.running import JobError
from nsqc.store.files import replace_file
from nsqc.wire.outside import Decoder, JSONError

if TYPE_CHECKING:
    from nsqc.spark.queue_files import Span

NAME = "nsqc.backfill.json"


class Run(msgspec.Struct):
    """One run. begun, ended: ISO 8601; published: messages, a lower bound if the run failed; files: start and end
    offset by name of a data file."""

    begun: str
    ended: str | None
    published: int
    files: dict[str, tuple[int, int]]


decode_runs = Decoder(list[Run]).decode


class BackfillLog:
    """The runs of a data path. Raises JobError if the file is not readable."""

    def __init__(self, folder: Path):
        self.path = folder / NAME
        self.runs: list[Run] = []
        try:
            self.runs = decode_runs(self.path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, JSONError) as error:
            raise JobError(f"{self.path} is not readable, so earlier runs are unknown: {error}; without that "
                           "file, everything is published") from None

    def refuse_again(self, spans: Iterable[Span]) -> None:
        """Raises JobError if an earlier run published some of these files."""
        files = by_name(spans)
        for run in reversed(self.runs):
            if any(name in files and start < files[name][1] and files[name][0] < end
                   for name, (start, end) in run.files.items()):
                what = (f"was published on {run.begun} ({run.published:,} messages): --again publishes it once more"
                        if run.ended else
                        f"was being published on {run.begun} by a run that failed, after at least "
                        f"{run.published:,} messages: --again publishes everything, and those twice")
                raise JobError(f"{self.path.parent} {what}")

    def begin(self, spans: Iterable[Span], note: Callable[[str], None]) -> None:
        """Call it before the first message."""
        self.runs.append(Run(now(), None, 0, by_name(spans)))
        try:
            self._write()
        except OSError as error:
            note(f"cannot record this run, another run would publish the messages again: {error}")

    def end(self, published: int, is_whole: bool) -> None:
        """Call it after the last message, or when the run has failed."""
        self.runs[-1].published = published
        self.runs[-1].ended = now() if is_whole else None
        try:
            self._write()
        except OSError:
            return      # begin() has reported it

    def _write(self) -> None:
        replace_file(self.path, msgspec.json.format(msgspec.json.encode(self.runs), indent=1), mode=0o644)


def by_name(spans: Iterable[Span]) -> dict[str, tuple[int, int]]:
    """The ranges of bytes by file name."""
    return {os.path.basename(span.path): (span.start, span.limit) for span in spans}


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
