"""Publishes the input: windows of parcels to one nsqd or to all, rate-limited, with progress."""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nsqc.client.commands import topic_name
from nsqc.client.errors import ClientError
from nsqc.client.options import Options
from nsqc.tools import running
from nsqc.tools.acting import count
from nsqc.tools.cluster import Cluster
from nsqc.tools.declare import EXIT_FAILED, NoNode, ToolError
from nsqc.tools.lines import cut, keep_memory
from nsqc.tools.running import Progress, Stop, code_of
from nsqc.tools.target import Lane, Parcel, packed

# ====================================================================== reading
# Cuts files, or standard input, into parcels; nothing blocks, except reading a file.

STDIN = 0
READ_BYTES = 1 << 20
BATCH_BYTES = 512 * 1024
BATCH_ROWS = 20_000


class Source:
    """The concatenated bytes of several files; - and no file at all are standard input. Raises OSError."""

    def __init__(self, files: Sequence[str]):
        self._names = list(files) or ["-"]
        self._at = -1
        self.descriptor = -1        # current input; -1 at the end
        self.name = ""
        self.is_file = False        # reading it does not block
        self.done = 0               # bytes
        self.total = 0              # bytes; 0 if unknown
        sizes = [size_of(name) for name in self._names]
        self.total = sum(sizes) if all(size >= 0 for size in sizes) else 0
        self.next()

    def next(self) -> None:
        """Opens the next file. Raises OSError."""
        self.close()
        self._at += 1
        if self._at < len(self._names):
            self.name = self._names[self._at]
            self.descriptor = STDIN if self.name == "-" else os.open(self.name, os.O_RDONLY | os.O_CLOEXEC)
            mode = os.fstat(self.descriptor).st_mode
            self.is_file = stat.S_ISREG(mode) or stat.S_ISBLK(mode)

    def read_into(self, room: memoryview) -> int:
        """Reads; returns the byte count; 0 at the end of a file. Raises OSError, ToolError."""
        try:
            count = os.readv(self.descriptor, [room])
        except IsADirectoryError:
            raise ToolError(f"{self.name}: is a folder") from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, "stdin" if self.name == "-" else self.name) from None
        self.done += count
        return count

    def close(self) -> None:
        """Closes the file."""
        if self.descriptor > STDIN:
            os.close(self.descriptor)
        self.descriptor = -1


def size_of(name: str) -> int:
    """A file's size in bytes; -1 if it has none. Raises OSError."""
    status = os.fstat(STDIN) if name == "-" else os.stat(name)
    return status.st_size if stat.S_ISREG(status.st_mode) else -1


class Cutter:
    """Cuts bytes into parcels. refuse is called with the size of each oversized line. delay_ms: above 0 for DPUBs."""

    def __init__(self, source: Source, topic: bytes, delimiter: int, delay_ms: int, max_message: int,
                 refuse: Callable[[int], None]):
        self._source, self._topic, self._delimiter, self._max = source, topic, delimiter, max_message
        self._prefix = b"" if delay_ms else b"MPUB %b\n" % topic
        self._head = b"DPUB %b %d\n" % (topic, delay_ms) if delay_ms else b""
        self._refuse = refuse
        self._buffer = bytearray(2 * READ_BYTES)
        self._begin = self._end = 0     # of the bytes read and not published yet
        self._skipping = 0              # bytes of an oversized line seen so far
        self._dry = True                # no complete line is left
        self.is_through = False

    @property
    def needs_input(self) -> bool:
        """Whether no complete line is available for a parcel."""
        return self._dry and not self.is_through

    def fill(self) -> None:
        """Reads once, blocking if no data is available. Raises OSError, ToolError."""
        self._make_room()
        with memoryview(self._buffer) as view, view[self._end:-1] as room:
            count = self._source.read_into(room)
        self._end += count
        self._dry = False
        if not count:
            self._end_of_file()

    def _make_room(self) -> None:
        if self._begin:
            rest = self._buffer[self._begin:self._end]
            self._buffer[:len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        if len(self._buffer) - self._end <= READ_BYTES:
            self._buffer.extend(bytes(len(self._buffer)))

    def _end_of_file(self) -> None:
        """Adds a delimiter to a last line without one."""
        if self._skipping:
            self._refuse(self._skipping + self._end - self._begin)
            self._skipping, self._begin = 0, self._end
        elif self._end > self._begin:
            self._buffer[self._end] = self._delimiter
            self._end += 1
        self._source.next()

    def parcel(self, most: int) -> Parcel | None:
        """The next parcel, up to this many messages; None if more must be read first."""
        while True:
            if self._skipping and not self._skip():
                return None
            command, count, self._begin, too_large = cut(
                self._prefix, self._head, self._buffer, self._begin, self._end, self._delimiter,
                min(most, BATCH_ROWS), BATCH_BYTES, self._max)
            if count:
                return Parcel(self._topic, command, count, is_deferred=not self._prefix)
            if not too_large:
                self._dry = True
                self.is_through = self._source.descriptor < 0
                return None
            self._skipping = 0
            if not self._skip():
                return None

    def _skip(self) -> bool:
        """Skips an oversized line; returns whether its end was found."""
        at = self._buffer.find(self._delimiter, self._begin, self._end)
        if at < 0:
            self._skipping += self._end - self._begin
            self._begin = self._end
            self._dry = True
            return False
        self._refuse(self._skipping + at - self._begin)
        self._begin, self._skipping = at + 1, 0
        return True


class Whole:
    """The same interface, with each file as one message."""

    def __init__(self, source: Source, topic: bytes, delay_ms: int, max_message: int, refuse: Callable[[int], None]):
        self._source, self._topic, self._max, self._refuse = source, topic, max_message, refuse
        self._line = b"DPUB %b %d\n" % (topic, delay_ms) if delay_ms else b"MPUB %b\n" % topic
        self._is_deferred = delay_ms > 0
        self._body = bytearray()
        self._size = 0          # bytes read so far, including those of oversized messages that are dropped
        self._ready = False
        self.is_through = False
        self._room = bytearray(READ_BYTES)

    @property
    def needs_input(self) -> bool:
        """Whether the message is incomplete."""
        return not self._ready and not self.is_through

    def fill(self) -> None:
        """Reads once. Raises OSError, ToolError."""
        with memoryview(self._room) as room:
            count = self._source.read_into(room)
        self._size += count
        if self._size <= self._max:
            self._body += self._room[:count]
        elif self._body:
            self._body.clear()
        if not count:
            self._ready = True
            self._source.next()

    def parcel(self, most: int) -> Parcel | None:
        """The message, once it is complete; empty files are skipped."""
        if not self._ready:
            return None
        size, body = self._size, bytes(self._body)
        self._body.clear()
        self._size, self._ready = 0, False
        self.is_through = self._source.descriptor < 0
        if size > self._max:
            self._refuse(size)
            return None
        return packed(self._topic, self._line, [body], self._is_deferred) if size else None


# ====================================================================== publishing

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
    is_shown = shows and running.is_terminal(running.STDERR)
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
        running.as_json({"published": run.published, "refused": run.refused, "unacknowledged": run.unknown})
    if failure:
        say(failure)
    incomplete = bool(failure or run.refused or run.unknown or stop)
    if incomplete or running.is_terminal(running.STDERR):
        parts = [f"{count(run.published, 'message')} published"]
        parts += [f"{run.refused:,} refused"] if run.refused else []
        parts += [f"{run.unknown:,} sent and not acknowledged"] if run.unknown else []
        say(("interrupted: " if stop else "") + ", ".join(parts))
    return code or stop.code() or (EXIT_FAILED if run.refused or run.unknown else 0)
