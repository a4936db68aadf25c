"""The parts that read log-backed topics, without Spark: ranges, pieces, and nodes with wrong answers."""

import itertools
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from nsqc.spark import columns, options
from nsqc.spark.log import rows
from nsqc.spark.log.api import LogError
from nsqc.spark.log.cluster import Cluster
from nsqc.spark.log.narrow import Times
from nsqc.spark.log.ranges import LogSegment, Place, Range, advance, bundle, count, divide, pieces, shares
from nsqc.spark.log.stream import LogStreamReader
from tests.spark.logs import got
from tests.support.daemon import Daemon, batch
from tests.support.ports import free_port, is_free, kept

PLACE = Place("t", "a:1")
COLUMNS = ["value", "topic", "id", "timestamp", "attempts", "nsqd", "offset"]

# ---------------------------------------------------------------------- columns


@pytest.mark.parametrize(("fields", "says"), [
    ([], "at least one column"),
    ([("value", BinaryType(), True), ("value", BinaryType(), True)], "column value appears twice"),
    ([("offset", LongType(), False)], "omit NOT NULL for column offset"),
])
def test_schemas_without_an_answer_are_refused(fields, says):
    with pytest.raises(ValueError, match=says):
        columns.chosen(StructType([StructField(*field) for field in fields]), columns.LOG, "nsq")


# ---------------------------------------------------------------------- ranges


@st.composite
def segments(draw) -> list[LogSegment]:
    """Some ranges, perhaps with gaps between."""
    at, found = draw(st.integers(0, 5)), []
    for length, gap in draw(st.lists(st.tuples(st.integers(0, 20), st.sampled_from((0, 0, 7, 2**32))), max_size=6)):
        found.append(LogSegment(at, at + length, 100 * length))
        at += length + gap
    return found


def offsets(known, start: int, end: int) -> list[int]:
    return [offset for first, behind, _, _ in known for offset in range(max(first, start), min(behind, end))]


@given(segments(), st.integers(0, 40), st.integers(0, 2**34), st.integers(1, 12))
def test_pieces_have_each_offset_once(known, start, end, number):
    there = offsets(known, start, end)
    parts = pieces(known, start, end, number)
    assert list(itertools.chain.from_iterable(offsets(known, *part) for part in parts)) == there
    assert len(parts) == min(number, len(there)) and all(offsets(known, *part) for part in parts)
    assert count(known, start, end) == len(there)


@given(segments(), st.integers(0, 40), st.integers(1, 50))
def test_advance(known, start, messages):
    there = offsets(known, start, 2**40)
    end = advance(known, start, messages)
    assert offsets(known, start, end) == there[:messages]


@given(st.lists(segments(), min_size=1, max_size=3), st.one_of(st.none(), st.integers(1, 30)),
       st.one_of(st.none(), st.integers(1, 30)))
def test_partitions_are_as_many_and_as_small_as_asked_for(logs, least, most):
    known = {Place("t", f"n:{number + 1}"): log for number, log in enumerate(logs)}
    ranges = [Range(place, "h:1", 0, 2**40) for place in known]
    parts = divide(ranges, known, least, most)
    total = sum(len(offsets(log, 0, 2**40)) for log in logs)
    assert sum(len(offsets(known[part.place], part.start, part.end)) for part in parts) == total
    assert least is None or len(parts) >= min(least, total)
    assert most is None or all(len(offsets(known[part.place], part.start, part.end)) <= most for part in parts)


@given(st.lists(st.tuples(segments(), st.integers(1, 3)), min_size=1, max_size=12),
       st.one_of(st.none(), st.integers(1, 30)), st.one_of(st.none(), st.integers(1, 30)))
def test_bundles_have_each_range_once_and_are_as_many_and_as_small_as_asked_for(logs, least, most):
    known = {Place("t", f"n:{number + 1}"): log for number, (log, _) in enumerate(logs)}
    ranges = [Range(place, f"h:{http}", 0, 2**40) for place, (_, http) in zip(known, logs, strict=True)]
    parts = divide(ranges, known, least, most)
    bundles = bundle(parts, known, least, most)
    assert sorted(itertools.chain.from_iterable(bundles)) == sorted(parts) and all(bundles)
    assert least is None or len(bundles) >= min(least, len(parts))
    for one in bundles:
        messages = sum(len(offsets(known[part.place], part.start, part.end)) for part in one)
        assert most is None or messages <= most


