"""Checks whether files can be written in the data path, without blocking callers on a slow disk."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from time import monotonic

FRESH_S = 1.0       # validity of an answer: bounds how often the disk is tried
PATIENCE_S = 1.0    # timeout, after which the disk counts as unwritable
FILE = "nsqc-ready.tmp"
BYTES = 4096


class WritableProbe:
    """Writes a small file and removes it, on its own thread, so a hanging disk blocks no worker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, data_path: str) -> None:
        self._loop = loop
        self._data_path = data_path
        self._reason: str | None = None         # the last answer
        self._until = 0.0                       # monotonic: validity of the answer
        self._pending: asyncio.Future[None] | None = None

    async def reason(self) -> str | None:
        """Why nothing can be written; None: it can."""
        if monotonic() < self._until:
            return self._reason
        pending = self._pending
        if pending is None:
            pending = self._pending = self._loop.create_future()
            try:
                threading.Thread(target=self._try, name="nsqc-probe", daemon=True).start()
            except RuntimeError as error:
                self._answered(f"the data path cannot be tried: {error}")
        await asyncio.wait([pending], timeout=PATIENCE_S)
        if not pending.done():
            return f"the data path has not taken a file within {PATIENCE_S:g} s"
        return self._reason

    def _try(self) -> None:
        """Runs on the thread."""
        error = write_error(os.path.join(self._data_path, FILE))
        reason = None if error is None else f"the data path cannot be written: {error.strerror or error}"
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._answered, reason)

    def _answered(self, reason: str | None) -> None:
        self._reason = reason
        self._until = monotonic() + FRESH_S
        pending, self._pending = self._pending, None
        if pending is not None and not pending.done():
            pending.set_result(None)


def write_error(path: str) -> OSError | None:
    """The error of writing a file there and removing it; None: both work. Without a sync: a probe should not load a
    busy disk, and failing syncs are reported elsewhere."""
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)     # left by a probe that a kill interrupted
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if os.write(descriptor, bytes(BYTES)) < BYTES:
                return OSError("short write")
        finally:
            os.close(descriptor)
            os.unlink(path)
    except OSError as error:
        return error
    return None
