"""Starts the admin server from its flags, without typer. admin.py stands for it in typer's help."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from nsqc.commands.start import hold_signals, ignore_stop_signals, launch
from nsqc.log import Log
from nsqc.options.admin import ADMIN, resolve
from nsqc.options.declared import Value


def admin(words: list[str]) -> int:
    """Runs the admin server with nsqadmin's flags. Exit code: 0, 1 if it cannot start, 2 if the flags are
    invalid."""
    return launch(words, ADMIN, start)


def start(flags: Mapping[str, Value]) -> int:
    """Merges the config file under the flags and runs the server. Raises OptionError."""
    hold_signals()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    options, unknown = resolve(flags)
    log = Log(options.log_prefix, options.log_level, form=options.log_format)
    try:
        for warning in unknown.values():
            log.warn("config file %s: %s", options.config, warning)
        # Imported here: wrong flags are reported without loading the server.
        from nsqc.admin.server import run

        return run(options, log)
    finally:
        ignore_stop_signals()
        log.close()
