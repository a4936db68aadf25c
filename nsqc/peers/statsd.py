"""Statistics by UDP: every interval one line a figure, under the original's names.

Counters are differences to the last time, gauges the values of now. Lines are packed into datagrams that are spread
over the interval, so that a statsd with a small receive buffer loses none.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Mapping
from typing import Any

from nsqc.broker.stats import ChannelStats, Latency, MemoryStats, Slice, TopicStats, topics_of
from nsqc.peers.dial import Dialer, Place, join_address
from nsqc.wire.names import EPHEMERAL

RESOLVE_S = 1.0
QUIET_S = 1.0  # of the end of an interval, without datagrams


def prefix_of(options: Any, info: Mapping[str, Any]) -> str:
    """What stands before every key: %s becomes address and HTTP port, and a dot ends it."""
    if not options.statsd_prefix:
        return ""
    port = options.broadcast_http_port or max(0, info["http_port"])
    host = join_address(options.broadcast_address, port).replace(".", "_").replace(":", "_")
    prefix = options.statsd_prefix.replace("%s", host)
    return prefix if prefix.endswith(".") else prefix + "."


def preferred(places: list[Place]) -> Place:
    """The place to send to. Nobody answers a datagram, so there is no second try: IPv4 where there is a choice, since
    statsd servers listen on it unless told otherwise."""
    return next((place for place in places if place[0] == socket.AF_INET), places[0])


class Packets:
    """Whole lines in datagrams of at most size bytes; a longer line has one for itself."""

    def __init__(self, size: int):
        self.full: deque[bytes] = deque()
        self._size = size
        self._last = b""

    def add(self, lines: list[str]) -> None:
        """Takes lines over; the list is empty then."""
        for line in lines:
            data = line.encode()
            if self._last and len(self._last) + len(data) > self._size:
                self.full.append(self._last)
                self._last = b""
            self._last += data
        lines.clear()

    def end(self) -> deque[bytes]:
        """All datagrams."""
        if self._last:
            self.full.append(self._last)
            self._last = b""
        return self.full


class Report:
    """The lines of one interval. Counters of the one before are taken from it."""

    def __init__(self, prefix: str, before: Report | None = None):
        self.lines: list[str] = []
        self.counters: dict[str, int] = {}
        self._prefix = prefix
        self._before = before.counters if before is not None else {}

    def count(self, key: str, value: int) -> None:
        """A counter's total of now. One that has fallen belongs to something new of that name."""
        self.counters[key] = value
        last = self._before.get(key, 0)
        self.lines.append(f"{self._prefix}{key}:{value - last if value >= last else value}|c\n")

    def gauge(self, key: str, value: int) -> None:
        """A value of now."""
        self.lines.append(f"{self._prefix}{key}:{value}|g\n")

    def topic(self, topic: TopicStats) -> None:
        """A topic, without its channels."""
        key = f"topic.{topic.topic_name}."
        self.count(key + "message_count", topic.message_count)
        self.count(key + "message_bytes", topic.message_bytes)
        self.gauge(key + "depth", topic.depth)
        self.gauge(key + "backend_depth", topic.backend_depth)
        self._latency(key, topic.e2e_processing_latency)

    def channel(self, topic: TopicStats, channel: ChannelStats) -> None:
        """A channel of a topic."""
        key = f"topic.{topic.topic_name}.channel.{channel.channel_name}."
        self.count(key + "message_count", channel.message_count)
        self.gauge(key + "depth", channel.depth)
        self.gauge(key + "backend_depth", channel.backend_depth)
        self.gauge(key + "in_flight_count", channel.in_flight_count)
        self.gauge(key + "deferred_count", channel.deferred_count)
        self.count(key + "requeue_count", channel.requeue_count)
        self.count(key + "timeout_count", channel.timeout_count)
        self.gauge(key + "clients", channel.client_count)
        self._latency(key, channel.e2e_processing_latency)

    def _latency(self, key: str, latency: Latency) -> None:
        for one in latency.percentiles or ():
            self.gauge(f"{key}e2e_processing_latency_{one['quantile'] * 100:.0f}", int(one["value"]))

    def memory(self, memory: MemoryStats) -> None:
        """Memory and the collector; the number of its runs is the only counter."""
        for name in memory.__struct_fields__:
            if name != "gc_total_runs":
                self.gauge(f"mem.{name}", getattr(memory, name))
        self.count("mem.gc_runs", memory.gc_total_runs)


class Statsd:
    """Pushes a report every interval; run() is its one task. memory: a nsqc.broker.stats.MemoryWatch."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dialer: Dialer, broker: Any, settings: Any,
                 info: Mapping[str, Any], memory: Any, log: Any):
        self._loop = loop
        self._dialer = dialer
        self._broker = broker
        self._settings = settings
        self._info = info
        self._memory = memory
        self._log = log
        self._last: Report | None = None

    async def run(self) -> None:
        """Until it is cancelled; what is being sent then leaves at once."""
        due = self._loop.time()
        while True:
            interval_s = self._settings.now.statsd_interval / 1e9
            due = max(due + interval_s, self._loop.time())
            await asyncio.sleep(due - self._loop.time())
            await self._push(interval_s)

    async def _push(self, interval_s: float) -> None:
        address = self._settings.now.statsd_address
        try:
            async with asyncio.timeout(RESOLVE_S):
                places = await self._dialer.resolve(address, socket.SOCK_DGRAM)
            family, where = preferred(places)
            sock = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        except (OSError, ValueError) as error:
            # Nothing was read, so the next report tells of this interval, too.
            self._log.error("failed to create UDP socket to statsd(%s) - %s", address, str(error) or "timed out")
            return
        with contextlib.closing(sock):
            self._log.info("STATSD: pushing stats to %s", address)
            waiting = await self._read()
            await self._send(sock, where, waiting, max(0.0, interval_s - QUIET_S) / max(1, len(waiting)))

    async def _read(self) -> deque[bytes]:
        """The datagrams of a report, made a little at a time."""
        options = self._settings.now
        report = Report(prefix_of(options, self._info), self._last)
        datagrams = Packets(options.statsd_udp_packet_size)
        part = Slice()
        for topic in topics_of(self._broker, part, include_clients=False):
            if topic is None:
                await asyncio.sleep(0)
                part.renew()
            elif not (options.statsd_exclude_ephemeral and topic.topic_name.endswith(EPHEMERAL)):
                report.topic(topic)
                for channel in topic.channels:
                    if not (options.statsd_exclude_ephemeral and channel.channel_name.endswith(EPHEMERAL)):
                        report.channel(topic, channel)
                datagrams.add(report.lines)
        if options.statsd_mem_stats:
            report.memory(self._memory.read())
        datagrams.add(report.lines)
        self._last = report
        return datagrams.end()

    async def _send(self, sock: socket.socket, where: tuple[Any, ...], waiting: deque[bytes], pause_s: float) -> None:
        total, failed, reason = len(waiting), 0, ""
        try:
            while waiting:
                try:
                    sock.sendto(waiting.popleft(), where)
                except OSError as error:
                    failed, reason = failed + 1, str(error)
                await asyncio.sleep(pause_s)
        finally:
            # Only where it was cancelled.
            with contextlib.suppress(OSError):
                while waiting:
                    sock.sendto(waiting.popleft(), where)
            if failed:
                self._log.error("STATSD: %d of %d datagrams were not sent - %s", failed, total, reason)