@given(st.lists(segments(), min_size=1, max_size=6), st.integers(1, 30), st.integers(1, 10**6))
def test_partitions_limited_by_messages_depend_on_offsets_alone(logs, most, factor):
    """A batch that is repeated when segments have other sizes must publish the same commands."""
    known = {Place("t", f"n:{number + 1}"): log for number, log in enumerate(logs)}
    grown = {place: [one._replace(bytes=one.bytes * factor) for one in log] for place, log in known.items()}
    ranges = [Range(place, "h:1", 0, 2**40) for place in known]
    assert bundle(divide(ranges, known, None, most), known, None, most) == bundle(
        divide(ranges, grown, None, most), grown, None, most)


def test_short_ranges_share_a_partition_and_long_ones_do_not():
    short = {Place(f"t{number}", "n:1"): [LogSegment(0, 10, 2000)] for number in range(1000)}
    long = {Place("t", "n:1"): [LogSegment(0, 1000, 400 << 20)]}
    ranges = [Range(place, "h:1", 0, 1000 if place in long else 10) for place in (*short, *long)]
    found = bundle(divide(ranges, {**short, **long}, None, None), {**short, **long}, None, None)
    assert sorted(map(len, found)) == [1, 1, 8, *[62] * 16]


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=5), st.integers(1, 2000))
def test_shares(waiting, most):
    given = {Place("t", f"n:{number + 1}"): messages for number, messages in enumerate(waiting)}
    found = shares(given, most)
    assert sum(found.values()) == min(sum(waiting), most)
    assert all(0 <= found[place] <= given[place] for place in given)
    if most >= len(waiting):
        assert all(found[place] for place in given if given[place])


def test_no_log_waits_for_ever_for_its_share():
    waiting = {Place("t", f"n:{messages}"): messages for messages in (1, 2, 1000, 0, 10**9)}
    batches = [shares(waiting, 2) for _ in range(300)]
    assert all(sum(batch.values()) == 2 for batch in batches)
    assert {place for batch in batches for place in batch if batch[place]} == {
        place for place in waiting if waiting[place]}


