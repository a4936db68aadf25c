"""One data path, and rounds of load, kill and check on it."""

from __future__ import annotations

import contextlib
import os
import random
import select
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.crash.books import ChannelBooks, Known, Promises
from tests.crash.clients import Worker, look
from tests.crash.stalls import Stalls
from tests.support.daemon import COMMAND, Daemon
from tests.support.patience import WAIT_SECONDS
from tests.support.power.trace import Trace
from tests.support.publishing import WAYS, Books, Publishers

TOPIC = "t"
FIXED = ("kept", "worked", "sought")    # channels: without consumers, with two, and one that is sought and emptied
INTERVAL = 0.05, 0.5                    # seconds of load before the kill
STALL_SECONDS = 1.0                     # seconds before a kill in which the machine's stalls count
DRAINED_EVERY = 3                       # rounds, after which everything is finished; in others a part
FINISHED = 0.5
TRACE_BYTES = 1 << 30
MOMENTS = ("time", "record", "create", "rename", "unlink", "sync", "stop", "start", "graceful")
WEIGHTS = (5, 4, 3, 3, 3, 3, 1, 2, 1)
# Kills by the shim: the kinds of records that trigger them, and the latest trigger.
RECORDS: dict[str, tuple[tuple[str, ...], int]] = {
    "record": ((), 2000), "create": (("create", "mkdir"), 12), "rename": (("rename", "link"), 12),
    "unlink": (("unlink", "rmdir"), 12), "sync": (("sync", "synced"), 40)}


