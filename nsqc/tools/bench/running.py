"""Runs the parts of a bench in order, on a private topic; reports as a table, JSON and a chart."""

from __future__ import annotations

import os
import select
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from html import escape
from typing import NamedTuple

from nsqc.charts import Form, area, bars_in, lines_in, scale
from nsqc.client.connection import Connection
from nsqc.client.errors import ClientError
from nsqc.client.frames import batch, pub
from nsqc.client.options import ConnectionOptions, Options
from nsqc.tools import running as output
from nsqc.tools.cluster import Cluster, connect
from nsqc.tools.declare import NoNode, ToolError, UsageError, Values, suggestion

# ====================================================================== load
# Publishes and consumes as fast as the node allows, over several connections, in one thread.

SAMPLE_S = 0.1          # interval for counting rates over time
MOST_TIMES = 200_000    # of single commands that are stored


class Load(NamedTuple):
    """The load and its node. size: of a body; batch: messages in an MPUB."""

    address: str
    options: ConnectionOptions
    timeout: float
    topic: str
    channel: str
    size: int
    batch: int
    connections: int
    ready: int
    window: int
    seconds: float

    def connect(self) -> Connection:
        """One connection. Raises ClientError."""
        return connect(self.address, Options("bench", (), self.timeout, self.options))

    @contextmanager
    def connected(self, count: int) -> Iterator[list[Connection]]:
        """Opens this many connections. After a failure they are closed at once: a graceful close with a hanging node
        takes long. Raises ClientError."""
        connections: list[Connection] = []
        try:
            connections += (self.connect() for _ in range(count))
            yield connections
        except BaseException:
            for connection in connections:
                connection.close()
            raise
        for connection in connections:
            connection.leave()


class Result(NamedTuple):
    """A result. times: of commands, or of messages, in seconds, sorted; samples: messages in each SAMPLE_S."""

    name: str
    size: int
    messages: int
    seconds: float
    times: list[float]
    samples: list[int]
    note: str = ""

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.messages / self.seconds if self.seconds else 0.0

    def at(self, share: float) -> float:
        """A percentile of times, in seconds."""
        return self.times[min(int(len(self.times) * share), len(self.times) - 1)] if self.times else 0.0

    def as_dict(self) -> dict[str, object]:
        """For --json; times in microseconds."""
        shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}
        return {"what": self.name, "messages": self.messages, "seconds": round(self.seconds, 6),
                "rate": round(self.rate, 1), "bytes_per_second": round(self.rate * self.size),
                "times_us": {name: round(self.at(share) * 1e6, 1) for name, share in shares.items()},
                "samples": self.samples, "note": self.note}


class Samples:
    """Counts messages by intervals."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.total = 0
        self.counts: list[int] = []

    def add(self, count: int, now: float) -> None:
        """Adds messages."""
        at = int((now - self.began) / SAMPLE_S)
        while len(self.counts) <= at:
            self.counts.append(0)
        self.counts[at] += count
        self.total += count


def publish(load: Load) -> Result:
    """Publishes for a while; a command's time is from sending it to its OK. Raises ClientError, NoNode."""
    body = bytes(load.size)
    topic = load.topic.encode()
    command = pub(topic, body)
    if load.batch > 1:
        command = batch(b"MPUB %b\n" % topic, (body,) * load.batch, 0, load.batch, 1 << 30)[0]
    times: list[float] = []
    with load.connected(load.connections) as connections:
        sent: dict[int, deque[float]] = {connection.fileno(): deque() for connection in connections}
        by_descriptor = {connection.fileno(): connection for connection in connections}
        poll = select.poll()
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        samples = Samples()
        end = samples.began + load.seconds
        for descriptor, connection in by_descriptor.items():
            for _ in range(load.window):
                sent[descriptor].append(time.monotonic())
                connection.enqueue(command)
        while any(sent.values()):
            for descriptor in [d for d, c in by_descriptor.items() if c.unsent]:
                poll.modify(descriptor, select.POLLIN | select.POLLOUT)
            ready = poll.poll(load.timeout * 1000)
            if not ready:
                raise NoNode(f"{load.address}: no answer within {load.timeout:g} s")
            for descriptor, _ in ready:
                connection, waiting = by_descriptor[descriptor], sent[descriptor]
                connection.flush()
                if not connection.unsent:
                    poll.modify(descriptor, select.POLLIN)
                answered = connection.answered()
                now = time.monotonic()
                samples.add(answered * load.batch, now)
                for _ in range(answered):
                    keep(times, now - waiting.popleft())
                    if now < end:
                        waiting.append(now)
                        connection.enqueue(command)
        seconds = time.monotonic() - samples.began
    return Result("publish", load.size, samples.total, seconds, sorted(times), samples.counts)


