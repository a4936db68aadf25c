"""Message bodies made of columns: `{host} {status}`. Knows no Spark until it makes a column."""

from __future__ import annotations

import string
from typing import Any


class TemplateError(ValueError):
    """A template that cannot be read, or that names a column that is not there."""


def parse(text: str) -> list[tuple[str, str | None]]:
    """Pieces of text, each with the column behind it, or None. {{ and }} stand for braces. Raises TemplateError."""
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        raise TemplateError(f"template {text!r}: {error}") from None
    for _, column, form, conversion in pieces:
        if column == "":
            raise TemplateError(f"template {text!r}: braces without a column's name")
        if form or conversion:
            raise TemplateError(f"template {text!r}: {{{column}}} takes no format")
    if not any(column for _, column, _, _ in pieces):
        raise TemplateError(f"template {text!r} names no column, all messages would be the same")
    return [(literal, column) for literal, column, _, _ in pieces]


def column(text: str, frame: Any) -> Any:
    """The template as a Spark column of a frame; a null is nothing. Raises TemplateError."""
    from pyspark.sql import functions

    parts = []
    for literal, name in parse(text):
        if literal:
            parts.append(functions.lit(literal))
        if name is not None:
            parts.append(functions.coalesce(find(frame, name).cast("string"), functions.lit("")))
    return functions.concat(*parts)


def find(frame: Any, name: str) -> Any:
    """A column of a frame by its name, or a.b for b in the struct a. Raises TemplateError."""
    from pyspark.sql import functions
    from pyspark.sql.types import StructType

    if name in frame.columns:
        return frame[quoted(name)]
    found: Any = frame.schema
    for part in name.split("."):
        if not isinstance(found, StructType) or part not in found.names:
            there = f"there are {', '.join(frame.columns)}" if frame.columns else "there are none at all"
            raise TemplateError(f"there is no column {name}; {there}")
        found = found[part].dataType
    return functions.col(".".join(map(quoted, name.split("."))))


def quoted(name: str) -> str:
    """A name as Spark takes it, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
