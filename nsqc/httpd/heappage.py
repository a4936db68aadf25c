"""The part of /debug/pprof/heap shared by all programs: memory, and live Python objects by type."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import cast

from nsqc.httpd.reply import ApiError, Reply, plain
from nsqc.httpd.request import Request, boolean_in, read_arguments
from nsqc.httpd.site import Site
from nsqc.loop.steps import Steps
from nsqc.process.census import Census

_TYPES_SHOWN = 40
_ADDED_AT_ONCE = 4096       # a fraction of a millisecond
_SLICE_NS = 500_000         # of each iteration
_EXACT_BLOCKS = 500_000     # of memory, and also the most objects: listing them takes tens of milliseconds


async def heap_page(app: Site, request: Request, own: list[str]) -> Reply:
    """Memory, the program's own lines, and live objects: the reachable ones, or, with `exact`, all known to the
    collector."""
    exact = boolean_in(read_arguments(app.log, request), b"exact")
    lines = [f"{name} {value}" for name, value in _process_memory()] + own
    kinds = _all_objects() if exact else await _reachable(app)
    names = {kind: f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}
    for rank, (kind, count) in enumerate(kinds.most_common()):
        if rank < _TYPES_SHOWN or names[kind].startswith("nsqc."):
            lines.append(f"objects {names[kind]} {count}")
    return plain("\n".join(lines) + "\n")


async def total(numbers: Iterator[int]) -> int:
    """The sum of very many numbers, in slices."""
    result = 0
    while some := list(islice(numbers, _ADDED_AT_ONCE)):
        result += sum(some)
        if len(some) == _ADDED_AT_ONCE:
            await asyncio.sleep(0)
    return result


def _all_objects() -> Counter[type]:
    """Objects by type, unreachable ones included. The collector lists them in one go: raises ApiError if that would
    block the loop for long."""
    blocks = sys.getallocatedblocks()
    if blocks > _EXACT_BLOCKS:
        raise ApiError(503, f"{blocks} blocks of memory are too many to list at once: omit exact=true")
    return Counter(map(type, gc.get_objects()))


async def _reachable(app: Site) -> Counter[type]:
    """Reachable objects, counted in slices. Concurrent callers share one count."""
    if app.census is None:
        app.census = asyncio.get_running_loop().create_task(Steps(_count(app), "counting", "objects"))
        app.census.add_done_callback(lambda _: setattr(app, "census", None))
    return cast("Counter[type]", await asyncio.shield(app.census))


async def _count(app: Site) -> Counter[type]:
    count = Census([sys.modules, app, *threading.enumerate(), *sys._current_frames().values(), *asyncio.all_tasks()])
    try:
        while count.go_on(_SLICE_NS):
            await asyncio.sleep(0)
        return Counter(count.counts)
    finally:
        await app.readers.run(count.close)


def _process_memory() -> list[tuple[str, int]]:
    """The memory of this process as the kernel reports it, in bytes."""
    sizes = []
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        lines = file.readlines()
    for line in lines:
        name, _, value = line.partition(":")
        if name in ("VmPeak", "VmSize", "VmHWM", "VmRSS", "VmData"):
            sizes.append((name, int(value.split()[0]) * 1024))
    return sizes
