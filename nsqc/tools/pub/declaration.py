"""The command line of `nsqc pub`."""

from __future__ import annotations

import os
from functools import partial

from nsqc.options.option import MS, Kind, Option
from nsqc.tools import running
from nsqc.tools.declare import JSON, OUTPUT, TCP_NODES, TOPIC, Argument, Tool, UsageError, Values

PLACE = "nsqc pub"
say = partial(running.print_error, PLACE)
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\r": "\r"}
LONGEST_DELAY = 2**32 * MS      # the protocol's limit


def run(values: Values) -> int:
    """`nsqc pub`."""
    topic, files = values.text("TOPIC"), values.texts("FILE")
    if not files and not values.given("topic") and os.path.isfile(topic):
        raise UsageError(f"{topic} is a file; the topic comes first: {PLACE} TOPIC {topic}", PLACE)
    from nsqc.tools.cluster import Cluster
    from nsqc.tools.pub.publishing import Plan, publish

    delimiter = ESCAPES.get(values.text("delimiter"), values.text("delimiter")).encode(errors="surrogateescape")
    if len(delimiter) != 1:
        raise UsageError("--delimiter must be one byte, or \\n, \\t, \\r, \\0", PLACE)
    return publish(Cluster(values, PLACE), Plan(
        place=PLACE, topic=topic, files=files, delimiter=delimiter[0],
        whole=values.flag("whole"), delay_ms=round(values.seconds("defer") * 1000), rate=values.decimal("rate"),
        to_all=values.flag("all"), max_message=values.number("max-msg-size"),
        retries=values.number("retries"), say=say), shows=not values.flag("quiet"), as_json=values.flag("json"))


TOOL = Tool(
    ("pub",), "Publish lines or files.", run,
    arguments=(TOPIC, Argument("FILE", "files to publish, - for standard input; default: standard input", Kind.FILE,
                        required=False, many=True),),
    options=(
        Option("delimiter", "byte that ends a message: one character, or \\n, \\t, \\r, \\0", default="\\n",
               metavar="BYTE", short="d"),
        Option("whole", "one message per file, or one of all standard input", Kind.BOOL, False),
        Option("defer", "deliver each message after this time", Kind.DURATION, 0, least=0, most=LONGEST_DELAY),
        Option("rate", "maximum messages per second; 0: no limit", Kind.FLOAT, 0.0, least=0),
        Option("all", "send every message to every nsqd; otherwise to the first that answers", Kind.BOOL, False),
        Option("max-msg-size", "refuse larger messages; set it like nsqd's", Kind.SIZE, 1 << 20, least=1,
               most=1 << 30),
        Option("retries", "retries per nsqd before giving up", Kind.INT, 3, least=0, most=1000),
        Option("quiet", "no progress on the terminal", Kind.BOOL, False, OUTPUT, short="q"),
        JSON._replace(help="the result as JSON on stdout"),
        *TCP_NODES),
    text="""Empty lines are skipped, and a last line without delimiter counts. A message counts as published only once
         nsqd has acknowledged it. Messages that are too large are skipped and reported, and make the exit code 1. After
         a broken connection unacknowledged messages are sent again, to the next nsqd if there are several: a message
         may arrive twice, but is not lost. On SIGINT the tool waits for outstanding answers.""",
    examples=(
        ("nsqc pub orders orders.txt", "a message per line"),
        ("journalctl -f -o json | nsqc pub journal --nsqd 10.0.0.1:4150 --nsqd 10.0.0.2:4150",
         "lines as they arrive, to the second nsqd if the first does not answer"),
        ("find . -name '*.json' -print0 | nsqc pub names --delimiter '\\0'",
         "names that may contain newlines"),
        ("nsqc pub images --whole --defer 10m *.png", "whole files, delivered in ten minutes"),
        ("nsqc pub orders --rate 500 < orders.txt", "at most 500 per second")))
