"""`nsqc spark lag`: shows the lag of channels and queries on the logs of topics. Does not start Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from nsqc import charts
from nsqc.spark import values
from nsqc.spark.jobs import arguments, checkpoints, checks, nodes, page, readers, running, topics
from nsqc.spark.jobs.readers import Reader

MOST_BARS = 40
HEADS = ("topic", "nsqd", "reader", "position", "latest", "behind", "oldest")
TEXT_COLUMNS = 3


def each_folder(given: list[str] | None) -> list[str]:
    """A typer callback: all are existing local folders, which keep the given names."""
    for name in given or ():
        checks.folder(checks.path(name))
    return given or []


@arguments.with_nodes
def command(
    cluster: arguments.Cluster | None,
    topic: arguments.Topics = None,
    checkpoint: Annotated[list[str] | None, typer.Option(
        help="the checkpoint of a query that reads log-backed topics; may be repeated", metavar="FOLDER",
        callback=each_folder)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
    to: Annotated[Path | None, typer.Option(
        "--out", help="also write a table with charts, as one HTML file", metavar="FILE",
        parser=checks.path, callback=checks.writable)] = None,
) -> int:
    """Show the lag of channels and queries.

    For each log-backed topic, or those given by --topic: its channels, and the queries of the checkpoints. Behind
    counts the messages that a channel has not finished, or that a query has not planned to read; oldest is the age of
    the oldest of them.
    """
    if cluster is None:
        raise typer.BadParameter("give one of --nsqd and --nsqlookupd")
    names = values.read_names(topic) if topic else ()
    with running.failures() as progress:
        known = {path: checkpoints.read(checks.path(path)) for path in checkpoint or ()}
        with nodes.found(cluster, progress.note) as asked:
            found = readers.look(asked, names)
            shown = readers.channels(found.logs)
            for path, state in known.items():
                shown += readers.query(path, state, names, found, asked, progress.note)
        for why in found.down.values():
            progress.note(f"{why}; showing the others")
        if found.in_memory:
            progress.note(f"{len(found.in_memory):,} topics are stored in memory, and omitted")
        if as_json:
            progress.result(json.dumps({"time": time.time_ns(), "readers": [one._asdict() for one in shown],
                                        "unreachable": found.down}, indent=1))
        elif shown:
            progress.result(table([HEADS, *map(cells, shown)]))
        if unread := sorted({place.topic for place in found.logs} - {one.topic for one in shown}):
            progress.note(f"no readers of {', '.join(unread[:topics.MOST_NAMES])}"
                          + (f" and {len(unread) - topics.MOST_NAMES:,} more" if unread[topics.MOST_NAMES:] else ""))
        if to is not None:
            to.write_text(drawn(shown), encoding="utf-8")
            progress.note(f"{to} written")
    return 0


def cells(one: Reader) -> tuple[str, ...]:
    """A row of the table."""
    return (one.topic, one.nsqd, f"{one.kind} {one.name}", *(
        "?" if number is None else f"{number:,}" for number in (one.position, one.latest, one.lag_messages)),
        "?" if one.lag_seconds is None else page.span(one.lag_seconds))


def table(rows: Sequence[Sequence[str]]) -> str:
    """Text in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) if place < TEXT_COLUMNS else cell.rjust(width)
                               for place, (cell, width) in enumerate(zip(row, widths, strict=True))) for row in rows)


def drawn(shown: Sequence[Reader]) -> str:
    """The same with charts, as an HTML file."""
    title = "Lag of channels and queries"
    parts = [f"<h1>{title}</h1>", f"<p>{page.moment(time.time())}, times in UTC</p>",
             *bars("Lag in messages", shown, lambda one: one.lag_messages, page.number),
             *bars("Age of the oldest unread message", shown, lambda one: one.lag_seconds, page.span),
             "<h2>All readers</h2>", page.table(HEADS, map(cells, shown), TEXT_COLUMNS)]
    return page.whole(title, parts)


def bars(title: str, shown: Sequence[Reader], value: Callable[[Reader], float | None],
         show: Callable[[float], str]) -> list[str]:
    """A chart of the readers with the largest lag; nothing if there is no lag."""
    behind = sorted(((number, one) for one in shown if (number := value(one))), key=lambda pair: -pair[0])
    if not behind:
        return []
    behind = behind[:MOST_BARS]
    tips = [f"{one.topic} at {one.nsqd}, {one.kind} {one.name}: {show(number)}" for number, one in behind]
    has_topics = len({one.topic for _, one in behind}) > 1
    labels = [f"{one.topic} {short(one)}" if has_topics else short(one) for _, one in behind]
    return [f"<h2>{title}</h2>", charts.bars(labels, [number for number, _ in behind], show, title.lower(), tips)]


def short(one: Reader) -> str:
    """A bar's label: a channel, or the last folder of a checkpoint."""
    return one.name if one.kind == readers.CHANNEL else Path(one.name).name


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("lag")
