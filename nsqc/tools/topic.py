"""`nsqc topic`: lists, creates and changes topics, on one node or several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqc.options.limit_keys import LIMIT_FLAGS
from nsqc.options.option import Kind, Option
from nsqc.options.topic_keys import TOPIC_FLAGS
from nsqc.tools import output, topiclog
from nsqc.tools import rules as rule
from nsqc.tools.acting import Acting, Subject, count, nodes_for, plain
from nsqc.tools.declare import Group, Tool, Values
from nsqc.tools.family import HTTP_NODES, JSON, TOPIC, YES

if TYPE_CHECKING:
    from nsqc.tools.cluster import Node
    from nsqc.tools.nodehttp import NodeHttp
    from nsqc.wire.stats import TopicStats

RULES = (
    Option("storage", "where messages are stored", Kind.TEXT, "", rule.GROUP, choices=("memory", "log")),
    Option("sync", "durability of acknowledged messages in a log: write: kill -9; fsync: power loss", Kind.TEXT,
           "", rule.GROUP, choices=("write", "fsync")),
    Option("retain-time", "how long a log keeps messages that all channels have finished; 0: no limit", Kind.TEXT, "",
           rule.GROUP, metavar="DURATION"),
    Option("retain-bytes", "how large a log may become; 0: no limit", Kind.SIZE, None, rule.GROUP, least=0),
    *(rule.option_of(key, declared) for key, declared in LIMIT_FLAGS.items()),
    *(rule.option_of(key, declared) for key, declared in TOPIC_FLAGS.items()),
)


def list_topics(values: Values) -> int:
    """`nsqc topic list`."""
    acting = Acting(values, "nsqc topic list")
    found = acting.topics()
    if values.flag("json"):
        for node, topics in found.items():
            for topic in topics:
                output.as_json({"node": node.http, **summary(topic)})
        return acting.code
    sums: dict[str, list[int]] = {}
    paused: dict[str, int] = {}
    for topics in found.values():
        for topic in topics:
            name, channels = topic.topic_name, topic.channels or ()
            row = sums.setdefault(name, [0] * 6)
            for at, number in enumerate((1, len(channels), topic.depth, sum(channel.depth for channel in channels),
                                         sum(channel.in_flight_count for channel in channels), topic.message_count)):
                row[at] = max(row[at], number) if at == 1 else row[at] + number
            paused[name] = paused.get(name, 0) + topic.paused
    rows = [["TOPIC", "NODES", "CHANNELS", "DEPTH", "IN CHANNELS", "IN FLIGHT", "MESSAGES", ""]]
    rows += [[name, *map(str, numbers), state(paused[name], numbers[0])] for name, numbers in sorted(sums.items())]
    output.write(output.table(rows, frozenset(range(1, 7))) if sums else "no topics\n")
    return acting.code


def state(paused: int, nodes: int) -> str:
    """Formats the paused state."""
    return "" if not paused else "paused" if paused == nodes else f"paused on {paused}"


def summary(topic: TopicStats) -> dict[str, object]:
    """A topic for --json."""
    return {"topic": topic.topic_name, "depth": topic.depth, "backend_depth": topic.backend_depth,
            "message_count": topic.message_count, "paused": topic.paused,
            "channels": [channel.channel_name for channel in topic.channels or ()]}


def create(values: Values) -> int:
    """`nsqc topic create`."""
    acting = Acting(values, "nsqc topic create")
    name = values.text("TOPIC")

    def make(api: NodeHttp, _: Node) -> object:
        api.check()     # nsqlookupd has this call, too
        return api.post("/topic/create", {"topic": name})

    return acting.call(nodes_for(acting.cluster), make, f"topic {name} exists")


def empty(values: Values) -> int:
    """`nsqc topic empty`."""
    subject = Subject(values, "topic", "empty")
    waiting = sum(topic.depth for topic in subject.topics.values())
    subject.confirm(f"Drop {count(waiting, 'message')} waiting in {subject.name} itself")
    return subject.post("emptied")


def delete(values: Values) -> int:
    """`nsqc topic delete`."""
    subject = Subject(values, "topic", "delete")
    channels = [channel for topic in subject.topics.values() for channel in topic.channels or ()]
    waiting = sum(topic.depth for topic in subject.topics.values()) + sum(channel.depth for channel in channels)
    names = {channel.channel_name for channel in channels}
    subject.confirm(f"Delete {subject.name} with {count(len(names), 'channel')} and {count(waiting, 'message')}")
    return subject.post("deleted")


def rules(values: Values) -> int:
    """`nsqc topic rules`."""
    return rule.run(values, "/topic/rules", {"topic": values.text("TOPIC")}, RULES)


TOOL = Group(("topic",), "List, create, read, pause, empty and delete topics, and change their storage.", (
    Tool(("topic", "list"), "List topics with their contents.", list_topics, options=(JSON, *HTTP_NODES),
         text="""Depth counts messages waiting in the topic itself; in channels and in flight are sums over its
              channels. Several nodes are summed up; with --json each is an entry.""",
         examples=(("nsqc topic list", "of the local daemon"),
                   ("nsqc topic list --nsqlookupd lookup:4161 --json | jq .topic", "of all nodes, for a script"))),
    Tool(("topic", "create"), "Create a topic.", create, options=(JSON, *HTTP_NODES), arguments=(TOPIC,),
         text="With --nsqlookupd it is created on all nodes.",
         examples=(("nsqc topic create orders", "on the local daemon"),)),
    Tool(("topic", "pause"), "Hold messages in a topic: its channels get no more.", plain("topic", "pause", "paused"),
         options=(JSON, *HTTP_NODES), arguments=(TOPIC,),
         examples=(("nsqc topic pause orders --nsqlookupd lookup:4161", "on all nodes that have it"),)),
    Tool(("topic", "unpause"), "Resume passing messages to channels.", plain("topic", "unpause", "unpaused"),
         options=(JSON, *HTTP_NODES), arguments=(TOPIC,),
         examples=(("nsqc topic unpause orders", "on the local daemon"),)),
    Tool(("topic", "empty"), "Drop the messages waiting in a topic itself, not in its channels.", empty,
         options=(YES, JSON, *HTTP_NODES), arguments=(TOPIC,), text="Asks for confirmation, unless --yes is given.",
         examples=(("nsqc topic empty orders", "asks first"), ("nsqc topic empty orders --yes", "in a script"))),
    Tool(("topic", "delete"), "Delete a topic with its channels and messages.", delete,
         options=(YES, JSON, *HTTP_NODES), arguments=(TOPIC,), text="Asks for confirmation, unless --yes is given.",
         examples=(("nsqc topic delete orders --nsqd 10.0.0.1:4150 --nsqd 10.0.0.2:4150", "on two nodes"),)),
    Tool(("topic", "rules"), "Show and change a topic's storage: in memory, or in a log.", rules,
         options=(*RULES, rule.RESET, JSON, *HTTP_NODES), arguments=(TOPIC,),
         text="""Without options that change it, shows the rule. The topic need not exist. nsqd has no rules.""",
         examples=(("nsqc topic rules orders", "show"),
                   ("nsqc topic rules orders --storage log --sync fsync --retain-time 72h", "store it in a log"),
                   ("nsqc topic rules orders --reset", "back to the config file's rule"))),
    topiclog.LOG, topiclog.READ, topiclog.DELETE))
