"""The command line of `nsqc relay`."""

from __future__ import annotations

from functools import partial

from nsqc.options.option import Kind, Option
from nsqc.tools import running
from nsqc.tools.acting import count
from nsqc.tools.declare import CHANNEL_OPTION, TCP_NODES, TOPICS, Tool, UsageError, Values, in_flight, other_side

PLACE = "nsqc relay"
say = partial(running.print_error, PLACE)
REFUSED_DELAY = 90.0    # seconds until a message that a target refused is retried
TARGETS, FILTER, TO_SECURITY = "Targets", "Filter", "TLS, authentication, compression of the targets"


def run(values: Values) -> int:
    """`nsqc relay`."""
    topics = tuple(dict.fromkeys(values.texts("TOPIC")))
    if not values.texts("to"):
        raise UsageError("--to is required", PLACE)
    if values.given("require-json-value") and not values.given("require-json-field"):
        raise UsageError("--require-json-value needs --require-json-field", PLACE)
    from nsqc.client.address import checked_addresses
    from nsqc.client.commands import topic_name
    from nsqc.client.options import Options
    from nsqc.tools.cluster import Cluster
    from nsqc.tools.declare import Security
    from nsqc.tools.feed import Feed, check_topics
    from nsqc.tools.relay.engine import Engine, Filter, Plan
    from nsqc.tools.running import Stop

    cluster = Cluster(values, PLACE)
    addresses = checked_addresses(values.texts("to"))
    if values.text("to-topic"):
        topic_name(values.text("to-topic"))
    same = set(addresses) & set(cluster.nsqd)
    if same and (not values.text("to-topic") or values.text("to-topic") in topics):
        raise UsageError(f"{min(same)} would receive its own messages: give another --to-topic", PLACE)
    options = Options("relay", (), cluster.timeout, cluster.connection_options())
    theirs = Security(values, PLACE, "to-")
    target_options = options
    if theirs.is_given() or values.flag("to-plain"):
        if theirs.is_given() and values.flag("to-plain"):
            raise UsageError("--to-plain excludes other options for the targets' security", PLACE)
        target_options = Options("relay", (), cluster.timeout, theirs.connection_options())
    if not values.flag("wait"):
        check_topics(cluster, topics)
    rules = Filter(values.text("require-json-field"), values.text("require-json-value"),
                   frozenset(values.texts("whitelist-json-field")))
    with Stop() as stop, Feed(cluster, topics, values.text("channel"), values.number("max-in-flight"), options, stop,
                              say, values.number("connections")) as feed:
        feed.start()
        plan = Plan(addresses, values.text("to-topic"), rules, values.text("mode") == "least-busy", REFUSED_DELAY)
        engine = Engine(feed, stop, plan, target_options, say)
        engine.run()
        if engine.dropped:
            say(f"{count(engine.relayed, 'message')} relayed, {engine.dropped:,} filtered out")
        return stop.code(terminated=0)


TOOL = Tool(
    ("relay",), "Publish the messages of topics to other nsqd.", run,
    options=(
        CHANNEL_OPTION._replace(default="nsq_to_nsq"),
        in_flight(5000),
        Option("connections", "connections to each nsqd, for speed", Kind.INT, 1, least=1, most=64),
        Option("wait", "also accept topics that do not exist yet, which nsqd then creates", Kind.BOOL, False),
        Option("to", "nsqd to publish to", Kind.ADDRESS, None, TARGETS, many=True),
        Option("to-topic", "topic to publish to; default: the message's own topic", default="",
               group=TARGETS, metavar="TOPIC"),
        Option("mode", "nsqd for the next batch: round-robin, or the one with the fewest outstanding answers",
               default="round-robin", group=TARGETS, choices=("round-robin", "least-busy")),
        Option("require-json-field", "only messages that are JSON objects with this field", default="", group=FILTER,
               metavar="FIELD"),
        Option("require-json-value", "and with this value in the field, a string or a number", default="",
               group=FILTER, metavar="VALUE"),
        Option("whitelist-json-field", "only this field of each object", default=None, group=FILTER, many=True,
               metavar="FIELD"),
        *TCP_NODES,
        *other_side("to-", TO_SECURITY),
        Option("to-plain", "none of these for the targets", Kind.BOOL, False, TO_SECURITY)),
    arguments=(TOPICS,),
    text="""A message is finished once a target has acknowledged it: at least once, in no particular order. A failing
         target is retried after a pause that grows to 15 s, and the others get its messages. If no target is up, the
         tool takes no messages, and requeues those it holds. A message refused by a target, for example because it is
         too large, is retried every 90 s and never dropped. Messages that do not match the filter are finished.

         TLS, authentication and compression are the same for both sides, unless the targets have their own options
         (--to-tls and so on, or --to-plain).""",
    examples=(
        ("nsqc relay orders --to backup:4150", "from the local daemon to another one"),
        ("nsqc relay orders --nsqlookupd lookup:4161 --to east1:4150 --to east2:4150 --to-topic orders.west",
         "from one cluster to another, under another topic name"),
        ("nsqc relay orders --to backup:4150 --to-tls --to-auth-secret @backup.secret",
         "the target requires TLS and a secret, the local daemon neither"),
        ("nsqc relay events --nsqd 127.0.0.1:4150 --to 127.0.0.1:4150 --to-topic errors "
         "--require-json-field level --require-json-value error",
         "some of the messages, on the same nsqd")))
