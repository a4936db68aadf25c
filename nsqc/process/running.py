"""Runs a server's process: its event loop from the first iteration to the last."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine
from typing import TypeAlias

import uvloop

from nsqc.log import Log
from nsqc.loop.slow import SlowLoop
from nsqc.process.uncaught import Uncaught

# Startup, main loop and shutdown of a server; returns the exit code.
Serve: TypeAlias = Callable[[asyncio.AbstractEventLoop, SlowLoop], Coroutine[None, None, int]]
SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


def run(name: str, log: Log, serve: Serve) -> int:
    """Runs a server until it stops. Returns its exit code, 1 if it fails."""
    # Modules are never freed: keep them out of the first collection, which may run when clients are already connected.
    gc.disable()
    gc.freeze()
    uncaught = Uncaught(log)
    uncaught.install()
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(uncaught.in_loop)
    slow = SlowLoop(loop, log)
    try:
        return loop.run_until_complete(serve(loop, slow))
    except Exception as error:
        uncaught.report(f"the {name} fails", error)
        return 1
    finally:
        # The loop removes its handlers; from here to the end of the process no signal may change the exit code.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        slow.close()
        loop.close()