def consume(load: Load) -> Result:
    """Consumes the messages waiting in the channel, for a while; the time is from one batch to the next of a
    connection. Raises ClientError."""
    times: list[float] = []
    note = ""
    with load.connected(load.connections) as connections:
        by_descriptor = {connection.fileno(): connection for connection in connections}
        poll = select.poll()
        for descriptor, connection in by_descriptor.items():
            connection.subscribe(load.topic, load.channel)
            poll.register(descriptor, select.POLLIN)
        samples = Samples()
        end, last = samples.began + load.seconds, samples.began
        before = dict.fromkeys(by_descriptor, samples.began)
        for connection in connections:
            connection.ready(min(load.ready, connection.max_ready))
        while (now := time.monotonic()) < end:
            ready = poll.poll(200)
            if not ready:
                note = "all waiting messages"
                break
            for descriptor, _ in ready:
                connection = by_descriptor[descriptor]
                connection.pull()
                count = connection.inflow.rows
                if not count:
                    continue
                connection.finish_ids(connection.inflow.columns()[5])
                now = last = time.monotonic()
                samples.add(count, now)
                keep(times, now - before[descriptor])
                before[descriptor] = now
        for connection in connections:
            connection.ready(0)
    return Result("consume", load.size, samples.total, max(last - samples.began, 1e-9), sorted(times), samples.counts,
                  note)


def keep(times: list[float], seconds: float) -> None:
    """Stores a time, up to a limit."""
    if len(times) < MOST_TIMES:
        times.append(seconds)


# ====================================================================== chart
# Results as one SVG: rates over time, and times by percentile.

FORM = Form("bench", 720, 186, 84, 24, 6)
HEAD, TOP, BELOW = 28, 34, 6
STYLE = """svg { font: 12px system-ui, sans-serif; fill: #1f2937 }
.grid { stroke: #d1d5db } .line { fill: none; stroke: #2563eb; stroke-width: 2 } .bar, .dot { fill: #2563eb }
.tick { fill: #4b5563 } .head { font-weight: 600 }"""
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "longest": 1.0}


def chart(results: list[Result], title: str) -> str:
    """The whole file. title: what was measured."""
    parts = []
    at = TOP
    for result in results:
        head, drawing = times(result) if result.name == "latency" else rates(result)
        parts.append(f'<text class="head" x="16" y="{at + 20}">{escape(head)}</text>'
                     f'<g transform="translate(0 {at + HEAD})">{drawing}</g>')
        at += HEAD + FORM.height
    high = at + BELOW
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {FORM.width} {high}" width="{FORM.width}" '
            f'height="{high}">\n<style>{STYLE}</style>\n<rect width="100%" height="100%" fill="white"/>\n'
            f'<text x="16" y="24">{escape(title)}</text>\n' + "\n".join(parts) + "\n</svg>\n")


def rates(result: Result) -> tuple[str, str]:
    """A line of messages per second over time, and its title."""
    # The last interval is incomplete.
    values = [count / SAMPLE_S for count in result.samples[:-1] or result.samples]
    labels = [f"{SAMPLE_S * (number + 1):.1f} s" for number in range(len(values))]
    drawing = lines_in(area(FORM, labels), labels, {"": values}, scale(max(values, default=0.0)), number_text)
    return f"{result.name}: {result.rate:,.0f} messages/s", drawing


def times(result: Result) -> tuple[str, str]:
    """A bar per percentile, and the title."""
    values = [result.at(share) * 1e6 for share in SHARES.values()]
    labels = [*SHARES]
    tips = [f"{name}: {microseconds(value)}" for name, value in zip(labels, values, strict=True)]
    drawing = bars_in(area(FORM, labels), labels, values, scale(max(values)), microseconds, tips)
    return f"latency at {result.rate:,.0f} messages/s, from PUB to delivery", drawing


