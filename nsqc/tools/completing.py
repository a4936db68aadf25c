"""Names of topics and channels for shell completion, queried from the nodes selected by the line so far."""

from __future__ import annotations

import shlex
from itertools import pairwise

from nsqc.client.errors import ClientError
from nsqc.tools import output
from nsqc.tools.cluster import Cluster
from nsqc.tools.declare import Argument, Tool, Values
from nsqc.tools.errors import ToolError
from nsqc.tools.family import HTTP_NODES, TOPIC_OPTION
from nsqc.wire.names import is_valid_name

SECONDS = 1.0       # short, since a user is waiting
ASKED = (*HTTP_NODES, TOPIC_OPTION._replace(default=None, many=True))


def print_names(words: list[str]) -> int:
    """Prints the names, one per line; words: topic or channel, and the command line so far. Prints nothing on stderr:
    it would appear in the middle of the user's typing."""
    try:
        kind, line = words
        values = read_line(line)
        cluster = Cluster(values)
        cluster.timeout = SECONDS
        names = cluster.topic_names() if kind == "topic" else cluster.channel_names(topic_of(values, line))
        # bash expands its words, including $(...), so only valid names may pass.
        output.write("".join(f"{name}\n" for name in names if is_valid_name(name.encode(errors="replace"))))
    except (ToolError, ClientError, OSError, ValueError, KeyError, TypeError, output.PipeClosed):
        return 1
    return 0


def read_line(line: str) -> Values:
    """The options of an incomplete line that select nodes; all others are skipped. Raises ToolError, ValueError."""
    from nsqc.tools.parse import parse

    known = {f"--{option.name}": option for option in ASKED}
    words = split_line(line)
    kept: list[str] = []
    for at, word in enumerate(words):
        flag, equals, _ = word.partition("=")
        if flag not in known:
            continue
        option = known[flag]
        if equals or not option.takes:
            kept.append(word)
        elif at + 1 < len(words):
            kept += [word, words[at + 1]]
    tool = Tool((), "", lambda values: 0, ASKED, (Argument("WORD", "", required=False, many=True),))
    return parse(tool, kept)


def topic_of(values: Values, line: str) -> str:
    """The topic named by the line: by --topic, or the word before the channel."""
    if values.given("topic"):
        return values.texts("topic")[-1]
    words = split_line(line)
    takes_value = {f"--{option.name}" for option in ASKED if option.takes}
    plain = [word for before, word in pairwise(words)
             if not word.startswith("-") and before not in takes_value]
    # After `nsqc channel create`, or `nsqc peek`: the first word that is not a command's.
    return plain[2] if plain[:1] == ["channel"] and len(plain) > 2 else plain[1] if len(plain) > 1 else ""


def split_line(line: str) -> list[str]:
    """Splits a line that may end within quotes."""
    try:
        return shlex.split(line)
    except ValueError:
        return line.split()

