"""nsq_tail"""

from __future__ import annotations

from nsqc.client.options import Options
from nsqc.options.option import Kind, Option
from nsqc.tools.declare import Values
from nsqc.tools.feed import Feed
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
    log_line,
    warn_line,
)
from nsqc.tools.running import PipeClosed, Stdout, Stop, is_terminal
from nsqc.tools.tail import Tail, as_lines, ephemeral_channel


def run(flags: Values) -> int:
    """The exit code."""
    topics = tuple(dict.fromkeys(flags.texts("topic")))
    check_sources(flags)
    if not topics:
        raise Fatal("--topic required")
    channel = flags.text("channel") or ephemeral_channel()
    count = max(flags.number("n"), 0)
    most = flags.number("max-in-flight")
    for topic in topics:
        log_line(f"Adding consumer for topic: {topic}")
        check_names((topic,), channel)
    if most < 0:
        raise Fatal(f"invalid MaxInFlight ! {most} < 0")
    given = program.read(flags.texts("consumer-opt"), *program.LOOKUP)
    cluster = cluster_of("nsq_tail", flags.texts("nsqd-tcp-address"), flags.texts("lookupd-http-address"), given)
    options = Options("nsq_tail", (), cluster.timeout, cluster.connection_options())
    with Stop() as stop, Feed(cluster, topics, channel, min(max(most, 1), count or max(most, 1)), options, stop,
                              warn_line, insists=False) as feed:
        feed.start()
        try:
            Tail(feed, Stdout(), stop, as_lines(flags.flag("print-topic"), is_terminal()), count).run()
        except PipeClosed:
            raise
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise Fatal(f"ERROR: failed to write to os.Stdout - write /dev/stdout: {reason}") from None
        return 0


PROGRAM = Program("nsq_tail", (
    Option("topic", "topic to print (may be repeated)", many=True),
    Option("channel", "channel to consume; default: an ephemeral one"),
    NSQD, LOOKUPD, MAX_IN_FLIGHT,
    Option("n", "exit after this many messages; 0: never", Kind.INT, 0),
    Option("print-topic", "print the topic before each message", Kind.BOOL, False),
    program.flag("consumer-opt")), run)
