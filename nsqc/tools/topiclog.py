"""`nsqc topic log` and `nsqc topic read`: the state of a topic's log, and its messages by offset or time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqc.options.option import Kind, Option
from nsqc.tools import output
from nsqc.tools.acting import Acting, count
from nsqc.tools.declare import Tool, Values
from nsqc.tools.errors import EXIT_FAILED, UsageError
from nsqc.tools.family import FROM, HTTP_NODES, JSON, TOPIC, YES
from nsqc.wire.outside import Json

if TYPE_CHECKING:
    from nsqc.tools.cluster import Node
    from nsqc.tools.logreader import Form, LogReader
    from nsqc.tools.nodehttp import NodeHttp

LOG_WORDS, READ_WORDS, DELETE_WORDS = "nsqc topic log", "nsqc topic read", "nsqc topic delete-log"
UNTIL = Option("until", "stop before this place: end (the current one), an offset, a time in RFC 3339, or an age",
               Kind.PLACE, "end")


# ---------------------------------------------------------------------- topic log

def show(values: Values) -> int:
    """`nsqc topic log`."""
    acting, topic = Acting(values, LOG_WORDS), values.text("TOPIC")
    nodes = acting.holders(topic)

    def look(api: NodeHttp, _: Node) -> dict[str, Json]:
        from nsqc.tools.logreader import LogReader

        return LogReader(api, topic).state(values.flag("segments"))

    found = acting.cluster.each(nodes, look, acting.warn)
    if values.flag("json"):
        for node, state in found.items():
            output.as_json({"node": node.http, **state})
        return acting.code
    rows = [["NODE", "FIRST", "NEXT", "BYTES", "SEGMENTS", "DAMAGED", "MISSING", "SYNC", "FIRST MESSAGE",
             "LAST MESSAGE"]]
    rows += [[node.http, *(str(state[key]) for key in ("first_offset", "next_offset", "bytes", "segments", "damaged",
                                                       "missing", "sync")),
              *(output.moment(state.get(key)) for key in ("first_time", "last_time"))] for node, state in found.items()]
    output.write(output.table(rows, frozenset(range(1, 7))))
    for title, table in (("CHANNEL", channel_rows(found)), ("SEGMENT", segment_rows(found))):
        if len(table) > 1:
            assert table[0][0] == title
            output.write("\n" + output.table(table, frozenset(range(2, len(table[0])))))
    return acting.code


def channel_rows(found: dict[Node, dict[str, Json]]) -> list[list[str]]:
    """Progress of channels, by node."""
    from nsqc.tools.top.drawing import age

    rows = [["CHANNEL", "NODE", "POSITION", "OLDEST UNFINISHED", "LAG", "WAITS", "IN FLIGHT", "DEFERRED"]]
    for node, state in found.items():
        for channel in state["channels"]:
            seconds = channel.get("lag_seconds")
            rows.append([channel["channel_name"], node.http,
                         *(str(channel[key]) for key in ("position", "oldest_unfinished", "lag_messages")),
                         age(seconds) if isinstance(seconds, int | float) and channel["lag_messages"] else "",
                         str(channel["in_flight"]), str(channel["deferred"])])
    return rows


def segment_rows(found: dict[Node, dict[str, Json]]) -> list[list[str]]:
    """Segments, if requested."""
    rows = [["SEGMENT", "NODE", "FIRST", "NEXT", "BYTES"]]
    for node, state in found.items():
        listed = state.get("segment_list")
        for number, segment in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(segment, list) and len(segment) == 4:
                rows.append([str(number), node.http, *map(str, segment[:3])])
    return rows


# ---------------------------------------------------------------------- topic delete-log

def delete_log(values: Values) -> int:
    """`nsqc topic delete-log`."""
    acting, topic = Acting(values, DELETE_WORDS), values.text("TOPIC")
    nodes = acting.holders(topic)
    acting.confirm(f"Delete the log of topic {topic} on {count(len(nodes), 'node')}: its history will be lost")
    return acting.call(nodes, lambda api, _: api.json("DELETE", "/topic/log", {"topic": topic}),
                       f"log of topic {topic} deleted")


# ---------------------------------------------------------------------- topic read

def read(values: Values) -> int:
    """`nsqc topic read`."""
    from nsqc.options.places import BEGINNING, Place, parse_place
    from nsqc.tools.logreader import LogReader, as_json, as_lines

    acting, topic = Acting(values, READ_WORDS), values.text("TOPIC")
    begin = parse_place(values.text("from")) if values.given("from") else Place(BEGINNING)
    end = parse_place(values.text("until"))
    nodes = acting.holders(topic)
    if max(begin.offset, end.offset) >= 0 and len(nodes) > 1:
        raise UsageError(f"an offset belongs to one node, but {len(nodes)} have the topic: choose one by --nsqd",
                         READ_WORDS)
    if 0 <= end.offset < begin.offset:
        raise UsageError(f"--until {end.offset} is before --from {begin.offset}", READ_WORDS)
    form = as_json("node", lambda node: node.http) if values.flag("json") else as_lines(False, output.is_terminal())
    left, damaged = values.number("count") or 2**62, 0

    def copy(api: NodeHttp, node: Node) -> None:
        nonlocal left, damaged
        reader = LogReader(api, topic)
        reader.begin(begin)
        stop = reader.locate(end)
        before = left
        left, lost = copied(reader, node, stop, left, form)
        damaged += lost
        if lost:
            acting.warn(f"{reader.place}: {lost} damaged messages skipped, after {before - left} intact ones")

    acting.cluster.each(nodes, copy, acting.warn)
    return EXIT_FAILED if damaged else acting.code


def copied(reader: LogReader, node: Node, stop: int, most: int, form: Form) -> tuple[int, int]:
    """Prints a node's messages up to an offset, up to a count; returns how many may still follow, and the number of
    damaged ones. Raises PipeClosed, OSError, ToolError."""
    damaged = 0
    while most > 0 and reader.offset < stop:
        offset = reader.offset
        piece = reader.read(min(most, stop - offset))
        if piece.first >= stop:
            break
        damaged += piece.damaged
        if piece.next == piece.first:
            if reader.offset == offset:
                break       # deleted and created again meanwhile, and empty
            continue
        text, count = form(reader.topic, node, piece, min(most, stop - piece.first))
        output.write_bytes(text)
        most -= count
    return most, damaged


LOG = Tool(
    ("topic", "log"), "Show the log of a topic, and its channels' progress.", show,
    options=(Option("segments", "list the segments, too", Kind.BOOL, False), JSON, *HTTP_NODES), arguments=(TOPIC,),
    text="""Offsets are per node: FIRST is the first message in the log, NEXT the next one to be published. The nodes
         have to be nsqc's, and the topic has to be log-backed.""",
    examples=(("nsqc topic log orders", "of the local daemon"),
              ("nsqc topic log orders --json | jq .next_offset", "for a script")))
