"""The command line of `nsqc top`."""

from __future__ import annotations

from nsqc.tools.declare import Kind, Option, Tool, Values
from nsqc.tools.family import HTTP_NODES

VIEWS = ("topics", "channels", "clients", "nodes")


def run(values: Values) -> int:
    """`nsqc top`."""
    from nsqc.tools.top.running import top

    return top(values)


TOOL = Tool(
    ("top",), "Show nodes, topics, channels and clients as they change.", run,
    options=(
        Option("view", "what to begin with", Kind.TEXT, "topics", choices=VIEWS),
        Option("interval", "time between two looks at the nodes", Kind.DURATION, 2.0, least=0.2, most=3600.0),
        Option("filter", "show only names that contain this", Kind.TEXT, ""),
        *HTTP_NODES),
    text="""Keys: 1 to 4 or Tab choose topics, channels, clients or nodes; Enter shows the channels of a topic, or the
        clients of a channel, Esc goes back; arrows, PgUp, PgDn, Home and End move; s chooses the column to sort by, r
        reverses; / filters; p pauses or unpauses the selected topic or channel, e empties it after a question; space
        stops the screen; + and - change the interval; ? shows all keys, q ends.

        OLDEST is how long the oldest waiting message has waited; only nsqc's nodes tell it. Nodes are summed up, and
        one that does not answer is reported at the top.""",
    examples=(
        ("nsqc top", "the local daemon"),
        ("nsqc top --nsqlookupd lookup:4161 --view channels --filter billing", "channels of all nodes, by name")))
