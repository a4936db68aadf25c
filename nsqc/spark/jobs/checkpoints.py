"""The progress of a checkpoint's query, read from Spark's files. Knows no Spark.

    offsets/N       planned batches: a line with the version, one with metadata, then the end offset of each source
    commits/N       completed batches
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from nsqc.spark.jobs.running import JobError
from nsqc.spark.log.checkpoint import ids_of, places_of
from nsqc.spark.log.errors import LogError
from nsqc.spark.log.ranges import Place
from nsqc.wire.outside import JSONError, decode

HEAD_LINES = 2      # before the sources


class Checkpoint(NamedTuple):
    """batch: the last planned one, None before the first; done: whether it is committed; logs: end offsets in the logs
    that the query reads; ids: of these logs, as far as known; consumes: whether the query consumes a channel."""

    batch: int | None
    done: bool
    logs: dict[Place, int]
    ids: dict[Place, str]
    consumes: bool


def read(folder: Path) -> Checkpoint:
    """The state of a query. Raises JobError if the folder is not a checkpoint."""
    if not (folder / "offsets").is_dir():
        raise JobError(f"{folder} is not a checkpoint of a query: it has no folder offsets")
    try:
        names = [path.name for path in (folder / "offsets").iterdir()]
        batch = max((int(name) for name in names if name.isascii() and name.isdecimal()), default=None)
        if batch is None:
            return Checkpoint(None, True, {}, {}, False)
        lines = (folder / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise JobError(f"{folder} is not readable: {error}") from None
    offsets = [offset for line in lines[HEAD_LINES:] if isinstance(offset := parsed(line), dict)]
    logs: dict[Place, int] = {}
    ids: dict[Place, str] = {}
    try:
        for offset in offsets:
            if "topics" in offset and "joined" in offset:
                # Two sources may read the same log: the one that lags counts.
                logs |= {place: min(end, logs.get(place, end)) for place, end in places_of(offset, "topics").items()}
                ids |= ids_of(offset)
    except LogError:
        raise JobError(f"{folder / 'offsets' / str(batch)} does not have the offsets of a query") from None
    return Checkpoint(batch, (folder / "commits" / str(batch)).exists(), logs, ids,
                      any(offset.keys() == {"log", "rows"} for offset in offsets))


# Any: JSON
def parsed(line: str) -> Any:
    """The value of a line; None if it is not JSON: - stands for a source without an offset."""
    try:
        return decode(line)
    except JSONError:
        return None
