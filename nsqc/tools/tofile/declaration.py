"""The command line of `nsqc to-file`."""

from __future__ import annotations

import os
import re
from functools import partial

from nsqc.options.option import MS, Kind, Option, S
from nsqc.paths import folder_fault
from nsqc.tools import running
from nsqc.tools.declare import CHANNEL_OPTION, TCP_NODES, TOPICS, Tool, UsageError, Values, in_flight

PLACE = "nsqc to-file"
FILES = "Files"
SUFFIXES = {"gzip": ".gz", "zstd": ".zst", "none": ""}
LEVELS = {"gzip": (6, 9), "zstd": (3, 19), "none": (0, 0)}


def run(values: Values) -> int:
    """`nsqc to-file`."""
    topics = tuple(dict.fromkeys(values.texts("TOPIC")))
    if not topics and not values.given("topic-pattern"):
        raise UsageError("TOPIC or --topic-pattern is missing", PLACE)
    try:
        pattern = re.compile(values.text("topic-pattern")) if values.given("topic-pattern") else None
    except re.error as error:
        raise UsageError(f"--topic-pattern: {error}", PLACE) from None
    if pattern is not None and not values.texts("nsqlookupd"):
        raise UsageError("--topic-pattern needs --nsqlookupd", PLACE)
    kind = values.text("compress")
    default, most = LEVELS[kind]
    level = values.number("level") if values.given("level") else default
    if values.given("level") and not 1 <= level <= most:
        raise UsageError(f"--level: {level} is not from 1 to {most}" if most else "--level needs --compress", PLACE)
    from nsqc.tools.cluster import Cluster
    from nsqc.tools.tofile.archive import REV, Naming, Rules, host_identifier
    from nsqc.tools.tofile.engine import Plan, archive

    output_dir, work_dir = values.text("output-dir"), values.text("work-dir") or values.text("output-dir")
    numbered = (kind != "none" or values.number("rotate-size") > 0 or values.seconds("rotate-interval") > 0
                or work_dir != output_dir)
    if numbered and REV not in values.text("filename-format"):
        raise UsageError("--filename-format needs a <REV> with compression, rotation or --work-dir", PLACE)
    for folder in (output_dir, work_dir):
        if fault := folder_fault(folder):
            raise UsageError(fault, PLACE)
    if os.stat(output_dir).st_dev != os.stat(work_dir).st_dev:
        raise UsageError("--work-dir and --output-dir have to be on the same filesystem", PLACE)
    rules = Rules(
        output_dir, work_dir,
        Naming(values.text("filename-format"), values.text("datetime-format"),
               host_identifier(values.text("host-identifier")), SUFFIXES[kind], numbered),
        kind if kind != "none" else "", level, values.number("rotate-size"), values.seconds("rotate-interval"), True)
    return archive(Cluster(values, PLACE), Plan(
        PLACE, topics, pattern, values.seconds("topic-refresh"), values.text("channel"), rules,
        values.seconds("sync-interval"), values.number("max-in-flight"), values.number("connections"),
        values.flag("wait")), partial(say, values.flag("verbose")))


def say(verbose: bool, level: str, topic: str, text: str) -> None:
    """Reports warnings and errors on stderr, and with verbose everything."""
    if verbose or level != "info":
        running.print_error(PLACE, f"{topic}: {text}" if topic else text)


TOOL = Tool(
    ("to-file",), "Store topics in files, one message per line.", run,
    options=(
        Option("topic-pattern", "all topics of nsqlookupd that match this regular expression, including future ones",
               metavar="REGEX"),
        Option("topic-refresh", "interval for finding such topics", Kind.DURATION, 60 * S, least=100 * MS),
        CHANNEL_OPTION._replace(default="nsq_to_file"),
        in_flight(20_000),
        Option("connections", "connections to each nsqd per topic; default: 8, fewer with more nsqd or topics",
               Kind.INT, None, least=1, most=64),
        Option("wait", "also accept topics that do not exist yet, which nsqd then creates", Kind.BOOL, False),
        Option("output-dir", "folder of complete files", Kind.FOLDER, ".", FILES, short="o"),
        Option("work-dir", "folder of growing files; complete ones are moved to --output-dir, without "
                           "overwriting", Kind.FOLDER, "", FILES),
        Option("filename-format", "name of a file; may contain folders",
               default="<TOPIC>.<HOST><REV>.<DATETIME>.log", group=FILES, metavar="FORMAT"),
        Option("datetime-format", "format of <DATETIME>, in local time; when it changes, the next file "
                                  "begins", default="%Y-%m-%d_%H", group=FILES, metavar="STRFTIME"),
        Option("host-identifier", "value of <HOST>; default: the short host name", default="", group=FILES),
        Option("compress", "compression of the files", default="none", group=FILES, choices=("none", "gzip", "zstd")),
        Option("level", "compression level: gzip 1 to 9 (6), zstd 1 to 19 (3)", Kind.INT, None, FILES),
        Option("rotate-size", "start the next file above this size, before compression; 0: never",
               Kind.SIZE, 0, FILES),
        Option("rotate-interval", "start the next file after this time; 0: never", Kind.DURATION, 0, FILES, least=0),
        Option("sync-interval", "maximum time before a message is synced and finished", Kind.DURATION, 5 * S, FILES,
               least=MS),
        Option("verbose", "report files opened, synced and moved", Kind.BOOL, False, "Output", short="v"),
        *TCP_NODES),
    arguments=(TOPICS._replace(required=False),),
    text="""A message is finished after it was written and synced (fsync): kill -9 or a power failure loses no finished
         message, and at worst some are delivered again. Each sync ends a gzip member or a zstd frame, so synced data
         can be unpacked.

         If a file cannot be written, for example because the disk is full, none of its messages are finished: unsynced
         data is cut off, its messages are requeued, and the tool retries after a pause that grows to 30 s. SIGHUP
         closes the files; the next message opens new ones. SIGTERM stores the messages already received and exits with
         0.""",
    examples=(
        ("nsqc to-file orders -o /srv/archive", "a file per hour, appended to after a restart"),
        ("nsqc to-file orders -o /srv/archive --work-dir /srv/growing --compress zstd --rotate-size 1G "
         "--nsqlookupd lookup:4161", "complete files appear in /srv/archive at once"),
        ("nsqc to-file --topic-pattern '^app[.]' --nsqlookupd lookup:4161 "
         "--filename-format '<TOPIC>/<DATETIME><REV>.log'", "all topics of an application, a folder per topic")))
