"""`nsqc topic`: lists, creates and changes topics, on one node or several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqc.options.option import Kind, Option
from nsqc.options.rule_tables import LIMIT_FLAGS, TOPIC_FLAGS
from nsqc.tools import acting as rule
from nsqc.tools import running
from nsqc.tools.acting import Acting, Subject, count, nodes_for, plain
from nsqc.tools.declare import EXIT_FAILED, FROM, HTTP_NODES, JSON, TOPIC, YES, Group, Tool, UsageError, Values
from nsqc.wire.outside import Json

if TYPE_CHECKING:
    from nsqc.tools.cluster import Node, NodeHttp
    from nsqc.tools.logtail import Form, LogReader
    from nsqc.wire.stats import TopicStats


# ====================================================================== log
# `nsqc topic log` and `nsqc topic read`: the state of a topic's log, and its messages by offset or time.

LOG_WORDS, READ_WORDS, DELETE_WORDS = "nsqc topic log", "nsqc topic read", "nsqc topic delete-log"
UNTIL = Option("until", "stop before this place: end (the current one), an offset, a time in RFC 3339, or an age",
               Kind.PLACE, "end")


# ---------------------------------------------------------------------- topic log

def show(values: Values) -> int:
    """`nsqc topic log`."""
    acting, topic = Acting(values, LOG_WORDS), values.text("TOPIC")
    nodes = acting.holders(topic)

    def look(api: NodeHttp, _: Node) -> dict[str, Json]:
        from nsqc.tools.logtail import LogReader

        return LogReader(api, topic).state(values.flag("segments"))

    found = acting.cluster.each(nodes, look, acting.warn)
    if values.flag("json"):
        for node, state in found.items():
            running.as_json({"node": node.http, **state})
        return acting.code
    rows = [["NODE", "FIRST", "NEXT", "BYTES", "LOCAL", "SEGMENTS", "DAMAGED", "MISSING", "SYNC", "FIRST MESSAGE",
             "LAST MESSAGE"]]
    rows += [[node.http, *(str(state[key]) for key in ("first_offset", "next_offset", "bytes", "local_bytes",
                                                       "segments", "damaged", "missing", "sync")),
              *(running.moment(state.get(key)) for key in ("first_time", "last_time"))]
             for node, state in found.items()]
    running.write(running.table(rows, frozenset(range(1, 8))))
    for title, table in (("CHANNEL", channel_rows(found)), ("SEGMENT", segment_rows(found))):
        if len(table) > 1:
            assert table[0][0] == title
            running.write("\n" + running.table(table, frozenset(range(2, len(table[0])))))
    return acting.code


def channel_rows(found: dict[Node, dict[str, Json]]) -> list[list[str]]:
    """Progress of channels, by node."""
    from nsqc.tools.top.screen import age

    rows = [["CHANNEL", "NODE", "POSITION", "OLDEST UNFINISHED", "LAG", "WAITS", "IN FLIGHT", "DEFERRED"]]
    for node, state in found.items():
        for channel in state["channels"]:
            seconds = channel.get("lag_seconds")
            rows.append([channel["channel_name"], node.http,
                         *(str(channel[key]) for key in ("position", "oldest_unfinished", "lag_messages")),
                         age(seconds) if isinstance(seconds, int | float) and channel["lag_messages"] else "",
                         str(channel["in_flight"]), str(channel["deferred"])])
    return rows


def segment_rows(found: dict[Node, dict[str, Json]]) -> list[list[str]]:
    """Segments, if requested."""
    rows = [["SEGMENT", "NODE", "FIRST", "NEXT", "BYTES"]]
    for node, state in found.items():
        listed = state.get("segment_list")
        for number, segment in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(segment, list) and len(segment) == 4:
                rows.append([str(number), node.http, *map(str, segment[:3])])
    return rows


# ---------------------------------------------------------------------- topic delete-log

def delete_log(values: Values) -> int:
    """`nsqc topic delete-log`."""
    acting, topic = Acting(values, DELETE_WORDS), values.text("TOPIC")
    nodes = acting.holders(topic)
    acting.confirm(f"Delete the log of topic {topic} on {count(len(nodes), 'node')}: its history will be lost")
    return acting.call(nodes, lambda api, _: api.json("DELETE", "/topic/log", {"topic": topic}),
                       f"log of topic {topic} deleted")


# ---------------------------------------------------------------------- topic read

def read(values: Values) -> int:
    """`nsqc topic read`."""
    from nsqc.options.places import BEGINNING, Place, parse_place
    from nsqc.tools.logtail import LogReader, as_json, as_lines

    acting, topic = Acting(values, READ_WORDS), values.text("TOPIC")
    begin = parse_place(values.text("from")) if values.given("from") else Place(BEGINNING)
    end = parse_place(values.text("until"))
    nodes = acting.holders(topic)
    if max(begin.offset, end.offset) >= 0 and len(nodes) > 1:
        raise UsageError(f"an offset belongs to one node, but {len(nodes)} have the topic: choose one by --nsqd",
                         READ_WORDS)
    if 0 <= end.offset < begin.offset:
        raise UsageError(f"--until {end.offset} is before --from {begin.offset}", READ_WORDS)
    form = as_json("node", lambda node: node.http) if values.flag("json") else as_lines(False, running.is_terminal())
    left, damaged = values.number("count") or 2**62, 0

    def copy(api: NodeHttp, node: Node) -> None:
        nonlocal left, damaged
        reader = LogReader(api, topic)
        reader.begin(begin)
        stop = reader.locate(end)
        before = left
        left, lost = copied(reader, node, stop, left, form)
        damaged += lost
        if lost:
            acting.warn(f"{reader.place}: {lost} damaged messages skipped, after {before - left} intact ones")

    acting.cluster.each(nodes, copy, acting.warn)
    return EXIT_FAILED if damaged else acting.code


def copied(reader: LogReader, node: Node, stop: int, most: int, form: Form) -> tuple[int, int]:
    """Prints a node's messages up to an offset, up to a count; returns how many may still follow, and the number of
    damaged ones. Raises PipeClosed, OSError, ToolError."""
    damaged = 0
    while most > 0 and reader.offset < stop:
        offset = reader.offset
        piece = reader.read(min(most, stop - offset))
        if piece.first >= stop:
            break
        damaged += piece.damaged
        if piece.next == piece.first:
            if reader.offset == offset:
                break       # deleted and created again meanwhile, and empty
            continue
        text, count = form(reader.topic, node, piece, min(most, stop - piece.first))
        running.write_bytes(text)
        most -= count
    return most, damaged


LOG = Tool(
    ("topic", "log"), "Show the log of a topic, and its channels' progress.", show,
    options=(Option("segments", "list the segments, too", Kind.BOOL, False), JSON, *HTTP_NODES), arguments=(TOPIC,),
    text="""Offsets are per node: FIRST is the first message in the log, NEXT the next one to be published. The nodes
         have to be nsqc's, and the topic has to be log-backed.""",
    examples=(("nsqc topic log orders", "of the local daemon"),
              ("nsqc topic log orders --json | jq .next_offset", "for a script")))
