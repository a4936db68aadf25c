"""nsq_to_nsq"""

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
    Status,
    check_sources,
    cluster_of,
    log_line,
    warn_line,
)
from nsqc.tools.relay.engine import Engine, Filter, Plan
from nsqc.tools.running import Stop
from nsqc.wire.parser import is_valid_name


def run(flags: Values) -> int:
    """The exit code."""
    topics = tuple(dict.fromkeys(flags.texts("topic")))
    channel, target = flags.text("channel"), flags.text("destination-topic")
    if not topics or not channel:
        raise Fatal("--topic and --channel are required")
    for name, values in (("topic", topics), ("destination-topic", (target or "any",)), ("channel", (channel,))):
        if not all(is_valid_name(value.encode(errors="replace")) for value in values):
            raise Fatal(f"--{name} is invalid")
    check_sources(flags)
    addresses = tuple(dict.fromkeys(flags.texts("destination-nsqd-tcp-address")))
    if not addresses:
        raise Fatal("--destination-nsqd-tcp-address required")
    most = flags.number("max-in-flight")
    if most < 0:
        raise Fatal(f"invalid MaxInFlight ! {most} < 0")
    given = program.read(flags.texts("consumer-opt"), *program.LOOKUP, "default_requeue_delay")
    cluster = cluster_of("nsq_to_nsq", flags.texts("nsqd-tcp-address"), flags.texts("lookupd-http-address"), given)
    producers = cluster_of("nsq_to_nsq", addresses, (), program.read(flags.texts("producer-opt")))
    options = Options("nsq_to_nsq", (), cluster.timeout, cluster.connection_options())
    target_options = Options("nsq_to_nsq", (), producers.timeout, producers.connection_options())
    status = Status(flags.number("status-every"), addresses, log_line)
    rules = Filter(flags.text("require-json-field"),
                   flags.text("require-json-value") if flags.text("require-json-field") else "",
                   frozenset(flags.texts("whitelist-json-field")))
    plan = Plan(addresses, target, rules, flags.text("mode") == "epsilon-greedy", given.requeue_delay, status.add)
    with Stop() as stop, Feed(cluster, topics, channel, max(most, 1), options, stop, warn_line,
                              insists=False) as feed:
        feed.start()
        Engine(feed, stop, plan, target_options, warn_line).run()
        return 0


PROGRAM = Program("nsq_to_nsq", (
    Option("topic", "topic to relay (may be repeated)", many=True),
    Option("channel", "channel to consume", default="nsq_to_nsq"),
    Option("destination-topic", "topic to publish to; default: the same"),
    Option("destination-nsqd-tcp-address", "TCP address of an nsqd to publish to (may be repeated)", many=True),
    Option("mode", "how to choose an nsqd: hostpool, round-robin or epsilon-greedy", default="hostpool"),
    Option("require-json-field", "relay only JSON objects with this field"),
    Option("require-json-value", "and this value in it"),
    Option("whitelist-json-field", "relay only this field of each object (may be repeated)", many=True),
    MAX_IN_FLIGHT,
    Option("status-every", "messages per status line; 0: none", Kind.INT, 250),
    NSQD, LOOKUPD, program.flag("consumer-opt"),
    program.flag("producer-opt")), run)
