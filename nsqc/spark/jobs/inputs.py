"""Files as tables: CSV, JSON, Parquet, text; and their rows as message bodies."""

from __future__ import annotations

import glob
import os
from functools import reduce
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from nsqc.paths import is_foreign
from nsqc.spark.jobs import json_lines
from nsqc.spark.jobs.running import JobError
from nsqc.spark.jobs.template import column, find

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUFFIXES = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet",
            ".txt": "text", ".log": "text"}
PACKED = (".gz", ".bz2", ".zst", ".lz4", ".snappy")
FORMATS = ("csv", "json", "parquet", "text")
# Of Spark's file sources: whether *, ?, [] and {} in paths are patterns. Without, they are characters like any other.
GLOBS = "__globPaths__"
LITERAL = {GLOBS: "false"}
BAD, ROW = "nsqc bad line", "nsqc row"      # columns of JSON files, beside their own


def format_of(path: str) -> str | None:
    """The format by the end of a file name; None if unknown."""
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
    """The lines of JSON files in the column value, as they stand, or what a column or a template makes of them.
    Malformed lines fail the job, or are null with skip. Raises JobError, TemplateError."""
    from pyspark.sql import functions

    made = body is not None or template is not None
    lines = json_lines.checked(read(spark, paths, "text"), skip, made)
    if not made:
        return lines
    texts = lines.select(functions.col("value").cast("string").alias("value"))
    kind = spark.read.json(texts.where("value is not null")).schema
    row = functions.from_json("value", kind, {"mode": "FAILFAST"})
    frame = texts.select(functions.col("value").isNull().alias(BAD), row.alias(ROW)).select(BAD, f"{ROW}.*")
    return with_body(frame, body, template, False)


def read(spark: SparkSession, paths: list[str], form: str, header: bool = True,
         delimiter: str | None = None) -> DataFrame:
    """The files as one frame. CSV values stay text as they are; a malformed line fails the job."""
    reader = spark.read.format(form).options(**LITERAL)
    if delimiter is None:
        delimiter = "\t" if all(".tsv" in PurePath(path).suffixes for path in paths) else ","
    if form == "csv":
        # A quote within quotes is doubled, as in RFC 4180; Spark's default is a backslash.
        reader = reader.options(header=str(header).lower(), sep=delimiter, mode="FAILFAST", enforceSchema="false",
                                escape='"')
    frames = [reader.load([uri(path) for path in literal(paths)])] if literal(paths) else []
    # Spark expands the patterns of other file systems.
    if foreign := [path for path in paths if is_foreign(path)]:
        frames.append(reader.option(GLOBS, "true").load(foreign))
    return reduce(lambda one, other: one.union(other), frames)


def literal(paths: list[str]) -> list[str]:
    """The paths of this machine: one that exists as it is written is no pattern."""
    local = [path for path in paths if not is_foreign(path)]
    return [found for path in local for found in ([path] if os.path.exists(path) else sorted(glob.glob(path)))]


def uri(path: str | Path) -> str:
    """A path of this machine for Spark, to be used with LITERAL."""
    return f"file://{Path(path).absolute()}"


def with_body(frame: DataFrame, body: str | None, template: str | None, whole: bool) -> DataFrame:
    """A frame with only the column value: a column, a template, or (whole) all columns as JSON, nulls included.
    Raises JobError, TemplateError."""
    from pyspark.sql import functions
    from pyspark.sql.types import BinaryType, StringType

    if template is not None:
        text = column(template, frame)
        if BAD in frame.columns:        # a template makes an empty text of what is null
            text = functions.when(~functions.col(BAD), text)
        return frame.select(text.alias("value"))
    if whole:
        fields = [find(frame, name) for name in frame.columns]
        return frame.select(functions.to_json(functions.struct(*fields), {"ignoreNullFields": "false"}).alias("value"))
    bodies = frame.select(find(frame, body or "value").alias("value"))
    kind = bodies.schema["value"].dataType
    if isinstance(kind, (BinaryType, StringType)):
        return bodies
    if kind.typeName() in ("array", "map", "struct", "variant"):
        raise JobError(f"column {body} is {kind.simpleString()}, which cannot be a body; without --column a row "
                       "is published as JSON")
    return bodies.select(functions.col("value").cast("string").alias("value"))