class Rounds:
    """The daemon, and the expected state of its topic. storage: "log" or "memory". interval: seconds of load before a
    kill; kills: the most of them before what is there is looked at."""

    def __init__(self, folder: Path, seed: int, storage: str, flags: tuple[str, ...],
                 interval: tuple[float, float] = INTERVAL, kills: int = 1):
        self.folder = folder
        self.random = random.Random(seed)
        self.storage = storage
        self.promises = Promises(cursors=storage == "log", whole=storage == "log")
        self.known = Known(Books())
        self.channels = {name: ChannelBooks(name, self.known, self.promises) for name in FIXED}
        self.interval = interval
        self.kills = kills
        self.number = self.loads = 0
        self.moments: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        data = folder / "data"
        data.mkdir()
        self._trace: Trace | None = None
        self._killed = 0.0              # time.monotonic()
        self._stall = 0.0               # before the kill
        self._moment = "time"           # of the next kill
        self.node = Daemon(data, "--max-rdy-count=1000000", "--msg-timeout=60s", *flags)
        self.node.post(f"/topic/create?topic={TOPIC}")
        for name in FIXED:
            self.node.post(f"/channel/create?topic={TOPIC}&channel={name}")

    def close(self) -> None:
        """Ends the daemon."""
        self.node.close()
        if self._trace:
            self._trace.close()

    # ------------------------------------------------------------------ a round

    def round(self) -> str:
        """Loads, kills, starts and checks; returns the kind of the last kill. Fails when a promise does not hold."""
        self.number += 1
        for _ in range(self.random.randint(1, self.kills)):
            moment = self._kill()
        self._check(share=1 if self.number % DRAINED_EVERY == 0 else FINISHED)
        return moment

    def _kill(self) -> str:
        """Loads, kills, and starts; returns the kind of kill."""
        self.loads += 1
        moment, self._moment = self._moment, self._choose()
        self.moments[moment] += 1
        self._load(moment)
        if moment == "start":
            for _ in range(self.random.randint(1, 3)):
                self._killed_start()
        shutil.rmtree(self.folder / "killed", ignore_errors=True)
        shutil.copytree(self.node.data_path, self.folder / "killed")    # for debugging
        self.known.take_acknowledged()
        for books in self.channels.values():
            books.killed(self._killed, self._stall)
        self._start()
        return moment

    def _choose(self) -> str:
        return self.random.choices(MOMENTS, WEIGHTS)[0]

    def _start(self) -> None:
        """Starts, under the shim if the next kill comes from it, and undoes pauses: emptying a channel spares what a paused
        topic keeps from it."""
        if self._trace:
            self._trace.close()
            self._trace = None
        if self._moment in RECORDS:
            self._trace = Trace(self.folder / "trace", self.node.data_path, TRACE_BYTES)
        self.node.popen = {"env": self._trace.environment()} if self._trace else {}
        self.node.start()
        for path in (f"/topic/unpause?topic={TOPIC}", f"/channel/unpause?topic={TOPIC}&channel=worked"):
            self.node.post(path)

    def _killed_start(self) -> None:
        """A start that is killed before it has ended, or soon after."""
        with self.node.log_path.open("ab") as log:
            process = subprocess.Popen(
                [*COMMAND, "--tcp-address=127.0.0.1:0", "--http-address=127.0.0.1:0",
                 f"--data-path={self.node.data_path}", *self.node.flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        time.sleep(self.random.uniform(0.05, 0.4))
        process.kill()
        process.wait()

    def _load(self, moment: str) -> None:
        """Runs the whole load until the daemon is gone."""
        ways = [way for way in WAYS if self.storage == "log" or "dpub" not in way]
        # In memory, a message that goes straight to a consumer would be lost.
        worked = FIXED[1:] if self.storage == "log" else ()
        workers = [Worker(self.node, TOPIC, self.channels[name], self.random.randrange(1 << 30))
                   for name in worked for _ in range(2)]
        operator = threading.Thread(target=self._operate, args=(random.Random(self.random.randrange(1 << 30)),), daemon=True)
        with Stalls(self.folder / "stalls") as stalls, Publishers(
                self.node, self.known.books, TOPIC, ways, self.random.randrange(1 << 30), f"r{self.loads}p",
                pause=0.005):
            for worker in workers:
                worker.start()
            operator.start()
            self._end(moment)
            self._stall = stalls.longest(self._killed - STALL_SECONDS)
            for worker in workers:
                worker.join(WAIT_SECONDS)
                assert not worker.is_alive(), "a consumer is stuck"
            operator.join(WAIT_SECONDS)
            assert not operator.is_alive(), "an operator's call is stuck"
        for worker in workers:
            if worker.failure is not None:
                raise worker.failure
            assert worker.books.moved or not worker.books.refused, worker.books.refused[:3]
        assert not self.known.books.refused, self.known.books.refused[:3]

    def _end(self, moment: str) -> None:
        """Kills the daemon, or ends it otherwise."""
        if self._trace:
            kinds, most = RECORDS[moment]
            self._trace.kill_with(self.random.randint(1, most), *kinds)
            self._gone(self.interval[1])
        else:
            time.sleep(self.random.uniform(*self.interval))
        if moment == "graceful":
            assert self.node.stop() == 0
        elif moment == "stop":
            self.node.process.send_signal(signal.SIGTERM)
            time.sleep(self.random.uniform(0, 0.05))
        if not self._gone(0):
            self._killed = time.monotonic()
        self.node.close()

    def _gone(self, seconds: float) -> bool:
        """Whether the process ends within this many seconds; records the time."""
        try:
            process = os.pidfd_open(self.node.pid)
        except ProcessLookupError:
            return True
        try:
            ended = bool(select.select([process], [], [], seconds)[0])
        finally:
            os.close(process)
        if ended:
            self._killed = time.monotonic()
        return ended

    # ------------------------------------------------------------------ an operator

    def _operate(self, choice: random.Random) -> None:
        """Changes channels and pauses while the load runs, until the daemon is gone."""
        calls = [self._make_channel, self._delete_channel, self._pause]
        if self.storage == "log":
            calls += [self._seek, self._empty]
        with contextlib.suppress(OSError, AssertionError):
            while self.node.process.poll() is None:
                choice.choice(calls)(choice)
                time.sleep(choice.uniform(0, 0.03))

    def _make_channel(self, choice: random.Random) -> None:
        if len(self.channels) < len(FIXED) + 2:
            name = f"c{self.number}x{choice.randrange(1 << 30)}"
            self.node.post(f"/channel/create?topic={TOPIC}&channel={name}")
            self.channels[name] = ChannelBooks(name, self.known, self.promises, time.monotonic())

    def _delete_channel(self, choice: random.Random) -> None:
        if len(self.channels) > len(FIXED):
            name = choice.choice([name for name in self.channels if name not in FIXED])
            del self.channels[name]
            self.node.post(f"/channel/delete?topic={TOPIC}&channel={name}")

    def _pause(self, choice: random.Random) -> None:
        place = choice.choice((f"/topic/{{}}?topic={TOPIC}", f"/channel/{{}}?topic={TOPIC}&channel=worked"))
        self.node.post(place.format("pause"))
        time.sleep(choice.uniform(0, 0.02))
        self.node.post(place.format("unpause"))

    def _seek(self, choice: random.Random) -> None:
        books, path = self.channels["sought"], f"/channel/seek?topic={TOPIC}&channel=sought&to="
        if choice.random() < 0.5:
            with books.rewound():
                self.node.post(path + "beginning")
        else:
            with books.emptied():
                self.node.post(path + "end")

    def _empty(self, choice: random.Random) -> None:
        with self.channels["sought"].emptied():
            self.node.post(f"/channel/empty?topic={TOPIC}&channel=sought")

    # ------------------------------------------------------------------ after the kill

    def _check(self, share: float) -> None:
        """share: of the messages of each channel that are finished."""
        status, _ = self.node.http("GET", "/ping")
        assert status == 200
        there = {channel["channel_name"] for channel in self.node.stats(TOPIC)["channels"]}
        for name in [name for name in self.channels if name not in there]:
            assert name not in FIXED, f"channel {name} is gone"
            del self.channels[name]
        for name in there - self.channels.keys():       # the kill came during its creation or deletion
            self.node.post(f"/channel/delete?topic={TOPIC}&channel={name}")
        for name, books in self.channels.items():
            look(self.node, TOPIC, books, lambda: self.random.random() < share,
                 lambda name=name: str(self.node.channel(TOPIC, name)))
        self.known.settle()
        for books in self.channels.values():
            self.totals.update(books.counts)
            books.counts = dict.fromkeys(books.counts, 0)
        if share == 1:
            self._check_empty()

    def _check_empty(self) -> None:
        for channel in self.node.stats(TOPIC)["channels"]:
            assert not channel["depth"] + channel["in_flight_count"] + channel["deferred_count"], channel


@contextlib.contextmanager
def rounds(folder: Path, seed: int, storage: str, *flags: str, interval: tuple[float, float] = INTERVAL,
           kills: int = 1) -> Iterator[Rounds]:
    """Rounds on a new data path in a folder."""
    made = Rounds(folder, seed, storage, flags, interval, kills)
    try:
        yield made
    finally:
        made.close()
