"""Daemons, a Spark session, and the measured ways to publish and to consume. See perf.spark.run."""

from __future__ import annotations

import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from nsqc.client import Connection
from nsqc.spark import options, session
from nsqc.spark.arrow import Records
from nsqc.spark.queue_files import spans
from nsqc.spark.stagelog import StageLog
from nsqc.spark.stager import Stager
from tests.support.daemon import Daemon

BODY = 200
FRAME_ROWS = 1200
WINDOW = 4
SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}


class Bench:
    """Daemons, a session, and the measured rates."""

    def __init__(self, rows: int, settings: Mapping[str, str] | None = None):
        self.rows = rows
        self.folder = Path(tempfile.mkdtemp(prefix="nsqc-spark-"))
        self.daemons = [Daemon(self.folder / f"data{n}", f"--mem-queue-size={4 * rows}") for n in range(2)]
        self.spark = session("perf", "local[2]", {**SETTINGS, **(settings or {})}, log_level="OFF")
        self.rates: dict[str, list[float]] = {}
        self.number = 0

    def close(self) -> None:
        """Ends everything."""
        self.spark.stop()
        for daemon in self.daemons:
            daemon.close()
        shutil.rmtree(self.folder)

    def measure(self, name: str, work: Callable[[], int | None]) -> None:
        """Measures work in thousand rows per second; work returns its rows, or None for all."""
        begin = time.perf_counter()
        rows = work() or self.rows
        self.rates.setdefault(name, []).append(rows / (time.perf_counter() - begin) / 1000)

    def address(self, count: int = 1) -> str:
        """The addresses of this many daemons."""
        return ",".join(f"127.0.0.1:{one.tcp_port}" for one in self.daemons[:count])

    def frame(self, partitions: int):
        """Rows with the plain loop's body; generating other bodies would be measured, too."""
        return self.spark.range(0, self.rows, 1, partitions).selectExpr(f"cast('{'x' * BODY}' as binary) value")

    def topic(self) -> str:
        """A new topic name; the old topic is deleted."""
        for daemon in self.daemons:
            daemon.http("POST", f"/topic/delete?topic=t{self.number}")
        self.number += 1
        return f"t{self.number}"

    # ------------------------------------------------------------------ publishing

    def plain_publish(self, topic: str, daemon: Daemon | None = None) -> None:
        """A Python loop over the bodies: join and pack, with a window of frames."""
        body = b"x" * BODY
        bodies = [body] * self.rows
        daemon = daemon or self.daemons[0]
        begin = time.perf_counter()
        with socket.create_connection(("127.0.0.1", daemon.tcp_port)) as sock:
            sock.sendall(b"  V2")
            answers, owed = sock.makefile("rb"), 0
            for at in range(0, self.rows, FRAME_ROWS):
                batch = bodies[at:at + FRAME_ROWS]
                data = b"".join([struct.pack(">i", len(body)) + body for body in batch])
                sock.sendall(b"MPUB %s\n" % topic.encode() + struct.pack(">ii", 4 + len(data), len(batch)) + data)
                owed += 1
                while owed >= WINDOW:
                    owed -= answers.read(10)[-2:] == b"OK"
            while owed:
                owed -= answers.read(10)[-2:] == b"OK"
        self.rates.setdefault("plain Python loop, MPUB", []).append(
            self.rows / (time.perf_counter() - begin) / 1000)

    def sink(self, partitions: int, nodes: int, topic: str) -> None:
        """Publishes through Spark."""
        (self.frame(partitions).write.format("nsq").mode("append").option("nsqd", self.address(nodes))
         .option("topic", topic).save())

    def sinks(self) -> None:
        """Measures each way to publish."""
        self.plain_publish(self.topic())
        self.measure("Spark noop, 1 partition", lambda: self.frame(1).write.format("noop").mode("append").save())
        for partitions, nodes in ((1, 1), (2, 1), (2, 2)):
            topic = self.topic()
            self.measure(f"sink, {partitions} partitions, {nodes} nsqd",
                         lambda p=partitions, n=nodes, t=topic: self.sink(p, n, t))
            counted = sum(stats["message_count"] for daemon in self.daemons for stats in daemon.stats()["topics"]
                          if stats["topic_name"] == topic)
            assert counted == self.rows, counted

    # ------------------------------------------------------------------ consuming

    def fill(self, nodes: int = 1) -> str:
        """A topic with all rows and a channel, on this many daemons."""
        topic = self.topic()
        for daemon in self.daemons[:nodes]:
            daemon.post(f"/topic/create?topic={topic}")
            daemon.post(f"/channel/create?topic={topic}&channel=c")
        self.sink(nodes, nodes, topic)
        return topic

    def plain_consume(self, topic: str) -> None:
        """The compiled parser, FIN at once, bodies dropped."""
        with Connection(self.address()) as connection:
            connection.subscribe(topic, "c")
            connection.ready(2500)
            left = self.rows
            while left:
                batch = connection.receive_batch(10)
                left -= batch.count
                connection.finish_ids(batch.ids)

    def plain_objects(self, topic: str) -> None:
        """The same client, a Message object per message, FIN per batch."""
        with Connection(self.address()) as connection:
            connection.subscribe(topic, "c")
            connection.ready(2500)
            left = self.rows
            while left:
                received = connection.receive(10)
                left -= len(received)
                connection.finish_ids(b"".join([message.id for message in received]))

    def staging(self, topic: str) -> None:
        """Consumes into the staging log, synced and finished; no Spark."""
        self.number += 1
        folder = self.folder / f"stage{self.number}"
        chosen = options.stream({"nsqd": self.address(), "topic": topic, "channel": "c", "stagingDir": str(folder),
                                 "maxStagedBytes": "64g"})
        log = StageLog(str(folder), topic, "c", chosen.segmentBytes)
        stager = Stager(chosen, log)
        stager.start()
        while log.rows < self.rows:
            with stager.changed:
                stager.changed.wait(0.05)
        stager.stop()
        log.close()
        shutil.rmtree(folder)

    def stage(self, topic: str, **more: str) -> int:
        """A stream into noop until all rows have arrived; the idle time at the end is not counted."""
        self.number += 1
        folder = self.folder / f"stage{self.number}"
        batches: list[int] = []
        stream = (self.spark.readStream.format("nsq").option("nsqd", self.address()).option("topic", topic)
                  .option("channel", "c").option("stagingDir", str(folder)).options(**more).load())
        query = (stream.writeStream.format("noop").option("checkpointLocation", f"{folder}-checkpoint").start())
        begin = None
        while sum(batches) < self.rows:
            time.sleep(0.02)
            if not query.isActive:
                query.awaitTermination()    # raises its error
            batches = [progress["numInputRows"] for progress in query.recentProgress]
            if begin is None and self.daemons[0].channel(topic, "c")["client_count"]:
                begin = time.perf_counter()
        elapsed = time.perf_counter() - begin
        query.stop()
        shutil.rmtree(folder)
        return self.rows / elapsed / 1000

    def sources(self) -> None:
        """Measures each way to consume; a Spark stream from its subscription on."""
        topic = self.fill()
        self.measure("plain compiled consumer", lambda: self.plain_consume(topic))
        for name, work in (("the same with Message objects", self.plain_objects),
                           ("staging log alone, 1 connection, no Spark", self.staging)):
            topic = self.fill()
            self.measure(name, lambda t=topic, w=work: w(t))
        for name, nodes, more in (("1 connection", 1, {}), ("4 connections", 1, {"connections": "4"}),
                                  ("2 nsqd", 2, {"nsqd": self.address(2)}), ("inline", 1, {"transport": "inline"})):
            topic = self.fill(nodes)
            self.rates.setdefault(f"source into noop, {name}", []).append(self.stage(topic, **more))

    # ------------------------------------------------------------------ files

    def files(self) -> None:
        """Measures each way to read disk queues, which are written once."""
        path = self.folder / "files"
        if not path.exists():
            daemon = Daemon(path, "--mem-queue-size=0")
            self.plain_publish("t", daemon)
            self.rates["plain Python loop, MPUB"].pop()
            daemon.stop()
        chosen = options.diskqueue({"path": str(path)})
        self.measure("plain parse in Python", lambda: plain_parse(sorted(path.glob("t.diskqueue.0*"))))

        def compiled() -> None:
            for span in spans(chosen):
                records = Records(span.path, span.start, span.limit, chosen.maxMsgSize)
                while records.batch(10_000, 16 << 20):
                    pass
        self.measure("compiled parse to columns, no Spark", compiled)
        reader = self.spark.read.format("nsq_diskqueue").option("path", str(path))
        self.measure("disk queue into noop, all columns",
                     lambda: reader.load().write.format("noop").mode("append").save())
        self.measure("disk queue into noop, value only", lambda: reader.schema("value binary").load().write.format(
            "noop").mode("append").save())


def plain_parse(files: list[Path]) -> None:
    """The usual loop of a program without this package."""
    head = struct.Struct(">iqH16s")
    records = []
    for file in files:
        data, at = file.read_bytes(), 0
        while at < len(data):
            size, stamp, attempts, number = head.unpack_from(data, at)
            records.append((data[at + 30:at + 4 + size], stamp, attempts, number))
            at += 4 + size
        records.clear()
