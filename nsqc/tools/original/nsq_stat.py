"""nsq_stat"""

from __future__ import annotations

import signal
import time

from nsqc.options.option import Kind, Option, S
from nsqc.tools import running
from nsqc.tools.cluster import NodeHttp
from nsqc.tools.declare import ToolError, Values
from nsqc.tools.original.program import Fatal, Program
from nsqc.tools.running import stop
from nsqc.tools.stat import ROWS_A_TITLE, Sums, channel_of, row, titles
from nsqc.wire.outside import Service


def whole_rows(text: str) -> None:
    """Raises ValueError with Go's words."""
    try:
        fits = -2**31 <= int(text) < 2**31
    except ValueError:
        raise ValueError(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    if not fits:
        raise ValueError(f'strconv.ParseInt: parsing "{text}": value out of range')


def run(flags: Values) -> int:
    """The exit code."""
    topic, channel = flags.text("topic"), flags.text("channel")
    nsqd, lookupd = flags.texts("nsqd-http-address"), flags.texts("lookupd-http-address")
    check(flags)
    timeout = max(flags.seconds("http-client-request-timeout"), flags.seconds("http-client-connect-timeout"))
    interval = flags.seconds("interval")
    count = int(flags.text("count")) if flags.given("count") else 0
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, stop)
    before = sums(nsqd, lookupd, topic, channel, timeout)
    number = 0
    while True:
        if number % ROWS_A_TITLE == 0:
            running.write(titles())
        time.sleep(interval)
        if count and number >= count:
            return 0
        now = sums(nsqd, lookupd, topic, channel, timeout)
        running.line(row(now, before, interval))
        before, number = now, number + 1


def check(flags: Values) -> None:
    """Raises Fatal."""
    if not flags.text("topic") or not flags.text("channel"):
        raise Fatal("--topic and --channel are required")
    for name in ("interval", "http-client-connect-timeout", "http-client-request-timeout"):
        if flags.number(name) <= 0:
            raise Fatal(f"--{name} should be positive")
    if flags.given("count") and int(flags.text("count")) <= 0:
        raise Fatal("--count should be positive")
    kinds = ("nsqd-http-address", "lookupd-http-address")
    if not any(flags.texts(kind) for kind in kinds):
        raise Fatal("--nsqd-http-address or --lookupd-http-address required")
    if all(flags.texts(kind) for kind in kinds):
        raise Fatal("use --nsqd-http-address or --lookupd-http-address not both")
    for kind in kinds:
        if any(address.startswith("http") for address in flags.texts(kind)):
            raise Fatal(f"--{kind} error - address should not contain scheme")


def sums(nsqd: tuple[str, ...], lookupd: tuple[str, ...], topic: str, channel: str, timeout: float) -> Sums:
    """Over all nodes, each of which has to answer. Raises Fatal."""
    addresses = nsqd or tuple(found_by(lookupd, topic, timeout))
    total, found = Sums(), False
    for address in addresses:
        try:
            one = channel_of(NodeHttp(address, timeout), topic, channel)
        except ToolError as error:
            raise Fatal(f"ERROR: failed to get nsqd stats - {error}") from None
        if one is not None:
            total, found = total.plus(one), True
    if not found:
        raise Fatal(f"ERROR: failed to find channel({channel}) in stats metadata for topic({topic})")
    return total


def found_by(lookupd: tuple[str, ...], topic: str, timeout: float) -> list[str]:
    """HTTP addresses of the nodes that have a topic. Raises Fatal."""
    found: dict[str, None] = {}
    for address in lookupd:
        try:
            answer = NodeHttp(address, timeout, wants=Service.LOOKUPD_HTTP).get("/lookup", {"topic": topic})
            for producer in answer["producers"]:
                found[f"{producer['broadcast_address']}:{producer['http_port']}"] = None
        except (ToolError, KeyError, TypeError) as error:
            raise Fatal(f"ERROR: failed to get topic producers - {error}") from None
    return list(found)


PROGRAM = Program("nsq_stat", (
    Option("topic", "the topic"),
    Option("channel", "the channel"),
    Option("nsqd-http-address", "HTTP address of an nsqd (may be repeated)", many=True),
    Option("lookupd-http-address", "HTTP address of an nsqlookupd (may be repeated)", many=True),
    Option("interval", "time between rows", Kind.DURATION, 2 * S),
    Option("count", "rows to print", default="", check=whole_rows),
    Option("http-client-connect-timeout", "timeout for connecting", Kind.DURATION, 2 * S),
    Option("http-client-request-timeout", "timeout for a whole request", Kind.DURATION, 5 * S)), run)
