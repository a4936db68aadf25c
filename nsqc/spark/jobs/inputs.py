"""Files as tables: CSV, JSON, Parquet, text; and their rows as message bodies."""

from __future__ import annotations

import glob
import os
import string
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from pathlib import Path, PurePath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from nsqc.paths import is_foreign
from nsqc.spark.jobs.running import JobError
from nsqc.wire.outside import JSONError, decode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


# ====================================================================== json lines
# Files with a JSON value per line, verbatim: each line is checked, and malformed ones are reported.

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


# ====================================================================== template
# Message bodies built from columns: `{host} {status}`. Imports Spark only to create a column.

# An additional column: whether the line is malformed, and to be skipped.
BAD = "nsqc bad line"


class TemplateError(ValueError):
    """A template that is malformed or names an unknown column."""


def parse(text: str) -> list[tuple[str, str | None]]:
    """Pieces of text, each with the column that follows it, or None. {{ and }} are literal braces. Raises
    TemplateError."""
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        raise TemplateError(f"template {text!r}: {error}") from None
    for _, column, form, conversion in pieces:
        if column == "":
            raise TemplateError(f"template {text!r}: braces without a column name")
        if form or conversion:
            raise TemplateError(f"template {text!r}: {{{column}}} takes no format")
    if not any(column for _, column, _, _ in pieces):
        raise TemplateError(f"template {text!r} names no column: all messages would be the same")
    return [(literal, column) for literal, column, _, _ in pieces]


def column(text: str, frame: DataFrame) -> Column:
    """The template as a Spark column of a frame; nulls become empty text. Raises TemplateError."""
    from pyspark.sql import functions

    parts = []
    for literal, name in parse(text):
        if literal:
            parts.append(functions.lit(literal))
        if name is not None:
            parts.append(functions.coalesce(find(frame, name).cast("string"), functions.lit("")))
    return functions.concat(*parts)


def find(frame: DataFrame, name: str) -> Column:
    """A column of a frame by name, or a.b for b in the struct a. Raises TemplateError."""
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    if name in frame.columns:
        return frame[quoted(name)]
    kind: DataType = frame.schema
    for part in name.split("."):
        if not isinstance(kind, StructType) or part not in kind.names:
            known = f"choose from {', '.join(own(frame))}" if own(frame) else "the files have none"
            raise TemplateError(f"unknown column {name}; {known}")
        kind = kind[part].dataType
    return functions.col(".".join(map(quoted, name.split("."))))


def own(frame: DataFrame) -> list[str]:
    """The columns of the files themselves."""
    return [name for name in frame.columns if name != BAD]


def quoted(name: str) -> str:
    """A name quoted for Spark."""
    return "`" + name.replace("`", "``") + "`"


# ====================================================================== inputs

SUFFIXES = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet",
            ".txt": "text", ".log": "text"}
PACKED = (".gz", ".bz2", ".zst", ".lz4", ".snappy")
FORMATS = ("csv", "json", "parquet", "text")
# Of Spark's file sources: whether *, ?, [] and {} in paths are patterns. Without, they are ordinary characters.
GLOBS = "__globPaths__"
LITERAL = {GLOBS: "false"}
LINE, ROW = "nsqc line", "nsqc row"     # additional columns


def format_of(path: str) -> str | None:
    """The format for a file name's extension; None if unknown."""
    suffixes = [suffix.lower() for suffix in PurePath(path).suffixes]
    while suffixes and suffixes[-1] in PACKED:
        suffixes.pop()
    return SUFFIXES.get(suffixes[-1]) if suffixes else None


def common_format(paths: list[str]) -> str | None:
    """The format of all files; None if unknown or not the same."""
    formats = {format_of(path) for path in paths}
    return formats.pop() if len(formats) == 1 else None


