"""Publishes the input: windows of parcels to one nsqd or to all, rate-limited, with progress."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import NamedTuple

from nsqc.client.commands import topic_name
from nsqc.client.errors import ClientError
from nsqc.client.options import Options
from nsqc.tools import output
from nsqc.tools.cluster import Cluster
from nsqc.tools.errors import EXIT_FAILED, NoNode, ToolError
from nsqc.tools.lane import Lane
from nsqc.tools.lines import keep_memory
from nsqc.tools.parcel import Parcel
from nsqc.tools.progress import Progress
from nsqc.tools.pub.reading import Cutter, Source, Whole
from nsqc.tools.running import code_of
from nsqc.tools.stopping import Stop

TICK_MS = 200
REPORTED = 5        # refused messages that are reported one by one


class Plan(NamedTuple):
    """A publishing job. delimiter: a byte; rate: messages per second, 0: no limit; retries: with each nsqd. say gets
    lines about failures."""

    place: str
    topic: str
    files: tuple[str, ...]
    delimiter: int
    whole: bool
    delay_ms: int
    rate: float
    to_all: bool
    max_message: int
    retries: int
    say: Callable[[str], None]


class Pace:
    """Rate limiter: messages that may be sent now. rate: per second; 0: no limit."""

    def __init__(self, rate: float):
        self._rate = rate
        self._credit, self._then = 1.0, time.monotonic()

    def allowed(self) -> int:
        """Available messages; an unused allowance is saved for a second at most."""
        if not self._rate:
            return 1 << 30
        now = time.monotonic()
        self._credit = min(self._credit + (now - self._then) * self._rate, max(self._rate, 1.0))
        self._then = now
        return int(self._credit)

    def used(self, count: int) -> None:
        """Counts sent messages."""
        self._credit -= count

    def wait_ms(self) -> float:
        """Seconds until the next message may be sent."""
        return max(1.0, (1 - self._credit) / self._rate * 1000) if self._rate else 0.0


class Publishing:
    """One run. After run() the counts are final."""

    def __init__(self, plan: Plan, source: Source, options: Options, addresses: list[str], stop: Stop,
                 progress: Progress):
        self._plan, self._source, self._stop, self._progress = plan, source, stop, progress
        self.refused = 0
        self.unknown = 0            # messages sent and not acknowledged
        topic = topic_name(plan.topic)
        self._reader: Cutter | Whole = (
            Whole(source, topic, plan.delay_ms, plan.max_message, self._too_large) if plan.whole else
            Cutter(source, topic, plan.delimiter, plan.delay_ms, plan.max_message, self._too_large))
        groups = [[address] for address in addresses] if plan.to_all else [addresses]
        self._lanes = [Lane(group, options, stop.wake, self._not_taken, plan.retries + 1) for group in groups]
        self._pace = Pace(plan.rate)
        self._deadline = options.timeout

    @property
    def published(self) -> int:
        """Messages acknowledged by every required nsqd."""
        return min(lane.published for lane in self._lanes)

    def run(self) -> None:
        """Runs until everything is acknowledged, or a signal. Raises ClientError, ToolError, OSError."""
        try:
            while not self._stop and not (self._reader.is_through and self._is_idle):
                self._wait()
                self._tend()
                self._progress.show(self.published, self._source.done)
            give_up = time.monotonic() + self._deadline
            while any(lane.unknown for lane in self._lanes) and time.monotonic() < give_up:
                self._wait(reading=False)
                for lane in self._lanes:
                    lane.tend()
        finally:
            self.unknown = max(lane.unknown for lane in self._lanes)
            for lane in self._lanes:
                lane.close()

    @property
    def _is_idle(self) -> bool:
        return all(lane.is_idle for lane in self._lanes)

    def _tend(self) -> None:
        """Reads, cuts and sends as far as windows allow."""
        for lane in self._lanes:
            lane.tend()
        while not self._stop and all(lane.has_room for lane in self._lanes):
            if self._reader.is_through:
                return
            if self._reader.needs_input:
                if not self._may_read:
                    return
                self._reader.fill()
            most = self._pace.allowed()
            parcel = self._reader.parcel(most) if most else None
            if not most:
                return
            if parcel is not None:
                self._pace.used(parcel.count)
                for lane in self._lanes:
                    lane.put(Parcel(parcel.topic, parcel.command, parcel.count, parcel.is_deferred))

    @property
    def _may_read(self) -> bool:
        """Whether reading would not block."""
        if self._source.is_file:
            return True
        poll = select.poll()
        poll.register(self._source.descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def _wait(self, reading: bool = True) -> None:
        """Waits until there is something to do."""
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        for lane in self._lanes:
            if lane.target.fileno() >= 0:
                poll.register(lane.target.fileno(),
                              select.POLLIN | (select.POLLOUT if lane.target.wants_write else 0))
        wait: float = TICK_MS
        if reading and not self._reader.is_through and all(lane.has_room for lane in self._lanes):
            if not self._pace.allowed():
                wait = min(wait, self._pace.wait_ms())
            elif not self._reader.needs_input or self._source.is_file:
                wait = 0
            else:
                poll.register(self._source.descriptor, select.POLLIN)
        poll.poll(wait)
        self._stop.calm()

    # ------------------------------------------------------------------ refused

    def _too_large(self, size: int) -> None:
        """The input has an oversized message."""
        self.refused += 1
        self._report(f"a message of {size} bytes is too large: at most {self._plan.max_message} are allowed")

    def _not_taken(self, parcel: Parcel, answer: str) -> None:
        """nsqd refuses a message."""
        self.refused += 1
        self._report(f"a message of {parcel.size()} bytes was refused: {answer}")

    def _report(self, text: str) -> None:
        if self.refused <= REPORTED:
            self._progress.clear()
            self._plan.say(text)


def publish(cluster: Cluster, plan: Plan, shows: bool, as_json: bool) -> int:
    """Returns the exit code. shows: progress, on a terminal; as_json: the result, on stdout. Raises ToolError,
    ClientError, OSError if it cannot start."""
    options = Options("pub", (), cluster.timeout, cluster.connection_options())
    topic_name(plan.topic)
    keep_memory()
    addresses = [node.tcp for node in cluster.nodes()] if cluster.nsqlookupd else cluster.nsqd
    if not addresses:
        raise NoNode("nsqlookupd knows no nsqd")
    source = Source(plan.files)
    is_shown = shows and output.is_terminal(output.STDERR)
    with Stop() as stop, Progress(plan.place, source.total, is_shown) as progress:
        run = Publishing(plan, source, options, addresses, stop, progress)
        code, failure = 0, ""
        try:
            run.run()
        except (ClientError, ToolError, OSError) as error:
            name = getattr(error, "filename", None)
            failure = f"{name}: {getattr(error, 'strerror', None)}" if name else str(error)
            code = (error.code if isinstance(error, ToolError)
                    else code_of(error) if isinstance(error, ClientError) else EXIT_FAILED)
        finally:
            source.close()
        progress.clear()
        return report(plan.say, run, as_json, stop, code, failure)


def report(say: Callable[[str], None], run: Publishing, as_json: bool, stop: Stop, code: int, failure: str) -> int:
    """Prints the result; returns the exit code."""
    if as_json:
        output.as_json({"published": run.published, "refused": run.refused, "unacknowledged": run.unknown})
    if failure:
        say(failure)
    incomplete = bool(failure or run.refused or run.unknown or stop)
    if incomplete or output.is_terminal(output.STDERR):
        parts = [f"{run.published:,} messages published"]
        parts += [f"{run.refused:,} refused"] if run.refused else []
        parts += [f"{run.unknown:,} sent and not acknowledged"] if run.unknown else []
        say(("interrupted: " if stop else "") + ", ".join(parts))
    return code or stop.code() or (EXIT_FAILED if run.refused or run.unknown else 0)