DELETE = Tool(
    ("topic", "delete-log"), "Delete the log of a topic now stored in memory.", delete_log,
    options=(YES, JSON, *HTTP_NODES), arguments=(TOPIC,),
    text="""A topic whose storage has changed to memory keeps its log and history. All channels must have finished the
         log. Asks for confirmation, unless --yes is given.""",
    examples=(("nsqc topic delete-log orders", "after a confirmation"),))
READ = Tool(
    ("topic", "read"), "Print messages of a log-backed topic, by offset or time, without consuming them.", read,
    options=(
        FROM._replace(help=f"{FROM.help}; default: the beginning"), UNTIL,
        Option("count", "maximum number of messages; 0: all", Kind.INT, 0, least=0, short="n"),
        JSON._replace(help="an object per message, with node, offset, id and time"), *HTTP_NODES),
    arguments=(TOPIC,),
    text="""Bodies are written verbatim, one per line; on a terminal, control characters are shown as escapes. Channels
         are unaffected. Several nodes are read one after another. `nsqc tail --from` also follows new messages.""",
    examples=(
        ("nsqc topic read orders --from 1000 --until 2000 --json", "a range of offsets, with all fields"),
        ("nsqc topic read orders --from 2026-11-22T08:00:00Z --until 2026-11-22T09:00:00Z > orders.txt", "an hour"),
        ("nsqc topic read orders --from -1h -n 10", "the first ten of the last hour")))
