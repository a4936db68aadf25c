"""Makes calls on several nodes, for `nsqc topic` and `nsqc channel`, and prints a line about each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from nsqc.options.option import Kind, Option, Value
from nsqc.tools import running
from nsqc.tools.cluster import BadStatus, topics_at
from nsqc.tools.declare import EXIT_FAILED, NoName, ToolError, UsageError, Values

if TYPE_CHECKING:
    from nsqc.tools.cluster import Cluster, Node, NodeHttp
    from nsqc.wire.stats import ChannelStats, TopicStats


# ====================================================================== acting

class Acting:
    """Calls on nodes. tool: the words of the tool, for errors."""

    def __init__(self, values: Values, tool: str):
        from nsqc.tools.cluster import Cluster

        self.values, self.tool = values, tool
        self.cluster = Cluster(values, tool)
        self.cluster.skipped = self.warn
        self._failed = 0

    def warn(self, text: str) -> None:
        """A node does not answer, or refuses: continues with the others, and remembers it for the exit code."""
        self._failed += 1
        running.print_error(self.tool, text)

    def topics(self, topic: str = "") -> dict[Node, list[TopicStats]]:
        """The topics of each node, or one of them. Raises NoNode, NoName if no node has it."""
        found = self.cluster.each(self.cluster.nodes(topic) or self._nobody(topic),
                                  lambda api, _: topics_at(api, topic), self.warn)
        if topic and not any(found.values()):
            self._nobody(topic)
        return found

    def holders(self, topic: str) -> dict[Node, TopicStats]:
        """A topic, by the nodes that have it. Raises NoNode, NoName."""
        return {node: topics[0] for node, topics in self.topics(topic).items() if topics}

    def channels(self, topic: str, channel: str) -> dict[Node, ChannelStats]:
        """A channel, by the nodes that have it. Raises NoNode, NoName."""
        found = {node: one for node, its_topic in self.holders(topic).items()
                 for one in its_topic.channels or () if one.channel_name == channel} if channel else {}
        if not found:
            raise NoName("channel", channel, self.cluster.channel_names(topic), f" in topic {topic!r}")
        return found

    def _nobody(self, topic: str) -> list[Node]:
        if topic:
            raise NoName("topic", topic, self.cluster.topic_names())
        return []

    def confirm(self, question: str) -> None:
        """Asks, unless --yes was given. Raises UsageError without a terminal, ToolError if the answer is no."""
        if self.values.flag("yes"):
            return
        if not running.is_terminal(0) or not running.is_terminal(running.STDERR):
            raise UsageError("give --yes to do this without a terminal", self.tool)
        if not running.confirm(question):
            raise ToolError("nothing was done")

    def post(self, nodes: Iterable[Node], path: str, arguments: Mapping[str, str], done: str) -> int:
        """POST on each node; done describes the result. Returns the exit code. Raises NoNode, and NoName if no node has
        it."""
        return self.call(nodes, lambda api, _: api.post(path, arguments), done)

    def call(self, nodes: Iterable[Node], call: Callable[[NodeHttp, Node], object], done: str) -> int:
        """Like post(), with any call."""
        def careful(api: NodeHttp, node: Node) -> str:
            try:
                call(api, node)
            except BadStatus as error:
                return error.message or str(error.status)
            return ""

        results = self.cluster.each(nodes, careful, self.warn)
        for node, refusal in results.items():
            if self.values.flag("json"):
                running.as_json({"node": node.http, "done": not refusal, "error": refusal or None})
            elif not refusal:
                running.line(f"{node.http}: {done}")
            if refusal:
                self.warn(f"{node.http}: {refusal}")
        return self.code

    @property
    def code(self) -> int:
        """The exit code so far."""
        return EXIT_FAILED if self._failed else 0


class Subject:
    """An action on a topic or channel, on all nodes that have it. kind: topic or channel; action: the sub-command, and
    the call. Raises NoNode, NoName."""

    def __init__(self, values: Values, kind: str, action: str):
        self.tool = f"nsqc {kind} {action}"
        self._acting, self._path = Acting(values, self.tool), f"/{kind}/{action}"
        topic = values.text("TOPIC")
        self._arguments = {"topic": topic}
        self.name = f"topic {topic}"
        self.topics: dict[Node, TopicStats] = {}
        self.channels: dict[Node, ChannelStats] = {}
        if kind == "topic":
            self.topics = self._acting.holders(topic)
        else:
            channel = values.text("CHANNEL")
            self._arguments["channel"] = channel
            self.name = f"channel {channel} of topic {topic}"
            self.channels = self._acting.channels(topic, channel)
        self.nodes = [*self.topics, *self.channels]

    def confirm(self, question: str) -> None:
        """Like Acting's; adds the nodes to the question."""
        where = f"on {self.nodes[0].http}" if len(self.nodes) == 1 else f"on {len(self.nodes)} nodes"
        self._acting.confirm(f"{question}, {where}?")

    def post(self, done: str, **more: str) -> int:
        """Makes the call, with more arguments; done describes it. Returns the exit code. Raises NoNode, NoName."""
        return self._acting.post(self.nodes, self._path, {**self._arguments, **more}, f"{self.name} {done}")


