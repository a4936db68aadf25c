"""Makes calls on several nodes, for `nsqc topic` and `nsqc channel`, and prints a line about each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from nsqc.tools import output
from nsqc.tools.declare import Values
from nsqc.tools.errors import EXIT_FAILED, NoName, ToolError, UsageError
from nsqc.tools.nodehttp import BadStatus, topics_at

if TYPE_CHECKING:
    from nsqc.tools.cluster import Cluster, Node
    from nsqc.tools.nodehttp import NodeHttp
    from nsqc.wire.stats import ChannelStats, TopicStats


class Acting:
    """Calls on nodes. tool: the words of the tool, for errors."""

    def __init__(self, values: Values, tool: str):
        from nsqc.tools.cluster import Cluster

        self.values, self.tool = values, tool
        self.cluster = Cluster(values, tool)
        self._failed = 0

    def warn(self, text: str) -> None:
        """A node does not answer, or refuses: continues with the others, and remembers it for the exit code."""
        self._failed += 1
        output.error(self.tool, text)

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
        if not output.is_terminal(0) or not output.is_terminal(output.STDERR):
            raise UsageError("give --yes to do this without a terminal", self.tool)
        if not output.confirm(question):
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
                output.as_json({"node": node.http, "done": not refusal, "error": refusal or None})
            elif not refusal:
                output.line(f"{node.http}: {done}")
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
    from nsqc.tools.errors import NoNode

    nodes = cluster.nodes()
    if not nodes:
        raise NoNode("no nsqd is registered")
    return nodes
