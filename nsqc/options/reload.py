"""SIGHUP: certificates and the config file are read again, and what may change while the daemon runs is put in force.

Which options those are stands where they are declared (Flag.live). Of the others it is said that they want a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from nsqc.options.declared import FLAGS, KEYS, OptionError, Options, Settings
from nsqc.options.flags import show
from nsqc.options.tls import settle

Reread = Callable[[], tuple[Options, list[str]]]  # options and the config file's unknown keys; raises OptionError


class Reloader:
    """Reads again, one time after the other. What was changed over HTTP stays until the file says something new."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, settings: Settings, reread: Reread,
                 certificates: Any, log: Any):
        """certificates: nsqc.net.tls.Certificates, or None."""
        self._loop = loop
        self._workers = workers
        self._settings = settings
        self._reread = reread
        self._certificates = certificates
        self._log = log
        self._last = settings.now  # as the file and the flags had it when they were read last
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def begin(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Reads everything; before() and after() are called around it. Asked again meanwhile, it does so once more."""
        if self._task is not None and not self._task.done():
            self._again = True
            return
        self._task = self._loop.create_task(self._run(before, after))

    def close(self) -> None:
        """Gives up what is under way."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        before()
        self._again = True
        while self._again:
            self._again = False
            await self._options()
            if self._certificates is not None:
                self._certificates.reload()
                await self._certificates.settled()
        after()

    async def _options(self) -> None:
        try:
            asked, unknown = await self._loop.run_in_executor(self._workers, self._reread)
            wanted = settle(asked)
            live = {name: getattr(wanted, name) for name in KEYS.values()
                    if FLAGS[name].live and getattr(wanted, name) != getattr(self._last, name)}
            self._settings.change(**live)
        except OptionError as error:
            self._log.error("RELOAD: no option is changed, the old ones stay - %s", error)
            return
        for key in unknown:
            self._log.warn("RELOAD: unknown key %r is passed over", key)
        self._report(wanted, live)
        self._last = wanted

    def _report(self, wanted: Options, live: dict[str, Any]) -> None:
        for key, name in KEYS.items():
            old, new = getattr(self._settings.now, name), getattr(wanted, name)
            kind = FLAGS[name].kind
            if name in live:
                self._log.info("RELOAD: %s is now %s", key, show(kind, new) or "empty")
            elif not FLAGS[name].live and new != old:
                self._log.warn("RELOAD: %s needs a restart: it stays %s and is to be %s", key,
                               show(kind, old) or "empty", show(kind, new) or "empty")
        self._log.info("RELOAD: %d options changed", len(live))