def number_text(value: float) -> str:
    """1.5M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def microseconds(value: float) -> str:
    """Formats a time."""
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} us"


# ====================================================================== latency
# Measures latency: PUB to delivery, one message at a time at a steady rate.

STAMP = struct.Struct("<d")
LAST_S = 5.0        # timeout for the last messages


def measure(load: Load, rate: float) -> Result:
    """Sends at this rate per second. Each body begins with the time it was due to be sent, so a lagging node is charged
    for the delay. Raises ClientError, ToolError."""
    times: list[float] = []
    topic = load.topic.encode()
    filler = bytes(load.size - STAMP.size)
    with load.connected(2) as (producer, consumer):
        consumer.subscribe(load.topic, "latency")
        consumer.ready(min(load.ready, consumer.max_ready))
        poll = select.poll()
        poll.register(producer, select.POLLIN)
        poll.register(consumer, select.POLLIN)
        samples = Samples()
        total = max(int(load.seconds * rate), 1)
        sent = 0
        while len(times) < total:
            now = time.monotonic()
            while sent < total and now >= (due := samples.began + sent / rate):
                producer.enqueue(pub(topic, STAMP.pack(due) + filler))
                sent += 1
                now = time.monotonic()
            if now > samples.began + load.seconds + LAST_S:
                raise ToolError(f"{load.address}: {total - len(times)} of {total} messages were not delivered in time")
            # poll() waits for whole milliseconds: the last one is spent polling.
            left = samples.began + sent / rate - now if sent < total else 0.1
            for descriptor, _ in poll.poll(max(int(left * 1000) - 1, 0)):
                if descriptor == producer.fileno():
                    producer.flush()
                    producer.answered()
                    continue
                consumer.pull()
                now = time.monotonic()
                if not consumer.inflow.rows:
                    continue
                count, bodies, offsets, _, _, ids = consumer.inflow.columns()
                consumer.finish_ids(ids)
                starts = memoryview(offsets).cast("B").cast("i")
                data = memoryview(bodies)
                times += [now - STAMP.unpack_from(data, starts[at])[0] for at in range(count)]
                samples.add(count, now)
        seconds = time.monotonic() - samples.began
    return Result("latency", load.size, len(times), seconds, sorted(times), samples.counts)


# ====================================================================== running

WORDS = "nsqc bench"
WHAT = ("publish", "consume", "latency")
CHANNEL = "bench"


def bench(values: Values) -> int:
    """Runs the requested parts. Raises ToolError, ClientError."""
    wanted = values.texts("WHAT") or WHAT
    for word in wanted:
        if word not in WHAT:
            raise UsageError(f"{word!r} is not one of {', '.join(WHAT)}{suggestion(word, WHAT)}", WORDS)
    cluster = Cluster(values, WORDS)
    nodes = cluster.nodes()
    if len(nodes) != 1:
        raise UsageError("give one --nsqd: a bench measures one node", WORDS)
    topic = f"nsqc_bench_{os.getpid()}_{os.urandom(3).hex()}"
    load = Load(nodes[0].tcp, cluster.connection_options(), cluster.timeout, topic, CHANNEL,
                values.number("size"), values.number("batch"), values.number("connections"),
                values.number("max-in-flight"), values.number("window"), values.seconds("seconds"))
    api = cluster.http(nodes[0])
    path = values.text("svg")
    if path:
        check_writable(path)
    try:
        api.check()
        api.post("/topic/create", {"topic": topic})
        results = [part(load, word, values, wanted, api.post) for word in WHAT if word in wanted]
    finally:
        with suppress(ToolError, ClientError):
            api.close()
            api.post("/topic/delete", {"topic": topic})
        api.close()
    if values.flag("json"):
        output.as_json({"node": nodes[0].tcp, "size": load.size, "results": [result.as_dict() for result in results]})
    else:
        output.write(table(results))
    if path:
        write_chart(path, chart(results, described(values, nodes[0].tcp)))
    return 0


def write_chart(path: str, text: str) -> None:
    """Raises OSError, with the name of the file."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def check_writable(path: str) -> None:
    """Tests it before the bench, not after it. Raises OSError."""
    with open(path, "a", encoding="utf-8"):
        pass


def part(load: Load, word: str, values: Values, wanted: tuple[str, ...],
         post: Callable[[str, Mapping[str, object]], object]) -> Result:
    """Runs one part."""
    names = {"topic": load.topic, "channel": load.channel}
    if output.is_terminal(output.STDERR):
        output.note(f"{WORDS}: {word}")
    if word == "publish":
        if "consume" in wanted:
            post("/channel/create", names)
        return publish(load)
    if word == "consume":
        if "publish" not in wanted:
            post("/channel/create", names)
            publish(load)
        return consume(load)
    # A channel without messages of the other parts.
    with suppress(ToolError):
        post("/channel/delete", names)
    post("/topic/empty", {"topic": load.topic})
    return measure(load, values.decimal("rate"))


def described(values: Values, address: str) -> str:
    """Describes the load in a line."""
    return (f"{address}: bodies of {values.number('size'):,} bytes, {values.number('batch'):,} in a batch, "
            f"{values.number('connections')} connections, RDY {values.number('max-in-flight'):,}")


def table(results: list[Result]) -> str:
    """Rates and times for people."""
    rates = [result for result in results if result.name != "latency"]
    lines = []
    if rates:
        rows = [["", "MESSAGES", "SECONDS", "MESSAGES/S", "MB/S", "p50", "p99", "LONGEST", ""]]
        rows += [[result.name, f"{result.messages:,}", f"{result.seconds:.2f}", f"{result.rate:,.0f}",
                  f"{result.rate * result.size / 1e6:,.1f}",
                  *map(shown_time, (result.at(0.5), result.at(0.99), result.at(1))), result.note] for result in rates]
        lines.append(output.table(rows, frozenset(range(1, 8))))
    for result in results:
        if result.name == "latency":
            rows = [["", "MESSAGES", "RATE/S", "p50", "p90", "p99", "p99.9", "LONGEST"],
                    ["latency", f"{result.messages:,}", f"{result.rate:,.0f}",
                     *(shown_time(result.at(share)) for share in (0.5, 0.9, 0.99, 0.999, 1))]]
            lines.append(output.table(rows, frozenset(range(1, 8))))
    return "\n".join(lines)


def shown_time(seconds: float) -> str:
    """Formats a time with three digits."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
