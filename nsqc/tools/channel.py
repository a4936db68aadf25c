"""`nsqc channel`: lists, creates and changes channels, on one node or several."""

from __future__ import annotations

from nsqc.options.option import Kind
from nsqc.options.rule_tables import CHANNEL_FLAGS
from nsqc.tools import acting as rule
from nsqc.tools import running
from nsqc.tools.acting import Acting, Subject, count, plain
from nsqc.tools.declare import CHANNEL, FROM, HTTP_NODES, JSON, TOPIC, YES, Argument, Group, Tool, UsageError, Values
from nsqc.tools.topic import state

NAMES = (TOPIC, CHANNEL)
PLACE = Argument("PLACE", "beginning, end, an offset, a time in RFC 3339, or an age such as 1h, -1h or 7d",
                 Kind.PLACE, option="to")
ID = Argument("ID", "of the message, 16 hexadecimal digits: nsqc peek shows it")
COLUMNS = ("depth", "in_flight_count", "deferred_count", "requeue_count", "timeout_count", "client_count")


RULES = tuple(rule.option_of(key, declared) for key, declared in CHANNEL_FLAGS.items())


def list_channels(values: Values) -> int:
    """`nsqc channel list`."""
    acting = Acting(values, "nsqc channel list")
    found = [(node, channel) for node, topics in acting.topics(values.text("TOPIC")).items() for topic in topics
             for channel in topic.channels or ()]
    if values.flag("json"):
        for node, channel in found:
            running.as_json({"node": node.http, "channel": channel.channel_name, "paused": channel.paused,
                            "message_count": channel.message_count, **{key: getattr(channel, key) for key in COLUMNS}})
        return acting.code
    sums: dict[str, list[int]] = {}
    for _, channel in found:
        row = sums.setdefault(channel.channel_name, [0] * (len(COLUMNS) + 2))
        numbers = (1, *(getattr(channel, key) for key in COLUMNS), channel.paused)
        sums[channel.channel_name] = [before + number for before, number in zip(row, numbers, strict=True)]
    rows = [["CHANNEL", "NODES", "DEPTH", "IN FLIGHT", "DEFERRED", "REQUEUES", "TIMEOUTS", "CLIENTS", ""]]
    rows += [[name, *map(str, numbers[:-1]), state(numbers[-1], numbers[0])] for name, numbers in sorted(sums.items())]
    running.write(running.table(rows, frozenset(range(1, 8))) if sums else "no channels\n")
    return acting.code


def create(values: Values) -> int:
    """`nsqc channel create`."""
    acting = Acting(values, "nsqc channel create")
    topic, channel = values.text("TOPIC"), values.text("CHANNEL")
    nodes = acting.holders(topic)
    arguments = {"topic": topic, "channel": channel}
    if values.text("from"):
        one_node(values.text("from"), len(nodes), "nsqc channel create")
        arguments["from"] = values.text("from")
    return acting.post(nodes, "/channel/create", arguments, f"channel {channel} of topic {topic} exists")


def empty(values: Values) -> int:
    """`nsqc channel empty`."""
    subject = Subject(values, "channel", "empty")
    subject.confirm(f"Empty {subject.name} with {held(subject)}")
    return subject.post("emptied")


def delete(values: Values) -> int:
    """`nsqc channel delete`."""
    subject = Subject(values, "channel", "delete")
    clients = sum(channel.client_count for channel in subject.channels.values())
    with_clients = f" and {count(clients, 'client')}" if clients else ""
    subject.confirm(f"Delete {subject.name} with {held(subject)}{with_clients}")
    return subject.post("deleted")


def held(subject: Subject) -> str:
    """A channel's message count, for a question."""
    return count(sum(channel.held for channel in subject.channels.values()), "message")


def seek(values: Values) -> int:
    """`nsqc channel seek`."""
    subject, place = Subject(values, "channel", "seek"), values.text("PLACE")
    one_node(place, len(subject.nodes), subject.tool)
    return subject.post(f"moved to {place}", to=place)


