"""Starts a server from its flags, without typer."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from nsqc import version_line
from nsqc.commands.output import EXIT_REFUSED, EXIT_USAGE, print_text
from nsqc.log import Log
from nsqc.log.formats import mask
from nsqc.options.declared import SERVE, Chosen, Declaration, OptionError, Options
from nsqc.options.flags import from_environment, help_text, parse_flags
from nsqc.options.option import FlagError, HelpWanted, Value
from nsqc.options.resolve import resolve, resolve_again

if TYPE_CHECKING:
    from nsqc.options.servers import AdminOptions, LookupdOptions

STDERR = 2
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
DRAIN_SIGNAL = signal.SIGUSR1


def serve(words: list[str]) -> int:
    """Runs the daemon with nsqd's flags. Exit code: 0, 1 if it cannot start, 2 if the flags are invalid."""
    def run(options: Options, log: Log, flags: Mapping[str, Value]) -> int:
        from nsqc.daemon import run as run_server  # here: wrong flags are reported without loading the server

        return run_server(options, log, lambda: resolve_again(SERVE, flags))

    return launch(words, SERVE, run)


def lookupd(words: list[str]) -> int:
    """Runs the lookup server with nsqlookupd's flags. Exit code as for serve()."""
    from nsqc.options.servers import LOOKUPD

    def run(options: LookupdOptions, log: Log, flags: Mapping[str, Value]) -> int:
        from nsqc.lookupd.server import run as run_server  # here: as above

        return run_server(options, log)

    return launch(words, LOOKUPD, run)


def admin(words: list[str]) -> int:
    """Runs the admin server with nsqadmin's flags. Exit code as for serve()."""
    from nsqc.options.servers import ADMIN_SERVER

    def run(options: AdminOptions, log: Log, flags: Mapping[str, Value]) -> int:
        from nsqc.admin.server import run as run_server  # here: as above

        return run_server(options, log)

    return launch(words, ADMIN_SERVER, run)


def launch(words: list[str], declaration: Declaration[Chosen],
           run: Callable[[Chosen, Log, Mapping[str, Value]], int]) -> int:
    """Runs a server with the flags in words and the environment; run() may raise OptionError. Exit code as for
    serve()."""
    hold_standard_files()
    try:
        flags = parse_flags(words, declaration)
        if flags.pop("version", False):
            print_text(version_line(declaration.original))
            return 0
        flags = from_environment(declaration) | flags
    except HelpWanted:
        print_text(help_text(declaration))
        return 0
    except FlagError as error:
        from nsqc.log.formats import visible  # needed for errors only

        print(f"{declaration.command}: {visible(mask(str(error)))} (--help lists all flags)", file=sys.stderr)
        return EXIT_USAGE
    given = {**{name: declaration.options().value(name) for name in ("log_prefix", "log_format")}, **flags}
    log = Log(str(given["log_prefix"]), form=str(given["log_format"]))
    try:
        return start(declaration, flags, run)
    except OptionError as error:
        log.fatal("%s", error)
        return EXIT_REFUSED
    finally:
        log.close()


def start(declaration: Declaration[Chosen], flags: Mapping[str, Value],
          run: Callable[[Chosen, Log, Mapping[str, Value]], int]) -> int:
    """Merges the config file under the flags and runs the server. Raises OptionError."""
    hold_signals()
    # There is nothing to drain yet, or never: NSQ's other programs ignore this signal.
    signal.signal(DRAIN_SIGNAL, leave if declaration is SERVE else signal.SIG_IGN)
    options, unknown = resolve(declaration, flags)
    log = Log(options.log_prefix, options.log_level, form=options.log_format)
    try:
        for warning in unknown.values():
            log.warn("config file %s: %s", options.config, warning)
        return run(options, log, flags)
    finally:
        ignore_stop_signals()
        log.close()


def hold_signals() -> None:
    """Until the server handles signals, a stop needs no cleanup. SIGHUP is held until the server knows whether it means
    a reload or a stop."""
    for number in STOP_SIGNALS:
        signal.signal(number, leave)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """A signal handler: ends the process at once, as a requested stop. It raises nothing: a module being imported could
    swallow the exception, and the stop with it."""
    os._exit(0)


def ignore_stop_signals() -> None:
    """Further signals during exit must not change the exit code."""
    for number in (*STOP_SIGNALS, DRAIN_SIGNAL, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def hold_standard_files() -> None:
    """Opens the null device for each of stdin, stdout and stderr that the process was started without.

    Otherwise the next opened file, perhaps a queue, would get number 2 and receive the log.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
