"""Runs the parts of a bench in order, on a private topic; reports as a table, JSON and a chart."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress

from nsqc.client.errors import ClientError
from nsqc.tools import output
from nsqc.tools.bench.chart import chart
from nsqc.tools.bench.latency import measure
from nsqc.tools.bench.load import Load, Result, consume, publish
from nsqc.tools.cluster import Cluster
from nsqc.tools.declare import Values
from nsqc.tools.errors import ToolError, UsageError, suggestion

WORDS = "nsqc bench"
WHAT = ("publish", "consume", "latency")
CHANNEL = "bench"


def bench(values: Values) -> int:
    """Runs the requested parts. Raises ToolError, ClientError."""
    wanted = values.texts("WHAT") or WHAT
    for word in wanted:
        if word not in WHAT:
            raise UsageError(f"{word!r} is not one of {', '.join(WHAT)}{suggestion(word, WHAT)}", WORDS)
    cluster = Cluster(values, WORDS)
    nodes = cluster.nodes()
    if len(nodes) != 1:
        raise UsageError("give one --nsqd: a bench measures one node", WORDS)
    topic = f"nsqc_bench_{os.getpid()}_{os.urandom(3).hex()}"
    load = Load(nodes[0].tcp, cluster.connection_options(), cluster.timeout, topic, CHANNEL,
                values.number("size"), values.number("batch"), values.number("connections"),
                values.number("max-in-flight"), values.number("window"), values.seconds("seconds"))
    api = cluster.http(nodes[0])
    path = values.text("svg")
    if path:
        check_writable(path)
    try:
        api.check()
        api.post("/topic/create", {"topic": topic})
        results = [part(load, word, values, wanted, api.post) for word in WHAT if word in wanted]
    finally:
        with suppress(ToolError, ClientError):
            api.close()
            api.post("/topic/delete", {"topic": topic})
        api.close()
    if values.flag("json"):
        output.as_json({"node": nodes[0].tcp, "size": load.size, "results": [result.as_dict() for result in results]})
    else:
        output.write(table(results))
    if path:
        write_chart(path, chart(results, described(values, nodes[0].tcp)))
    return 0


def write_chart(path: str, text: str) -> None:
    """Raises OSError, with the name of the file."""
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def check_writable(path: str) -> None:
    """Tests it before the bench, not after it. Raises OSError."""
    with open(path, "a", encoding="utf-8"):
        pass


def part(load: Load, word: str, values: Values, wanted: tuple[str, ...],
         post: Callable[[str, Mapping[str, object]], object]) -> Result:
    """Runs one part."""
    names = {"topic": load.topic, "channel": load.channel}
    if output.is_terminal(output.STDERR):
        output.note(f"{WORDS}: {word}")
    if word == "publish":
        if "consume" in wanted:
            post("/channel/create", names)
        return publish(load)
    if word == "consume":
        if "publish" not in wanted:
            post("/channel/create", names)
            publish(load)
        return consume(load)
    # A channel without messages of the other parts.
    with suppress(ToolError):
        post("/channel/delete", names)
    post("/topic/empty", {"topic": load.topic})
    return measure(load, values.decimal("rate"))


def described(values: Values, address: str) -> str:
    """Describes the load in a line."""
    return (f"{address}: bodies of {values.number('size'):,} bytes, {values.number('batch'):,} in a batch, "
            f"{values.number('connections')} connections, RDY {values.number('max-in-flight'):,}")


def table(results: list[Result]) -> str:
    """Rates and times for people."""
    rates = [result for result in results if result.name != "latency"]
    lines = []
    if rates:
        rows = [["", "MESSAGES", "SECONDS", "MESSAGES/S", "MB/S", "p50", "p99", "LONGEST", ""]]
        rows += [[result.name, f"{result.messages:,}", f"{result.seconds:.2f}", f"{result.rate:,.0f}",
                  f"{result.rate * result.size / 1e6:,.1f}",
                  *map(time, (result.at(0.5), result.at(0.99), result.at(1))), result.note] for result in rates]
        lines.append(output.table(rows, frozenset(range(1, 8))))
    for result in results:
        if result.name == "latency":
            rows = [["", "MESSAGES", "RATE/S", "p50", "p90", "p99", "p99.9", "LONGEST"],
                    ["latency", f"{result.messages:,}", f"{result.rate:,.0f}",
                     *(time(result.at(share)) for share in (0.5, 0.9, 0.99, 0.999, 1))]]
            lines.append(output.table(rows, frozenset(range(1, 8))))
    return "\n".join(lines)


def time(seconds: float) -> str:
    """Formats a time with three digits."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"