def json_bodies(spark: SparkSession, paths: list[str], body: str | None, template: str | None,
                skip: bool) -> DataFrame:
    """The lines of JSON files in the column value, verbatim, or converted by a column or a template. Malformed lines
    fail the job, or are null with skip. Raises JobError, TemplateError."""
    from pyspark.sql import functions

    made = body is not None or template is not None
    lines = read(spark, paths, "text", partial(checked, skip=skip, objects=made))
    if not made:
        return lines
    texts = lines.select(functions.col("value").cast("string").alias("value"))
    kind = spark.read.json(texts.where("value is not null")).schema
    row = functions.from_json("value", kind, {"mode": "FAILFAST"})
    frame = texts.select(functions.col("value").isNull().alias(BAD), row.alias(ROW))
    return with_body(frame.select(quoted(BAD), f"{quoted(ROW)}.*"), body, template, False)


def csv_rows(spark: SparkSession, paths: list[str], header: bool, delimiter: str | None, skip: bool) -> DataFrame:
    """The rows of CSV files, and the column BAD. Values stay verbatim text; a malformed line fails the job, or is
    bad with skip."""
    from pyspark.sql import functions

    if delimiter is None:
        delimiter = "\t" if all(".tsv" in PurePath(path).suffixes for path in paths) else ","
    # A quote within quotes is doubled, as in RFC 4180; Spark's default is a backslash. Malformed lines are detected in
    # unused columns, too.
    options = {"header": str(header).lower(), "sep": delimiter, "enforceSchema": "false", "escape": '"',
               "columnPruning": "false"}

    def marked(frame: DataFrame) -> DataFrame:
        bad = functions.col(LINE).isNotNull()
        if not skip:
            text = functions.concat(functions.lit("malformed line of "), functions.col("_metadata.file_path"),
                                    functions.lit(": "), functions.col(LINE))
            bad = functions.when(bad, functions.raise_error(text).cast("boolean")).otherwise(False)
        return frame.select(bad.alias(BAD), *(quoted(name) for name in frame.columns if name != LINE))

    kind = read(spark, paths, "csv", options=options).schema.add(LINE, "string")
    return read(spark, paths, "csv", marked, kind, {**options, "columnNameOfCorruptRecord": LINE})


def read(spark: SparkSession, paths: list[str], form: str, made: Callable[[DataFrame], DataFrame] = lambda frame: frame,
         schema: StructType | None = None, options: Mapping[str, str] = LITERAL) -> DataFrame:
    """The union of the results for each frame of files."""
    reader = spark.read.format(form).options(**{**options, **LITERAL})
    if schema is not None:
        reader = reader.schema(schema)
    frames = [made(reader.load([uri(path) for path in literal(paths)]))] if literal(paths) else []
    # Spark expands the patterns of other file systems.
    if foreign := [path for path in paths if is_foreign(path)]:
        frames.append(made(reader.option(GLOBS, "true").load(foreign)))
    return reduce(lambda one, other: one.union(other), frames)


def literal(paths: list[str]) -> list[str]:
    """The local paths: an existing path is never a pattern."""
    local = [path for path in paths if not is_foreign(path)]
    return [found for path in local for found in ([path] if os.path.exists(path) else sorted(glob.glob(path)))]


def uri(path: str | Path) -> str:
    """A local path for Spark, to be used with LITERAL."""
    return f"file://{Path(path).absolute()}"


def with_body(frame: DataFrame, body: str | None, template: str | None, whole: bool) -> DataFrame:
    """A frame with only the column value: a column, a template, or (whole) all columns as JSON, including nulls; null
    for bad rows. Raises JobError, TemplateError."""
    from pyspark.sql import functions

    if template is not None:
        text = column(template, frame)
    elif whole:
        text = functions.to_json(functions.struct(*(find(frame, name) for name in own(frame))),
                                 {"ignoreNullFields": "false"})
    else:
        text = plain(frame, body or "value")
    if BAD in frame.columns:
        text = functions.when(~functions.col(quoted(BAD)), text)
    return frame.select(text.alias("value"))


def plain(frame: DataFrame, name: str) -> Column:
    """A column as a body. Raises JobError, TemplateError."""
    from pyspark.sql.types import BinaryType, StringType

    found = find(frame, name)
    kind = frame.select(found.alias("value")).schema["value"].dataType
    if isinstance(kind, (BinaryType, StringType)):
        return found
    if kind.typeName() in ("array", "map", "struct", "variant"):
        raise JobError(f"column {name} is {kind.simpleString()}, which cannot be a body; without --column a row "
                       "is published as JSON")
    return found.cast("string")
