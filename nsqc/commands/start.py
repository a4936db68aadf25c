"""`nsqc serve`: flags and config file to options, options to the daemon."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn

from nsqc import version_line
from nsqc.log import Log
from nsqc.options.declared import OptionError, Options, check
from nsqc.options.file import read_config
from nsqc.options.flags import FlagError, HelpWanted, help_text, parse_flags

EXIT_REFUSED, EXIT_USAGE = 1, 2
STDOUT, STDERR = 1, 2
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve(words: list[str]) -> int:
    """Runs the daemon with nsqd's flags. The exit code: 0, 1 where it cannot start, 2 where flags cannot be read."""
    hold_standard_files()
    try:
        flags = parse_flags(words)
    except HelpWanted:
        tell(help_text())
        return 0
    except FlagError as error:
        print(f"nsqc serve: {error} (--help lists all flags)", file=sys.stderr)
        return EXIT_USAGE
    if flags.pop("version", False):
        tell(version_line("nsqd"))
        return 0
    log = Log(flags.get("log_prefix", Options().log_prefix))
    try:
        return start(flags)
    except OptionError as error:
        log.fatal("%s", error)
        return EXIT_REFUSED
    finally:
        log.close()


def start(flags: dict[str, Any]) -> int:
    """Merges the config file under the flags and runs the daemon. Raises OptionError."""
    for number in STOP_SIGNALS:
        # Until the daemon takes them over there is nothing to put in order.
        signal.signal(number, leave)
    # It waits until the daemon knows whether it has anything to read again, or is to stop.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    options, unknown = resolve(flags)
    log = Log(options.log_prefix, options.log_level)
    try:
        for key in unknown:
            log.warn("config file %s: unknown key %r is passed over", options.config, key)
        # Only now: a wrong flag is answered without loading the daemon.
        from nsqc.daemon import run

        return run(options, log, lambda: resolve(flags))
    finally:
        ignore_stop_signals()
        log.close()


def resolve(flags: dict[str, Any]) -> tuple[Options, list[str]]:
    """The options, and the config file's unknown keys. Raises OptionError."""
    given, unknown = from_file(flags)
    options = Options(**{**given, **flags})
    check(options)
    check_addresses(options)
    return options, unknown


def check_addresses(options: Options) -> None:
    """Raises OptionError for the first address to connect to that is none: nothing would ever come of it."""
    if options.lookupd_tcp_address or options.auth_http_address or options.statsd_address:
        from nsqc.options.check import unreachable

        for _, text in unreachable(options):
            raise OptionError(text)


def from_file(flags: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Values and unknown keys of the config file that the flags name, if any. Raises OptionError."""
    return read_config(flags["config"]) if flags.get("config") else ({}, [])


def leave(*_: Any) -> NoReturn:
    """Ends the process at once, as a wanted stop."""
    ignore_stop_signals()
    raise SystemExit(0)


def ignore_stop_signals() -> None:
    """Further ones, while the process is on its way out, must not spoil the exit code."""
    for number in (*STOP_SIGNALS, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def tell(text: str) -> None:
    """Prints text; whoever reads it may leave in the middle (`--help | head`)."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # What is left would be tried again, and reported, at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)


def hold_standard_files() -> None:
    """Where the process was started without stdin, stdout or stderr, puts the null device there.

    Otherwise the next file to be opened, perhaps a queue, would get number 2 and the log with it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
