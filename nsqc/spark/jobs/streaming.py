"""Queries of jobs: they run until their input is idle or a signal arrives, and write to any file system of Spark.

Files have Spark's own list of them (`_spark_metadata`) and the query's checkpoint (`_checkpoint`) in their folder, so a
batch is there once, after any crash, and no query with another checkpoint can write there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import nsqc.spark
from nsqc import paths
from nsqc.spark.jobs import nodes, running
from nsqc.spark.jobs.arguments import Cluster
from nsqc.spark.jobs.inputs import LITERAL, uri
from nsqc.spark.jobs.running import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

POLL_SECONDS = 0.2
# Messages stay in a log, so absent nodes are waited for.
PATIENCE_SECONDS, FOREVER_SECONDS = 300, 10_000_000
CHECKPOINT = "_checkpoint"
# The packages that have the usual file systems; nsqc cannot know their versions, Spark's Hadoop does.
PACKAGES = {"s3a": "org.apache.hadoop:hadoop-aws", "abfs": "org.apache.hadoop:hadoop-azure",
            "abfss": "org.apache.hadoop:hadoop-azure", "wasb": "org.apache.hadoop:hadoop-azure",
            "gs": "com.google.cloud.bigdataoss:gcs-connector"}


def patience(until_idle: bool) -> dict[str, str]:
    """The option of a log's source for a job."""
    return {"failWhenUnreachable": str(PATIENCE_SECONDS if until_idle else FOREVER_SECONDS)}


def need_all(spark: SparkSession, cluster: Cluster, names: list[str], checkpoint: str) -> None:
    """A query begins with the logs of all nodes, and would wait for them. Raises JobError if one is down then."""
    if not exists(spark, f"{checkpoint}/offsets"):
        nodes.look(cluster, names, lambda text: None, "the first run needs all nsqd")


def follow(writer: DataStreamWriter, checkpoint: str, until_idle: bool, every: float, progress: Progress,
           show: Callable[[StreamingQuery], str], close: Callable[[], None] = lambda: None) -> int:
    """Runs a query until the input is idle or a signal arrives; returns its number, or 0. show: called often, for the
    progress. close: called before the query is stopped. Raises Spark's exceptions."""
    stop = threading.Event()
    signals_seen = running.SignalCount(progress)
    numbers: list[int] = []

    def end(number: int) -> None:
        numbers.append(number)
        stop.set()
        signals_seen.count(number)

    with running.signals(end):
        writer = writer.trigger(availableNow=True) if until_idle else writer.trigger(processingTime=f"{every} seconds")
        query = writer.option("checkpointLocation", checkpoint).start()
        progress.show(lambda: "; ".join([show(query), *source_state(query)]))
        try:
            while not stop.is_set() and not query.awaitTermination(POLL_SECONDS):  # type: ignore[arg-type]  # takes fractions
                show(query)
            show(query)
        finally:
            close()
            query.stop()
    return numbers[0] if numbers else 0


def source_state(query: StreamingQuery) -> list[str]:
    """The lag of the query, and the nsqd that are down, from the metrics of its source."""
    shown = []
    try:
        for source in nsqc.spark.metrics(query):
            # Only logs: a channel has its depth.
            if behind := source.get("lagRows"):
                shown.append(f"{behind:,} to go")
            if source["nsqdDown"]:
                shown.append(f"{len(source['nsqdDown'])} nsqd down: {'; '.join(source['nsqdDown'].values())}")
    except Exception:
        return []       # the query or Java has ended
    return shown


class Batches:
    """Counts the rows of a query's batches."""

    def __init__(self) -> None:
        self.rows = 0
        self._batch = -1

    def __call__(self, query: StreamingQuery) -> str:
        """Adds the batches since the last call. For follow()."""
        try:
            recent = query.recentProgress
        except Exception:       # the query or Java has ended
            recent = []
        for batch in recent:
            if batch["batchId"] > self._batch and batch["numInputRows"]:
                self._batch = batch["batchId"]
                self.rows += batch["numInputRows"]
        return f"read {self.rows:,} messages"


# ====================================================================== files


def location(spark: SparkSession, text: str) -> str:
    """The URI of a path from arguments.place(). Raises JobError if Spark has no file system for it."""
    if not paths.is_foreign(text):
        return uri(text)
    scheme, hadoop = paths.scheme(text), spark.sparkContext._jvm.org.apache.hadoop  # type: ignore[union-attr]
    try:
        hadoop.fs.FileSystem.getFileSystemClass(scheme, spark.sparkContext._jsc.hadoopConfiguration())
    except Exception as error:
        known = PACKAGES.get(scheme)
        if known is None:
            raise running.JobError(f"{text}: Spark has no file system for {scheme}: "
                                   f"{nsqc.spark.reason(error)}") from None
        package = f"{known}:{hadoop.util.VersionInfo.getVersion() if known.startswith('org.apache') else 'VERSION'}"
        raise running.JobError(f"{text}: Spark lacks the package {package}: set PYSPARK_SUBMIT_ARGS='--packages "
                               f"{package} pyspark-shell', or give --packages to spark-submit") from None
    return text.rstrip("/")


def into_files(frame: DataFrame, folder: str, form: str, by: list[str]) -> tuple[DataStreamWriter, str]:
    """A writer of files below a URI, and its checkpoint."""
    writer = frame.writeStream.format(form).option("path", folder)
    return (writer.partitionBy(*by) if by else writer), checkpoint_of(folder)


def checkpoint_of(folder: str) -> str:
    """The checkpoint of a query that writes files to a folder."""
    return f"{folder}/{CHECKPOINT}"


def has_files(spark: SparkSession, folder: str) -> bool:
    """Whether a query has written there."""
    return exists(spark, f"{folder}/_spark_metadata")


def exists(spark: SparkSession, uri: str) -> bool:
    """Whether a file or folder exists."""
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(uri)  # type: ignore[union-attr]
    return bool(path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).exists(path))


def files(spark: SparkSession, folder: str, schema: str) -> DataFrame:
    """The rows of such files, of whole batches only."""
    return spark.read.schema(schema).options(**LITERAL).parquet(folder)
