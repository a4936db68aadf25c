"""SIGHUP: certificates and the config file are read again, and options that can change at run time take effect.

Option.live declares which options can. If another one has changed, the log reports that it needs a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from nsqc.log import Log
from nsqc.net.tls import Certificates, TlsSettings
from nsqc.options.declared import FLAGS, KEYS, Field, OptionError, Options, OptionSet, RuleTable, Settings
from nsqc.options.flags import shown
from nsqc.options.rule_tables import BY_KEY, scope_of, written

Reread = Callable[[], tuple[Options, dict[str, str]]]  # options and warnings by unknown key; raises OptionError


def offered(options: OptionSet) -> TlsSettings | None:
    """The TLS settings of a server's options; None: TLS is not offered."""
    cert, key, least = (options.value(name) for name in ("tls_cert", "tls_key", "tls_min_version"))
    if not (cert or key):
        return None
    clients = (options.tls_root_ca_file, options.tls_client_auth_policy) if isinstance(options, Options) else ("", "")
    return TlsSettings(str(cert), str(key), *clients, int(str(least)))


class Reloader:
    """Reloads, one after the other. Values changed over HTTP stay until the file has a new value for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, workers: Executor, settings: Settings, reread: Reread,
                 certificates: Certificates | None, log: Log):
        self._loop = loop
        self._workers = workers
        self._settings = settings
        self._reread = reread
        self._certificates = certificates
        self._log = log
        self._last = settings.now  # the options when file and flags were last read
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def begin(self, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Reloads everything, and calls before() and after(). If called again meanwhile, it reloads once more."""
        if self._task is not None and not self._task.done():
            self._again = True
            return
        self._task = self._loop.create_task(self._run(before, after))

    def close(self) -> None:
        """Cancels a reload."""
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
            given, unknown = await self._loop.run_in_executor(self._workers, self._reread)
            options = given.settled()
            changes: dict[str, Field] = {name: options.value(name) for name in KEYS.values()
                                         if FLAGS[name].live and options.value(name) != self._last.value(name)}
            tables: list[str] = []
            for key in BY_KEY:
                if lines := changed_tables(getattr(self._last, key), getattr(options, key)):
                    changes[key] = getattr(options, key)
                    tables += lines
            self._settings.change(**changes)
        except OptionError as error:
            self._log.error("RELOAD: no option is changed, the old ones stay - %s", error, each=True)
            return
        for warning in unknown.values():
            self._log.warn("RELOAD: %s", warning, each=True)
        for text in tables:
            self._log.info("RELOAD: %s", text)
        self._report(options, changes)
        self._last = options

    def _report(self, options: Options, changes: dict[str, Field]) -> None:
        for key, name in KEYS.items():
            old, new = self._settings.now.value(name), options.value(name)
            kind = FLAGS[name].kind
            if name in changes:
                self._log.info("RELOAD: %s is now %s", key, shown(kind, new) or "empty")
            elif not FLAGS[name].live and new != old:
                self._log.warn("RELOAD: %s needs a restart: it stays %s, the new value is %s", key,
                               shown(kind, old) or "empty", shown(kind, new) or "empty", each=True)
        self._log.info("RELOAD: %d options changed", len(changes))


def changed_tables(old: tuple[RuleTable, ...], new: tuple[RuleTable, ...]) -> list[str]:
    """The differences between the tables of two readings, all of one kind, a line for each."""
    before = {table.glob: table for table in old}
    after = {table.glob: table for table in new}
    lines = [f"{table.title} is gone" for glob, table in before.items() if glob not in after]
    lines += [f"{table.title} is now {written(table) or 'empty'}" for glob, table in after.items()
              if before.get(glob) != table]
    if [glob for glob in before if glob in after] != [glob for glob in after if glob in before]:
        lines.append(f"the {scope_of(new[0]).noun} tables have another order")
    return lines
