"""The part of /metrics shared by daemon and lookup server: the process, its clients, the format."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, NamedTuple

from nsqc import NSQD_VERSION, __version__
from nsqc.metrics import declared
from nsqc.metrics.accept import format_for
from nsqc.metrics.durations import Durations
from nsqc.metrics.encoding import Format, family, histogram
from nsqc.net.limits import ConnectionLimits
from nsqc.process import usage

if TYPE_CHECKING:
    from nsqc.httpd.server import Server


class Facts(NamedTuple):
    """Program facts for every page."""

    program: str        # nsqd or nsqlookupd
    start_time: float   # unix seconds
    lags: Durations     # of the loop
    limits: ConnectionLimits
    tcp_clients: int
    servers: list[Server]


def wanted(accept: bytes) -> Format:
    """The requested format."""
    return format_for(accept.decode("latin-1"))


async def common(facts: Facts, threads: Executor, form: Format) -> list[bytes]:
    """The families of both programs."""
    used = await asyncio.get_running_loop().run_in_executor(threads, usage.read)
    build = (__version__, NSQD_VERSION, sys.version.split()[0], facts.program)
    clients = {"tcp": facts.tcp_clients}
    for server in facts.servers:
        clients[server.name.lower()] = len(server.connections)
    return [
        family(declared.BUILD, [(build, 1)], form),
        family(declared.START_TIME, [((), facts.start_time)], form),
        family(declared.UPTIME, [((), time.time() - facts.start_time)], form),
        family(declared.CPU, [((), used.cpu_s)], form),
        family(declared.RESIDENT, known(used.resident_bytes), form),
        family(declared.OPEN_FILES, known(used.open_files), form),
        family(declared.MOST_FILES, known(used.most_files), form),
        histogram(declared.LOOP_LAG, facts.lags, form),
        family(declared.CONNECTIONS, by_label(clients.items()), form),
        family(declared.CONNECTIONS_REFUSED, by_label(facts.limits.refused.items()), form),
    ]


def known(value: int) -> list[tuple[tuple[str, ...], float]]:
    """A sample without labels; none if the value is below 0, which means unknown."""
    return [((), value)] if value >= 0 else []


def by_label(values: Iterable[tuple[str, float]]) -> list[tuple[tuple[str, ...], float]]:
    """Samples of a metric with one label."""
    return [((name,), value) for name, value in values]
