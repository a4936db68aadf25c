"""The start of the lookup server and of the admin server from their flags, without typer."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from nsqc.commands.start import hold_signals, ignore_stop_signals, launch
from nsqc.log import Log
from nsqc.options.option import Value

if TYPE_CHECKING:
    from nsqc.options.admin import AdminOptions
    from nsqc.options.lookupd import LookupdOptions

T = TypeVar("T", "AdminOptions", "LookupdOptions")


def lookupd(words: list[str]) -> int:
    """Runs the lookup server with nsqlookupd's flags. The exit code: 0, 1 if it cannot start, 2 if the flags cannot be
    read."""
    from nsqc.options.lookupd import LOOKUPD, resolve

    def run(options: LookupdOptions, log: Log) -> int:
        from nsqc.lookupd.server import run as run_server  # here: wrong flags are reported without loading the server

        return run_server(options, log)

    return launch(words, LOOKUPD, lambda flags: start(flags, resolve, run))


def admin(words: list[str]) -> int:
    """Runs the admin server with nsqadmin's flags. The exit code: as above."""
    from nsqc.options.admin import ADMIN, resolve

    def run(options: AdminOptions, log: Log) -> int:
        from nsqc.admin.server import run as run_server  # here: as above

        return run_server(options, log)

    return launch(words, ADMIN, lambda flags: start(flags, resolve, run))


def start(flags: Mapping[str, Value], resolve: Callable[[Mapping[str, Value]], tuple[T, dict[str, str]]],
          run: Callable[[T, Log], int]) -> int:
    """Merges the config file under the flags and runs the server. Raises OptionError."""
    hold_signals()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)   # as NSQ's programs do; a daemon would drain
    options, unknown = resolve(flags)
    log = Log(options.log_prefix, options.log_level, form=options.log_format)
    try:
        for warning in unknown.values():
            log.warn("config file %s: %s", options.config, warning)
        return run(options, log)
    finally:
        ignore_stop_signals()
        log.close()
