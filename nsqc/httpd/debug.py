"""/debug: where time and memory are spent, in the daemon and the lookup server. Paths are those of Go's net/http/pprof
if this runtime has an equivalent; answers are text to read (`profile` also feeds flame graph tools), not Go's binary
format.

  /debug/pprof/               this list
  /debug/pprof/cmdline        the command line, its parts separated by NUL
  /debug/pprof/profile        where the loop spends its time: `?seconds=N` (30) of samples, one folded stack per line
  /debug/pprof/heap           memory use, contents of the server; if there are few, live Python objects: the most
                              frequent and nsqc's
  /debug/pprof/goroutine      the stacks of all threads and tasks
  /debug/pprof/threadcreate   the threads
  /debug/slow                 iterations of the loop that took longer than --slow-loop: the worst of the last hour
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import islice
from types import FrameType

from nsqc.httpd.reply import ApiError, Reply, Request, plain, read_arguments
from nsqc.httpd.site import Site
from nsqc.log.formats import mask_word
from nsqc.loop.slow import promise

_TYPES_SHOWN = 40
_COUNTED_AT_ONCE = 4096     # a fraction of a millisecond
_MOST_BLOCKS = 500_000      # of memory, and so of objects: listing more would delay other clients
_SLICE_NS = 500_000         # of each iteration
_DEFAULT_SECONDS = 30.0
_MAX_SECONDS = 600.0
_SAMPLES_PER_SECOND = 100


def index(app: Site, request: Request) -> Reply:
    """Lists these pages."""
    assert __doc__ is not None
    return plain(__doc__.partition("\n\n")[2])


def cmdline(app: Site, request: Request) -> Reply:
    """The program's command line, without the passwords of addresses."""
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().rstrip(b"\0").decode("utf-8", "replace").split("\0")
    return plain("\0".join(map(mask_word, words)))


async def profile(app: Site, request: Request) -> Reply:
    """Samples of the loop's thread, taken by another thread: the loop runs normally."""
    seconds = _seconds(app, request)
    if app.profiling:
        raise ApiError(500, "Could not enable CPU profiling: cpu profiling already in use")
    loop = asyncio.get_running_loop()
    done, settle = promise()
    stop = threading.Event()
    request.when_dropped(stop.set)
    app.profiling = True
    try:
        # A daemon thread: the end of the process must not wait for it.
        sampler = threading.Thread(target=_sample, name="profile", daemon=True,
                                   args=(threading.get_ident(), seconds, stop, loop, settle))
        sampler.start()
        sampled = await done
    finally:
        stop.set()
        app.profiling = False
    return plain("".join(f"{stack} {count}\n" for stack, count in sampled.most_common()))


def _seconds(app: Site, request: Request) -> float:
    try:
        seconds = float(read_arguments(app.log, request).get(b"seconds", b"0"))
    except ValueError:
        seconds = 0.0
    # Negated, so that not-a-number falls back as well.
    if not seconds > 0.0:
        seconds = _DEFAULT_SECONDS
    return min(seconds, _MAX_SECONDS)


def _sample(thread: int, seconds: float, stop: threading.Event, loop: asyncio.AbstractEventLoop,
            settle: Callable[[Counter[str]], object]) -> None:
    """Counts the thread's stacks, and passes the counts to settle, on the loop."""
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stop.wait(1 / _SAMPLES_PER_SECOND):
        frame = sys._current_frames().get(thread)
        if frame is not None:
            counts[_folded(frame)] += 1

    # A closed loop needs no result.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle, counts)


def _folded(frame: FrameType | None) -> str:
    names = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "?")
        names.append(f"{module}.{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return ";".join(reversed(names))


async def heap(app: Site, request: Request) -> Reply:
    """The memory of this process as the kernel reports it, in bytes; the contents of the server; objects by type,
    unreachable ones included."""
    lines = []
    with open("/proc/self/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name in ("VmPeak", "VmSize", "VmHWM", "VmRSS", "VmData"):
                lines.append(f"{name} {int(value.split()[0]) * 1024}")
    lines += [f"{name} {value}" for name, value in app.contents().items()]
    blocks = sys.getallocatedblocks()
    if blocks > _MOST_BLOCKS:
        return plain("\n".join(lines) + f"\nobjects are not listed: there are too many blocks of memory, {blocks}\n")
    kinds: Counter[type] = Counter()
    objects = map(type, gc.get_objects())
    while some := list(islice(objects, _COUNTED_AT_ONCE)):
        kinds.update(some)
        await asyncio.sleep(0)
    for rank, (kind, count) in enumerate(kinds.most_common()):
        name = f"{kind.__module__}.{kind.__qualname__}"
        if rank < _TYPES_SHOWN or name.startswith("nsqc."):
            lines.append(f"objects {name} {count}")
    return plain("\n".join(lines) + "\n")


async def stacks(app: Site, request: Request) -> Reply:
    """The stacks of all threads and tasks."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    out = []
    for ident, frame in sys._current_frames().items():
        out.append(f"thread {names.get(ident, '?')} ({ident})\n{''.join(traceback.format_stack(frame))}\n")
    end = time.monotonic_ns() + _SLICE_NS
    for task in asyncio.all_tasks():
        frames = task.get_stack()
        out.append(f"task {task.get_name()}\n{''.join(''.join(traceback.format_stack(f, 1)) for f in frames)}\n")
        if time.monotonic_ns() > end:
            await asyncio.sleep(0)
            end = time.monotonic_ns() + _SLICE_NS
    return plain("".join(out))


def slow(app: Site, request: Request) -> Reply:
    """The worst iterations of the loop in the last hour."""
    return plain(app.slow.page())


def threads(app: Site, request: Request) -> Reply:
    """The threads by name."""
    return plain("".join(f"{thread.name} ({thread.ident})\n" for thread in threading.enumerate()))


async def free_memory(app: Site, request: Request) -> None:
    """Returns free memory to the system. nsqd then fails on its empty answer, and so does this.

    Runs no collection, which would take the loop a tenth of a second with many topics: reference counts free objects,
    and the collector frees cycles.
    """
    from nsqc.store import memory  # here: the lookup server has these pages, and no store

    await app.readers.run(memory.return_free)


def set_block_rate(app: Site, request: Request) -> None:
    """Blocked threads are not profiled here; checks the argument and answers like nsqd."""
    try:
        text = request.arguments().get(b"rate", b"")
    except ValueError:
        text = b""
    digits = text[1:] if text[:1] in (b"+", b"-") else text
    if not digits.isdigit():
        shown = text.decode("utf-8", "replace").replace("\\", "\\\\").replace('"', '\\"')
        raise ApiError(400, f'invalid block rate : strconv.Atoi: parsing "{shown}": invalid syntax')
