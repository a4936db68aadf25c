"""to_nsq"""

from __future__ import annotations

from nsqc.options.option import Kind, Option
from nsqc.tools.declare import Values
from nsqc.tools.original import program
from nsqc.tools.original.program import NSQD, Fatal, Program, as_go, check_names, cluster_of, log_line
from nsqc.tools.pub.publishing import Plan, publish


def run(flags: Values) -> int:
    """The exit code."""
    if not flags.text("topic"):
        raise Fatal("--topic required")
    delimiter = flags.text("delimiter").encode(errors="surrogateescape")
    if len(delimiter) != 1:
        raise Fatal("--delimiter must be a single byte")
    addresses = tuple(dict.fromkeys(flags.texts("nsqd-tcp-address")))
    if not addresses:
        raise Fatal("--nsqd-tcp-address required")
    check_names((flags.text("topic"),), "any")
    rate = max(flags.number("rate"), 0)
    if rate:
        log_line(f"Throttling messages rate to max:{rate}/second")
    cluster = cluster_of("to_nsq", addresses, (), program.read(flags.texts("producer-opt")))
    code = publish(cluster, Plan(
        place="to_nsq", topic=flags.text("topic"), files=(), delimiter=delimiter[0], whole=False, delay_ms=0,
        rate=float(rate), to_all=True, max_message=64 << 20, retries=0, say=say), shows=False, as_json=False)
    return 0 if code > 128 else min(code, 1)


def say(text: str) -> None:
    """A line about a failure."""
    log_line(as_go(text))


PROGRAM = Program("to_nsq", (
    Option("topic", "topic to publish to"),
    NSQD._replace(help="TCP address of an nsqd to send every message to (may be repeated)"),
    Option("delimiter", "the byte that ends a message", default="\n"),
    Option("rate", "messages per second; 0: no limit", Kind.INT, 0),
    program.flag("producer-opt")), run, has_version=False)