# ---------------------------------------------------------------------- nodes


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node with 300 messages in the log of t, in several segments."""
    made = Daemon(tmp_path_factory.mktemp("log") / "data", "--topic-storage=log", "--max-bytes-per-file=4000")
    client = made.connect()
    for at in range(0, 300, 50):
        client.ok("MPUB t", batch(*(b"%d" % number for number in range(at, at + 50))))
    client.close()
    yield made
    made.close()


def read(address: str, start: int = 0, end: int = 300, **more: str) -> list[int]:
    chosen = options.log_table({"nsqd": "a:1", "topic": "t", "backoff": "10ms", **more})
    batches = rows.read([Range(PLACE, address, start, end)], chosen, COLUMNS, Times())
    return [int(value) for one in batches for value in one.column("value").to_pylist()]


def test_a_range(node):
    address = f"127.0.0.1:{node.http_port}"
    assert read(address) == list(range(300))
    assert read(address, 33, 34) == [33]
    with pytest.raises(LogError, match="ends at offset 300, but 310 was requested"):
        read(address, 290, 310)
    assert read(address, 290, 310, failOnDataLoss="false") == list(range(290, 300))


class Garbage(BaseHTTPRequestHandler):
    """Stands before a node, and answers /topic/read as `way` says."""

    protocol_version = "HTTP/1.1"
    node: Daemon
    way = ""
    times = 0

    def do_GET(self) -> None:
        status, body, headers = got(self.node, self.path, Accept=self.headers["Accept"])
        kept = {name: value for name, value in headers.items() if name.startswith("X-NSQ-")}
        if self.path.startswith("/topic/read") and type(self).times:
            type(self).times -= 1
            if self.way == "cut":
                self.send_response(status)
                for name, value in {**kept, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body[:len(body) // 2])
                self.close_connection = True
                return
            if self.way == "noise":
                body = bytes(len(body))
            elif self.way == "short":
                body = body[:-5]
            elif self.way == "html":
                kept, body = {}, b"<html>no</html>"
            elif self.way == "503":
                status, kept, body = 503, {}, b"busy"
            elif self.way == "count":
                kept["X-NSQ-Next-Offset"] = str(int(kept["X-NSQ-Next-Offset"]) + 1)
            elif self.way == "not http":
                self.wfile.write(b"SSH-2.0-x\r\n")
                self.close_connection = True
                return
        self.send_response(status)
        for name, value in {**kept, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


@pytest.mark.parametrize("way", ["cut", "noise", "short", "html", "503", "count", "not http"])
def test_a_node_that_answers_something_else_is_asked_again_and_then_an_error(node, way):
    handler = type("Handler", (Garbage,), {"node": node, "way": way, "times": 2})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"
    try:
        assert read(address) == list(range(300)) and handler.times == 0
        handler.times = 10**9
        with pytest.raises(LogError, match=address):
            read(address, failWhenUnreachable="0.1")
        assert read(address, failWhenUnreachable="0.1", failOnDataLoss="false") == []
    finally:
        server.shutdown()
        server.server_close()


def test_nodes_are_found(node, lookupd, tmp_path):
    lookupd.topics = ["t", "other", "t#ephemeral"]
    address = f"127.0.0.1:{node.http_port}"
    for topics in ({"topic": "t"}, {"topicPattern": "t.*"}):
        cluster = Cluster(options.log_table({"nsqlookupd": f"127.0.0.1:1,{lookupd(node)}", **topics}))
        found = cluster.look()
        assert found.http == {f"127.0.0.1:{node.tcp_port}": address} and not found.down
        assert {place: state.next for place, state in found.states.items()} == {
            Place("t", f"127.0.0.1:{node.tcp_port}"): 300}
        cluster.close()
    with pytest.raises(LogError, match=r"no nsqlookupd answers: nsqlookupd 127\.0\.0\.1:1: .*refused"):
        Cluster(options.log_table({"nsqlookupd": "127.0.0.1:1", "topic": "t"})).look()


def test_the_http_port_is_the_next_one_by_default(tmp_path):
    port = next(port for port in iter(free_port, None) if is_free(port + 1))
    node = Daemon(tmp_path / "data", "--topic-storage=log", f"--tcp-address=127.0.0.1:{port}",
                  f"--http-address=127.0.0.1:{port + 1}")
    try:
        found = Cluster(options.log_table({"nsqd": f"127.0.0.1:{port}", "topic": "t"})).look()
        assert found.http == {f"127.0.0.1:{port}": f"127.0.0.1:{port + 1}"}
        assert found.lacking == {Place("t", f"127.0.0.1:{port}")}
    finally:
        node.close()


# ---------------------------------------------------------------------- offsets of a stream


def stream(*nodes: Daemon, **more: str) -> LogStreamReader:
    return LogStreamReader(options.log_stream({
        "nsqd": ",".join(f"127.0.0.1:{one.tcp_port}" for one in nodes),
        "http": ",".join(f"127.0.0.1:{one.http_port}" for one in nodes), "topic": "t", **more}), COLUMNS)


def ranges_of(reader: LogStreamReader, start: dict, end: dict) -> list[tuple[str, int, int]]:
    return [(one.place.node, one.start, one.end) for part in reader.partitions(start, end) for one in part.value]


def test_a_log_that_begins_again_is_told_and_read_once(node):
    name = f"127.0.0.1:{node.tcp_port}"
    before = {"topics": {"t": {name: 500}}, "joined": {}}
    with pytest.raises(LogError, match="ends at offset 300, the checkpoint at 500"):
        stream(node).latestOffset(before, ReadAllAvailable())
    reader = stream(node, failOnDataLoss="false")
    end = reader.latestOffset(before, ReadAllAvailable())
    assert (end["topics"], end["joined"]) == ({"t": {name: 300}}, {"t": {name: 0}})
    # Also planned again, by another process.
    for planner in (reader, stream(node)):
        assert ranges_of(planner, before, end) == [(name, 0, 300)]
    assert reader.latestOffset(end, ReadAllAvailable()) is end
    reader.stop()


def test_available_now_waits_for_a_node_that_goes(node, tmp_path):
    other = Daemon(tmp_path / "data", "--topic-storage=log", kept(), kept("http"))
    try:
        other.connect().ok("MPUB t", batch(*(b"%d" % number for number in range(10))))
        reader = stream(node, other, startingOffsets="earliest", failWhenUnreachable="0.6")
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        first = reader.latestOffset(start, ReadMaxRows(40))
        other.kill()
        rest = reader.latestOffset(first, ReadMaxRows(1000))
        assert rest["topics"]["t"][f"127.0.0.1:{node.tcp_port}"] == 300
        with pytest.raises(LogError, match="Connection refused"):
            reader.latestOffset(rest, ReadMaxRows(1000))
        other.start()
        last = reader.latestOffset(rest, ReadMaxRows(1000))
        assert last["topics"]["t"][f"127.0.0.1:{other.tcp_port}"] == 10
        assert reader.latestOffset(last, ReadMaxRows(1000)) is last
        reader.stop()
    finally:
        other.close()
