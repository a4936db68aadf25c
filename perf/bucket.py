"""Log-backed topics with a bucket, beside those without: result | beside | ratio or value | bar.

    python -m perf.bucket [--only publish,waiting,window,answers,backlog,takeover,memory,stalls] [--messages N]
                          [--topics N] [--bucket URI]

The bucket is a folder on this disk, or below a URI, with credentials from the environment: `python -m tests.bucket.s3
0.03` is a store that answers in 30 ms. Both sides alternate on this machine, each on a fresh server. The exit code says
whether everything could be measured.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from perf import programs
from perf.load.server import Server, ServerError, Side
from perf.load.work import Bench, ClientError, Scale
from perf.log.run import table
from perf.log.work import Row, ratio
from perf.programs import BuildError

SIDE = Side("nsqc", (sys.executable, "-m", "nsqc", "serve"))
LOG = ("--topic-storage=log", "--log-retain-time=1h")
LINGER_S = 0.25


class Work:
    def __init__(self, messages: int, topics: int, uri: str) -> None:
        self.messages, self.topics, self.uri = messages, topics, uri
        self.bench = Bench(programs.client(), Scale())

    @contextmanager
    def server(self, *flags: str, bucket: str = "") -> Iterator[Server]:
        """With a bucket of its own, unless one is given; empty flags: none."""
        folder = Path(tempfile.mkdtemp(prefix="nsqc-bucket-"))
        try:
            uri = f"file://{bucket or folder}" if bucket or not self.uri else f"{self.uri}/{folder.name}"
            with Server(SIDE, *LOG, *flags, f"--bucket={uri}", "--node-name=bench",
                        "--bucket-take-over") as server:
                server.channel("load", "ch")
                yield server
        finally:
            shutil.rmtree(folder)

    @contextmanager
    def plain(self, *flags: str) -> Iterator[Server]:
        with Server(SIDE, *LOG, *flags) as server:
            server.channel("load", "ch")
            yield server

    def published(self, server: Server, *options: object) -> dict:
        return self.bench.load(server.tcp, "pub", *options)

    def publish(self) -> list[Row]:
        rows = []
        for sync, options in (("write", ("-t", 5)), ("fsync", ("-t", 5, "-c", 64, "-b", 1, "-w", 1))):
            rates = []
            for place in (self.plain, self.server):
                best = 0.0
                for _ in range(2):
                    with place(f"--log-sync={sync}") as server:
                        best = max(best, self.published(server, *options)["per_s"])
                rates.append(best)
            rows.append(ratio(f"publish, sync={sync}, beside no bucket", *rates, 0.95))
        return rows

    def waiting(self) -> list[Row]:
        with self.server("--log-sync=bucket") as server:
            rate = self.published(server, "-t", 10, "-c", 64, "-b", 1, "-w", 1)["per_s"]
        return [ratio("sync=bucket, 64 connections, one message each", 64 / LINGER_S, rate, 0.8)]

    def window(self) -> list[Row]:
        with self.server("--log-sync=bucket") as server:
            rate = self.published(server, "-t", 10, "-c", 64, "-b", 1, "-w", 1000)["per_s"]
        return [Row("sync=bucket, 64 connections, window 1,000", None, rate, rate, 200_000, True, "messages/s", 0)]

    def answers(self) -> list[Row]:
        """Alone, and beside publishers who keep commits coming, one per linger."""
        rows = []
        for title, others in (("alone", 0), ("beside 8 publishers", 8)):
            with self.server("--log-sync=bucket") as server, ThreadPoolExecutor(8) as threads:
                ended = threading.Event()
                for _ in range(others):
                    threads.submit(keep_publishing, server, ended)
                took = sorted(timed(server) for _ in range(40))
                ended.set()
            p50, bar = took[len(took) // 2] * 1000, LINGER_S * 1000 / 2 + 60
            rows.append(Row(f"sync=bucket, OK after, p50, {title}", None, p50, p50, bar, False, "ms", 0))
        return rows

    def stalls(self) -> list[Row]:
        """The longest answer of /ping on a kept connection, while messages are published as fast as possible."""
        longest = []
        for place in (self.plain, self.server):
            with place() as server, Pings(server.http) as pings:
                self.published(server, "-t", 10)
            longest.append(max(pings.took) * 1000)
        without, beside = longest
        title = "longest /ping in a flood, beside no bucket"
        return [Row(title, without, beside, beside / without, 1.2, False, "ms", 1)]

    def backlog(self) -> list[Row]:
        """A node with history gets a bucket."""
        with self.plain() as server:
            self.published(server, "-t", 250, "-n", self.messages)
            size = self.messages * 204
            folder = tempfile.mkdtemp(prefix="nsqc-bucket-")
            try:
                server._command += [f"--bucket=file://{folder}"]
                began = time.perf_counter()
                server.restart()
                while (state := info(server))["put_bytes"] < size or state["lag_bytes"]:
                    time.sleep(0.05)
                rate = size / (time.perf_counter() - began) / 1e6
            finally:
                server.close()
                shutil.rmtree(folder)
        return [Row("shipping a backlog, the start included", None, rate, rate, 200, True, "MB/s", 0)]

    def takeover(self) -> list[Row]:
        folder = tempfile.mkdtemp(prefix="nsqc-bucket-")
        try:
            with self.server(bucket=folder) as server:
                self.published(server, "-t", 250, "-n", self.messages)
                for number in range(self.topics):
                    publish(server, f"topic{number}")
            began = time.perf_counter()
            with self.server(bucket=folder) as server:
                self.bench.load(server.tcp, "sub", "-t", 60, "-n", 1)
                took = time.perf_counter() - began
        finally:
            shutil.rmtree(folder)
        title = f"takeover of {self.topics:,} topics and {self.messages:,} messages, to the first delivery"
        return [Row(title, None, took, took, 10, False, "s", 1)]

    def memory(self) -> list[Row]:
        sizes = []
        for place in (self.plain, self.server):
            with place() as server:
                self.published(server, "-t", 250, "-n", self.messages)
                sizes.append(server.resident() / 1e6)
        without, beside = sizes
        return [Row("memory after publishing, beside no bucket", without, beside, beside - without, 80, False, "MB", 0)]


class Pings:
    """Calls /ping every 2 ms on one connection, on a thread; `took` has the seconds of each."""

    def __init__(self, port: int) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.took: list[float] = []
        self.ended = False
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        while not self.ended:
            began = time.perf_counter()
            self.connection.request("GET", "/ping")
            self.connection.getresponse().read()
            self.took.append(time.perf_counter() - began)
            time.sleep(0.002)

    def __enter__(self) -> Pings:
        self.thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.ended = True
        self.thread.join()


def timed(server: Server) -> float:
    """Seconds that one publish takes, at a random moment."""
    time.sleep(random.random() * 2 * LINGER_S)
    began = time.perf_counter()
    publish(server, "load")
    return time.perf_counter() - began


def keep_publishing(server: Server, ended: threading.Event) -> None:
    while not ended.wait(random.random() * LINGER_S):
        publish(server, "load")


def publish(server: Server, topic: str) -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{server.http}/pub?topic={topic}", data=b"x" * 200, timeout=60).close()


def info(server: Server) -> dict:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http}/info", timeout=60) as answer:
        return json.load(answer)["bucket"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.bucket", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="publish,waiting,window,answers,backlog,takeover,memory,stalls")
    parser.add_argument("--messages", type=int, default=5_000_000, help="of 200 bytes, for history; default 5,000,000")
    parser.add_argument("--topics", type=int, default=2000, help="default 2,000")
    parser.add_argument("--bucket", default="", metavar="URI", help="default: folders on this disk")
    given = parser.parse_args()
    failed = False
    rows: list[Row] = []
    for name in given.only.split(","):
        try:
            measure: Callable[[], list[Row]] = getattr(
                Work(given.messages, given.topics, given.bucket), name)
            rows += measure()
        except (BuildError, ClientError, ServerError, OSError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
    print(table(rows))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
