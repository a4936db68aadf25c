"""`nsqc spark lag`: shows the lag of channels and queries on the logs of topics. Does not start Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from nsqc import charts
from nsqc.spark import values
from nsqc.spark.jobs import arguments, nodes, page, running
from nsqc.spark.jobs import nodes as topics
from nsqc.spark.jobs.handshake import AT_ONCE
from nsqc.spark.jobs.nodes import Holding, NodeApi, Nodes
from nsqc.spark.jobs.running import JobError
from nsqc.spark.log import ranges
from nsqc.spark.log.api import LogError, NoLog, NoTopic, State, Unreachable
from nsqc.spark.log.checkpoint import age, ids_of, moved_to, places_of
from nsqc.spark.log.ranges import Place
from nsqc.wire.outside import JSONError, decode

# ====================================================================== checkpoints
# The progress of a checkpoint's query, read from Spark's files. Knows no Spark.
#
#     offsets/N       planned batches: a line with the version, one with metadata, then the end offset of each source
#     commits/N       completed batches

HEAD_LINES = 2      # before the sources


class Checkpoint(NamedTuple):
    """batch: the last planned one, None before the first; done: whether it is committed; logs: end offsets in the logs
    that the query reads; ids: of these logs, as far as known; consumes: whether the query consumes a channel."""

    batch: int | None
    done: bool
    logs: dict[Place, int]
    ids: dict[Place, str]
    consumes: bool


def read(folder: Path) -> Checkpoint:
    """The state of a query. Raises JobError if the folder is not a checkpoint."""
    if not (folder / "offsets").is_dir():
        raise JobError(f"{folder} is not a checkpoint of a query: it has no folder offsets")
    try:
        names = [path.name for path in (folder / "offsets").iterdir()]
        batch = max((int(name) for name in names if name.isascii() and name.isdecimal()), default=None)
        if batch is None:
            return Checkpoint(None, True, {}, {}, False)
        lines = (folder / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise JobError(f"{folder} is not readable: {error}") from None
    offsets = [offset for line in lines[HEAD_LINES:] if isinstance(offset := parsed(line), dict)]
    logs: dict[Place, int] = {}
    ids: dict[Place, str] = {}
    try:
        for offset in offsets:
            if "topics" in offset and "joined" in offset:
                # Two sources may read the same log: the one that lags counts.
                logs |= {place: min(end, logs.get(place, end)) for place, end in places_of(offset, "topics").items()}
                ids |= ids_of(offset)
    except LogError:
        raise JobError(f"{folder / 'offsets' / str(batch)} does not have the offsets of a query") from None
    return Checkpoint(batch, (folder / "commits" / str(batch)).exists(), logs, ids,
                      any(offset.keys() == {"log", "rows"} for offset in offsets))


# Any: JSON
def parsed(line: str) -> Any:
    """The value of a line; None if it is not JSON: - stands for a source without an offset."""
    try:
        return decode(line)
    except JSONError:
        return None


# ====================================================================== readers
# The readers of a cluster's logs, and their lag: channels, and queries identified by their checkpoints.

CHANNEL, QUERY = "channel", "query"


class Reader(NamedTuple):
    """A channel or a query at the log of a topic at a node. Offsets; None: unknown, or not started. lag_seconds: the
    age of the oldest unread message."""

    topic: str
    nsqd: str
    kind: str
    name: str
    position: int | None
    latest: int | None
    lag_messages: int | None
    lag_seconds: float | None


class Found(NamedTuple):
    """The contents of nodes, and those that do not answer."""

    logs: dict[Place, Holding]
    down: dict[str, str]
    in_memory: set[str]


def look(nodes: Nodes, names: tuple[str, ...]) -> Found:
    """The logs of these topics, or of all. Raises JobError for a given topic that no node has and if there are no logs
    at all, NoLog for a given topic in memory."""
    found = Found({}, dict(nodes.down), set())
    refused: list[str] = []

    def ask(node: str, api: NodeApi) -> None:
        for name in names or api.topics():
            try:
                found.logs[Place(name, node)] = api.holding(name)
            except NoTopic:
                continue
            except NoLog as error:
                if names:
                    raise
                found.in_memory.add(name)
                refused.append(str(error))

    def try_to_ask(node: str) -> None:
        try:
            ask(node, nodes.apis[node])
        except Unreachable as error:
            found.down[node] = str(error)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(try_to_ask, nodes.apis))
    for name in names:
        if not found.down and all(place.topic != name for place in found.logs):
            known = {topic for api in nodes.apis.values() for topic in api.topics()}
            raise JobError(f"no topic {name}; {topics.choice('topics', name, known)}")
    if not found.logs:
        raise JobError(refused[0] if refused else "; ".join(found.down.values()) or "there are no topics")
    return found


def channels(logs: Mapping[Place, Holding]) -> list[Reader]:
    """All channels."""
    return [Reader(place.topic, place.node, CHANNEL, channel["channel_name"], channel["position"], held.log.next,
                   channel["lag_messages"], channel["lag_seconds"])
            for place, held in sorted(logs.items()) for channel in held.channels]


def query(name: str, known: Checkpoint, names: tuple[str, ...], found: Found, nodes: Nodes,
          note: Callable[[str], None]) -> list[Reader]:
    """A query at all logs of its topics, including those not started yet. Raises JobError if it reads none of the
    topics, Unreachable."""
    if known.batch is None:
        raise JobError(f"{name} has no offsets yet: its query has not started a batch")
    if not known.logs:
        raise JobError(f"{name} is the checkpoint of a query that consumes a channel: its lag is that channel's depth"
                       if known.consumes else f"{name} is the checkpoint of a query that reads no log-backed topic")
    reads = {place.topic for place in known.logs}
    wanted = reads & set(names) if names else reads
    if not wanted:
        raise JobError(f"the query of {name} reads {', '.join(sorted(reads))}, not {', '.join(names)}")
    moved = moved_to(known.logs, known.ids, {place: held.log.id for place, held in found.logs.items()})
    positions = {moved.get(place, place): offset for place, offset in known.logs.items()}
    ids = {moved.get(place, place): log_id for place, log_id in known.ids.items()}
    places = sorted({place for place in (*positions, *found.logs) if place.topic in wanted})
    return [at_log(name, place, positions.get(place), ids.get(place, ""),
                   found.logs[place].log if place in found.logs else None, nodes, note) for place in places]


def at_log(name: str, place: Place, position: int | None, log_id: str, log: State | None, nodes: Nodes,
           note: Callable[[str], None]) -> Reader:
    """A query at one log. position: None if it has not started there; log_id: of the log it has read there, if
    known."""
    if log is None:
        note(f"{name} has read topic {place.topic} at {place.node}, where it no longer exists")
        return Reader(*place, QUERY, name, position, None, None, None)
    if position is not None and (position > log.next or (log.id and log_id not in ("", log.id))):
        note(f"{name} has read topic {place.topic} at {place.node} until offset {position}, but it ends at {log.next}: "
             "it was deleted and created again, or its files were replaced")
        return Reader(*place, QUERY, name, position, log.next, None, None)
    if position is not None and position < log.first:
        note(f"{name} has read topic {place.topic} at {place.node} until offset {position}, but it begins at "
             f"{log.first}: retention has removed the messages in between")
    start = log.first if position is None else max(position, log.first)
    behind = ranges.count(log.segments, start, log.next)
    oldest = age(nodes.apis[place.node], place.topic, start, log.last_time) if behind else 0.0
    return Reader(*place, QUERY, name, position, log.next, behind, oldest)


# ====================================================================== lag

MOST_BARS = 40
HEADS = ("topic", "nsqd", "reader", "position", "latest", "behind", "oldest")
TEXT_COLUMNS = 3


def each_folder(given: list[str] | None) -> list[str]:
    """A typer callback: all are existing local folders, which keep the given names."""
    for name in given or ():
        arguments.folder(arguments.path(name))
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
        parser=arguments.path, callback=arguments.writable)] = None,
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
        known = {path: read(arguments.path(path)) for path in checkpoint or ()}
        with nodes.found(cluster, progress.note) as asked:
            found = look(asked, names)
            shown = channels(found.logs)
            for path, state in known.items():
                shown += query(path, state, names, found, asked, progress.note)
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
    return one.name if one.kind == CHANNEL else Path(one.name).name


if __name__ == "__main__":
    from nsqc.spark.jobs import main

    main("lag")
