"""The command line of `nsqc top`."""

from __future__ import annotations

from nsqc.options.option import HOUR, MS, Kind, Option, S
from nsqc.tools.declare import HTTP_NODES, Tool, Values

VIEWS = ("topics", "channels", "clients", "nodes")


def run(values: Values) -> int:
    """`nsqc top`."""
    from nsqc.tools.top.screen import top

    return top(values)


TOOL = Tool(
    ("top",), "Show nodes, topics, channels and clients as they change.", run,
    options=(
        Option("view", "the initial view", Kind.TEXT, "topics", choices=VIEWS),
        Option("interval", "polling interval", Kind.DURATION, 2 * S, least=200 * MS, most=HOUR),
        Option("filter", "show only names containing this", Kind.TEXT, ""),
        *HTTP_NODES),
    text="""Keys: 1 to 4 or Tab choose topics, channels, clients or nodes; Enter shows the channels of a topic, or the
         clients of a channel, Esc goes back; arrows, PgUp, PgDn, Home and End move; s chooses the column to sort by, r
         reverses; / filters; p pauses or unpauses the selected topic or channel, e empties it after a confirmation;
         space freezes the screen; + and - change the interval; ? shows all keys, q quits.

         OLDEST is the age of the oldest waiting message; only nsqc's nodes report it. Nodes are summed up; one that
         does not answer is reported at the top.""",
    examples=(
        ("nsqc top", "the local daemon"),
        ("nsqc top --nsqlookupd lookup:4161 --view channels --filter billing", "channels of all nodes, by name")))