def plain(kind: str, action: str, done: str) -> Callable[[Values], int]:
    """An action without a question or more arguments, as a tool's run."""
    return lambda values: Subject(values, kind, action).post(done)


def count(number: int, word: str) -> str:
    """1 message, 2,000 messages."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def nodes_for(cluster: Cluster) -> list[Node]:
    """All nodes, for topics and channels that may not exist yet. Raises NoNode."""
    from nsqc.tools.declare import NoNode

    nodes = cluster.nodes()
    if not nodes:
        raise NoNode("no nsqd is registered")
    return nodes


# ====================================================================== rules
# `nsqc topic rules` and `nsqc channel rules`: show and change the rules of a topic or channel.

GROUP = "Rule"
RESET = Option("reset", "remove earlier settings", Kind.BOOL, False, GROUP)


def option_of(key: str, declared: Option) -> Option:
    """The option that sets a key of a rule. Nodes check durations and bytes."""
    option = Option(key.replace("_", "-"), declared.help, declared.kind, group=GROUP, least=declared.least,
                    most=declared.most)
    if declared.kind is Kind.DURATION:
        return option._replace(least=0, most=None)
    if key.endswith("_bytes"):
        return option._replace(kind=Kind.SIZE, most=None)
    if declared.kind is Kind.TOPIC:
        return option._replace(kind=Kind.TEXT, metavar="TOPIC")
    if declared.kind is Kind.BOOL:
        return option._replace(kind=Kind.TEXT, choices=("true", "false"))
    return option


def run(values: Values, call: str, arguments: Mapping[str, str], options: tuple[Option, ...]) -> int:
    """Makes the call on all nodes, also those that do not have the topic yet, and shows the answers; arguments: topic,
    and channel."""
    tool = f"nsqc {call.strip('/').replace('/', ' ')}"
    acting = Acting(values, tool)
    changes = wanted(values, options, tool)
    nodes = nodes_for(acting.cluster)

    def ask(api: NodeHttp, _: Node) -> object:
        from nsqc.tools.cluster import BadStatus

        try:
            if changes:
                return api.json("PUT", call, dict(arguments), json.dumps(changes).encode())
            return api.get(call, dict(arguments))
        except BadStatus as error:
            acting.warn("this node is an nsqd, which has no rules: " + error.args[0] if error.status == 404
                        else str(error))
            return None

    found = acting.cluster.each(nodes, ask, acting.warn)
    shown = [{"node": node.http, **rule} for node, rule in found.items() if isinstance(rule, dict)]
    if values.flag("json"):
        for rule in shown:
            running.as_json(rule)
    elif shown:
        keys = [key for key in shown[0] if key not in arguments]
        rows = [[key.replace("_", " ").upper() for key in keys]]
        rows += [[text(rule.get(key, "")) for key in keys] for rule in shown]
        running.write(running.table(rows))
    return acting.code if shown else EXIT_FAILED


def text(value: object) -> str:
    """A JSON value in a table."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def wanted(values: Values, options: tuple[Option, ...], tool: str) -> dict[str, Value | None]:
    """The changes requested by the command line, in the form of the call. Raises UsageError."""
    given = [option for option in options if values.given(option.name)]
    if values.flag("reset"):
        if given:
            raise UsageError(f"--reset and --{given[0].name} exclude each other", tool)
        return dict.fromkeys((key_of(option) for option in options), None)
    return {key_of(option): value_of(option, values) for option in given}


def key_of(option: Option) -> str:
    """The key of the rule set by an option."""
    return option.name.replace("-", "_")


def value_of(option: Option, values: Values) -> Value:
    """Its value for JSON."""
    if option.kind in (Kind.SIZE, Kind.INT, Kind.DURATION):
        return values.number(option.name)
    if option.kind is Kind.FLOAT:
        return values.decimal(option.name)
    word = values.text(option.name)
    return word == "true" if option.choices == ("true", "false") else word
