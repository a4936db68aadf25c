"""Statistics over UDP: one line per metric and interval, under nsqd's names.

Counters are sent as differences from the previous report, gauges as current values. Lines are packed into datagrams
spread over the interval: a statsd with a small receive buffer loses none.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from operator import attrgetter

from msgspec import Struct

from nsqc.broker.broker import Broker
from nsqc.broker.stats import MemoryStats, MemoryWatch, topics_of
from nsqc.log import Log
from nsqc.net.address import join_address
from nsqc.options.declared import Options, Settings
from nsqc.peers.http import Dialer, Endpoint, SocketAddress
from nsqc.peers.lookup import NodeInfo
from nsqc.wire.parser import EPHEMERAL
from nsqc.wire.stats import ChannelStats, Latency, TopicStats, figures_of, percentiles_of

RESOLVE_S = 1.0
QUIET_S = 1.0  # at the end of an interval, without datagrams


class Figures:
    """The numbers that nsqd sends of a topic or channel, in its order: published messages come first."""

    def __init__(self, shape: type[Struct]) -> None:
        sent = sorted(((name, figure) for name, figure in figures_of(shape).items() if figure.statsd),
                      key=lambda each: not each[0].startswith("message_"))
        self.values = attrgetter(*(name for name, _ in sent))
        self.keys = [(f"{figure.statsd}:", figure.rises) for _, figure in sent]


OF_TOPICS, OF_CHANNELS = Figures(TopicStats), Figures(ChannelStats)


def prefix_of(options: Options, info: NodeInfo) -> str:
    """The prefix of all keys: %s is replaced by address and HTTP port, and a dot is appended if missing."""
    if not options.statsd_prefix:
        return ""
    port = options.broadcast_http_port or max(0, info["http_port"])
    host = join_address(options.broadcast_address, port).replace(".", "_").replace(":", "_")
    prefix = options.statsd_prefix.replace("%s", host)
    return prefix if prefix.endswith(".") else prefix + "."


def preferred(endpoints: list[Endpoint]) -> Endpoint:
    """The endpoint to send to. Datagrams are not answered, so no other is ever tried: IPv4 if available, because statsd
    servers listen on IPv4 by default."""
    return next((endpoint for endpoint in endpoints if endpoint[0] == socket.AF_INET), endpoints[0])


class Datagrams:
    """Packs whole lines into datagrams of at most size bytes; a longer line gets its own."""

    def __init__(self, size: int):
        self.full: deque[bytes] = deque()
        self._size = size
        self._last = b""

    def add(self, lines: list[str]) -> None:
        """Takes the lines out of the list."""
        for line in lines:
            data = line.encode()
            if self._last and len(self._last) + len(data) > self._size:
                self.full.append(self._last)
                self._last = b""
            self._last += data
        lines.clear()

    def finish(self) -> deque[bytes]:
        """All datagrams, the last one included."""
        if self._last:
            self.full.append(self._last)
            self._last = b""
        return self.full


class Report:
    """The lines of one interval. Counters are relative to the previous report."""

    def __init__(self, prefix: str, previous: Report | None = None):
        self.lines: list[str] = []
        self.counters: dict[str, int] = {}
        self._prefix = prefix
        self._previous = previous.counters if previous is not None else {}

    def count(self, key: str, value: int) -> None:
        """Adds a counter by its total. A lower total belongs to a new topic or channel of the same name."""
        self.counters[key] = value
        last = self._previous.get(key, 0)
        self.lines.append(f"{self._prefix}{key}:{value - last if value >= last else value}|c\n")

    def gauge(self, key: str, value: int) -> None:
        """Adds a gauge."""
        self.lines.append(f"{self._prefix}{key}:{value}|g\n")

    def topic(self, topic: TopicStats) -> None:
        """Adds a topic, without its channels."""
        key = f"topic.{topic.topic_name}."
        self._figures(key, topic, OF_TOPICS)
        self._latency(key, topic.e2e_processing_latency)

    def channel(self, topic: TopicStats, channel: ChannelStats) -> None:
        """Adds a channel of a topic."""
        key = f"topic.{topic.topic_name}.channel.{channel.channel_name}."
        self._figures(key, channel, OF_CHANNELS)
        self._latency(key, channel.e2e_processing_latency)

    def _figures(self, key: str, stats: TopicStats | ChannelStats, figures: Figures) -> None:
        prefix, add = self._prefix, self.lines.append
        counters, previous = self.counters, self._previous
        for (name, rises), value in zip(figures.keys, figures.values(stats)):     # noqa: B905
            if rises:
                whole = key + name
                last = previous.get(whole, 0)
                counters[whole] = value
                add(f"{prefix}{whole}{value - last if value >= last else value}|c\n")
            else:
                add(f"{prefix}{key}{name}{value}|g\n")

    def _latency(self, key: str, latency: Latency | None) -> None:
        for percentile in percentiles_of(latency):
            self.gauge(f"{key}e2e_processing_latency_{percentile['quantile'] * 100:.0f}", int(percentile["value"]))

    def memory(self, memory: MemoryStats) -> None:
        """Adds memory and garbage collection; the number of collections is the only counter."""
        for name in memory.__struct_fields__:
            if name != "gc_total_runs":
                self.gauge(f"mem.{name}", getattr(memory, name))
        self.count("mem.gc_runs", memory.gc_total_runs)


class Statsd:
    """Pushes a report every interval; run() is its one task."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dialer: Dialer, broker: Broker, settings: Settings,
                 info: NodeInfo, memory: MemoryWatch, log: Log):
        self._loop = loop
        self._dialer = dialer
        self._broker = broker
        self._settings = settings
        self._info = info
        self._memory = memory
        self._log = log
        self._previous: Report | None = None

    async def run(self) -> None:
        """Runs until cancelled; the rest of a report in progress is then sent at once."""
        due = self._loop.time()
        while True:
            interval_s = self._settings.now.statsd_interval / 1e9
            due = max(due + interval_s, self._loop.time())
            await asyncio.sleep(due - self._loop.time())
            try:
                await self._push(interval_s)
            except Exception as error:
                self._log.error("STATSD: failed to push stats - %r", error)

    async def _push(self, interval_s: float) -> None:
        address = self._settings.now.statsd_address
        try:
            async with asyncio.timeout(RESOLVE_S):
                endpoints = await self._dialer.resolve(address, socket.SOCK_DGRAM)
            family, target = preferred(endpoints)
            sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        except (OSError, ValueError) as error:
            # The counters were not read, so the next report covers this interval, too.
            self._log.error("failed to create UDP socket to statsd(%s) - %s", address, str(error) or "timed out")
            return
        with contextlib.closing(sock):
            self._log.info("STATSD: pushing stats to %s", address)
            datagrams = await self._read()
            await self._send(sock, target, datagrams, max(0.0, interval_s - QUIET_S) / max(1, len(datagrams)))

    async def _read(self) -> deque[bytes]:
        """The datagrams of a report, built in slices over several loop iterations."""
        options = self._settings.now
        report = Report(prefix_of(options, self._info), self._previous)
        datagrams = Datagrams(options.statsd_udp_packet_size)
        slicer = self._broker.slicer
        slicer.start()
        for topic in topics_of(self._broker, include_clients=False):
            if topic is None:
                await asyncio.sleep(0)
                slicer.start()
            elif not (options.statsd_exclude_ephemeral and topic.topic_name.endswith(EPHEMERAL)):
                report.topic(topic)
                for channel in topic.channels or ():
                    if not (options.statsd_exclude_ephemeral and channel.channel_name.endswith(EPHEMERAL)):
                        report.channel(topic, channel)
                datagrams.add(report.lines)
        if options.statsd_mem_stats:
            report.memory(self._memory.read())
        datagrams.add(report.lines)
        self._previous = report
        return datagrams.finish()

    async def _send(self, sock: socket.socket, target: SocketAddress, datagrams: deque[bytes],
                    pause_s: float) -> None:
        total, failed, reason = len(datagrams), 0, ""
        try:
            while datagrams:
                try:
                    sock.sendto(datagrams.popleft(), target)
                except OSError as error:
                    failed, reason = failed + 1, str(error)
                await asyncio.sleep(pause_s)
        finally:
            # Some are left only after a cancellation.
            with contextlib.suppress(OSError):
                while datagrams:
                    sock.sendto(datagrams.popleft(), target)
            if failed:
                self._log.error("STATSD: %d of %d datagrams were not sent - %s", failed, total, reason)
