"""The workloads: each function runs one on fresh servers and returns its rows."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perf import programs
from perf.load.server import Server, Side
from perf.load.work import MEMORY_ONLY, Bench, ClientError
from perf.load.work import Scale as LoadScale

WRITE = ("--topic-storage=log", "--log-sync=write")
FSYNC = ("--topic-storage=log", "--log-sync=fsync")
MEMORY = (MEMORY_ONLY,)
RECORD_SIZE = 4             # bytes of a record before the body
FRAME_HEAD = 64             # bytes of a frame before its records
BATCH = 200
FAST_SYNC_US = 70
SYNCED = 32                 # records of a sync that 64 publishers share, half of them at once
ANSWERS_RATE = 500          # PUBs a second during the drain
READ_BYTES = 64 << 20       # requested by each GET /topic/read


@dataclass(frozen=True)
class Scale:
    """Sizes of the workloads."""

    messages: int = 2_000_000       # of fills
    seconds: float = 3.0            # of timed measurements
    backlog: int = 20_000_000       # messages at a start
    read_bytes: int = 2 << 30       # read over HTTP
    cold_bytes: int = 10 << 30      # size of a backlog that is not in the page cache
    size: int = 200


QUICK = Scale(messages=20_000, seconds=0.3, backlog=50_000, read_bytes=1 << 20, cold_bytes=20 << 20)


@dataclass(frozen=True)
class Row:
    """A result and its base. judged: the value that the bar limits."""

    title: str
    base: float | None
    value: float
    judged: float
    bar: float
    at_least: bool
    unit: str = ""
    digits: int = 0

    @property
    def ok(self) -> bool:
        """Whether the bar holds."""
        return self.judged >= self.bar if self.at_least else self.judged <= self.bar


def ratio(title: str, base: float, value: float, bar: float, at_least: bool = True, unit: str = "messages/s",
          digits: int = 0) -> Row:
    """A row whose bar limits value / base."""
    return Row(title, base, value, value / base, bar, at_least, unit, digits)


class Work:
    """The workloads."""

    def __init__(self, side: Side, scale: Scale, rounds: int):
        """rounds: how often each rate is measured; the best counts, for both sides alike."""
        self.side, self.scale, self.rounds = side, scale, rounds
        self.bench = Bench(programs.client(), LoadScale(size=scale.size))

    def all(self) -> dict[str, Callable[[], list[Row]]]:
        """All workloads by name."""
        return {"rates": self.rates, "channels": self.channels, "fsync": self.fsync, "batches": self.batches,
                "latency": self.latency, "start": self.start, "read": self.read, "cold": self.cold}

    def _server(self, *flags: str, channels: int = 1, environment: dict[str, str] | None = None) -> Server:
        server = Server(self.side, *flags, environment=environment)
        try:
            server.channel("load", *("ch" + (str(number) if number else "") for number in range(channels)))
        except BaseException:
            server.close()
            raise
        return server

    def _best(self, *measures: Callable[[], float], choose: Callable[..., float] = max) -> list[float]:
        """The best of each, measured alternately."""
        rounds = [[measure() for measure in measures] for _ in range(self.rounds)]
        return [choose(of_one) for of_one in zip(*rounds, strict=True)]

    def _fill(self, server: Server, count: int) -> float:
        """Messages a second. Raises ClientError."""
        done = self.bench.load(server.tcp, "pub", "-t", 250, "-n", count)
        if done["messages"] < count:
            raise ClientError(f"published {done['messages']} of {count} messages")
        return done["per_s"]

    def conditions(self) -> str:
        """One line about the machine's effect on these results: see the experiments in perf/RESULTS.md."""
        held = subprocess.run([programs.program("held", [Path(__file__).with_name("held.c")]), str(self.scale.seconds)],
                              capture_output=True, text=True, check=True)
        share, longest = held.stdout.split()
        size = FRAME_HEAD + SYNCED * (RECORD_SIZE + self.scale.size)
        return (f"processors taken away: {share} % of the time, {longest} ms at most; "
                f"{size / 1e3:.0f} KB appended with fdatasync: {1e6 / self._appends(size):,.0f} µs")

    def _appends(self, size: int) -> float:
        """The rate of the bare disk: blocks a second appended to a file, each with fdatasync."""
        program = programs.program("append", [Path(__file__).with_name("append.c")])
        with Server(self.side) as server:       # for its folder, on the same file system as a log
            done = subprocess.run([program, server.folder, str(size), str(self.scale.seconds)],
                                  capture_output=True, text=True, check=True)
        return float(done.stdout)

    # ------------------------------------------------------------------ rates

    def rates(self) -> list[Row]:
        """Publishing and consuming, and memory for waiting messages."""
        best: dict[tuple[str, str], float] = {}
        grown = 0.0
        for _ in range(self.rounds):
            for name, flags in (("memory", MEMORY), ("log", WRITE)):
                self.bench.warm(self.scale.messages)
                with self._server(*flags) as server:
                    self._fill(server, self.scale.messages // 20)       # allocates everything that is allocated once
                    resident = server.resident()
                    rate = self._fill(server, self.scale.messages)
                    if name == "log":
                        grown = max(grown, (server.resident() - resident) / self.scale.messages)
                    best["publish", name] = max(best.get(("publish", name), 0), rate)
                    rate = self._drain(server, self.scale.messages)
                    best["consume", name] = max(best.get(("consume", name), 0), rate)
        return [ratio("publish, MPUB 200, sync=write", best["publish", "memory"], best["publish", "log"], 0.6),
                ratio("consume with FIN", best["consume", "memory"], best["consume", "log"], 0.7),
                Row("memory for a queued message", None, grown, grown, 16, False, "bytes", 1)]

    def _drain(self, server: Server, count: int) -> float:
        done = self.bench.load(server.tcp, "sub", "-t", 250, "-n", count)
        if done["messages"] < count:
            raise ClientError(f"received {done['messages']} of {count} messages")
        return done["per_s"]

    def channels(self) -> list[Row]:
        """Publishing to four channels compared with one, both in a log."""
        def rate(channels: int) -> float:
            with self._server(*WRITE, channels=channels) as server:
                return self._fill(server, self.scale.messages)

        one, four = self._best(lambda: rate(1), lambda: rate(4))
        return [ratio("publish, 4 channels beside 1", one, four, 0.9)]

    def _published(self, flags: tuple[str, ...], *options: object, environment: dict[str, str] | None = None) -> float:
        with self._server(*flags, environment=environment) as server:
            return self.bench.load(server.tcp, "pub", "-t", self.scale.seconds, *options)["per_s"]

    def fsync(self) -> list[Row]:
        """64 connections with one PUB each: on this disk, and on one as fast as the disk that set the bar."""
        one_each = ("-c", 64, "-k", 1, "-b", 1, "-w", 1)        # one thread, like redis-benchmark
        syncs = programs.program("syncs.so", [Path(__file__).with_name("syncs.c")], "-shared", "-fPIC")
        fast = {"LD_PRELOAD": str(syncs), "NSQC_TEST_SYNC_US": str(FAST_SYNC_US)}
        write, fsync, with_fast = self._best(lambda: self._published(WRITE, *one_each),
                                             lambda: self._published(FSYNC, *one_each),
                                             lambda: self._published(FSYNC, *one_each, environment=fast))
        title = "PUB, 64 connections, sync=fsync beside sync=write"
        return [ratio(title, write, fsync, 0.6),
                ratio(f"{title}, if an fdatasync took {FAST_SYNC_US} µs", write, with_fast, 0.6)]

    def batches(self) -> list[Row]:
        """MPUB 200 over four connections, compared with the bare disk's rate for such blocks."""
        def appended() -> float:
            return self._appends(FRAME_HEAD + BATCH * (RECORD_SIZE + self.scale.size)) * BATCH

        disk, log = self._best(appended, lambda: self._published(FSYNC, "-c", 4, "-b", BATCH, "-w", 1))
        return [ratio("MPUB 200, 4 connections, sync=fsync beside the disk", disk, log, 0.6)]

    def latency(self) -> list[Row]:
        """PUB to delivery, at 300 a second."""
        def p50(flags: tuple[str, ...]) -> float:
            with self._server(*flags) as server:
                return self.bench.load(server.tcp, "latency", "-t", self.scale.seconds, "-r", 100, "-R", 300)["p50_us"]

        memory, log = self._best(lambda: p50(()), lambda: p50(WRITE), choose=min)
        return [ratio("PUB to delivery, p50", memory, log, 1.3, False, "µs", 1)]

    # ------------------------------------------------------------------ a large log

    def start(self) -> list[Row]:
        """A start with a backlog compared with an empty one."""
        with self._server(*WRITE) as server:
            empty = min(server.restart() for _ in range(3))
        with self._server(*WRITE) as server:
            self._fill(server, self.scale.backlog)
            full = min(server.restart() for _ in range(3))
            backlog = server.get_stats("load")["channels"][0]["depth"]
        if backlog != self.scale.backlog:
            raise ClientError(f"{backlog} of {self.scale.backlog} messages after the start")
        return [Row(f"start with {backlog:,} messages, beside empty", empty, full, full - empty, 1.0, False, "s", 3)]

    def read(self) -> list[Row]:
        """GET /topic/read with curl, from the page cache."""
        count = self.scale.read_bytes // (RECORD_SIZE + self.scale.size)
        with self._server(*WRITE) as server:
            self._fill(server, count)
            rate = self._best(lambda: read_with_curl(server, count))[0]
        return [Row("GET /topic/read with curl", None, rate / 1e9, rate / 1e9, 1.0, True, "GB/s", 2)]

    def cold(self) -> list[Row]:
        """PUBs to another topic while a backlog drains that is only on disk."""
        count = self.scale.cold_bytes // (RECORD_SIZE + self.scale.size)
        with self._server(*WRITE) as server:
            self._fill(server, count)
            forget(server.folder / "data")      # or the disk is still busy with it when the measurement starts
            idle = self._answers(server, self.scale.seconds)
            read = io_bytes(server)
            drained: list[float] = []
            failed: list[ClientError] = []

            def drain() -> None:
                try:
                    drained.append(self._drain(server, count))
                except ClientError as error:
                    failed.append(error)

            thread = threading.Thread(target=drain)
            thread.start()
            times: dict[bool, list[float]] = {False: [], True: []}
            while thread.is_alive() or not all(times.values()):
                for waits, of_kind in times.items():
                    of_kind.append(self._answers(server, min(self.scale.seconds, 1.0), waits))
            thread.join()
            if failed:
                raise failed[0]
            read = io_bytes(server) - read
        p99, p99_waiting = (sorted(of_kind)[len(of_kind) // 2] for of_kind in times.values())
        title = (f"PUB, p99 beside a cold drain ({read / 1e9:.1f} GB from disk, {drained[0]:,.0f} messages/s; "
                 f"{p99_waiting:,.1f} µs for a client that waits for a processor)")
        return [ratio(title, idle, p99, 3.0, False, "µs", 1)]

    def _answers(self, server: Server, seconds: float, waits: bool = False) -> float:
        """p99 in µs. During a drain, four processes share the machine, and a waiting client measures that, too."""
        return self.bench.load(server.tcp, "answers", "-t", seconds, "-R", ANSWERS_RATE, "-T", "other",
                               waits=waits)["p99_us"]


def read_with_curl(server: Server, count: int) -> float:
    """Bytes a second over all answers, by curl's own clock. Raises ClientError."""
    at = size = 0
    seconds = 0.0
    while at < count:
        done = subprocess.run(
            ["curl", "-sS", "-H", "Accept: application/vnd.nsqc.frames", "-o", "/dev/null", "-D", "-", "-w",
             "\n%{http_code} %{size_download} %{time_total}",
             f"http://127.0.0.1:{server.http}/topic/read?topic=load&offset={at}&max_bytes={READ_BYTES}"
             f"&max_messages={count}"], capture_output=True, text=True, timeout=60)
        code, got, took = done.stdout.rsplit("\n", 1)[-1].split() if done.returncode == 0 else ("0", "0", "0")
        following = re.search(r"(?i)^X-NSQ-Next-Offset: (\d+)", done.stdout, re.M)
        if code != "200" or not following or int(following[1]) <= at:
            raise ClientError(f"GET /topic/read at {at}: {done.stdout[-200:]} {done.stderr.strip()}")
        at, size, seconds = int(following[1]), size + int(got), seconds + float(took)
    return size / seconds


def forget(folder: Path) -> None:
    """Drops the files of a folder from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def io_bytes(server: Server) -> int:
    """Bytes that the server has read from the disk."""
    return sum(int(re.search(r"^read_bytes: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.M)[1])
               for pid in server.processes())
