"""Readers of log-backed topics, without a Spark session: lies, garbage, gaps and checkpoints."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest
from pyspark.sql.datasource import Filter, GreaterThan, LessThan

from nsqc.spark import options
from nsqc.spark.log import api, rows, table
from nsqc.spark.log.api import BadAnswer, DataLoss, LogApi, LogError, State, Unreachable
from nsqc.spark.log.narrow import Times
from nsqc.spark.log.ranges import LogSegment, Place, Range, divide, pieces
from nsqc.spark.log.stream import LogStreamReader
from nsqc.spark.reader import DataLoss as StageLoss
from nsqc.spark.reader import NsqStreamReader
from tests.spark.logs import FLAGS, name_of, publish, where
from tests.support.daemon import Daemon, wait_until
from tests.support.patience import WAIT_SECONDS
from tests.support.ports import kept
from tests.support.power.disk import other_boot

WANTED = ["value", "offset", "nsqd", "topic"]
# Over HTTP: most tests here are about a node's answers.
QUICK = {"failWhenUnreachable": "0.2", "backoff": "10ms", "timeout": "5", "localFiles": "false"}


def again(node: Daemon) -> None:
    """Starts a stopped node on its former ports."""
    node.start(f"--tcp-address=127.0.0.1:{node.tcp_port}", f"--http-address=127.0.0.1:{node.http_port}")


def read(given: dict[str, str]) -> list[int]:
    """The offsets of a table."""
    reader = table.reader(options.log_table({**QUICK, **given}), WANTED)
    return [row["offset"] for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


@pytest.fixture
def stream():
    """stream(options): a reader, stopped with the test."""
    made = []

    def make(given: dict[str, str]) -> LogStreamReader:
        made.append(LogStreamReader(options.log_stream({**QUICK, **given}), WANTED))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def batch(reader: LogStreamReader, start: dict) -> tuple[dict, list[tuple[str, int]]]:
    """The end of the next batch, and its rows."""
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    found = [(row["topic"], row["offset"]) for part in reader.partitions(start, end)
             for piece in rows.read(part.value, reader.options, WANTED, Times()) for row in piece.to_pylist()]
    return end, found


def at(**offsets: dict[str, int]) -> dict:
    """An offset as it is in a checkpoint."""
    return {"topics": offsets, "joined": {}}


# ---------------------------------------------------------------------- proxies


@pytest.fixture
def before(node):
    """before(path, change): the address of a proxy that changes answers: change(status, headers, body) returns status,
    headers, body and Content-Length."""
    servers = []

    def start(path: str, change) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                connection = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=WAIT_SECONDS)
                connection.request("GET", self.path, headers={"Accept": self.headers["Accept"]})
                answer = connection.getresponse()
                body = answer.read()
                connection.close()
                status, headers, length = answer.status, dict(answer.getheaders()), len(body)
                if self.path.startswith(path):
                    status, headers, body, length = change(status, headers, body)
                self.send_response(status)
                for name, value in headers.items():
                    if name.startswith("X-NSQ-"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = length != len(body)

            def log_message(self, *_) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def shifted(by: int):
    """Offsets that are not those of the records."""
    def change(status, headers, body):
        moved = {name: str(int(headers[name]) + by) for name in ("X-NSQ-First-Offset", "X-NSQ-Next-Offset")}
        return status, {**headers, **moved}, body, len(body)
    return change


@pytest.mark.parametrize(("change", "says"), [
    (shifted(10), "it continues at offset 10, but has 0"),
    (shifted(2**32), "but has 0"),
    (shifted(2**64), "1000 records from 18446744073709551616"),
    (lambda status, headers, body: (410, {"X-NSQ-First-Offset": "0"}, b"{}", 2), "status 410 for offset 0"),
    (lambda status, headers, body: (416, {"X-NSQ-Next-Offset": "9" * 30}, b"{}", 2), "status 416 for offset 0"),
])
def test_headers_that_lie(node, topic, before, change, says):
    """No message goes missing without an error, and a task that may skip losses does not ask for ever."""
    publish(node, topic, range(1000))
    given = {"nsqd": name_of(node), "http": before("/topic/read", change), "topic": topic}
    with pytest.raises(BadAnswer, match=f"topic {topic} at {name_of(node)}, offset 0: .*{says}"):
        read(given)
    assert read({**given, "failOnDataLoss": "false"}) == []


def replaced(old: bytes, new: bytes):
    return lambda status, headers, body: (status, headers, body.replace(old, new), len(body.replace(old, new)))


@pytest.mark.parametrize("change", [
    replaced(b'"next_offset":1000', b'"next_offset":Infinity'),
    replaced(b'"next_offset":1000', b'"next_offset":%d' % 2**70),
    replaced(b"[[0,1000,", b"[[1000,0,"),
    replaced(b"[[0,1000,", b'[[0,1000,1,"00"],[0,1000,'),
    replaced(b"[[0,1000,", b"[[1,1000,"),
    replaced(b"[[0,1000,", b"[[0,1000,-"),
    replaced(b"[[0,1000,", b"[[0,1000,1,"),
    replaced(b'"]]', b'x"]]'),
    replaced(b'"]]', b'0' * 16 + b'"]]'),    # a salt of 128 bits
    replaced(b'"segment_list":', b'"segment_list":[],"x":'),
    lambda status, headers, body: (status, headers, b"[" * 100_000, 100_000),
])
def test_states_that_cannot_be(node, topic, before, stream, change):
    publish(node, topic, range(1000))
    given = {"nsqd": name_of(node), "http": before("/topic/log", change), "topic": topic}
    # A stream waits, as for a node that is down.
    reader = stream({**given, "failWhenUnreachable": "60"})
    start = at(**{topic: {name_of(node): 0}})
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    assert "/topic/log" in reader.reportLatestOffset()["metrics"]["nsqdDown"][name_of(node)]


def test_names_of_topics_that_are_none(node, before):
    text = b'{"topics":[{"topic_name":5}]}'
    given = {"nsqd": name_of(node), "http": before("/stats", lambda status, headers, body: (
        status, headers, text, len(text))), "topicPattern": "t"}
    with pytest.raises(LogError, match="/stats: no topics"):
        read(given)


def test_a_node_that_breaks_off_while_it_tells_its_state_is_unreachable(node, topic, before, stream):
    publish(node, topic, range(1000))
    cuts = [True]

    def cut(status, headers, body):
        return (status, headers, body[:len(body) // 2], len(body)) if cuts and cuts.pop() else (
            status, headers, body, len(body))
    given = {"nsqd": name_of(node), "http": before("/topic/log", cut), "topic": topic}
    assert read(given) == list(range(1000)) and not cuts
    cuts += [True] * 100
    with pytest.raises(Unreachable, match=r"\d+ of \d+ bytes"):
        read(given)


def test_offsets_in_deep_json_are_refused_by_name():
    with pytest.raises(options.OptionError, match="option startingOffsets="):
        options.log_table({"nsqd": "a:1", "topic": "t", "startingOffsets": "[" * 100_000})


def test_a_time_that_no_message_will_have(node, topic):
    publish(node, topic, range(10))
    given = {"nsqd": name_of(node), "http": f"127.0.0.1:{node.http_port}", "topic": topic}
    assert read({**given, "startingTimestamp": str(2**53)}) == []
    assert read({**given, "endingTimestamp": str(2**53)}) == list(range(10))


def test_certificates_that_cannot_be_read_are_named(node, tmp_path):
    given = {"nsqd": name_of(node), "http": f"127.0.0.1:{node.http_port}", "topic": "t", "tls": "true",
             "tlsCaFile": str(tmp_path / "none.pem"), "failOnDataLoss": "false"}
    with pytest.raises(LogError, match=r"tlsCaFile=.*none\.pem: No such file") as caught:
        read(given)
    assert type(caught.value) is LogError       # not retried


# ---------------------------------------------------------------------- gaps


def test_a_segment_that_is_gone_is_a_loss_and_a_jump_of_numbers_is_none(tmp_path):
    node = Daemon(tmp_path / "data", *FLAGS)
    try:
        publish(node, "t", range(6000))
        node.kill()
        other_boot(node.data_path)
        again(node)
        given = where(node, topic="t", minPartitions="7")
        for begin, there in (0, 6000), (5990, 10), (6010, 0):   # as if messages after 6000 had been read and lost
            begins = json.dumps({"t": {name_of(node): begin}})
            assert read({**given, "startingOffsets": begins}) == list(range(begin, begin + there))
        publish(node, "t", range(6000, 6100))
        jumped = range(2**39, 2**42)
        found = read(given)
        assert found[:6000] == list(range(6000)) and len(found) == 6100 and all(one in jumped for one in found[6000:])
        # In the gap, close to its end.
        begin = json.dumps({"t": {name_of(node): found[6000] - 5}})
        assert read({**given, "startingOffsets": begin}) == found[6000:]
        assert node.stop() == 0
        lost, following = sorted((node.data_path / "t.log").glob("*.log"))[1:3]
        lost.unlink()
        again(node)
        first, after = int(lost.stem), int(following.stem)
        with pytest.raises(DataLoss, match=rf"topic t at \S+: {after - first} messages from offset {first} on are missing"):
            read({**given, "minPartitions": "1"})
        assert read({**given, "failOnDataLoss": "false"}) == found[:first] + found[after:]
    finally:
        node.close()


def test_large_logs_are_divided_at_once():
    """Steps grow with segments plus parts: their product would be a thousand million."""
    segments = [LogSegment(10 * number, 10 * number + 10, 1 << 27) for number in range(30_000)]
    place = Place("t", "n:1")
    parts = divide([Range(place, "h", 5, 299_995)], {place: segments}, 30_000, None)
    assert len(parts) == 30_000 and parts[0].start == 5 and parts[-1].end == 299_995
    assert all(one.end == other.start for one, other in pairwise(parts))
    assert max(part.end - part.start for part in parts) == 10
    assert pieces([LogSegment(0, 10, 5), LogSegment(2**32, 2**32 + 10, 5)], 5, 2**32 + 5, 4) == [
        (5, 7), (7, 10), (10, 2**32 + 2), (2**32 + 2, 2**32 + 5)]
    assert pieces([LogSegment(0, 10, 5)], 10, 20, 3) == []


# ---------------------------------------------------------------------- streams


def test_a_topic_that_is_no_longer_named_is_not_read_and_keeps_its_offset(node, topic, stream):
    a, b, here = topic + "-a", topic + "-b", name_of(node)
    for name in (a, b):
        publish(node, name, range(20))
    start = at(**{a: {here: 5}, b: {here: 7}})
    for given in ({"topic": b}, {"topicPattern": f"{topic}-b"}):
        end, found = batch(stream(where(node, **given)), start)
        assert found == [(b, offset) for offset in range(7, 20)]
        assert (end["topics"], end["joined"]) == ({a: {here: 5}, b: {here: 20}}, {})
    # A batch planned earlier keeps its rows.
    again_ = stream(where(node, topic=b))
    parts = again_.partitions(start, at(**{a: {here: 10}, b: {here: 7}}))
    assert [(one.place.topic, one.start, one.end) for part in parts for one in part.value] == [(a, 5, 10)]


@pytest.mark.parametrize("checkpoint", [
    {}, {"log": "f00", "rows": 7}, {"topics": [], "joined": {}}, {"topics": {"t": 5}, "joined": {}}, at(t={"a:1": "5"}),
    at(t={"a:1": 1.5}), at(t={"a:1": -1}), at(t={"a:1": True}), at(t={"a:1": 2**63}), {"topics": {}, "joined": 5},
    {**at(t={"a:1": 1}), "logs": 5}, {**at(t={"a:1": 1}), "logs": {"t": {"a:1": 7}}}])
def test_checkpoints_of_something_else(node, stream, checkpoint):
    reader = stream(where(node, topic="t"))
    with pytest.raises(LogError, match="belongs to another query, or was changed"):
        if checkpoint.get("joined") != 5:
            reader.latestOffset(checkpoint, reader.getDefaultReadLimit())
        reader.partitions(at(), checkpoint)
    with pytest.raises(LogError, match="belongs to another query, or was changed"):
        reader.partitions(at(), at(t={"a:1": 5}))


def test_a_checkpoint_of_a_log_for_a_stream_of_a_channel(node, tmp_path):
    reader = NsqStreamReader(options.stream({"nsqd": name_of(node), "topic": "t", "channel": "c",
                                             "stagingDir": str(tmp_path / "stage")}))
    try:
        with pytest.raises(StageLoss, match="belongs to another query, or was changed"):
            reader.latestOffset(at(t={"a:1": 5}), reader.getDefaultReadLimit())
    finally:
        reader.stop()


def test_an_nsqlookupd_that_does_not_answer_says_nothing_about_topics(node, topic, stream, lookupd):
    """Neither that there are none, nor that one was deleted."""
    gone = {"nsqlookupd": "127.0.0.1:1", "topic": topic}
    with pytest.raises(Unreachable, match="no nsqlookupd answers"):
        stream(gone).initialOffset()
    with pytest.raises(Unreachable, match="knows no nsqd"):
        stream({**gone, "nsqlookupd": lookupd()}).initialOffset()
    reader, start = stream({**gone, "failWhenUnreachable": "60"}), at(**{topic: {name_of(node): 5}})
    assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    assert "no nsqlookupd answers" in reader.reportLatestOffset()["metrics"]["nsqdDown"]["nsqlookupd"]


def test_losses_count_once(node, topic, stream):
    """Even if a batch that must wait for more is retried many times."""
    publish(node, topic, range(6000))
    node.post(f"/channel/create?topic={topic}&channel=c&from=end")
    node.http("PUT", f"/topic/rules?topic={topic}", b'{"storage": "log", "retain_bytes": 1, "retain_time": "1ms"}')

    def first() -> int:
        return json.loads(node.http("GET", f"/topic/log?topic={topic}")[1])["first_offset"]
    wait_until(lambda: 1000 < first() < 6000, "retention")
    given = where(node, topic=topic, failOnDataLoss="false", minOffsetsPerTrigger="6000", maxTriggerDelay="3")
    reader, start = stream(given), at(**{topic: {name_of(node): 100}})
    assert all(reader.latestOffset(start, reader.getDefaultReadLimit()) == start for _ in range(3))
    assert reader.reportLatestOffset()["metrics"]["lostRows"] == 0
    wait_until(lambda: reader.latestOffset(start, reader.getDefaultReadLimit()) != start, "maxTriggerDelay")
    assert reader.reportLatestOffset()["metrics"]["lostRows"] == first() - 100


def test_metrics_of_a_node_that_hangs_cost_one_timeout(tmp_path, stream, monkeypatch):
    """The other topics of the node are not asked for."""
    node = Daemon(tmp_path / "data", *FLAGS)
    try:
        for number in range(30):
            publish(node, f"t{number}", range(10))
        reader = stream({**where(node, topicPattern="t.*", startingOffsets="earliest", maxOffsetsPerTrigger="30"),
                         "timeout": "5"})
        reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
        node.process.send_signal(signal.SIGSTOP)
        asked, call = [], LogApi._send
        monkeypatch.setattr(LogApi, "_send", lambda *words: asked.append(words) or call(*words))
        assert reader.reportLatestOffset()["metrics"]["lagRows"] == 270
        assert 0 < len(asked) < 30 / 2
    finally:
        node.close()


def test_only_the_first_look_waits_for_a_node_that_hangs(node, topic, tmp_path, stream, monkeypatch):
    monkeypatch.setattr(api, "REST_SECONDS", 0.0)
    askers: list[tuple[str, str]] = []
    state = LogApi.state

    def asked(self: LogApi, name: str) -> State:
        askers.append((self.address, threading.current_thread().name))
        return state(self, name)

    monkeypatch.setattr(LogApi, "state", asked)
    other = Daemon(tmp_path / "data", *FLAGS)
    try:
        publish(node, topic, range(10))
        publish(other, topic, range(10))
        reader = stream({**where(node, other, topic=topic, startingOffsets="earliest"), "timeout": "1"})
        start = reader.initialOffset()
        other.process.send_signal(signal.SIGSTOP)
        ends = [reader.latestOffset(start, reader.getDefaultReadLimit()) for _ in range(2)]
        assert name_of(other) in reader.reportLatestOffset()["metrics"]["nsqdDown"]
        askers.clear()
        ends += [reader.latestOffset(start, reader.getDefaultReadLimit()) for _ in range(20)]
        assert all(end["topics"][topic] == {name_of(node): 10, name_of(other): 0} for end in ends)
        there = f"127.0.0.1:{other.http_port}"
        assert {name for address, name in askers if address == there} <= {f"nsqc-{name_of(other)}"}
        other.process.send_signal(signal.SIGCONT)
        wait_until(lambda: reader.latestOffset(start, reader.getDefaultReadLimit())["topics"][topic][name_of(other)] == 10)
    finally:
        other.close()


def test_a_stream_goes_on_while_one_node_answers(node, topic, tmp_path, stream):
    """Also if another node has the topic."""
    other = Daemon(tmp_path / "data", *FLAGS)
    try:
        publish(other, topic, range(10))
        reader = stream(where(node, other, topic=topic, startingOffsets="earliest"))
        start = reader.initialOffset()
        other.kill()
        time.sleep(0.3)     # longer than failWhenUnreachable
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
    finally:
        other.close()


# ---------------------------------------------------------------------- identity of logs


def test_a_topic_that_was_made_again_and_has_grown_beyond_the_checkpoint(node, topic, stream):
    publish(node, topic, range(10))
    reader = stream(where(node, topic=topic, startingOffsets="earliest"))
    end, found = batch(reader, reader.initialOffset())
    assert len(found) == 10
    planned = reader.partitions(at(**{topic: {name_of(node): 0}}), end)
    node.post(f"/topic/delete?topic={topic}")
    publish(node, topic, range(100, 130))
    with pytest.raises(DataLoss, match="was deleted and created again since the previous batch ended at offset 10"):
        reader.latestOffset(end, reader.getDefaultReadLimit())
    # A range planned earlier is not read from the new one.
    for part in planned:
        with pytest.raises(DataLoss, match="was deleted and created again"):
            list(rows.read(part.value, reader.options, WANTED, Times()))
    loose = stream(where(node, topic=topic, failOnDataLoss="false"))
    last, found = batch(loose, end)
    assert found == [(topic, offset) for offset in range(30)]
    assert loose.latestOffset(last, loose.getDefaultReadLimit()) is last
    assert last["logs"] != end["logs"]


def test_a_node_with_another_address_is_read_on(topic, tmp_path, stream):
    one = Daemon(tmp_path / "data", *FLAGS)
    try:
        publish(one, topic, range(10))
        reader = stream(where(one, topic=topic, startingOffsets="earliest"))
        start = reader.initialOffset()
        end, _ = batch(reader, start)
        assert one.stop() == 0
        one.start()
        publish(one, topic, range(10, 15))
        moved = stream(where(one, topic=topic))
        planned, found = batch(moved, end)
        assert found == [(topic, offset) for offset in range(10, 15)]
        assert planned["topics"] == {topic: {name_of(one): 15}} and planned["joined"] == {topic: {name_of(one): 10}}
        # Also a range planned at the old address.
        parts = stream(where(one, topic=topic)).partitions(start, end)
        assert [(part.place.node, part.start, part.end) for bundle in parts for part in bundle.value] == [
            (name_of(one), 0, 10)]
    finally:
        one.close()


@pytest.mark.parametrize("gone", [False, True])
def test_nodes_that_exchange_addresses_are_read_on(topic, tmp_path, stream, gone):
    """gone: one of them comes back later, while the other already has its address."""
    one, other = (Daemon(tmp_path / name, *FLAGS, kept(), kept("http")) for name in ("one", "other"))
    ports = [(node.tcp_port, node.http_port) for node in (one, other)]
    options = where(one, other, topic=topic)

    def again_at(node: Daemon, tcp_port: int, http_port: int) -> None:
        node.start(f"--tcp-address=127.0.0.1:{tcp_port}", f"--http-address=127.0.0.1:{http_port}")
    try:
        publish(one, topic, range(10))
        publish(other, topic, range(20))
        first = stream({**options, "startingOffsets": "earliest"})
        start = first.initialOffset()
        first_end, found = batch(first, start)
        end = first_end
        assert len(found) == 30
        assert one.stop() == other.stop() == 0
        again_at(one, *ports[1])
        publish(one, topic, range(3))
        if gone:
            end, found = batch(stream(options), end)
            assert found == [(topic, offset) for offset in range(10, 13)]
            assert sorted(end["topics"][topic].values()) == [13, 20]
            with pytest.raises(Unreachable):
                stream(options).partitions(start, first_end)
        again_at(other, *ports[0])
        publish(other, topic, range(5))
        planned, found = batch(stream(options), end)
        assert sorted(found) == [(topic, offset) for offset in [*([] if gone else range(10, 13)), *range(20, 25)]]
        assert planned["topics"] == {topic: {f"127.0.0.1:{ports[1][0]}": 13, f"127.0.0.1:{ports[0][0]}": 25}}
        # A range planned earlier is read from the log's present place.
        parts = stream(options).partitions(start, first_end)
        assert sorted((part.place.node, part.start, part.end) for bundle in parts for part in bundle.value) == sorted([
            (f"127.0.0.1:{ports[1][0]}", 0, 10), (f"127.0.0.1:{ports[0][0]}", 0, 20)])
    finally:
        one.close()
        other.close()


def test_one_node_by_two_names_is_read_once_and_a_copy_is_refused(node, topic, tmp_path, stream, monkeypatch):
    publish(node, topic, range(10))
    port = name_of(node).rpartition(":")[2]
    http_port = str(node.http_port)
    both = {"topic": topic, "nsqd": f"127.0.0.1:{port},localhost:{port}", "http": f"127.0.0.1:{http_port},localhost:{http_port}"}
    assert read(both) == list(range(10))
    reader = stream({**both, "startingOffsets": "earliest"})
    # The checkpoint's name for it stays.
    first = at(**{topic: {f"localhost:{port}": 4}})
    end, found = batch(reader, first)
    assert found == [(topic, offset) for offset in range(4, 10)] and end["topics"] == {topic: {f"localhost:{port}": 10}}
    assert len(batch(reader, reader.initialOffset())[1]) == 10
    # A check asks each address once for its identity, however many topics the node has.
    many = [f"{topic}-{number}" for number in range(20)]
    for name in many:
        publish(node, name, range(1))
    asked: list[str] = []
    process = LogApi.process
    monkeypatch.setattr(LogApi, "process", lambda self: asked.append(self.address) or process(self))
    assert len(read({**both, "topic": ",".join(many)})) == 20
    assert sorted(asked) == [f"127.0.0.1:{http_port}", f"localhost:{http_port}"]
    original = Daemon(tmp_path / "data", *FLAGS)
    copy = None
    try:
        publish(original, topic, range(10))
        original.close()
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        original = Daemon(tmp_path / "data", *FLAGS)
        copy = Daemon(tmp_path / "copy", *FLAGS)
        with pytest.raises(LogError, match="one is a copy of the other's files"):
            read(where(original, copy, topic=topic))
    finally:
        original.close()
        if copy is not None:
            copy.close()


# ---------------------------------------------------------------------- nsqlookupd


@pytest.fixture
def answering():
    """answering(text): the address of an nsqlookupd with that answer; its server's attribute `text` can be changed."""
    servers = []

    def start(text: str):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(self.server.text.encode())

            def log_message(self, *_) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.text, server.address = text, f"127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def producer(node: Daemon, **more) -> dict:
    return {"broadcast_address": "127.0.0.1", "tcp_port": node.tcp_port, "http_port": node.http_port, **more}


