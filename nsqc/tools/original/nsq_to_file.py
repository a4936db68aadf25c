"""nsq_to_file"""

from __future__ import annotations

import os
import re
import time
from functools import partial

from nsqc import paths
from nsqc.options.option import Kind, Option, S
from nsqc.tools import running
from nsqc.tools.declare import Values
from nsqc.tools.original import program
from nsqc.tools.original.program import (
    LOOKUPD,
    MAX_IN_FLIGHT,
    NSQD,
    Fatal,
    Program,
    check_names,
    check_sources,
    cluster_of,
)
from nsqc.tools.tofile.archive import REV, Naming, Rules, host_identifier
from nsqc.tools.tofile.engine import Plan, archive

LEVELS = {"debug": 1, "info": 2, "warn": 3, "error": 4, "fatal": 5}
CONNECTIONS = 1


def run(flags: Values) -> int:
    """The exit code."""
    if flags.rest:
        raise Fatal(f"unknown arguments: [{' '.join(flags.rest)}]")
    level = LEVELS.get(flags.text("log-level").lower())
    if level is None:
        raise Fatal("--log-level is invalid")
    topics = tuple(dict.fromkeys(flags.texts("topic")))
    pattern = check(flags, topics)
    output_dir = folder_of(flags, "output-dir")
    work_dir = folder_of(flags, "work-dir") or output_dir
    zipped, moves = flags.flag("gzip"), work_dir != output_dir
    numbered = zipped or moves or flags.number("rotate-size") > 0 or flags.seconds("rotate-interval") > 0
    if numbered and REV not in flags.text("filename-format"):
        raise Fatal("missing <REV> in --filename-format when gzip, rotation, or work dir enabled")
    for folder in (output_dir, work_dir):
        os.makedirs(folder, 0o770, exist_ok=True)
    naming = Naming(flags.text("filename-format"), flags.text("datetime-format"),
                    host_identifier(flags.text("host-identifier")), ".gz" if zipped else "", numbered)
    rules = Rules(output_dir, work_dir, naming, "gzip" if zipped else "", flags.number("gzip-level"),
                  flags.number("rotate-size"), flags.seconds("rotate-interval"), flags.flag("skip-empty-files"))
    if pattern is not None:
        topics = tuple(topic for topic in topics if pattern.search(topic))
    timeout = max(flags.seconds("http-client-connect-timeout"), flags.seconds("http-client-request-timeout"))
    cluster = cluster_of("nsq_to_file", flags.texts("nsqd-tcp-address"), flags.texts("lookupd-http-address"),
                         program.read(flags.texts("consumer-opt"), *program.LOOKUP), timeout)
    discovers = not flags.texts("topic")
    code = archive(cluster, Plan(
        "nsq_to_file", topics, (pattern or re.compile("")) if discovers else None, flags.seconds("topic-refresh"),
        flags.text("channel"), rules, flags.seconds("sync-interval"), max(flags.number("max-in-flight"), 1),
        CONNECTIONS, True), partial(say, flags, level), insists=False)
    return 1 if code == 1 else 0        # signals are a clean end


def folder_of(flags: Values, name: str) -> str:
    """A path of this machine. Raises Fatal."""
    try:
        return paths.local(flags.text(name))
    except ValueError as error:
        raise Fatal(f"--{name}: {error}") from None


def check(flags: Values, topics: tuple[str, ...]) -> re.Pattern[str] | None:
    """The pattern for topics. Raises Fatal."""
    if not flags.text("channel"):
        raise Fatal("--channel is required")
    for name in ("http-client-connect-timeout", "http-client-request-timeout"):
        if flags.number(name) <= 0:
            raise Fatal(f"--{name} should be positive")
    check_sources(flags, ".")
    if not 1 <= flags.number("gzip-level") <= 9:
        raise Fatal(f"invalid --gzip-level value ({flags.number('gzip-level')}), should be 1-9")
    if not topics and not flags.text("topic-pattern"):
        raise Fatal("--topic or --topic-pattern required")
    if not topics and not flags.texts("lookupd-http-address"):
        raise Fatal("--lookupd-http-address must be specified when no --topic specified")
    for name in ("sync-interval", "topic-refresh"):
        if flags.number(name) <= 0:
            raise Fatal(f"--{name} should be positive")
    check_names(topics, flags.text("channel"))
    try:
        return re.compile(flags.text("topic-pattern")) if flags.text("topic-pattern") else None
    except re.error as error:
        raise Fatal(f"--topic-pattern is invalid: {error}") from None


def say(flags: Values, lowest: int, level: str, topic: str, text: str) -> None:
    """A line of nsq_to_file's log. lowest: the level from which on there are lines."""
    if LEVELS[level] < lowest:
        return
    now = time.time()
    stamp = f"{time.strftime('%Y/%m/%d %H:%M:%S', time.localtime(now))}.{int(now % 1 * 1e6):06d}"
    word = "WARNING" if level == "warn" else level.upper()
    place = f"[{topic}/{flags.text('channel')}] " if topic else ""
    running.note(f"{flags.text('log-prefix')}{stamp} {word}: {place}{text}")


PROGRAM = Program("nsq_to_file", (
    Option("topic", "topic to store (may be repeated)", many=True),
    Option("topic-pattern", "store topics whose names match this regular expression"),
    Option("topic-refresh", "interval for finding new topics", Kind.DURATION, 60 * S),
    Option("channel", "channel to consume", default="nsq_to_file"),
    Option("output-dir", "folder of the files", default="/tmp"),
    Option("work-dir", "folder of incomplete files; default: the same"),
    Option("filename-format", "name of a file", default="<TOPIC>.<HOST><REV>.<DATETIME>.log"),
    Option("datetime-format", "strftime format of <DATETIME>", default="%Y-%m-%d_%H"),
    Option("host-identifier", "value of <HOST>; may contain <SHORT_HOST> and <HOSTNAME>"),
    Option("gzip", "compress the files", Kind.BOOL, False),
    Option("gzip-level", "compression level, 1 to 9", Kind.INT, 6),
    Option("skip-empty-files", "create no files without messages", Kind.BOOL, False),
    Option("rotate-size", "size at which to start the next file, bytes", Kind.INT, 0),
    Option("rotate-interval", "interval for starting the next file", Kind.DURATION, 0),
    Option("sync-interval", "maximum time between syncs", Kind.DURATION, 30 * S),
    MAX_IN_FLIGHT,
    Option("log-prefix", "prefix of log lines", default="[nsq_to_file] "),
    Option("log-level", "lowest level to log: debug, info, warn, error or fatal", default="info"),
    Option("http-client-connect-timeout", "timeout for connecting to nsqlookupd", Kind.DURATION, 2 * S),
    Option("http-client-request-timeout", "timeout for a request to nsqlookupd", Kind.DURATION, 5 * S),
    NSQD, LOOKUPD, program.flag("consumer-opt")), run)
