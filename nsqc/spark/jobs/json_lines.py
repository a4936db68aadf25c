"""Files with a JSON value per line, verbatim: each line is checked, and malformed ones are reported."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from nsqc.wire.outside import JSONError, decode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

COUNT_BYTES = 1 << 20   # read at once to count lines
SHOWN = 60              # characters of a malformed line in errors


class BadLine(ValueError):
    """A line is not JSON, or not an object."""


def checked(lines: DataFrame, skip: bool, objects: bool) -> DataFrame:
    """The lines of a text frame without blank ones; malformed ones are null with skip. objects: values of other types
    are malformed, too. The frame raises BadLine."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

    # Not mapInArrow, for which PySpark requires pandas. Not deterministic: where() must not check a line once more.
    with warnings.catch_warnings(action="ignore"):      # that type hints are preferred
        check_lines = arrow_udf(partial(check, skip=skip, objects=objects), "binary",
                                ArrowUDFType.SCALAR_ITER).asNondeterministic()
    values = lines.select(check_lines(functions.col("value").cast("binary"), functions.col("_metadata.file_path"),
                                      functions.col("_metadata.file_block_start")).alias("value"))
    return values.where("value is null or length(value) > 0")


def check(batches: Iterator[tuple[pa.Array, ...]], skip: bool, objects: bool) -> Iterator[pa.Array]:
    """The lines, empty if blank; null if malformed, with skip. Runs on an executor, over a partition: values, paths and
    starts of parts. Raises BadLine."""
    import pyarrow as pa

    part: tuple[str, int] | None = None     # of a file: its path and the offset of its first byte
    count = 0
    for batch in batches:
        found: list[bytes | None] = []
        values, paths, starts = (column.to_pylist() for column in batch)
        for value, path, start in zip(values, paths, starts, strict=True):
            if (path, start) != part:
                part, count = (path, start), 0
            count += 1
            if value.isspace() or not value:
                found.append(b"")
                continue
            error = problem(value, objects)
            if error is not None and not skip:
                raise BadLine(f"{where(path, start, count)}: {error}: {shown(value)}; --skip-bad skips such lines")
            found.append(value if error is None else None)
        yield pa.array(found, pa.binary())


def problem(line: bytes, objects: bool) -> str | None:
    """The fault of a line."""
    try:
        value = decode(line)
    except JSONError as error:
        return f"not JSON: {error}"
    return "not a JSON object" if objects and not isinstance(value, dict) else None


def where(path: str, start: int, count: int) -> str:
    """File and line; for a part of a file on another machine, the byte from which lines are counted."""
    file = unquote(urlsplit(path).path) if path.startswith("file:") else path
    if not start:
        return f"{file}, line {count}"
    try:
        # A line that starts before a part, or at its start, belongs to the previous part.
        return f"{file}, line {breaks(file, start) + 1 + count}"
    except OSError:
        return f"{file}, line {count} of those after byte {start}"


def breaks(file: str, end: int) -> int:
    """Line breaks before an offset. Raises OSError."""
    total = 0
    with open(file, "rb") as source:
        while end > 0 and (data := source.read(min(end, COUNT_BYTES))):
            total += data.count(b"\n")
            end -= len(data)
    return total


def shown(line: bytes) -> str:
    """The beginning of a line."""
    text = line.decode(errors="replace")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
