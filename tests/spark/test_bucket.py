"""Topics read from a bucket: the same rows as from the nodes, which are gone, and a stream that moves between both."""

import json
from dataclasses import replace

import pytest

from nsqc.bucket.ship import Shipper
from nsqc.bucket.store import FileStore, open_bucket
from nsqc.spark import options
from nsqc.spark.log import bucket
from nsqc.spark.log.api import DataLoss, LogError, Unreachable
from nsqc.spark.log.narrow import Times
from nsqc.spark.log.ranges import Range
from tests.bucket.support import TIME, Log, Machine, MemoryLogs
from tests.spark.logs import FLAGS, publish, shipped
from tests.spark.test_log import Stream, values, why
from tests.support.daemon import Daemon


@pytest.fixture
def stopped(tmp_path, topic):
    """(the URI of a bucket, its stopped node): 1,000 messages of a topic, in several segments, 200 of another."""
    node = Daemon(tmp_path / "data", *FLAGS)
    publish(node, topic, range(1000))
    publish(node, f"{topic}.dead", range(200))
    assert node.stop() == 0
    uri = f"file://{tmp_path}/bucket"
    shipped(node.data_path, uri, "nsqd-3")
    yield uri, node
    node.close()


def test_a_table_needs_no_node(spark, stopped, topic):
    uri, _ = stopped

    def table(**more: str):
        return spark.read.format("nsq").options(bucket=uri, **{"topic": topic, **more}).load()
    rows = table(minPartitions="3").select("value", "topic", "nsqd", "offset", "attempts").collect()
    assert sorted((row.offset, int(row.value)) for row in rows) == [(number, number) for number in range(1000)]
    assert {tuple(row)[1:3] for row in rows} == {(topic, "nsqd-3")}
    assert table(minPartitions="3").rdd.getNumPartitions() == 3
    part = json.dumps({topic: {"nsqd-3": 123}}), json.dumps({topic: {"nsqd-3": 877}})
    assert values(table(startingOffsets=part[0], endingOffsets=part[1])) == list(range(123, 877))
    middle = table().where("offset = 500").select("timestamp").collect()[0][0].timestamp()
    later = values(table(startingTimestamp=str(int(middle * 1000) + 1)))
    assert later == list(range(later[0] if later else 1000, 1000)) and (not later or later[0] > 500)
    assert values(table(startingTimestamp="0", endingTimestamp=str(2**50))) == list(range(1000))
    assert "no node has topic nowhere" in why(lambda: table(topic="nowhere").count())
    assert "where there is no such log" in why(lambda: table(startingOffsets=json.dumps({topic: {"nsqd-4": 1}})).count())


@pytest.mark.long
def test_a_stream_moves_from_a_node_to_the_bucket_and_back(spark, topic, tmp_path):
    stream, uri = Stream(spark, tmp_path), f"file://{tmp_path}/bucket"
    node = Daemon(tmp_path / "data", *FLAGS)
    try:
        publish(node, topic, range(300))
        stream.run(node, topic=topic, startingOffsets="earliest")
        publish(node, topic, range(300, 700))
        assert node.stop() == 0
        shipped(node.data_path, uri, "nsqd-3")
        stream.run(bucket=uri, topic=topic, maxOffsetsPerTrigger="150")
        assert stream.values() == list(range(700))
        node.start()
        publish(node, topic, range(700, 800))
        stream.run(node, topic=topic)
        assert stream.values() == list(range(800))
    finally:
        node.close()


def ranges_of(uri: str, topic: str) -> tuple[options.LogTable, list[Range]]:
    """What a task gets for all of a topic."""
    chosen = options.log_table({"bucket": uri, "topic": topic, "failOnDataLoss": "false"})
    cluster = bucket.BucketCluster(chosen)
    (place, state), = cluster.look().states.items()
    return chosen, list(cluster.located([Range(place, "", state.first, state.next, state.id)]))


def test_damaged_and_missing_objects_are_named(tmp_path, topic, caplog):
    log = Log(7, topic)
    machine = Machine(FileStore(str(tmp_path / "bucket")), tmp_path, "one")
    for number in range(4):         # each too large for a commit
        log.append([b"%d" % (100 * number + row) + b"x" * 60_000 for row in range(100)], new_segment=True)
        shipper = Shipper(machine.take_over(), MemoryLogs(log))
        shipper.start()
        assert shipper.logs.wait(log) and shipper.stop(60)
    chosen, (part,) = ranges_of(f"file://{tmp_path}/bucket", topic)
    objects = sorted({extent.object for extent in part.extents})
    assert len(objects) > 3

    def read(**more: bool) -> list[int]:
        batches = bucket.read([part], replace(chosen, **more), ["offset"], Times())
        return [number for batch in batches for number in batch.column("offset").to_pylist()]
    assert read() == list(range(400))
    whole, part = part, part._replace(extents=part.extents[:2])     # the rest was removed since the plan
    end = part.extents[-1].end
    with pytest.raises(DataLoss, match=f"offset {end}: {400 - end} messages are missing"):
        read(failOnDataLoss=True)
    assert read() == list(range(end))
    part = whole
    lost = part.extents[1]
    path = tmp_path / "bucket" / "nsqd-1" / lost.object
    data = bytearray(path.read_bytes())
    data[lost.at + lost.length // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogError, match=f"nsq: topic {topic} at nsqd-1, offset {lost.first}: .*damaged"):
        read(failOnDataLoss=True)
    assert read() == [*range(lost.first), *range(lost.end, 400)]
    assert f"offset {lost.first}" in caplog.text
    path.unlink()
    with pytest.raises(Unreachable, match=f"topic {topic} at nsqd-1, offset {lost.first}"):
        read()      # may be in another object by now: a new plan finds it


def test_times_are_found_in_extents(tmp_path, topic):
    log = Log(7, topic)
    log.append([b"x"] * 50)
    log.append([b"y" * 70_000] * 50)
    log.append([b"z"] * 50, new_segment=True)
    shipper = Shipper(Machine(FileStore(str(tmp_path / "bucket")), tmp_path, "one").take_over(), MemoryLogs(log))
    shipper.start()
    assert shipper.logs.wait(log) and shipper.stop(60)
    logs = bucket.BucketLogs(open_bucket(f"file://{tmp_path}/bucket"), "nsqd-1")
    for offset in (0, 1, 49, 50, 51, 99, 100, 149):
        assert logs.time_of(topic, offset) == TIME + offset
        assert logs.offset_at(topic, TIME + offset) == offset
    assert (logs.offset_at(topic, 0), logs.offset_at(topic, TIME + 150), logs.time_of(topic, 150)) == (0, 150, None)


@pytest.mark.parametrize(("given", "text"), [
    ({"nsqd": "a:1"}, "option nsqd is for reading from nodes"), ({"authSecret": "x"}, "option authSecret is for"),
    ({"localFiles": "false"}, "option localFiles is for"), ({"bucket": "ftp://x/y"}, "expected a URI such as s3://"),
    ({"bucket": "s3://u:p@x/y"}, "has no user")])
def test_options_without_effect_on_a_bucket_are_refused(tmp_path, given, text):
    with pytest.raises(options.OptionError, match=text):
        options.log_table({"bucket": f"file://{tmp_path}", "topic": "t", **given})
