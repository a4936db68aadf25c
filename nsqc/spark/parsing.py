"""Message bodies as columns: see json() and text() of nsqc.spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

VALUE, BAD = "value", "bad"
PARSED, CORRUPT = "__nsqc_parsed", "__nsqc_corrupt"     # during the query only


def json(frame: DataFrame, schema: StructType | str) -> DataFrame:
    """Adds a column for each field of the schema, and the boolean column bad. Raises ValueError if the schema is not a
    struct, or a column of that name exists; Spark's own error if it is malformed."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    need_value(frame)
    body = f.col(VALUE).cast("string")
    # Spark parses the DDL, in classic and Connect sessions alike.
    shape = frame.select(f.from_json(body, schema).alias(PARSED)).schema[PARSED].dataType
    if not isinstance(shape, StructType):
        raise ValueError(f"nsqc.spark.json: the schema is {shape.simpleString()}; it must list columns, such as "
                         "'price double, customer string'")
    need_free(frame, shape)
    # With options, Spark parses all fields even if a query selects few: otherwise bad would depend on the selection.
    whole = StructType([*shape.fields]).add(CORRUPT, "string")
    parsed = frame.select("*", f.from_json(body, whole, {"columnNameOfCorruptRecord": CORRUPT}).alias(PARSED))
    fields = [f.col(PARSED).getField(name).alias(name) for name in shape.names]
    is_bad = f.col(PARSED).isNull() | f.col(PARSED).getField(CORRUPT).isNotNull()
    return parsed.select("*", *fields, is_bad.alias(BAD)).drop(PARSED)


def text(frame: DataFrame) -> DataFrame:
    """The column value as a string. Raises ValueError if there is none."""
    from pyspark.sql import functions as f

    need_value(frame)
    return frame.withColumn(VALUE, f.make_valid_utf8(f.col(VALUE).cast("string")))


def need_value(frame: DataFrame) -> None:
    """Raises ValueError unless a column with bodies exists."""
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    if kinds.get(VALUE) not in ("binary", "string"):
        raise ValueError(f"nsqc.spark: the frame needs a column {VALUE}, binary or string; it has {', '.join(kinds)}")


def need_free(frame: DataFrame, shape: StructType) -> None:
    """Raises ValueError if two columns would have the same name; Spark ignores case."""
    names = [*shape.names, BAD]
    lower = [name.lower() for name in names]
    if twice := [name for at, name in enumerate(names) if name.lower() in lower[:at]]:
        raise ValueError(f"nsqc.spark.json: the schema has {twice[0]} twice, or uses the name of the column {BAD}")
    taken = [name for name in frame.columns if name.lower() in lower]
    if taken:
        raise ValueError(f"nsqc.spark.json: the frame already has columns {', '.join(taken)}: drop or rename them "
                         f"first, such as df.withColumnRenamed({taken[0]!r}, 'message_{taken[0]}')")
