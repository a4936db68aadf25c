"""/metrics of the daemon.

The loop collects the numbers of topics and channels in slices (nsqc.broker.survey); a worker thread formats and sends
them. So a page of many megabytes costs the loop no more than these numbers, and is never in memory.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from nsqc import NSQD_VERSION, __version__
from nsqc.broker.survey import CHANNEL_COLUMNS, TOPIC_COLUMNS, Survey
from nsqc.httpd.app import App
from nsqc.httpd.reply import ApiError, Pieces, Reply, Request
from nsqc.loop.slow import promise
from nsqc.metrics import declared
from nsqc.metrics.durations import Durations, Rising
from nsqc.metrics.encoding import Format, family, format_for, head, histogram
from nsqc.metrics.table import BOUNDS_S, Text
from nsqc.net.listener import ConnectionLimits
from nsqc.options.rules import digest_of
from nsqc.process import machine
from nsqc.store.files import rest
from nsqc.store.memory import held_bytes

if TYPE_CHECKING:
    from nsqc.httpd.server import Server


# ====================================================================== scrape
# The part of /metrics shared by daemon and lookup server: the process, its clients, the format.

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
    used = await asyncio.get_running_loop().run_in_executor(threads, machine.read)
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


# ====================================================================== metrics

MOST_UNDER_WAY = 4      # long pages being sent: each holds the numbers of its time
PATIENCE_S = 30.0       # disconnects a scraper that accepts nothing for this long
_FEW = 256              # rows, formatted in less than a millisecond
_PIECE_BYTES = 256 * 1024
_CONNECTIONS_AT_ONCE = 64
_PROCESSING = declared.CHANNEL_TIMES.index(declared.CHANNEL_PROCESSING)

# (table, 0 or 1; column; whether they are durations; head; name of the samples)
FamilyPlace = tuple[int, int, bool, bytes, bytes]

_under_way: WeakSet[Pieces] = WeakSet()
_processing = Rising(BOUNDS_S)
_places: dict[bool, list[FamilyPlace]] = {}


async def metrics(app: App, request: Request) -> Reply:
    """Everything, in the format that the client requests."""
    form = wanted(request.accept)
    async with app.surveys:
        if len(_under_way) >= MOST_UNDER_WAY:
            raise ApiError(503, "TOO_MANY_SCRAPES")
        clients, buffers = await _tcp_buffers(app)
        facts = Facts("nsqd", app.start_time, app.watched.lags, app.watched.limits, clients, app.servers)
        families = await common(facts, app.threads, form)
        survey = await _collected(app)
        families += _daemon(app, survey, buffers, form)
        text = Text(survey.topics, survey.channels, _families(form))
        first = b"".join(families)
        if survey.topics.count + survey.channels.count <= _FEW:
            while piece := text.piece(_PIECE_BYTES, False):
                first += piece
            return Reply(200, first + form.end, form.content_type)
        pieces = Pieces(text.piece, first, form.end, PATIENCE_S)
        _under_way.add(pieces)
        return Reply(200, content_type=form.content_type, stream=pieces)


async def _collected(app: App) -> Survey:
    done, settle = promise()
    survey = Survey(app.broker, settle)
    survey.start()
    await done
    if survey.failure is not None:
        raise survey.failure
    return survey


async def _tcp_buffers(app: App) -> tuple[int, int]:
    """The number of V2 clients, and the memory of their buffers in bytes."""
    slicer, count, total = app.broker.slicer, 0, 0
    slicer.start()
    for size in app.watched.tcp_buffers():
        count += 1
        total += size
        if count % _CONNECTIONS_AT_ONCE == 0:
            await rest(slicer)
    return count, total


def _daemon(app: App, survey: Survey, buffers: int, form: Format) -> list[bytes]:
    """The families without a topic."""
    watched, rooms = app.watched, {"slabs": held_bytes(), "queues": survey.queue_bytes, "connections": buffers}
    shaken = watched.limits.shaken
    free, size, limit = watched.space.last()
    _processing.take(*survey.channels.total_times(_PROCESSING))
    return [
        family(declared.HANDSHAKES, by_label([("ok", shaken[True]), ("failed", shaken[False])]), form),
        family(declared.CERTIFICATE_ENDS, by_label(
            (date.option.removeprefix("--"), date.ends) for date in watched.certificates()), form),
        family(declared.REFUSED, by_label(app.broker.refusals.items()), form),
        family(declared.CREATIONS_REFUSED, by_label(app.broker.creations_refused.items()), form),
        family(declared.CREATIONS_DELAYED, [((), app.broker.creations_delayed)], form),
        family(declared.CIRCLING, [((), len(app.broker.circling))], form),
        family(declared.RULES_DIGEST, [((), digest_of([app.rules.digest, app.channel_rules.digest]))], form),
        family(declared.DRAINING, [((), int(app.drain.reason is not None))], form),
        histogram(declared.PROCESSING, _processing, form),
        family(declared.HEALTHY, [((), int(app.broker.health() == "OK"))], form),
        histogram(declared.SYNC, watched.syncer.durations, form),
        family(declared.SYNC_FAILURES, [((), watched.syncer.failures)], form),
        family(declared.DISK_FREE, known(free), form),
        family(declared.DISK_SIZE, known(size), form),
        family(declared.DISK_LIMIT, known(limit), form),
        family(declared.MEMORY, by_label(rooms.items()), form),
        family(declared.TOPIC_COUNT, [((), survey.topic_count)], form),
        family(declared.CHANNEL_COUNT, [((), survey.channel_count)], form),
        *_bucket(app, form),
    ]


def _bucket(app: App, form: Format) -> list[bytes]:
    state = app.watched.bucket()
    if state is None:
        return []
    values = (state.lag_seconds, state.lag_bytes, state.commits, state.put_bytes, state.errors, state.epoch,
              state.checkpoint_time, state.owned_since, state.cache_bytes, state.fetches, state.fetch_failures,
              int(bool(state.fenced)))
    return [family(metric, [((), value)], form) for metric, value in zip(declared.OF_BUCKET, values, strict=True)]


def _families(form: Format) -> list[FamilyPlace]:
    """The families of topics and channels, for Text."""
    places = _places.get(form.open_metrics)
    if places is None:
        places = _places[form.open_metrics] = [
            (table, column, times, head(metric, form), metric.sample.encode())
            for table, times, metrics in (
                (0, False, [(TOPIC_COLUMNS.index(name), metric) for name, metric in declared.OF_TOPICS.items()]),
                (1, False, [(CHANNEL_COLUMNS.index(name), metric) for name, metric in declared.OF_CHANNELS.items()]),
                (1, True, enumerate(declared.CHANNEL_TIMES)))
            for column, metric in metrics]
    return places
