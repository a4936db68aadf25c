"""`nsqc spark compact`: merges small files of an archive into large ones, in the order they were written.

pyarrow copies the rows, without Spark. nsqc.spark.jobs.ledger makes it safe against crashes, readers and
writers.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from nsqc.spark.jobs import arguments, running
from nsqc.spark.jobs.ledger import File, Ledger

MIB = 1 << 20
TARGET_MIB = 128
BATCH_ROWS = 65_536
ROW_GROUP_BYTES = 64 * MIB      # of values in memory


class Done(NamedTuple):
    """The result of a compaction: files before and after, and their rows."""

    before: int
    after: int
    rows: int


@arguments.without_nsqd
def command(
    archive: arguments.Archive,
    target_mib: Annotated[int, typer.Option(help="size of a large file, in MiB", min=1, max=1 << 20)] = TARGET_MIB,
) -> int:
    """Merge the small files of an archive into large ones.

    The archive may be written and read at the same time.
    """
    with running.failures() as progress:
        progress.summary = lambda: "the archive still has all of its rows, in old or new files"
        progress.show("compacting")
        done = compact(Ledger(archive), target_mib * MIB)
        progress.result(f"{done.before} files with {done.rows} rows are now {done.after}")
    return 0


def compact(ledger: Ledger, target: int) -> Done:
    """Merges files below half of target (bytes) day by day. Raises LedgerError, OSError, JobError."""
    before = after = rows = 0
    with ledger.job("compact") as space:
        for names, name in groups(ledger.read().files, target):
            joined = space / Path(name).name
            copied = join([ledger.folder / small for small in names], joined)
            expected = sum(ledger.read().files[small].rows for small in names)
            if copied != expected:
                raise running.JobError(f"{names[0]} and {len(names) - 1} more have {copied} rows, not {expected} "
                                       "as in the ledger; nothing was changed")
            ledger.commit({name: joined}, old=names)
            before, after, rows = before + len(names), after + 1, rows + copied
    return Done(before, after, rows)


def groups(files: dict[str, File], target: int) -> Iterator[tuple[list[str], str]]:
    """The files to merge, two or more of one day, and the name of the merged file."""
    days = defaultdict(list)
    for name in sorted(files):
        if files[name].bytes < target // 2:
            days[name.split("/")[0]].append(name)
    for day, names in days.items():
        while names:
            size = 0
            group: list[str] = []
            while names and (not group or size + files[names[0]].bytes <= target):
                size += files[names[0]].bytes
                group.append(names.pop(0))
            if len(group) > 1:
                first = Path(group[0]).name.split("-")[0]       # keeps its position among the others
                yield group, f"{day}/{first}-{uuid.uuid4().hex[:8]}.parquet"


def join(paths: list[Path], to: Path) -> int:
    """Copies all rows in order; returns their number. Raises OSError, pyarrow's ArrowException."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 0
    schema = pq.read_schema(paths[0])
    with pq.ParquetWriter(to, schema, compression="zstd", version="2.6") as writer:
        pending: list[pa.RecordBatch] = []
        for path in paths:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(BATCH_ROWS, use_threads=False):
                    pending.append(batch)
                    rows += batch.num_rows
                    if sum(part.nbytes for part in pending) >= ROW_GROUP_BYTES:
                        writer.write_table(pa.Table.from_batches(pending, schema))
                        pending = []
        if pending:
            writer.write_table(pa.Table.from_batches(pending, schema), row_group_size=rows)
    return rows


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("compact")
