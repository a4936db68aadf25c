"""Starts the lookup server from its flags, without typer. lookupd.py stands for it in typer's help."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from nsqc.commands.start import hold_signals, ignore_stop_signals, launch
from nsqc.log import Log
from nsqc.options.declared import Value
from nsqc.options.lookupd import LOOKUPD, resolve


def lookupd(words: list[str]) -> int:
    """Runs the lookup server with nsqlookupd's flags. Exit code: 0, 1 if it cannot start, 2 if the flags are
    invalid."""
    return launch(words, LOOKUPD, start)


def start(flags: Mapping[str, Value]) -> int:
    """Merges the config file under the flags and runs the server. Raises OptionError."""
    hold_signals()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)   # as nsqlookupd does; a daemon would drain
    options, unknown = resolve(flags)
    log = Log(options.log_prefix, options.log_level, form=options.log_format)
    try:
        for warning in unknown.values():
            log.warn("config file %s: %s", options.config, warning)
        # Imported here: wrong flags are reported without loading the server.
        from nsqc.lookupd.server import run

        return run(options, log)
    finally:
        ignore_stop_signals()
        log.close()
