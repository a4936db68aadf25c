"""The command line of `nsqc pub`."""

from __future__ import annotations

import os

from nsqc.tools import output
from nsqc.tools.declare import Argument, Kind, Option, Tool, Values
from nsqc.tools.errors import UsageError
from nsqc.tools.family import JSON, OUTPUT, TCP_NODES, TOPIC

PLACE = "nsqc pub"
ESCAPES = {"\\n": "\n", "\\t": "\t", "\\0": "\0", "\\r": "\r"}
LONGEST_DELAY = 2**32 / 1000     # seconds that the protocol can say


def run(values: Values) -> int:
    """`nsqc pub`."""
    topic, files = values.text("TOPIC"), values.texts("FILE")
    if not files and not values.given("topic") and os.path.isfile(topic):
        raise UsageError(f"{topic} is a file, and the topic comes first: {PLACE} TOPIC {topic}", PLACE)
    from nsqc.tools.cluster import Cluster
    from nsqc.tools.pub.publishing import Plan, publish

    delimiter = ESCAPES.get(values.text("delimiter"), values.text("delimiter")).encode(errors="surrogateescape")
    if len(delimiter) != 1:
        raise UsageError("--delimiter is one byte, or \\n, \\t, \\r, \\0", PLACE)
    return publish(Cluster(values, PLACE), Plan(
        place=PLACE, topic=topic, files=files, delimiter=delimiter[0],
        whole=values.flag("whole"), delay_ms=round(values.decimal("defer") * 1000), rate=values.decimal("rate"),
        to_all=values.flag("all"), max_message=values.number("max-msg-size"),
        retries=values.number("retries"), say=say), shows=not values.flag("quiet"), as_json=values.flag("json"))


def say(text: str) -> None:
    """A line about a failure."""
    output.error(PLACE, text)


TOOL = Tool(
    ("pub",), "Publish lines or files.", run,
    arguments=(TOPIC, Argument("FILE", "files to publish, - for standard input, which is read without any", Kind.FILE,
                        required=False, many=True),),
    options=(
        Option("delimiter", "the byte that ends a message: one character, or \\n, \\t, \\r, \\0", default="\\n",
               metavar="BYTE", short="d"),
        Option("whole", "one message of each file, or of all of standard input", Kind.BOOL, False),
        Option("defer", "deliver each message after this time", Kind.DURATION, 0.0, least=0, most=LONGEST_DELAY),
        Option("rate", "publish at most so many messages a second; 0: no limit", Kind.FLOAT, 0.0, least=0),
        Option("all", "every message to every nsqd; otherwise to the first that answers", Kind.BOOL, False),
        Option("max-msg-size", "larger messages are refused; set it like nsqd's", Kind.SIZE, 1 << 20, least=1,
               most=1 << 30),
        Option("retries", "tries with each nsqd, after the first, before giving up", Kind.INT, 3, least=0, most=1000),
        Option("quiet", "no progress on the terminal", Kind.BOOL, False, OUTPUT, short="q"),
        JSON._replace(help="what was published, as JSON on stdout"),
        *TCP_NODES),
    text="""Empty lines are skipped, and a last line without delimiter counts. Only what nsqd has acknowledged
        is counted as published. Messages that are too large are left out and reported, and make the exit code
        1. After a broken connection what was not acknowledged is sent again, to the next nsqd if there are
        several: it may arrive twice, and is not lost. On SIGINT what was sent is waited for.""",
    examples=(
        ("nsqc pub orders orders.txt", "a message of each line"),
        ("journalctl -f -o json | nsqc pub journal --nsqd 10.0.0.1:4150 --nsqd 10.0.0.2:4150",
         "lines as they come, to the second nsqd while the first does not answer"),
        ("find . -name '*.json' -print0 | nsqc pub names --delimiter '\\0'",
         "names that may have newlines in them"),
        ("nsqc pub images --whole --defer 10m *.png", "whole files, delivered in ten minutes"),
        ("nsqc pub orders --rate 500 < orders.txt", "no more than 500 a second")))
