"""Files as tables: CSV, JSON, Parquet, text; and their rows as message bodies."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping
from functools import partial, reduce
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from nsqc.paths import is_foreign
from nsqc.spark.jobs import json_lines
from nsqc.spark.jobs.running import JobError
from nsqc.spark.jobs.template import BAD, column, find, own, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

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
    lines = read(spark, paths, "text", partial(json_lines.checked, skip=skip, objects=made))
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
