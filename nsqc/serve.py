"""`nsqc serve`: flags and config file to options, options to the daemon."""

from __future__ import annotations

import sys
from typing import Any

from nsqc.config import read_config
from nsqc.flags import FlagError, HelpWanted, help_text, parse_flags
from nsqc.log import Log
from nsqc.options import OptionError, Options, check
from nsqc.version import version_line

EXIT_REFUSED, EXIT_USAGE = 1, 2


def serve(words: list[str]) -> int:
    """Runs the daemon with nsqd's flags. The exit code: 0, 1 where it cannot start, 2 where flags cannot be read."""
    try:
        flags = parse_flags(words)
    except HelpWanted:
        print(help_text())
        return 0
    except FlagError as error:
        print(f"nsqc serve: {error} (--help lists all flags)", file=sys.stderr)
        return EXIT_USAGE
    if flags.pop("version", False):
        print(version_line("nsqd"))
        return 0
    log = Log(flags.get("log_prefix", Options().log_prefix))
    try:
        return start(flags, log)
    except OptionError as error:
        log.fatal("%s", error)
        return EXIT_REFUSED
    finally:
        log.close()


def start(flags: dict[str, Any], log: Log) -> int:
    """Merges the config file under the flags and runs the daemon. Raises OptionError."""
    options, unknown = resolve(flags)
    log = Log(options.log_prefix, options.log_level)
    try:
        for key in unknown:
            log.warn("config file %s: unknown key %s is passed over", options.config, key)
        # Only now: a wrong flag is answered without loading the daemon.
        from nsqc.daemon import run

        return run(options, log)
    finally:
        log.close()


def resolve(flags: dict[str, Any]) -> tuple[Options, list[str]]:
    """The options, and the config file's unknown keys. Raises OptionError."""
    unknown: list[str] = []
    given: dict[str, Any] = {}
    if flags.get("config"):
        given, unknown = read_config(flags["config"])
    options = Options(**{**given, **flags})
    check(options)
    return options, unknown