DELETE = Tool(
    ("topic", "delete-log"), "Delete the log of a topic now stored in memory.", delete_log,
    options=(YES, JSON, *HTTP_NODES), arguments=(TOPIC,),
    text="""A topic whose storage has changed to memory keeps its log and history. All channels must have finished the
         log. Asks for confirmation, unless --yes is given.""",
    examples=(("nsqc topic delete-log orders", "after a confirmation"),))
READ = Tool(
    ("topic", "read"), "Print messages of a log-backed topic, by offset or time, without consuming them.", read,
    options=(
        FROM._replace(help=f"{FROM.help}; default: the beginning"), UNTIL,
        Option("count", "maximum number of messages; 0: all", Kind.INT, 0, least=0, short="n"),
        JSON._replace(help="an object per message, with node, offset, id and time"), *HTTP_NODES),
    arguments=(TOPIC,),
    text="""Bodies are written verbatim, one per line; on a terminal, control characters are shown as escapes. Channels
         are unaffected. Several nodes are read one after another. `nsqc tail --from` also follows new messages.""",
    examples=(
        ("nsqc topic read orders --from 1000 --until 2000 --json", "a range of offsets, with all fields"),
        ("nsqc topic read orders --from 2026-11-22T08:00:00Z --until 2026-11-22T09:00:00Z > orders.txt", "an hour"),
        ("nsqc topic read orders --from -1h -n 10", "the first ten of the last hour")))


# ====================================================================== topic

RULES = (
    Option("storage", "where messages are stored", Kind.TEXT, "", rule.GROUP, choices=("memory", "log")),
    Option("sync", "what acknowledged messages in a log survive: write: kill -9; fsync: power loss; bucket: loss of "
           "the machine", Kind.TEXT,
           "", rule.GROUP, choices=("write", "fsync", "bucket")),
    Option("retain-time", "how long a log keeps messages that all channels have finished; 0: no limit", Kind.TEXT, "",
           rule.GROUP, metavar="DURATION"),
    Option("retain-bytes", "how large a log may become; 0: no limit", Kind.SIZE, None, rule.GROUP, least=0),
    Option("retain-local-bytes", "with a bucket, how much of a log the node's disk keeps; 0: no limit", Kind.SIZE, None,
           rule.GROUP, least=0),
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
                running.as_json({"node": node.http, **summary(topic)})
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
    running.write(running.table(rows, frozenset(range(1, 7))) if sums else "no topics\n")
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
    LOG, READ, DELETE))
