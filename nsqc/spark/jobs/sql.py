"""`nsqc spark sql`: a query of log-backed topics, written to a topic or to files as the messages arrive.

    topics in logs --(by offset)--> batches --(a SELECT)--> files --(commit)--> list of files and checkpoint
                                                      or--> a topic, with an id for each command

A batch that is repeated after a crash has the same input, and the same division into tasks. So a query without a
shuffle publishes the same commands again, which a topic with the rule `dedupe` recognizes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsqc.spark import values
from nsqc.spark.jobs import arguments, handshake, nodes, running, streaming
from nsqc.spark.jobs.running import JobError, Progress
from nsqc.wire.outside import decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = ("parquet", "json", "csv", "orc")
BATCH_ROWS, TASK_ROWS = 1_000_000, 250_000


@arguments.with_nsqd
def command(
    cluster: arguments.Cluster,
    query: Annotated[Path, typer.Argument(
        help="a file with a SELECT; each topic is a view of its name", metavar="FILE.sql", parser=arguments.path)],
    topic: Annotated[str, typer.Option(
        help="the log-backed topics to read, separated by commas", callback=arguments.reads(values.read_names))],
    to_topic: Annotated[str | None, typer.Option(
        help="publish the column value, or all columns as a JSON object, to this topic",
        callback=arguments.topic)] = None,
    to_files: Annotated[str | None, typer.Option(
        help="write files to this folder, a path or a URI such as s3a://lake/orders", metavar="FOLDER",
        parser=arguments.place)] = None,
    form: Annotated[str, typer.Option("--format", help=f"of files: {', '.join(FORMATS)}")] = "parquet",
    partition_by: Annotated[str | None, typer.Option(
        help="columns that become folders of files, separated by commas")] = None,
    checkpoint: Annotated[str | None, typer.Option(
        help="for --to-topic: the folder with the position of this query, a path or a URI", metavar="FOLDER",
        parser=arguments.place)] = None,
    schema: Annotated[str | None, typer.Option(
        help="columns of bodies that are JSON, such as 'id bigint, price double'; they replace columns of these names")
    ] = None,
    latest: Annotated[bool, typer.Option(
        "--latest", help="on the first run, omit messages that are already there")] = False,
    until_idle: Annotated[bool, typer.Option(
        "--until-idle", help="stop when everything is read, instead of running until SIGTERM")] = False,
    every: arguments.Every = 10.0,
    batch_rows: Annotated[int, typer.Option(help="maximum messages per batch", min=1)] = BATCH_ROWS,
) -> int:
    """Transform log-backed topics by SQL, into a topic or files.

    The next run continues where the last one ended. Files have each row once, after any crash; so has a topic with the
    rule dedupe, unless the query shuffles.
    """
    check(to_topic, to_files, checkpoint, form, topic, partition_by)
    select = read_select(query)
    with running.failures() as progress:
        progress.summary = lambda: "nothing was written"
        names = values.read_names(topic)
        handshake.check_nsqd(cluster.options, progress.note)
        given = nodes.source(cluster, list(names))
        nodes.look(cluster, list(names), progress.note, "--until-idle needs all nsqd" if until_idle else "")
        if to_topic is not None:
            need_target(cluster, to_topic, progress.note)
        settings = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
        with running.session("nsqc sql", progress, settings) as spark:
            for name in names:
                view(spark, name, schema, {
                    **given, **streaming.patience(until_idle), "topic": name,
                    "startingOffsets": "latest" if latest else "earliest",
                    "maxOffsetsPerTrigger": str(batch_rows), "maxRecordsPerPartition": str(TASK_ROWS)})
            frame = spark.sql(select)
            if not frame.isStreaming:
                raise JobError(f"{query} reads none of the topics: each is a view, such as FROM `{names[0]}`")
            place = streaming.location(spark, str(to_files or checkpoint))
            streaming.need_all(spark, cluster, list(names), streaming.checkpoint_of(place) if to_files else place)
            if to_files is not None:
                stopped = into_files(frame, to_files, place, form, partition_by, until_idle, every, progress)
            else:
                sink = {**cluster.options, "topic": str(to_topic)}
                stopped = into_topic(frame, sink, place, until_idle, every, progress)
            if stopped and until_idle:
                raise running.Stopped(stopped)
            progress.result(progress.summary())
    return 0


def read_select(path: Path) -> str:
    """The text of a file. Raises typer.BadParameter."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise typer.BadParameter(f"{path} is not text in UTF-8") from None
    if not text.strip():
        raise typer.BadParameter(f"{path} is empty; it takes a SELECT")
    return text