@pytest.mark.parametrize("change", [
    {"http_port": 10**30}, {"http_port": 0}, {"broadcast_address": "a b"}, {"broadcast_address": "a..b"},
    {"tcp_port": "x"}, {"tcp_port": 1}])
def test_an_nsqlookupd_that_lies(node, topic, answering, change):
    """tcp_port 1: the same log would be read under two names."""
    publish(node, topic, range(10))
    lying = answering(json.dumps({"producers": [producer(node), producer(node, **change)]})).address
    with pytest.raises(Unreachable, match=f"nsqlookupd {lying}: |a\\.\\.b"):
        read({"nsqlookupd": lying, "topic": topic})


@pytest.mark.parametrize("text", ["[1]", "5", "[" * 100_000, "<html>", '{"producers": 5}', '{"producers": [{}]}'])
def test_an_nsqlookupd_that_answers_something_else(topic, answering, text):
    lying = answering(text).address
    with pytest.raises(Unreachable, match=f"nsqlookupd {lying}: "):
        read({"nsqlookupd": lying, "topic": topic})


def test_a_stream_goes_on_without_nsqlookupd_and_begins_with_one(node, topic, answering, stream):
    publish(node, topic, range(10))
    good = answering(json.dumps({"producers": [producer(node)]}))
    reader = stream({"nsqlookupd": good.address, "topic": topic, "startingOffsets": "earliest", "lookupInterval": "0.05"})
    start = reader.initialOffset()
    good.text = "no JSON"
    time.sleep(0.3)         # longer than lookupInterval and failWhenUnreachable
    assert batch(reader, start)[1] == [(topic, offset) for offset in range(10)]
    assert f"nsqlookupd {good.address}" in reader.reportLatestOffset()["metrics"]["nsqdDown"]
    half = stream({"nsqlookupd": f"{good.address},{answering(json.dumps({'producers': [producer(node)]})).address}",
                   "topic": topic, "startingOffsets": "earliest"})
    assert batch(half, half.initialOffset())[1] == [(topic, offset) for offset in range(10)]
    assert f"nsqlookupd {good.address}" in half.reportLatestOffset()["metrics"]["nsqdDown"]


