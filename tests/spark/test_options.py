"""Options: each is read; misspelt options and invalid values are refused by name."""

from pathlib import Path

import pytest

from nsqc.spark import options
from nsqc.spark.options import OptionError, tables
from nsqc.spark.values import FILE

SINK = {"nsqd": "a:1"}
STREAM = {"nsqd": "a:1", "topic": "t", "channel": "c", "stagingDir": "/s"}
DISKQUEUE = {"path": "/p"}
LOG = {"nsqd": "a:1", "topic": "t"}


def test_defaults():
    sink = options.sink(SINK)
    assert (sink.nsqd, sink.maxMsgSize, sink.maxBodySize, sink.batchBytes) == (("a:1",), 1 << 20, 5 << 20, 256 << 10)
    stream = options.stream(STREAM)
    assert (stream.connections, stream.maxInFlight, stream.lingerMs, stream.idleMs) == (1, 2500, 20, 1000)
    assert options.diskqueue(DISKQUEUE).range == "unread"


@pytest.mark.parametrize(("text", "value"), [("70000", 70000), ("64k", 65536), ("64KiB", 65536), ("1m", 1 << 20)])
def test_sizes_are_bytes_or_have_a_unit(text, value):
    assert options.sink({**SINK, "batchbytes": text}).batchBytes == value


@pytest.mark.parametrize(("text", "value"), [("2", 2.0), ("0.5", 0.5), ("500ms", 0.5), ("3s", 3.0)])
def test_times_are_seconds_or_have_a_unit(text, value):
    assert options.sink({**SINK, "Timeout": text}).timeout == value


def test_what_is_sparks_is_left_to_spark():
    assert options.stream({**STREAM, "checkpointLocation": "/c", "queryName": "q"}).topic == "t"


