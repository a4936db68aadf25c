"""Files as tables: CSV, JSON, Parquet, text; and their rows as message bodies."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from nsqc.paths import is_foreign
from nsqc.spark.jobs.running import JobError
from nsqc.spark.jobs.template import column, find

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUFFIXES = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet",
            ".txt": "text", ".log": "text"}
PACKED = (".gz", ".bz2", ".zst", ".lz4", ".snappy")
FORMATS = ("csv", "json", "parquet", "text")


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


def read(spark: SparkSession, paths: list[str], form: str, header: bool = True,
         delimiter: str | None = None) -> DataFrame:
    """The files as one frame. CSV values stay text as they are; a malformed line fails the job."""
    reader = spark.read.format(form)
    if delimiter is None:
        delimiter = "\t" if all(".tsv" in PurePath(path).suffixes for path in paths) else ","
    if form == "csv":
        # A quote within quotes is doubled, as in RFC 4180; Spark's default is a backslash.
        reader = reader.options(header=str(header).lower(), sep=delimiter, mode="FAILFAST", enforceSchema="false",
                                escape='"')
    elif form == "json":
        reader = reader.options(mode="FAILFAST")
    return reader.load([path if is_foreign(path) else f"file://{Path(path).absolute()}" for path in paths])


def with_body(frame: DataFrame, body: str | None, template: str | None, whole: bool) -> DataFrame:
    """A frame with only the column value: a column, a template, or (whole) all columns as JSON, nulls included.
    Raises JobError, TemplateError."""
    from pyspark.sql import functions
    from pyspark.sql.types import BinaryType, StringType

    if template is not None:
        return frame.select(column(template, frame).alias("value"))
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
