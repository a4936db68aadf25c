"""Names of topics and channels for shell completion, queried from the nodes selected by the line so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nsqc.client.errors import ClientError
from nsqc.options.option import Kind
from nsqc.tools.cluster import Cluster
from nsqc.tools.declare import Tool
from nsqc.tools.errors import ToolError
from nsqc.tools.family import HTTP_NODES
from nsqc.tools.parse import parse
from nsqc.wire.names import is_valid_name

SECONDS = 1.0       # short, since a user is waiting
SELECTING = Tool((), "", lambda values: 0, HTTP_NODES)


def names(kind: Kind, texts: Mapping[str, Sequence[str]], topics: Sequence[str]) -> list[str]:
    """texts: those of the options so far; topics: the first is the one whose channels are meant. Reports no errors:
    they would appear in the middle of the user's typing."""
    try:
        cluster = Cluster(parse(SELECTING, {option.name: texts.get(option.name, ()) for option in HTTP_NODES}, ()))
        cluster.timeout = SECONDS
        found = cluster.topic_names() if kind is Kind.TOPIC else cluster.channel_names(topics[0])
        # bash expands its words, including $(...), so only valid names may pass.
        return [name for name in found if is_valid_name(name.encode(errors="replace"))]
    except (ToolError, ClientError, OSError, ValueError, KeyError, TypeError, IndexError):
        return []
