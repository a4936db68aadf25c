"""Message bodies built from columns: `{host} {status}`. Imports Spark only to create a column."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


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