def check(to_topic: str | None, to_files: str | None, checkpoint: str | None, form: str, topic: str,
          partition_by: str | None) -> None:
    """Raises typer.BadParameter for options that do not go together."""
    if (to_topic is None) == (to_files is None):
        raise typer.BadParameter("give one of --to-topic and --to-files")
    if to_topic is not None and checkpoint is None:
        raise typer.BadParameter("--to-topic needs --checkpoint, a folder for the position of this query")
    if to_files is not None and checkpoint is not None:
        raise typer.BadParameter("--to-files has its checkpoint beside the files: omit --checkpoint")
    names = values.read_names(topic)
    if len({name.lower() for name in names}) < len(names):
        raise typer.BadParameter(f"--topic {topic}: Spark ignores case in the names of views: read topics that differ "
                                 "in nothing else by separate queries")
    if to_topic in names:
        raise typer.BadParameter(f"{to_topic} is read and written: the query would never end")
    if form not in FORMATS:
        raise typer.BadParameter(f"--format {form} is not one of {', '.join(FORMATS)}")
    if to_topic is not None and (partition_by is not None or form != FORMATS[0]):
        raise typer.BadParameter("--partition-by and --format are for --to-files")


def need_target(cluster: arguments.Cluster, topic: str, note: Callable[[str], None]) -> None:
    """A line if repeated batches are not recognized. Raises JobError if the topic does not exist."""
    if not cluster.create:
        nodes.require_topic(cluster, topic, note)
    with nodes.found(cluster, lambda text: None) as (apis, _):
        without = [name for name, api in apis.items() if not api.rule(topic).dedupes]
    if without:
        note(f"topic {topic} has no rule dedupe at {', '.join(without)}: a batch that is repeated after a crash is "
             "published twice")


def view(spark: SparkSession, topic: str, schema: str | None, source: dict[str, str]) -> None:
    """A temporary view of a topic's stream."""
    from pyspark.sql import functions

    from nsqc.spark import json

    frame = spark.readStream.format("nsq").options(**source).load()
    if schema is not None:
        shape = frame.select(functions.from_json(frame.value.cast("string"), schema).alias("f")).schema["f"].dataType
        parsed = {name.lower() for name in getattr(shape, "names", ())}
        if taken := parsed & {"value", "bad"}:
            raise JobError(f"--schema: {min(taken)} is already a column: read such a field in the query, by "
                           f"from_json(CAST(value AS STRING), '{min(taken)} string').{min(taken)}")
        frame = json(frame.drop(*(name for name in frame.columns if name in parsed)), schema)
    frame.createOrReplaceTempView(f"`{topic}`")


def into_files(frame: DataFrame, folder: str, where: str, form: str, partition_by: str | None, until_idle: bool,
               every: float, progress: Progress) -> int:
    """Runs the query; returns the signal that has stopped it, or 0."""
    by = [name.strip() for name in partition_by.split(",")] if partition_by else []
    if unknown := [name for name in by if name not in frame.columns]:
        raise JobError(f"--partition-by: the query has no column {unknown[0]}; it has {', '.join(frame.columns)}")
    writer, checkpoint = streaming.into_files(frame, where, form, by)
    batches = streaming.Batches()
    progress.count, progress.summary = (lambda: batches.rows), (lambda: f"read {batches.rows:,} messages into {folder}")
    writer = writer.queryName(f"nsqc sql into {folder}")
    return streaming.follow(writer, checkpoint, until_idle, every, progress, batches)


def into_topic(frame: DataFrame, sink: dict[str, str], checkpoint: str, until_idle: bool, every: float,
               progress: Progress) -> int:
    """The same into a topic."""
    from pyspark.sql import functions

    names = [name.lower() for name in frame.columns]        # Spark ignores case, too
    if "value" in names:
        if others := [name for name in names if name not in ("value", "defer_ms")]:
            raise JobError(f"the query has the column {others[0]} beside value, which is a whole message: select value "
                           "and, if need be, defer_ms; or only other columns, which become a JSON object")
        frame = frame.toDF(*names)
    else:
        frame = frame.select(functions.to_json(functions.struct("*"), {"ignoreNullFields": "false"}).alias("value"))
    batches, topic = streaming.Batches(), sink["topic"]
    with tempfile.TemporaryDirectory(prefix="nsqc-totals-") as folder:
        path = Path(folder, "totals.json")

        def summary() -> str:
            totals = decode(path.read_bytes()) if path.exists() else {"rows": 0, "resent": 0}
            again = f", {totals['resent']:,} of them again after a broken connection" if totals["resent"] else ""
            return f"read {batches.rows:,} messages; published {totals['rows']:,} to {topic}{again}"

        progress.count, progress.summary = (lambda: batches.rows), summary
        writer = frame.writeStream.format("nsq").options(**sink, totalsPath=str(path))
        stopped = streaming.follow(writer.queryName(f"nsqc sql into {topic}"), checkpoint, until_idle, every, progress,
                                   batches)
        text = summary()
        progress.summary = lambda: text
    return stopped


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("sql")
