"""The command line of `nsqc bench`."""

from __future__ import annotations

from nsqc.options.option import HOUR, MS, Kind, Option, S
from nsqc.tools.declare import JSON, TCP_NODES, Argument, Tool, Values

LOAD = "Load"
WHAT = ("publish", "consume", "latency")


def run(values: Values) -> int:
    """`nsqc bench`."""
    from nsqc.tools.bench.running import bench

    return bench(values)


TOOL = Tool(
    ("bench",), "Measure how fast an nsqd accepts and delivers messages, and their latency.", run,
    options=(
        Option("size", "of each body, in bytes", Kind.SIZE, 200, LOAD, least=16, most=1 << 26, short="s"),
        Option("batch", "messages in an MPUB; 1: PUB", Kind.INT, 200, LOAD, least=1, most=1_000_000),
        Option("connections", "connections for each load", Kind.INT, 2, LOAD, least=1, most=1000, short="c"),
        Option("max-in-flight", "RDY of each consuming connection", Kind.INT, 2500, LOAD, least=1, most=1_000_000),
        Option("window", "unanswered commands per connection", Kind.INT, 4, LOAD, least=1,
               most=1000),
        Option("seconds", "how long each part runs", Kind.DURATION, 3 * S, LOAD, least=100 * MS, most=HOUR),
        Option("rate", "messages a second while latency is measured", Kind.FLOAT, 1000.0, LOAD, least=0.1,
               most=100_000),
        Option("svg", "write a chart there", Kind.FILE, ""),
        JSON, *TCP_NODES),
    arguments=(Argument("WHAT", f"{', '.join(WHAT[:-1])} or {WHAT[-1]}; default: all of them", required=False,
                        many=True),),
    text="""Uses a private topic, deleted at the end. consume reads the messages of publish, or, without publish,
         messages published first and not measured. latency sends single messages at a steady rate, from PUB to
         delivery, measured in this process. The bench is a single process: if the node is faster, the results show the
         speed of the bench. The node may be any nsqd.""",
    examples=(
        ("nsqc bench", "the local daemon, nine seconds"),
        ("nsqc bench publish consume --size 4K --connections 8 --seconds 10s --nsqd 10.0.0.1:4150",
         "rates with larger bodies, of another node"),
        ("nsqc bench latency --rate 200 --svg latency.svg --json > latency.json", "results and a chart")))
