"""The workloads: each function runs one on a fresh server and returns its results by name."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from perf.load.server import Server, Side

CLIENT_SECONDS = 300
RECORD_BYTES = 320  # memory to warm for each message of a fill
FLOOR_MORE = 4  # times the messages for the floor, which stores none and would finish too soon
ALONE = (1, 2, 8)   # connections that send one request at a time
MEMORY_ONLY = "--mem-queue-size=50000000"

Results = dict[str, float]


@dataclass(frozen=True)
class Scale:
    """Sizes of the workloads: messages for fills, seconds for the rest."""

    memory: int = 2_000_000
    disk: int = 1_000_000
    seconds: float = 2.0
    idle: int = 2000
    size: int = 200


QUICK = Scale(memory=20_000, disk=10_000, seconds=0.2, idle=50)


class ClientError(Exception):
    """The load client failed; the text is its last line."""


def come_first() -> None:
    """Runs in a new process, scheduled before all processes with ordinary priorities."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


class Bench:
    """The workloads, for one side at a time."""

    def __init__(self, client: Path, scale: Scale):
        self.client = str(client)
        self.scale = scale

    def load(self, port: int, mode: str, *options: object, waits: bool = True) -> dict:
        """Runs the load client to its end; returns its line of JSON. Raises ClientError.

        waits: for a processor, like any other program. False: it gets one at once, if the system allows that, so only
        the server is measured.
        """
        command = [self.client, mode, "-p", str(port), "-s", str(self.scale.size), *map(str, options)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CLIENT_SECONDS,
                              preexec_fn=None if waits else come_first)
        if done.returncode:
            raise ClientError(f"{mode}: {done.stderr.strip() or done.returncode}")
        return json.loads(done.stdout)

    def warm(self, count: int) -> None:
        """Touches and frees as much memory as count messages will need.

        In a virtual machine the first touch of a page can be slow, because the host has to find it: that would distort
        the measurement.
        """
        available = int(re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())[1]) * 1024
        pages = min(count * RECORD_BYTES, available // 2) // 4096 + 1
        subprocess.run([self.client, "touch", "-n", str(pages), "-s", "4096"], check=True, stdout=subprocess.DEVNULL)

    # ------------------------------------------------------------------ fill and drain

    def memory(self, side: Side) -> Results:
        """Publish in memory, bytes a message, consume; also the start time."""
        return self._fill_and_drain(side, "", MEMORY_ONLY, self.scale.memory)

    def disk(self, side: Side) -> Results:
        """The same through disk queues."""
        return self._fill_and_drain(side, "disk ", "--mem-queue-size=0", self.scale.disk) if side.queues else {}

    def _fill_and_drain(self, side: Side, prefix: str, flag: str, count: int) -> Results:
        if side.queues:
            self.warm(count)
        else:
            count *= FLOOR_MORE
        with Server(side, flag) as server:
            server.channel("load", "ch")
            results = {prefix + "start": server.start_s}
            resident, cpu = server.resident(), server.cpu_s()
            done = self.load(server.tcp, "pub", "-t", 120, "-n", count)
            results[prefix + "publish rate"] = done["per_s"]
            results[prefix + "publish cpu"] = (server.cpu_s() - cpu) / done["messages"] * 1e6
            count = done["messages"]
            if side.queues:
                results[prefix + "bytes"] = (server.resident() - resident) / count
            cpu = server.cpu_s()
            done = self.load(server.tcp, "sub", "-t", 120, "-n", count)
            if done["messages"] < count:
                raise ClientError(f"drained {done['messages']} of {count} messages")
            results[prefix + "consume rate"] = done["per_s"]
            results[prefix + "consume cpu"] = (server.cpu_s() - cpu) / done["messages"] * 1e6
        return results

    # ------------------------------------------------------------------ one message at a time

    def single(self, side: Side) -> Results:
        """PUB of one message: 64 outstanding on each connection, each in its own write, then joined."""
        seconds, results = self.scale.seconds, {}
        self.warm(int(seconds * 1_500_000))
        with Server(side, MEMORY_ONLY) as server:
            server.channel("load", "ch")
            for name, options in (("single", ()), ("single joined", ("-j",))):
                cpu = server.cpu_s()
                done = self.load(server.tcp, "pub", "-t", seconds, "-b", 1, "-w", 64, *options)
                results[f"{name} rate"] = done["per_s"]
                results[f"{name} cpu"] = (server.cpu_s() - cpu) / done["messages"] * 1e6
                server.post("/channel/empty?topic=load&channel=ch")
        return results

    def alone(self, side: Side) -> Results:
        """One request at a time on each connection: PUB, and POST /pub. One thread of the client has all connections:
        a thread for each would need more of the two cores than the server."""
        results: Results = {}
        self.warm(int(self.scale.seconds * 1_000_000))
        with Server(side, MEMORY_ONLY) as server:
            server.channel("load", "ch")
            for count in ALONE:
                done = self.load(server.tcp, "pub", "-t", self.scale.seconds, "-b", 1, "-w", 1, "-c", count, "-k", 1)
                results[f"alone {count} rate"] = done["per_s"]
                done = self.load(server.http, "http-pub", "-t", self.scale.seconds, "-c", count)
                results[f"alone http {count} rate"] = done["per_s"]
        return results

    def http(self, side: Side) -> Results:
        """POST /pub on 16 connections, with our own client and, if installed, with wrk."""
        self.warm(int(self.scale.seconds * 200_000))
        with Server(side, MEMORY_ONLY) as server:
            server.channel("load", "ch")
            cpu = server.cpu_s()
            done = self.load(server.http, "http-pub", "-t", self.scale.seconds, "-c", 16)
            results = {"http rate": done["per_s"], "http cpu": (server.cpu_s() - cpu) / done["messages"] * 1e6}
            if shutil.which("wrk"):
                results["http wrk rate"] = self._wrk(server.http)
            server.post("/channel/empty?topic=load&channel=ch")
        return results

    def _wrk(self, port: int) -> float:
        seconds = max(1, round(self.scale.seconds))
        with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
            script.write(f'wrk.method = "POST"\nwrk.body = string.rep("x", {self.scale.size})\n')
            script.flush()
            done = subprocess.run(["wrk", "-t1", "-c16", f"-d{seconds}s", "-s", script.name,
                                   f"http://127.0.0.1:{port}/pub?topic=load"],
                                  capture_output=True, text=True, timeout=CLIENT_SECONDS)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
        if done.returncode or not rate or "Non-2xx" in done.stdout:
            raise ClientError(f"wrk: {done.stdout} {done.stderr}")
        return float(rate[1])

    # ------------------------------------------------------------------ latency and rest

    def latency(self, side: Side) -> Results:
        """PUB to delivery in microseconds."""
        results: Results = {}
        if not side.forwards:
            return results
        with Server(side, *(() if side.queues else ("--forward",))) as server:
            for name, rdy, rate in (("rdy 1", 1, 300), ("rdy 100", 100, 300), ("rdy 100, 4000/s", 100, 4000)):
                topic = name.replace(" ", "_").replace(",", "").replace("/", "")
                server.channel(topic, "ch")
                done = self.load(server.tcp, "latency", "-t", self.scale.seconds, "-r", rdy, "-R", rate, "-T", topic)
                results[f"latency {name} p50"] = done["p50_us"]
                results[f"latency {name} p99"] = done["p99_us"]
        return results

    def idle(self, side: Side) -> Results:
        """Subscribed connections without traffic: kilobytes each, CPU share in per cent."""
        if not side.queues:
            return {}
        with Server(side) as server:
            resident = server.resident()
            command = [self.client, "idle", "-p", str(server.tcp), "-c", str(self.scale.idle), "-T", "idle",
                       "-t", str(3 * self.scale.seconds + 5)]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            try:
                if not process.stdout.readline():
                    raise ClientError("idle: the client has failed")
                time.sleep(2 * self.scale.seconds)      # the work that follows 2,000 subscriptions
                cpu = server.cpu_s()
                time.sleep(self.scale.seconds)
                share = (server.cpu_s() - cpu) / self.scale.seconds * 100
                return {"idle kb": (server.resident() - resident) / self.scale.idle / 1000, "idle cpu": share}
            finally:
                process.kill()
                process.wait()
                process.stdout.close()

    def all(self) -> dict[str, Callable[[Side], Results]]:
        """All workloads by name."""
        return {"memory": self.memory, "disk": self.disk, "single": self.single, "alone": self.alone,
                "http": self.http, "latency": self.latency, "idle": self.idle}
