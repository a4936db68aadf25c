"""The start of the daemon from its flags, without typer. serve.py is its face in typer's help."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from types import FrameType
from typing import NoReturn

from nsqc import version_line
from nsqc.commands.output import EXIT_REFUSED, EXIT_USAGE, print_text
from nsqc.log import Log
from nsqc.options.declared import OptionError, Options, Value
from nsqc.options.flags import FlagError, HelpWanted, help_text, parse_flags
from nsqc.options.resolve import resolve

STDERR = 2
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(words: list[str]) -> int:
    """Runs the daemon with nsqd's flags. The exit code: 0, 1 if it cannot start, 2 if the flags cannot be read."""
    hold_standard_files()
    try:
        flags = parse_flags(words)
    except HelpWanted:
        print_text(help_text())
        return 0
    except FlagError as error:
        print(f"nsqc serve: {error} (--help lists all flags)", file=sys.stderr)
        return EXIT_USAGE
    if flags.pop("version", False):
        print_text(version_line("nsqd"))
        return 0
    log = Log(str(flags.get("log_prefix", Options().log_prefix)))
    try:
        return start(flags)
    except OptionError as error:
        log.fatal("%s", error)
        return EXIT_REFUSED
    finally:
        log.close()


def start(flags: Mapping[str, Value]) -> int:
    """Merges the config file under the flags and runs the daemon. Raises OptionError."""
    for number in STOP_SIGNALS:
        # Until the daemon handles them, there is nothing to clean up.
        signal.signal(number, leave)
    # Held until the daemon knows whether it reloads anything or stops.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    options, unknown = resolve(flags)
    log = Log(options.log_prefix, options.log_level)
    try:
        for key in unknown:
            log.warn("config file %s: unknown key %r is ignored", options.config, key)
        # Imported here: wrong flags are reported without loading the daemon.
        from nsqc.daemon import run

        return run(options, log, lambda: resolve(flags))
    finally:
        ignore_stop_signals()
        log.close()


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """A signal handler: ends the process at once, as a requested stop."""
    ignore_stop_signals()
    raise SystemExit(0)


def ignore_stop_signals() -> None:
    """More of them, while the process exits, must not change the exit code."""
    for number in (*STOP_SIGNALS, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def hold_standard_files() -> None:
    """Opens the null device as stdin, stdout or stderr, whichever the process was started without.

    Otherwise the next file to be opened, perhaps a queue, would get number 2 and the log with it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