class Drip(BaseHTTPRequestHandler):
    """Stands before a node and sends the records of /topic/read byte by byte."""

    node: Daemon

    def do_GET(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.node.http_port)
        connection.request("GET", self.path, headers={"Accept": self.headers["Accept"]})
        answer = connection.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.startswith("X-NSQ-") or name == "Content-Length":
                self.send_header(name, value)
        self.end_headers()
        step = 1 if self.path.startswith("/topic/read") else len(body)
        try:
            for at in range(0, len(body), step):
                self.wfile.write(body[at:at + step])
                time.sleep(0.02)
        except OSError:
            pass        # the reader has closed

    def log_message(self, *_) -> None:
        pass


def test_a_node_that_drips_is_unreachable(node, topic):
    publish(node, topic, range(1000))
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Drip,), {"node": node}))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        with pytest.raises(Unreachable, match=r"\d+ bytes in \d+\.\d s"):
            read({"nsqd": name_of(node), "http": f"127.0.0.1:{server.server_port}", "topic": topic, "timeout": "1"})
    finally:
        server.shutdown()
        server.server_close()


AHEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += 3600;
    return answer;
}
"""


def test_a_clock_that_was_an_hour_ahead(tmp_path, topic, stream):
    """Of two restarts, the first one has it; rows are neither lost nor duplicated, whichever bounds are given."""
    (tmp_path / "ahead.c").write_text(AHEAD)
    subprocess.run([*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-o", tmp_path / "ahead.so", tmp_path / "ahead.c",
                    "-ldl"], check=True)
    node = Daemon(tmp_path / "data", *FLAGS, env={**os.environ, "LD_PRELOAD": str(tmp_path / "ahead.so")})
    try:
        publish(node, topic, range(500))
        assert node.stop() == 0
        node.popen = {}
        again(node)
        publish(node, topic, range(500, 1000))
        given, now = where(node, topic=topic), time.time()
        assert read(given) == list(range(1000))
        # By time, a log begins with the first message of that time or later: here one from the future.
        assert read({**given, "startingTimestamp": str(int((now - 600) * 1000))}) == list(range(1000))
        assert read({**given, "startingTimestamp": str(int((now + 7200) * 1000))}) == []

        def pushed(*filters: Filter) -> list[int]:
            reader = table.reader(options.log_table({**QUICK, **given, "pushFilters": "true"}), [*WANTED, "timestamp"])
            assert reader.pushFilters(list(filters)) == []
            return [row["offset"] for part in reader.partitions() for batch in reader.read(part)
                    for row in batch.to_pylist()]
        moment = datetime.fromtimestamp(now + 600, UTC)
        assert pushed(LessThan(("timestamp",), moment)) == list(range(500, 1000))
        assert pushed(GreaterThan(("timestamp",), moment)) == list(range(500))
        reader = stream({**given, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "300"})
        end, seen = reader.initialOffset(), []
        while (found := batch(reader, end))[0] != end:
            end = found[0]
            seen += found[1]
            metrics = reader.reportLatestOffset()["metrics"]
            assert 0 <= metrics["lagSeconds"] < 7200 and metrics["lagRows"] == 1000 - len(seen)
        assert sorted(seen) == [(topic, offset) for offset in range(1000)]
    finally:
        node.close()