def cancel(values: Values) -> int:
    """`nsqc channel cancel`."""
    acting = Acting(values, "nsqc channel cancel")
    topic, channel, message = values.text("TOPIC"), values.text("CHANNEL"), values.text("ID")
    holders = acting.channels(topic, channel)
    if len(holders) > 1:
        raise UsageError(f"a message is on one node, and {len(holders)} have the channel: choose one by --nsqd",
                         "nsqc channel cancel")
    return acting.post(holders, "/message/cancel", {"topic": topic, "channel": channel, "id": message},
                       f"message {message} of channel {channel} of topic {topic} cancelled")


def rules(values: Values) -> int:
    """`nsqc channel rules`."""
    return rule.run(values, "/channel/rules", {"topic": values.text("TOPIC"), "channel": values.text("CHANNEL")}, RULES)


def one_node(place: str, nodes: int, tool: str) -> None:
    """Checks that an offset is used on one node only. Raises UsageError."""
    if place.isdigit() and nodes > 1:
        raise UsageError(f"an offset belongs to one node, and {nodes} have the topic: choose one by --nsqd", tool)


TOOL = Group(("channel",), "List, create, pause, empty, delete and move channels, and change their delivery.", (
    Tool(("channel", "list"), "List the channels of a topic with their contents.", list_channels,
         options=(JSON, *HTTP_NODES), arguments=(TOPIC,),
         text="Several nodes are summed up; with --json each is an entry.",
         examples=(("nsqc channel list orders", "of the local daemon"),)),
    Tool(("channel", "create"), "Create a channel of an existing topic.", create, options=(FROM, JSON, *HTTP_NODES),
         arguments=NAMES, examples=(
             ("nsqc channel create orders billing", "starting with the next message published"),
             ("nsqc channel create orders audit --from beginning", "with all messages in the topic's log"))),
    Tool(("channel", "pause"), "Stop deliveries from a channel.", plain("channel", "pause", "paused"),
         options=(JSON, *HTTP_NODES), arguments=NAMES,
         examples=(("nsqc channel pause orders billing", "on the local daemon"),)),
    Tool(("channel", "unpause"), "Resume deliveries.", plain("channel", "unpause", "unpaused"),
         options=(JSON, *HTTP_NODES), arguments=NAMES,
         examples=(("nsqc channel unpause orders billing", "on the local daemon"),)),
    Tool(("channel", "empty"), "Drop all messages of a channel, including those in flight or deferred.", empty,
         options=(YES, JSON, *HTTP_NODES), arguments=NAMES, text="Asks for confirmation, unless --yes is given.",
         examples=(("nsqc channel empty orders billing", "after a question"),)),
    Tool(("channel", "delete"), "Delete a channel with its messages; its consumers are disconnected.", delete,
         options=(YES, JSON, *HTTP_NODES), arguments=NAMES, text="Asks for confirmation, unless --yes is given.",
         examples=(("nsqc channel delete orders billing --yes", "in a script"),)),
    Tool(("channel", "seek"), "Move a channel of a topic in a log.", seek, options=(JSON, *HTTP_NODES),
         arguments=(*NAMES, PLACE),
         text="""Messages in flight, requeued or deferred are forgotten: only messages after the new place are
              delivered. An offset belongs to one node; beginning, end and times work on several.""",
         examples=(("nsqc channel seek orders billing beginning", "deliver everything in the log again"),
                   ("nsqc channel seek orders billing 2026-11-22T08:00:00Z", "from eight o'clock on"),
                   ("nsqc channel seek orders billing --to -1h", "the last hour again"))),
    Tool(("channel", "cancel"), "Take back a deferred message, so that the channel does not deliver it.", cancel,
         options=(JSON, *HTTP_NODES), arguments=(*NAMES, ID),
         text="""Only as long as the message waits for its time. nsqd cannot do this.""",
         examples=(("nsqc channel cancel orders billing 0a1b2c3d4e5f6789", "an id that nsqc peek shows"),)),
    Tool(("channel", "rules"), "Show and change how a channel delivers.", rules,
         options=(*RULES, rule.RESET, JSON, *HTTP_NODES), arguments=NAMES,
         text="""Without options that change it, shows the rule. The channel need not exist. nsqd has no rules.""",
         examples=(("nsqc channel rules orders billing", "show"),
                   ("nsqc channel rules orders billing --requeue-delay 1s --requeue-backoff 2", "back off"),
                   ("nsqc channel rules orders billing --reset", "back to the config file's rule")))))
