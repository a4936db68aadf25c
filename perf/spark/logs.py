"""Log-backed topics, read by offset, compared with the same records read as files; and processor time per row."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO

from nsqc.spark import options
from nsqc.spark.log import rows
from nsqc.spark.log.api import LogApi
from nsqc.spark.log.narrow import Times
from nsqc.spark.log.ranges import Place, Range
from nsqc.store.files import boot_of
from nsqc.store.log.names import Segment, segment_path
from nsqc.store.log.reading import records
from nsqc.store.log.recovery import read_folder
from perf.programs import client
from perf.spark.bench import BODY, Bench
from tests.spark.logs import shipped
from tests.support.daemon import Daemon

COLUMNS = ["value", "topic", "id", "timestamp", "attempts", "nsqd", "offset"]
PIECE = 1 << 20     # bytes, and messages, copied at once
TICKS = os.sysconf("SC_CLK_TCK")


class Logs:
    """Two nodes whose topic `t` is log-backed, and the first one's records as files of a disk queue."""

    def __init__(self, bench: Bench):
        self.bench = bench
        self.nodes = [Daemon(bench.folder / f"log{n}", "--topic-storage=log", "--mem-queue-size=20000000")
                      for n in range(2)]
        for node in self.nodes:
            bench.plain_publish("t", node)
            bench.rates.pop("plain Python loop, MPUB", None)
        self.files = bench.folder / "queue"
        self.files.mkdir()
        for number, segment in enumerate(read_folder(str(bench.folder / "log0/t.log")).segments):
            with (self.files / f"t.diskqueue.{number:06}.dat").open("wb") as out:
                copy(Path(segment_path(str(bench.folder / "log0/t.log"), segment.first)), segment, out)

    def close(self) -> None:
        """Ends the nodes."""
        for node in self.nodes:
            node.close()

    def given(self, count: int = 1, **more: str) -> dict[str, str]:
        """Options for this many nodes."""
        return {"nsqd": ",".join(f"127.0.0.1:{node.tcp_port}" for node in self.nodes[:count]),
                "http": ",".join(f"127.0.0.1:{node.http_port}" for node in self.nodes[:count]), "topic": "t", **more}

    # ------------------------------------------------------------------ measures

    def measure(self) -> None:
        """Measures everything once."""
        bench, spark = self.bench, self.bench.spark
        files = spark.read.format("nsq_diskqueue").option("path", str(self.files))

        def noop(frame) -> None:
            frame.write.format("noop").mode("append").save()

        bench.measure("disk queue files into noop", lambda: noop(files.load()))
        for local, way in (("true", "log"), ("false", "log over HTTP")):
            def table(count: int = 1, local: str = local, **more: str):
                return spark.read.format("nsq").options(**self.given(count, localFiles=local, **more))

            def both(table=table) -> int:
                noop(table(2).load())
                return 2 * bench.rows

            bench.measure(f"{way} parsed to columns, no Spark", partial(self.alone, local))
            self.by_part(f"{way} into noop", lambda table=table: noop(table().load()))
            bench.measure(f"{way} into noop, value only",
                          lambda table=table: noop(table().schema("value binary").load()))
            bench.measure(f"{way}, count()", lambda table=table: self.counted(table().load()))
            bench.measure(f"{way}, count() of one column",
                          lambda table=table: self.counted(table().schema("offset bigint").load()))
            bench.measure(f"{way} into noop, 1 partition", lambda table=table: noop(
                table(maxRecordsPerPartition=str(bench.rows), minPartitions="1").load()))
            bench.measure(f"{way} into noop, 4 partitions", lambda table=table: noop(table(minPartitions="4").load()))
            bench.measure(f"{way} into noop, 2 nodes", both)
            bench.rates.setdefault(f"{way} as a stream into noop, 1 million rows a batch", []).append(
                self.stream(local))
        self.beside_files()
        uri = f"file://{bench.folder}/bucket"
        if not (bench.folder / "bucket").exists():
            shutil.copytree(bench.folder / "log0", bench.folder / "log0-copy")
            shipped(bench.folder / "log0-copy", uri, "node")
        bench.measure("log from a bucket into noop", lambda: noop(
            spark.read.format("nsq").options(bucket=uri, topic="t").load()))

    def counted(self, frame) -> None:
        """All rows, counted by Spark."""
        assert frame.count() == self.bench.rows

    def alone(self, local: str) -> None:
        """The work of a task, without Spark."""
        node, chosen = self.nodes[0], options.log_table(self.given(localFiles=local))
        http = f"127.0.0.1:{node.http_port}"
        with closing(LogApi(http, chosen)) as api:
            log = api.state("t")
        part = Range(Place("t", f"127.0.0.1:{node.tcp_port}"), http, 0, self.bench.rows, log.id,
                     boot_of(log.folder_key))
        got = sum(batch.num_rows for batch in rows.read([part], chosen, COLUMNS, Times()))
        assert got == self.bench.rows

    def stream(self, local: str) -> float:
        """A stream into noop, from the start of its first batch to the end of its last one, in thousand rows a second:
        a query starts once, in a second or so, and runs for months."""
        bench = self.bench
        bench.number += 1
        frame = bench.spark.readStream.format("nsq").options(**self.given(
            startingOffsets="earliest", maxOffsetsPerTrigger="1000000", localFiles=local)).load()
        query = (frame.writeStream.format("noop").option("checkpointLocation", str(bench.folder / f"c{bench.number}"))
                 .trigger(availableNow=True).start())
        query.awaitTermination()
        batches = query.recentProgress
        assert sum(one["numInputRows"] for one in batches) == bench.rows
        begin, last = (datetime.fromisoformat(batches[at]["timestamp"]).timestamp() for at in (0, -1))
        return bench.rows / (last + batches[-1]["durationMs"]["triggerExecution"] / 1000 - begin) / 1000

    def beside_files(self) -> None:
        """Whole streams, from start() to their end, compared with streams of the same rows as Parquet files."""
        bench, spark = self.bench, self.bench.spark
        source = str(bench.folder / "rows.parquet")
        spark.read.format("nsq").options(**self.given()).load().write.mode("overwrite").parquet(source)
        kind = spark.read.parquet(source).schema
        for sink in ("noop", "parquet"):
            for name in ("log", "Parquet files"):
                def work(sink: str = sink, name: str = name) -> None:
                    bench.number += 1
                    frame = (spark.readStream.format("nsq").options(**self.given(startingOffsets="earliest")).load()
                             if name == "log" else spark.readStream.schema(kind).parquet(source))
                    writer = frame.writeStream.format(sink).option(
                        "checkpointLocation", str(bench.folder / f"c{bench.number}"))
                    if sink == "parquet":
                        writer = writer.option("path", str(bench.folder / f"out{bench.number}"))
                    writer.trigger(availableNow=True).start().awaitTermination()
                self.by_part(f"{name} as one stream into {sink}, start included", work)

    def by_part(self, name: str, work: Callable[[], None]) -> None:
        """Measures work, and the processor time of Java, of its Python workers, and of the node for each row."""
        java = java_of(os.getpid())
        before = [cpu(self.nodes[0].pid), cpu(java), workers_cpu(java)]
        self.bench.measure(name, work)
        after = [cpu(self.nodes[0].pid), cpu(java), workers_cpu(java)]
        for part, first, last in zip(("node", "Java", "Python workers"), before, after, strict=True):
            self.bench.rates.setdefault(f"{name}: ns of {part} for a row", []).append(
                (last - first) / self.bench.rows * 1e9)

    def beside_publishers(self) -> None:
        """A publisher's rate to a topic in memory while Spark, on the other core, reads the log all the time."""
        cores = sorted(os.sched_getaffinity(0))
        first, second = cores[:2]
        pin(self.nodes[0].pid, first)
        alone = self.publishing(first)
        reading = True

        def read() -> None:
            while reading:
                self.bench.spark.read.format("nsq").options(**self.given()).load().write.format("noop").mode(
                    "append").save()
        thread = threading.Thread(target=read)
        thread.start()
        time.sleep(2)
        for pid in (java := java_of(os.getpid()), *descendants(java)):
            pin(pid, second)
        beside = self.publishing(first)
        reading = False
        thread.join()
        for pid in (self.nodes[0].pid, java, *descendants(java)):
            pin(pid, *cores)        # measured next
        self.bench.rates.setdefault("publisher on the node's core alone", []).append(alone / 1000)
        self.bench.rates.setdefault("publisher on the node's core, Spark on the other", []).append(beside / 1000)

    def publishing(self, core: int) -> float:
        """MPUBs of bodies of 200 bytes to the first node, for some seconds: messages a second."""
        node = self.nodes[0]
        assert node.http("PUT", "/topic/rules?topic=p", b'{"storage": "memory"}')[0] == 200
        out = subprocess.run([client(), "pub", "-p", str(node.tcp_port), "-T", "p", "-s", str(BODY), "-b", "200", "-w",
                              "2", "-t", "2"], capture_output=True, text=True, check=True,
                             preexec_fn=lambda: os.sched_setaffinity(0, {core})).stdout
        node.post("/topic/delete?topic=p")
        return float(json.loads(out)["per_s"])


def copy(path: Path, segment: Segment, out: IO[bytes]) -> None:
    """The records of a segment as a disk queue has them."""
    with path.open("rb") as file:
        offset = segment.first
        while offset < segment.end:
            _, offset, _, data = records(file.fileno(), segment, offset, 0, segment.end, PIECE, False)
            out.write(data)


def pin(pid: int, *cores: int) -> None:
    """Pins all threads of a process to these cores."""
    with contextlib.suppress(FileNotFoundError):        # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), cores)


def java_of(pid: int) -> int:
    """The Java process of this process's session."""
    for child in descendants(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if Path(f"/proc/{child}/comm").read_text().strip() == "java":
                return child
    raise LookupError(f"process {pid} has started no Java")


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for child in task.read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def cpu(pid: int) -> float:
    """Seconds of processor time, including children that have ended."""
    parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, parts[11:13])) / TICKS


def workers_cpu(java: int) -> float:
    """The same for all Python workers."""
    total = 0.0
    for pid in descendants(java):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):    # it has ended: its parent has its time
            parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, parts[11:15])) / TICKS
    return total