@pytest.mark.parametrize(("read", "given", "says"), [
    (options.log_table, {**LOG, "startingOffsets": "5"}, "must be earliest, latest, or JSON"),
    (options.log_table, {**LOG, "startingOffsets": '{"t": {"a:1": 5}, "t": {"b:1": 5}}'}, 'contains "t" twice'),
    (options.log_table, {**LOG, "startingOffsets": '{"t": {"a:1": 5, "a:1": 6}}'}, 'contains "a:1" twice'),
    (options.log_table, {**LOG, "startingOffsets": '{"t": {"no node:x": 1}}'}, "not HOST:PORT"),
    (options.log_table, {**LOG, "startingOffsets": '{"t": {"a:1": -3}}'}, "-3 is not an offset"),
    (options.log_table, {**LOG, "startingOffsets": '{"t": {"a:1": true}}'}, "true is not an offset"),
    (options.log_table, {**LOG, "startingOffsets": "latest"}, "nothing is after the end"),
    (options.log_table, {**LOG, "startingOffsets": "earliest", "startingTimestamp": "5"}, "give one of the options"),
    (options.log_table, {**LOG, "stagingDir": "/s"}, "stagingDir needs option channel"),
    (options.log_table, {**LOG, "topicPattern": "("}, "not a regular expression"),
    (options.log_table, {**LOG, "topicPattern": "a"}, "give one of the options topic, topicPattern and assign"),
    (options.log_table, {**LOG, "assign": '{"t": ["a:1"]}'}, "give one of the options topic, topicPattern and assign"),
    (options.log_table, {"nsqd": "a:1", "assign": '["t"]'}, "must be JSON by topic"),
    (options.log_table, {"nsqd": "a:1", "assign": '{"t": "a:1"}'}, "topic t needs a list of nodes"),
    (options.log_table, {"nsqd": "a:1", "assign": '{"t": ["a:1", "a:1"]}'}, "topic t: a node is given twice"),
    (options.log_table, {"nsqd": "a:1", "assign": '{"t": ["b:1"]}'}, "contains b:1, which is not one of nsqd=a:1"),
    (options.log_table, {**LOG, "startingOffsetsByTimestamp": "5"}, "must be JSON by topic"),
    (options.log_table, {**LOG, "startingOffsetsByTimestamp": '{"t": -1}'}, "topic t: -1 is not a time in milliseconds"),
    (options.log_table, {**LOG, "startingOffsetsByTimestamp": '{"t": {"a:1": "x"}}'}, 'node a:1: "x" is not a time'),
    (options.log_table, {**LOG, "startingOffsetsByTimestamp": '{"t": {}}'}, "topic t needs a time"),
    (options.log_table, {**LOG, "endingOffsetsByTimestamp": '{"t": 1}', "endingTimestamp": "5"}, "give one of the options"),
    (options.log_table, {**LOG, "topic": "t#ephemeral"}, "is ephemeral"),
    (options.log_table, {**LOG, "http": "a:1,b:2"}, "one address for each of nsqd"),
    (options.log_table, {**LOG, "kafka.bootstrap.servers": "a:1"}, "is Kafka's"),
    (options.log_table, {**LOG, "topic": "t,t"}, "twice"),
    (options.log_table, {**LOG, "maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for spark.readStream only"),
    (options.log_stream, {**LOG, "endingOffsets": "latest"}, "endingOffsets is for spark.read only"),
    (options.log_stream, {**LOG, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "must not be below"),
    (options.log_stream, {**LOG, "maxTriggerDelay": "soon"}, "must be seconds"),
    (options.sink, {}, "no options given"),
    (options.sink, {"topic": "t"}, "give one of the options nsqd and nsqlookupd"),
    (options.sink, {**SINK, "nsqlookupd": "b:2"}, "give one of"),
    (options.sink, {"nsqd": "a"}, "not HOST:PORT"),
    (options.sink, {"nsqd": "a:0"}, "not HOST:PORT"),
    (options.sink, {"nsqd": "a:1,a:1"}, "twice"),
    (options.sink, {**SINK, "topic": "bad topic!"}, "option topic=bad topic!: a name is 1 to 64"),
    (options.sink, {**SINK, "topci": "t"}, "unknown option topci: did you mean topic\\?$"),
    (options.sink, {**SINK, "batchrow": "5"}, "unknown option batchRow: did you mean batchRows\\?$"),
    (options.log_stream, {**LOG, "maxoffsetpertriggers": "5"},
     "unknown option maxOffsetPerTriggers: did you mean maxOffsetsPerTrigger\\?$"),
    (options.sink, {**SINK, "zzz": "5"}, "unknown option zzz: docs/spark.md lists the options$"),
    (options.sink, {**SINK, "batchRows": "0"}, "batchRows=0: must be a whole number from 1"),
    (options.sink, {**SINK, "batchRows": "many"}, "whole number"),
    (options.sink, {**SINK, "batchBytes": "5x"}, "must be"),
    (options.sink, {**SINK, "batchBytes": "6m"}, "above maxBodySize"),
    (options.sink, {**SINK, "maxMsgSize": "5m"}, "maxBodySize must have room"),
    (options.sink, {**SINK, "timeout": "soon"}, "must be seconds"),
    (options.sink, {**SINK, "onBadRecord": "ignore"}, "fail or skip"),
    (options.sink, {**SINK, "tlsVerify": "false"}, "need tls=true"),
    (options.stream, {**STREAM, "tls": "true", "tlsCertFile": "/c.pem"}, "go together"),
    (options.stream, {**STREAM, "compression": "gzip"}, "none or deflate or snappy"),
    (options.stream, {key: value for key, value in STREAM.items() if key != "stagingDir"}, "stagingDir is required"),
    (options.stream, {**STREAM, "topic": "x" * 65}, "a name is"),
    (options.stream, {**STREAM, "failOnDataLoss": "perhaps"}, "true or false"),
    (options.stream, {**STREAM, "maxStagedBytes": "1m", "segmentBytes": "2m"}, "must not be above maxStagedBytes"),
    (options.stream, {**STREAM, "retries": "1"}, "unknown option retries"),
    (options.stream, {"nsqd": "a:1"}, "options topic, channel and stagingDir are required"),
    (options.stream, {**STREAM, "failWhenUnreachable": "never"}, "must be seconds"),
    (options.stream, {**STREAM, "kafka.bootstrap.servers": "b:9092"}, "is Kafka's: give nsqd .* or nsqlookupd"),
    (options.stream, {**STREAM, "subscribe": "t", "startingOffsets": "earliest"},
     "startingoffsets is Kafka's: a channel keeps its position.*subscribe is Kafka's: give topic"),
    (options.stream, {**STREAM, "group.id": "g"}, "is Kafka's: give channel"),
    (options.stream, {**STREAM, "maxOffsetsPerTrigger": "5"}, "give maxRowsPerBatch"),
    (options.stream, {**STREAM, "kafka.sasl.jaas.config": "x"}, "give authSecret"),
    (options.sink, {**SINK, "kafka.acks": "all"}, "is Kafka's: nsqc has no equivalent"),
    (options.at_load, {**STREAM, "stagingDir": "/dev/null/x"}, "/dev/null is not a folder"),
    (options.at_load, {**STREAM, "stagingDir": "/tmp", "tls": "true", "tlsCaFile": "/no.pem"}, "there is no such file"),
    (options.diskqueue, {**DISKQUEUE, "channel": "c", "queues": "topics"}, "queues=topics"),
    (options.diskqueue, {**DISKQUEUE, "channel": "c#ephemeral"}, "ephemeral"),
    (options.diskqueue, {"topic": "t"}, "path is required"),
    (options.diskqueue_at_load, {"path": "/dev/null"}, "path=/dev/null is not a folder"),
])
def test_senseless_options_are_refused(read, given, says):
    with pytest.raises(OptionError, match=says):
        read(given)


EVERY_PATH = [(read, {**given, **more}, item.name) for read, kind, given, more in (
    (options.sink, options.Sink, SINK, {"tls": "true"}), (options.stream, options.Stream, STREAM, {"tls": "true"}),
    (options.at_load, options.Stream, STREAM, {"tls": "true"}),
    (options.log_table, options.LogTable, LOG, {"tls": "true"}),
    (options.log_stream, options.LogStream, LOG, {"tls": "true"}), (options.diskqueue, options.DiskQueue, DISKQUEUE, {}))
    for item in options.declared(kind).values() if item.option.kind is FILE]


def test_the_options_that_are_paths():
    assert {name for *_, name in EVERY_PATH} == {
        "stagingDir", "totalsPath", "path", "tlsCaFile", "tlsCertFile", "tlsKeyFile"}


@pytest.mark.parametrize(("read", "given", "name"), EVERY_PATH)
@pytest.mark.parametrize(("text", "says"), [
    ("dbfs:/x", "dbfs:/x is not a local path"), ("s3a://bucket/x", "not a local path"),
    ("hdfs://host:9000/x", "not a local path"), ("file://host/x", "is not a local path; write file:///PATH"),
    ("file:x", "is not a local path; write file:///PATH"), ("x/y", "x/y is relative"), ("dbfs:x", "is relative"),
    ("~nobody-of-that-name/x", "is relative")])
def test_a_path_that_is_no_absolute_one_of_this_machine_is_refused(read, given, name, text, says):
    with pytest.raises(OptionError, match=f"option {name}={text}: .*{says}"):
        read({**given, name: text})


@pytest.mark.parametrize(("text", "path"), [
    ("/x/y", "/x/y"), ("file:/x/y", "/x/y"), ("file:///x/y", "/x/y"), ("file://localhost/x/y", "/x/y"),
    ("~/y", "/home/of/mine/y"), ("file:///x%20?y#z", "/x%20?y#z")])
def test_what_is_read_as_a_path(monkeypatch, text, path):
    monkeypatch.setenv("HOME", "/home/of/mine")
    assert options.stream({**STREAM, "stagingDir": text}).stagingDir == path
    assert options.sink({**SINK, "totalsPath": text}).totalsPath == path
    assert options.diskqueue({"path": text}).path == path
    tls = {"tls": "true", "tlsCaFile": text, "tlsCertFile": text, "tlsKeyFile": text}
    log = options.log_table({**LOG, **tls})
    assert (log.tlsCaFile, log.tlsCertFile, log.tlsKeyFile) == (path, path, path)


def test_a_secret_is_not_in_an_error():
    with pytest.raises(OptionError, match="authSecret=…: must not be empty"):
        options.sink({**SINK, "authSecret": " "})


def test_the_documentation_has_the_declared_options():
    """python -m nsqc.spark.options prints the tables."""
    text = (Path(__file__).parent.parent.parent / "docs" / "spark.md").read_text()
    for table in tables():
        assert table in text, table


def test_a_source_is_named_by_its_options_without_secrets():
    chosen = options.log_stream({**LOG, "authSecret": "s3cret", "maxOffsetsPerTrigger": "5", "failOnDataLoss": "false"})
    assert options.shown(chosen) == f"nsqd={LOG['nsqd']} topic=t failOnDataLoss=false maxOffsetsPerTrigger=5"
