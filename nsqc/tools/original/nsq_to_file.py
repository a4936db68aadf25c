"""nsq_to_file"""

from __future__ import annotations

import os
import re
import time

from nsqc import paths
from nsqc.tools import output
from nsqc.tools.original import client_options
from nsqc.tools.original.cluster import LOOKUPD, MAX_IN_FLIGHT, NSQD, check_names, check_sources, cluster_of
from nsqc.tools.original.goflags import Flag, Flags
from nsqc.tools.original.program import Fatal, Program
from nsqc.tools.tofile.archive import Rules
from nsqc.tools.tofile.naming import REV, Naming, host_identifier
from nsqc.tools.tofile.running import Plan, archive

LEVELS = {"debug": 1, "info": 2, "warn": 3, "error": 4, "fatal": 5}
CONNECTIONS = 1


def run(flags: Flags) -> int:
    """The exit code."""
    if flags.rest:
        raise Fatal(f"unknown arguments: [{' '.join(flags.rest)}]")
    level = LEVELS.get(flags.text("log-level").lower())
    if level is None:
        raise Fatal("--log-level is invalid")
    topics = tuple(dict.fromkeys(flags.texts("topic")))
    pattern = check(flags, topics)
    notes = Lines(flags.text("log-prefix"), level, flags.text("channel"))
    output_dir = folder_of(flags, "output-dir")
    work_dir = folder_of(flags, "work-dir") or output_dir
    zipped, moves = flags.on("gzip"), work_dir != output_dir
    numbered = zipped or moves or flags.number("rotate-size") > 0 or flags.decimal("rotate-interval") > 0
    if numbered and REV not in flags.text("filename-format"):
        raise Fatal("missing <REV> in --filename-format when gzip, rotation, or work dir enabled")
    for folder in (output_dir, work_dir):
        os.makedirs(folder, 0o770, exist_ok=True)
    naming = Naming(flags.text("filename-format"), flags.text("datetime-format"),
                    host_identifier(flags.text("host-identifier")), ".gz" if zipped else "", numbered)
    rules = Rules(output_dir, work_dir, naming, "gzip" if zipped else "", flags.number("gzip-level"),
                  flags.number("rotate-size"), flags.decimal("rotate-interval"), flags.on("skip-empty-files"))
    if pattern is not None:
        topics = tuple(topic for topic in topics if pattern.search(topic))
    timeout = max(flags.decimal("http-client-connect-timeout"), flags.decimal("http-client-request-timeout"))
    cluster = cluster_of("nsq_to_file", flags.texts("nsqd-tcp-address"), flags.texts("lookupd-http-address"),
                         client_options.read(flags.texts("consumer-opt"), *client_options.LOOKUP), timeout)
    discovers = not flags.texts("topic")
    code = archive(cluster, Plan(
        "nsq_to_file", topics, (pattern or re.compile("")) if discovers else None, flags.decimal("topic-refresh"),
        flags.text("channel"), rules, flags.decimal("sync-interval"), max(flags.number("max-in-flight"), 1),
        CONNECTIONS, True), notes, insists=False)
    return 1 if code == 1 else 0        # signals are a clean end


def folder_of(flags: Flags, name: str) -> str:
    """A path of this machine. Raises Fatal."""
    try:
        return paths.local(flags.text(name))
    except ValueError as error:
        raise Fatal(f"--{name}: {error}") from None


def check(flags: Flags, topics: tuple[str, ...]) -> re.Pattern[str] | None:
    """The pattern for topics. Raises Fatal."""
    if not flags.text("channel"):
        raise Fatal("--channel is required")
    for name in ("http-client-connect-timeout", "http-client-request-timeout"):
        if flags.decimal(name) <= 0:
            raise Fatal(f"--{name} should be positive")
    check_sources(flags, ".")
    if not 1 <= flags.number("gzip-level") <= 9:
        raise Fatal(f"invalid --gzip-level value ({flags.number('gzip-level')}), should be 1-9")
    if not topics and not flags.text("topic-pattern"):
        raise Fatal("--topic or --topic-pattern required")
    if not topics and not flags.texts("lookupd-http-address"):
        raise Fatal("--lookupd-http-address must be specified when no --topic specified")
    for name in ("sync-interval", "topic-refresh"):
        if flags.decimal(name) <= 0:
            raise Fatal(f"--{name} should be positive")
    check_names(topics, flags.text("channel"))
    try:
        return re.compile(flags.text("topic-pattern")) if flags.text("topic-pattern") else None
    except re.error as error:
        raise Fatal(f"--topic-pattern is invalid: {error}") from None


class Lines:
    """nsq_to_file's log."""

    def __init__(self, prefix: str, level: int, channel: str):
        self._prefix, self._level, self._channel = prefix, level, channel

    def info(self, topic: str, text: str) -> None:
        """Normal operation."""
        self._line("info", "INFO", topic, text)

    def warn(self, topic: str, text: str) -> None:
        """Something unusual."""
        self._line("warn", "WARNING", topic, text)

    def error(self, topic: str, text: str) -> None:
        """Something failed."""
        self._line("error", "ERROR", topic, text)

    def _line(self, level: str, word: str, topic: str, text: str) -> None:
        if LEVELS[level] < self._level:
            return
        now = time.time()
        stamp = f"{time.strftime('%Y/%m/%d %H:%M:%S', time.localtime(now))}.{int(now % 1 * 1e6):06d}"
        place = f"[{topic}/{self._channel}] " if topic else ""
        output.note(f"{self._prefix}{stamp} {word}: {place}{text}")


PROGRAM = Program("nsq_to_file", (
    Flag("topic", "value", (), "topic to store (may be repeated)"),
    Flag("topic-pattern", "string", "", "store topics whose names match this regular expression"),
    Flag("topic-refresh", "duration", 60.0, "interval for finding new topics"),
    Flag("channel", "string", "nsq_to_file", "channel to consume"),
    Flag("output-dir", "string", "/tmp", "folder of the files"),
    Flag("work-dir", "string", "", "folder of incomplete files; default: the same"),
    Flag("filename-format", "string", "<TOPIC>.<HOST><REV>.<DATETIME>.log", "name of a file"),
    Flag("datetime-format", "string", "%Y-%m-%d_%H", "strftime format of <DATETIME>"),
    Flag("host-identifier", "string", "", "value of <HOST>; may contain <SHORT_HOST> and <HOSTNAME>"),
    Flag("gzip", "bool", False, "compress the files"),
    Flag("gzip-level", "int", 6, "compression level, 1 to 9"),
    Flag("skip-empty-files", "bool", False, "create no files without messages"),
    Flag("rotate-size", "int", 0, "size at which to start the next file, bytes"),
    Flag("rotate-interval", "duration", 0.0, "interval for starting the next file"),
    Flag("sync-interval", "duration", 30.0, "maximum time between syncs"),
    MAX_IN_FLIGHT,
    Flag("log-prefix", "string", "[nsq_to_file] ", "prefix of log lines"),
    Flag("log-level", "string", "info", "lowest level to log: debug, info, warn, error or fatal"),
    Flag("http-client-connect-timeout", "duration", 2.0, "timeout for connecting to nsqlookupd"),
    Flag("http-client-request-timeout", "duration", 5.0, "timeout for a request to nsqlookupd"),
    NSQD, LOOKUPD, client_options.flag("consumer-opt")), run)
