"""Declares the options of the data sources once: name, kind, default, meaning. Parsing, errors and the tables in
docs/spark.md derive from here.

Spark passes names in lower case and values as text. Anything misspelt, out of range or without effect is refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, get_type_hints

from nsqc.client.address import split_address
from nsqc.client.commands import BATCH_BYTES, BATCH_ROWS, WINDOW
from nsqc.client.envelope import MAGIC
from nsqc.client.options import MPUB_ROOM
from nsqc.paths import folder_fault
from nsqc.spark.values import (
    ADDRESSES,
    ASSIGNMENT,
    BUCKET,
    EARLIEST,
    FILE,
    FLAG,
    GIB,
    HOSTS,
    KIB,
    LATEST,
    LATEST_MS,
    MIB,
    NAME,
    NAMES,
    PATTERN,
    PLACES,
    TEXT,
    TIB,
    TIMES,
    Assignment,
    Kind,
    Places,
    Times,
    one_of,
    seconds,
    size,
    whole,
)
from nsqc.wire.codecs import CODECS
from nsqc.wire.nodehosts import NodeHosts
from nsqc.wire.parser import is_ephemeral

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


# ====================================================================== kafka
# Options of Spark's Kafka source, and their equivalents. Names in lower case, as Spark passes them.

OPTIONS = {
    "kafka.bootstrap.servers": "give nsqd (HOST:PORT of TCP) or nsqlookupd (HOST:PORT of HTTP)",
    "subscribe": "give topic, one for a stream of a channel",
    "subscribepattern": "give topicPattern for log-backed topics; a stream of a channel has one topic",
    "assign": "give topic, one for a stream of a channel, and nsqd; for log-backed topics, assign takes nodes by topic",
    "group.id": "give channel",
    "kafka.group.id": "give channel",
    "groupidprefix": "give channel",
    # Options that log-backed topics have, too: used with a channel here, or in another form.
    "startingoffsets": "a channel keeps its position: a new channel gets later messages, and a "
                       "topic's first one also its waiting ones. Without option channel, a log-backed topic is "
                       "read from any offset",
    "startingoffsetsbytimestamp": "a channel keeps its position. Without option channel, log-backed topics support it",
    "startingtimestamp": "a channel keeps its position. Without option channel, a log-backed topic is read from any "
                         "time; nsqc spark replay --from republishes an archive",
    "startingoffsetsbytimestampstrategy": "a channel keeps its position. Without option channel, log-backed topics "
                                          "support it",
    "endingoffsets": "use .trigger(availableNow=True), which reads the waiting messages and stops",
    "endingoffsetsbytimestamp": "use .trigger(availableNow=True). Tables of log-backed topics support it",
    "endingtimestamp": "use .trigger(availableNow=True), which reads the waiting messages and stops",
    "maxoffsetspertrigger": "give maxRowsPerBatch",
    "minoffsetspertrigger": "a batch has all waiting messages; the trigger's processingTime makes batches rarer",
    "maxtriggerdelay": "use .trigger(processingTime=...)",
    "minpartitions": "give numPartitions",
    "maxrecordsperpartition": "give numPartitions",
    "kafkaconsumer.polltimeoutms": "give timeout",
    "fetchoffset.numretries": "give failWhenUnreachable",
    "fetchoffset.retryintervalms": "give backoff",
    "includeheaders": "NSQ's messages have no headers",
}
PREFIXES = (
    ("kafka.ssl.", "give tls=true with tlsCaFile, tlsCertFile, tlsKeyFile, which are PEM files"),
    ("kafka.security.protocol", "give tls=true"),
    ("kafka.sasl.", "give authSecret"),
    ("kafka.compression", "give compression"),
    ("kafka.max.request.size", "give maxMsgSize"),
    ("kafka.batch.size", "give batchBytes"),
    ("kafka.linger", "give lingerMs"),
    ("kafka.retries", "give retries"),
    ("kafka.max.poll.records", "give maxInFlight"),
    ("kafka.request.timeout", "give timeout"),
)


def instead_of(name: str) -> str | None:
    """The equivalent of a Kafka option; None if it is not Kafka's."""
    if name in OPTIONS:
        return OPTIONS[name]
    if not name.startswith("kafka."):
        return None
    return next((text for prefix, text in PREFIXES if name.startswith(prefix)), "nsqc has no equivalent")


# ====================================================================== parsing
# Message bodies as columns: see headers(), json() and text() of nsqc.spark.

VALUE, BAD, HEADERS = "value", "bad", "headers"
MOST = 2**31 - 1        # of a substring, or slice: all of the rest
PARSED, CORRUPT = "__nsqc_parsed", "__nsqc_corrupt"     # during the query only


def json(frame: DataFrame, schema: StructType | str) -> DataFrame:
    """Adds a column for each field of the schema, and the boolean column bad; without the headers of bodies. Raises
    ValueError if the schema is not a struct, or a column of that name exists; Spark's own error if it is malformed."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    need_value(frame)
    text = f.col(VALUE).cast("string")
    is_headed, head, _ = envelope(text)
    body = f.when(is_headed, f.substring(text, f.length(head) + 3, MOST)).otherwise(text)
    # Spark parses the DDL, in classic and Connect sessions alike.
    shape = frame.select(f.from_json(body, schema).alias(PARSED)).schema[PARSED].dataType
    if not isinstance(shape, StructType):
        raise ValueError(f"nsqc.spark.json: the schema is {shape.simpleString()}; it must list columns, such as "
                         "'price double, customer string'")
    need_free(frame, shape)
    # With options, Spark parses all fields even if a query selects few: otherwise bad would depend on the selection.
    whole = StructType([*shape.fields]).add(CORRUPT, "string")
    parsed = frame.select("*", f.from_json(body, whole, {"columnNameOfCorruptRecord": CORRUPT}).alias(PARSED))
    fields = [f.col(PARSED).getField(name).alias(name) for name in shape.names]
    is_bad = f.col(PARSED).isNull() | f.col(PARSED).getField(CORRUPT).isNotNull()
    return parsed.select("*", *fields, is_bad.alias(BAD)).drop(PARSED)


def text(frame: DataFrame) -> DataFrame:
    """The column value as a string. Raises ValueError if there is none."""
    from pyspark.sql import functions as f

    need_value(frame)
    return frame.withColumn(VALUE, f.make_valid_utf8(f.col(VALUE).cast("string")))


def headers(frame: DataFrame) -> DataFrame:
    """Moves the headers of bodies to the column headers. Raises ValueError if that exists, or value does not."""
    from pyspark.sql import functions as f

    if HEADERS in map(str.lower, frame.columns):
        raise ValueError(f"nsqc.spark: the frame already has a column {HEADERS}: drop or rename it first")
    length = f.octet_length if need_value(frame) == "binary" else f.length
    is_headed, head, found = envelope(f.col(VALUE).cast("string"))
    payload = f.when(is_headed, f.substring(VALUE, length(head) + 3, MOST)).otherwise(f.col(VALUE))
    return frame.withColumns({HEADERS: f.when(is_headed, found), VALUE: payload})


def envelope(text: Column) -> tuple[Column, Column, Column]:
    """Of bodies as text: whether one begins with headers, as in nsqc.client.envelope; these lines; and their map."""
    from pyspark.sql import functions as f

    head = f.substring_index(text, "\n\n", 1)
    lines = f.slice(f.split(head, "\n"), 2, MOST)
    names = f.transform(lines, lambda line: f.substring_index(line, ": ", 1))
    values = f.transform(lines, lambda line: f.substring(line, f.length(f.substring_index(line, ": ", 1)) + 3, MOST))
    is_headed = (text.startswith(MAGIC.decode()) & text.contains("\n\n")
                 & f.forall(lines, lambda line: line.contains(": "))
                 & (f.size(f.array_distinct(names)) == f.size(names)))
    return is_headed, head, f.map_from_arrays(names, values)


def need_value(frame: DataFrame) -> str:
    """The type of the column with bodies. Raises ValueError unless there is one."""
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    if kinds.get(VALUE) not in ("binary", "string"):
        raise ValueError(f"nsqc.spark: the frame needs a column {VALUE}, binary or string; it has {', '.join(kinds)}")
    return kinds[VALUE]


def need_free(frame: DataFrame, shape: StructType) -> None:
    """Raises ValueError if two columns would have the same name; Spark ignores case."""
    names = [*shape.names, BAD]
    lower = [name.lower() for name in names]
    if twice := [name for at, name in enumerate(names) if name.lower() in lower[:at]]:
        raise ValueError(f"nsqc.spark.json: the schema has {twice[0]} twice, or uses the name of the column {BAD}")
    taken = [name for name in frame.columns if name.lower() in lower]
    if taken:
        raise ValueError(f"nsqc.spark.json: the frame already has columns {', '.join(taken)}: drop or rename them "
                         f"first, such as df.withColumnRenamed({taken[0]!r}, 'message_{taken[0]}')")


# ====================================================================== options

# Options read or added by Spark itself.
SPARKS = {"checkpointlocation", "queryname"}
FAIL_OR_SKIP = one_of("fail", "skip")
# As milliseconds, within the protocol's 32 bits for delays.
LONGEST_DEFER = 2**31 - 1
NO_OPTIONS = ("no options given. If this is a table of CREATE TABLE or saveAsTable: Spark does not pass its "
              "options to a Python source, so it cannot be used; use CREATE TEMPORARY VIEW ... USING {source} "
              "OPTIONS (...), or load() and save() with options")


class OptionError(ValueError):
    """An option that is missing, unknown or out of range; the text names it."""


class Option(NamedTuple):
    """An option's declaration, except its name and default."""

    kind: Kind[Any]             # Any: options differ in type
    help: str                   # for the table in docs/spark.md
    default: str | None = None  # for the table, if the default itself is not clear
    secret: bool = False        # not shown in errors


class Declared(NamedTuple):
    """An option as used by parsing and the tables."""

    name: str
    option: Option
    default: object     # MISSING: the option is required


# Attributes are named like the options. Sizes in bytes, times in seconds unless the name says otherwise.

@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """The nsqd, and how to connect to them."""

    nsqd: Annotated[tuple[str, ...], Option(
        ADDRESSES, "TCP addresses of the nsqd", default="this or `nsqlookupd` is required")] = ()
    nsqlookupd: Annotated[tuple[str, ...], Option(
        ADDRESSES, "HTTP addresses of nsqlookupd, to find the nsqd", default="see `nsqd`")] = ()
    timeout: Annotated[float, Option(seconds(0.01, 3600), "timeout for connecting, and for every answer")] = 10.0
    maxMsgSize: Annotated[int, Option(
        size(1, GIB), "the nsqd's `--max-msg-size`, which it does not report; larger messages are refused",
    )] = MIB
    tls: Annotated[bool, Option(FLAG, "for all nsqd; an error if an nsqd does not offer it")] = False
    tlsCaFile: Annotated[str | None, Option(
        FILE, "authorities, PEM; every executor needs this file", default="the system's")] = None
    tlsCertFile: Annotated[str | None, Option(FILE, "the client's certificate, PEM; on every executor")] = None
    tlsKeyFile: Annotated[str | None, Option(FILE, "the key of the certificate, PEM; on every executor")] = None
    tlsVerify: Annotated[bool, Option(FLAG, "`false` accepts any server")] = True
    authSecret: Annotated[str | None, Option(
        TEXT, "sent by `AUTH` if an nsqd requires it, and with each HTTP request to an nsqd that `nsqd`, `http` or "
        "`nodeAddresses` names; never in clear text to one that has HTTPS", secret=True)] = field(
            default=None, repr=False)
    nodeAddresses: Annotated[str | None, Option(
        HOSTS, "hosts, networks such as `10.0.0.0/8`, or globs such as `*.nsq.internal`, of nodes found by "
        "`nsqlookupd` that get `authSecret`", default="over HTTP none, over TCP all")] = None

    def http_secret(self, address: str) -> str | None:
        """The secret for the HTTP API of a node: anyone who reaches nsqlookupd may announce an address."""
        if self.nsqlookupd and not NodeHosts([self.nodeAddresses or ""]).cover(split_address(address)[0]):
            return None
        return self.authSecret


@dataclass(frozen=True, kw_only=True)
class NsqdOptions(NodeOptions):
    """TCP connections to nsqd."""

    compression: Annotated[str, Option(
        one_of("none", *CODECS), "of connections; an error if an nsqd does not offer it")] = "none"
    deflateLevel: Annotated[int, Option(whole(1, 9), "for `compression=deflate`")] = 6


@dataclass(frozen=True, kw_only=True)
class Sink(NsqdOptions):
    """Options for publishing."""

    topic: Annotated[str | None, Option(NAME, "for all rows; without it, rows need a column `topic`")] = None
    maxBodySize: Annotated[int, Option(
        size(MPUB_ROOM + 1, GIB), "the nsqd's `--max-body-size`, which it does not report")] = 5 * MIB
    maxDeferMs: Annotated[int, Option(whole(0, LONGEST_DEFER), "the nsqd's `--max-req-timeout`")] = 3_600_000
    batchBytes: Annotated[int, Option(size(1, GIB), "maximum per MPUB")] = BATCH_BYTES
    batchRows: Annotated[int, Option(whole(1, 10_000_000), "maximum per MPUB")] = BATCH_ROWS
    window: Annotated[int, Option(whole(1, 1024), "maximum unacknowledged MPUBs")] = WINDOW
    retries: Annotated[int, Option(whole(0, 1000), "consecutive failed retries")] = 5
    backoff: Annotated[float, Option(
        seconds(0, 3600), "first pause between retries; doubles up to 10 s")] = 0.1
    onBadRecord: Annotated[str, Option(
        FAIL_OR_SKIP, "null, empty and oversized values, bad topics and delays: `fail` names the row, `skip` counts "
        "them")] = "fail"
    totalsPath: Annotated[str | None, Option(FILE, "a JSON file on the driver, to which totals are added")] = None


@dataclass(frozen=True, kw_only=True)
class Stream(NsqdOptions):
    """Options for consuming into a staging directory."""

    topic: Annotated[str, Option(NAME, "the topic to consume")]
    channel: Annotated[str, Option(NAME, "the channel to consume")]
    stagingDir: Annotated[str, Option(FILE, "durable, used by this query only, visible to all executors")]
    transport: Annotated[str, Option(
        one_of("file", "inline"), "`inline` if executors cannot see `stagingDir`: rows are then sent with the task, in "
        "batches of 32 MiB at most")] = "file"
    connections: Annotated[int, Option(whole(1, 256), "to each nsqd")] = 1
    maxInFlight: Annotated[int, Option(
        whole(1, 1_000_000), "messages in flight per connection; capped at nsqd's limit")] = 2500
    topologyZone: Annotated[str | None, Option(
        TEXT, "the driver's zone, sent to nsqd, which may prefer nearby consumers")] = None
    topologyRegion: Annotated[str | None, Option(TEXT, "the same for the region")] = None
    maxRowsPerBatch: Annotated[int | None, Option(whole(1, 2**53), "maximum rows per micro-batch")] = None
    numPartitions: Annotated[int, Option(whole(1, 100_000), "partitions per micro-batch")] = 2
    lingerMs: Annotated[int, Option(whole(0, 60_000), "time for collecting messages into one sync")] = 20
    segmentBytes: Annotated[int, Option(size(4 * KIB, 64 * GIB), "size of a file in `stagingDir`")] = 64 * MIB
    maxStagedBytes: Annotated[int, Option(
        size(64 * KIB, 1024 * TIB), "limit of staged data that Spark has not finished; at the limit RDY is 0")] = GIB
    idleMs: Annotated[int, Option(
        whole(1, 3_600_000), "`availableNow` ends when no message published before its start has arrived for this "
        "long")] = 1000
    failOnDataLoss: Annotated[bool, Option(FLAG, "`false` continues if staged rows are gone")] = True
    onBadRecord: Annotated[str, Option(FAIL_OR_SKIP, "`skip` continues after damage in `stagingDir`")] = "fail"
    backoff: Annotated[float, Option(
        seconds(0, 3600), "first pause between reconnects; doubles up to 15 s")] = 0.1
    lookupInterval: Annotated[float, Option(seconds(0.05, 86400), "interval of nsqlookupd queries")] = 60.0
    failWhenUnreachable: Annotated[float, Option(
        seconds(0, 10**7), "the query fails if no nsqd at all was reachable for this long; 0: never. The default "
        "outlasts the reboot of a machine, but still reports a wrong address. `availableNow` fails after "
        "`timeout`")] = 300.0
    http: Annotated[tuple[str, ...], Option(
        ADDRESSES, "HTTP addresses of the nsqd, for the metric `depth` only",
        default="the port after TCP's, or what nsqlookupd reports")] = ()


@dataclass(frozen=True, kw_only=True)
class Log(NodeOptions):
    """The messages of log-backed topics to read, and how to fetch them."""

    bucket: Annotated[str | None, Option(
        BUCKET, "instead of `nsqd`: the nodes' `--bucket`, such as `s3://acme-nsq/prod`; no node is queried, alive or "
        "dead. Executors need the same credentials as a node, in their environment")] = None
    topic: Annotated[tuple[str, ...], Option(
        NAMES, "the topic to read, or several separated by commas",
        default="this, `topicPattern` or `assign` is required")] = ()
    topicPattern: Annotated[str | None, Option(
        PATTERN, "a regular expression for whole topic names; topics in memory are ignored",
        default="see `topic`")] = None
    assign: Annotated[Assignment | None, Option(
        ASSIGNMENT, 'topics with the nodes to read them from; all others are ignored: `{"orders": ["a:4150"]}`',
        default="see `topic`")] = None
    allowMissingTopics: Annotated[bool, Option(
        FLAG, "`true`: a missing topic, or a pattern without matches, is not an error at the start")
    ] = False
    startingOffsets: Annotated[Places | None, Option(
        PLACES, "where to start: in JSON by topic and node, -2 is `earliest`, -1 `latest`. A query with a "
        "checkpoint continues from there", default="`earliest` for a table, `latest` for a stream")] = None
    startingTimestamp: Annotated[int | None, Option(
        whole(0, LATEST_MS), "start with messages published at or after this time, in ms since 1970; see "
        "`startingOffsetsByTimestampStrategy` if there are none")] = None
    startingOffsetsByTimestamp: Annotated[Times | None, Option(
        TIMES, 'the same for each topic, `{"orders": 1750000000000}`, or each topic and node, '
        '`{"orders": {"a:4150": 1750000000000}}`')] = None
    startingOffsetsByTimestampStrategy: Annotated[str, Option(
        one_of("error", LATEST), "if a log has no message at or after the starting time: `latest` starts at its end, "
        "`error` fails")] = LATEST
    minPartitions: Annotated[int | None, Option(
        whole(1, 100_000), "minimum number of partitions, given enough messages",
        default="one per 256 MiB, two from 128 on")] = None
    maxRecordsPerPartition: Annotated[int | None, Option(whole(1, 2**53), "maximum messages per partition")] = None
    failOnDataLoss: Annotated[bool, Option(
        FLAG, "`false` continues, with a warning and a count, if messages are lost, damaged, or on a node that does "
        "not answer")] = True
    fetchBytes: Annotated[int, Option(size(64 * KIB, 64 * MIB), "size of frames per answer of a node")] = 4 * MIB
    localFiles: Annotated[bool, Option(
        FLAG, "on a node's own machine, tasks with permission read its files directly; `false`: all tasks query "
        "the node")] = True
    batchRows: Annotated[int, Option(whole(1, 10_000_000), "rows per Arrow batch")] = BATCH_ROWS
    failWhenUnreachable: Annotated[float, Option(
        seconds(0, 10**7), "how long a task retries a node with messages for it, and a stream all nodes, before "
        "failing. A table is planned only if all nodes answer")] = 60.0
    backoff: Annotated[float, Option(
        seconds(0.001, 3600), "first pause between retries; doubles up to 5 s")] = 0.1
    http: Annotated[tuple[str, ...], Option(
        ADDRESSES, "HTTP addresses of the nsqd, in the order of `nsqd`; those of HTTPS with `tls=true`",
        default="the port after TCP's, or what nsqlookupd reports; the port after that with `tls=true`")] = ()


@dataclass(frozen=True, kw_only=True)
class LogTable(Log):
    """Options for reading logs as a table."""

    endingOffsets: Annotated[Places | None, Option(
        PLACES, "where to end (exclusive), in the form of `startingOffsets`",
        default="`latest`")] = None
    endingTimestamp: Annotated[int | None, Option(
        whole(0, LATEST_MS), "end before messages published at or after this time, in ms since 1970")] = None
    endingOffsetsByTimestamp: Annotated[Times | None, Option(
        TIMES, "the same by topic, or by topic and node, in the form of `startingOffsetsByTimestamp`")] = None
    pushFilters: Annotated[bool, Option(
        FLAG, "`true`: filters of `offset`, `timestamp`, `nsqd`, `topic` skip segments and nodes; see below")] = False
    clockStep: Annotated[float, Option(
        seconds(0, 10**9), "for `pushFilters`: how far a node's clock may have been set back; `timestamp < T` reads "
        "messages published until `T` plus this time")] = 7200.0


@dataclass(frozen=True, kw_only=True)
class LogStream(Log):
    """Options for reading logs as a stream."""

    maxOffsetsPerTrigger: Annotated[int | None, Option(
        whole(1, 2**53), "maximum messages per micro-batch, shared by nodes in proportion to their backlog")] = None
    minOffsetsPerTrigger: Annotated[int | None, Option(
        whole(1, 2**53), "start a micro-batch only with this many messages, or after `maxTriggerDelay`")] = None
    maxTriggerDelay: Annotated[float, Option(
        seconds(0, 10**7), "how long `minOffsetsPerTrigger` waits")] = 900.0
    lookupInterval: Annotated[float, Option(
        seconds(0.05, 86400), "interval for finding new topics and nodes")] = 10.0


@dataclass(frozen=True, kw_only=True)
class DiskQueue:
    """The records and disk queues to read."""

    path: Annotated[str, Option(FILE, "a data path")]
    topic: Annotated[str | None, Option(NAME, "only this topic", default="all")] = None
    channel: Annotated[str | None, Option(NAME, "only queues of this channel", default="all")] = None
    queues: Annotated[str, Option(
        one_of("all", "topics", "channels"), "the queues of topics, of channels, or both")] = "all"
    range: Annotated[str, Option(
        one_of("unread", "all"), "`all` includes records already read, as long as their file exists")] = "unread"
    onBadRecord: Annotated[str, Option(
        FAIL_OR_SKIP, "`skip` reads the intact records before and after damage and torn ends")] = "fail"
    maxMsgSize: Annotated[int, Option(size(1, GIB), "the largest body that counts as a record")] = MIB
    batchRows: Annotated[int, Option(whole(1, 10_000_000), "rows per Arrow batch")] = BATCH_ROWS


O = TypeVar("O", Sink, Stream, Log, LogTable, LogStream, DiskQueue)  # noqa: E741


def declared(kind: type[NodeOptions | DiskQueue]) -> dict[str, Declared]:
    """The options of a class by their names in lower case, inherited ones first."""
    hints = get_type_hints(kind, include_extras=True)
    return {item.name.lower(): Declared(item.name, hints[item.name].__metadata__[0], item.default)
            for item in fields(kind)}


def parse(kind: type[O], given: Mapping[str, str], source: str) -> O:
    """Parses Spark's texts to a class of options. Raises OptionError, for all missing ones at once."""
    known = declared(kind)
    texts = {name.lower(): text for name, text in given.items()}
    # For a table of its catalog, Spark passes a description of the table instead of its options.
    if not texts or any(name == "provider" or name.startswith("option.") for name in texts):
        raise OptionError(f"{source}: {NO_OPTIONS.format(source=source)}")
    if unknown := sorted(texts.keys() - known.keys() - SPARKS):
        raise OptionError(f"{source}: {'; '.join(hint(name, known, kind) for name in unknown)}")
    missing = [item.name for key, item in known.items() if item.default is MISSING and key not in texts]
    if missing:
        names = f"options {', '.join(missing[:-1])} and {missing[-1]} are" if missing[1:] else f"option {missing[0]} is"
        raise OptionError(f"{source}: {names} required")
    values = {}
    for key, (name, option, _) in known.items():
        if key in texts:
            try:
                values[name] = option.kind.read(str(texts[key]).strip())
            except ValueError as error:
                shown = "…" if option.secret else texts[key]
                raise OptionError(f"{source}: option {name}={shown}: {error}") from None
    return kind(**values)


def shown(options: NodeOptions) -> str:
    """The options that are not defaults, without secrets: tells sources apart in a query's progress."""
    given = [(item, getattr(options, item.name)) for item in declared(type(options)).values()]
    return " ".join(f"{item.name}={item.option.kind.show(value)}" for item, value in given
                    if value != item.default and not item.option.secret).replace("`", "")


def hint(name: str, known: Mapping[str, Declared], kind: type[NodeOptions | DiskQueue]) -> str:
    """The error for an unknown option, in lower case, and the option probably meant."""
    if issubclass(kind, Log):
        for other, where in ((LogStream, "is for spark.readStream only: a table is one batch, which endingOffsets or "
                                         "endingTimestamp bounds"),
                             (LogTable, "is for spark.read only: a stream has no end; .trigger(availableNow=True) "
                                        "reads the waiting messages and stops"),
                             (Stream, "needs option channel, which consumes the topic")):
            if name in (names := declared(other)):
                return f"{names[name].name} {where}"
    if instead := instead_of(name):
        return f"unknown option {name} is Kafka's: {instead}"
    # At load() the use of a log is not known yet.
    others = (Stream, LogTable, LogStream) if issubclass(kind, Log) else ()
    spellings = {key: item.name for one in (*others, kind) for key, item in declared(one).items()}
    near = get_close_matches(name, spellings, 1, 0.6)
    if not near:
        return f"unknown option {name}: docs/spark.md lists the options"
    return f"unknown option {spelt(name, spellings[near[0]])}: did you mean {spellings[near[0]]}?"


def spelt(name: str, near: str) -> str:
    """A misspelt name, in lower case, with its user's likely capitals: those of the nearest name. Spark does not pass
    the original."""
    letters = list(name)
    for at, other, length in SequenceMatcher(None, name, near.lower(), autojunk=False).get_matching_blocks():
        letters[at:at + length] = near[other:other + length]
    return "".join(letters)


# ---------------------------------------------------------------------- the sources

def sink(given: Mapping[str, str]) -> Sink:
    """Raises OptionError."""
    options = parse(Sink, given, "nsq")
    check_nsqd(options)
    if options.maxMsgSize + MPUB_ROOM > options.maxBodySize:
        raise OptionError(f"nsq: maxBodySize must have room for a message of maxMsgSize and {MPUB_ROOM} bytes more")
    if options.batchBytes > options.maxBodySize:
        raise OptionError(f"nsq: batchBytes={options.batchBytes} is above maxBodySize={options.maxBodySize}")
    return options


def stream(given: Mapping[str, str]) -> Stream:
    """Raises OptionError."""
    options = parse(Stream, given, "nsq")
    check_nsqd(options)
    if options.segmentBytes > options.maxStagedBytes:
        raise OptionError("nsq: segmentBytes must not be above maxStagedBytes")
    return options


def at_load(given: Mapping[str, str]) -> Stream:
    """Like stream(), and checks files: spark.readStream…load() runs on the machine where the stream will run. Raises
    OptionError."""
    options = stream(given)
    folder = Path(options.stagingDir)
    existing = next((path for path in (folder, *folder.absolute().parents) if path.exists()), folder)
    if not existing.is_dir():
        raise OptionError(f"nsq: option stagingDir={folder}: {existing} is not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OptionError(f"nsq: option stagingDir={folder}: {existing} is not writable")
    for name, path in (("tlsCaFile", options.tlsCaFile), ("tlsCertFile", options.tlsCertFile),
                       ("tlsKeyFile", options.tlsKeyFile)):
        if path and not os.access(path, os.R_OK):
            raise OptionError(f"nsq: option {name}={path}: there is no such file, or it is not readable")
    return options


def by_offset(given: Mapping[str, str]) -> bool:
    """Whether a reader with these options reads logs: one that consumes has a channel."""
    return all(name.lower() != "channel" for name in given)


def log_table(given: Mapping[str, str]) -> LogTable:
    """Raises OptionError."""
    options = parse(LogTable, given, "nsq")
    check_log(options)
    at_most_one(options, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    if options.startingOffsets == LATEST:
        raise OptionError("nsq: option startingOffsets=latest: nothing is after the end of a table")
    if options.endingOffsets == EARLIEST:
        raise OptionError("nsq: option endingOffsets=earliest: nothing is before the beginning of a table")
    return options


def log_stream(given: Mapping[str, str]) -> LogStream:
    """Raises OptionError."""
    options = parse(LogStream, given, "nsq")
    check_log(options)
    most, least = options.maxOffsetsPerTrigger, options.minOffsetsPerTrigger
    if most is not None and least is not None and most < least:
        raise OptionError("nsq: maxOffsetsPerTrigger must not be below minOffsetsPerTrigger")
    return options


def log_at_load(given: Mapping[str, str]) -> None:
    """Checks the options of a table or a stream, before it is known which. Raises OptionError."""
    names = {name.lower() for name in given}
    if names & (declared(LogStream).keys() - declared(Log).keys()):
        log_stream(given)
    elif names & (declared(LogTable).keys() - declared(Log).keys()):
        log_table(given)
    else:
        check_log(parse(Log, given, "nsq"))


# Options that connect to nodes.
OF_NODES = {*NodeOptions.__dataclass_fields__, "http", "localFiles", "fetchBytes"} - {"timeout", "maxMsgSize"}


def check_log(options: Log) -> None:
    """Raises OptionError."""
    if options.bucket is None:
        check_nsqd(options)
    elif idle := [item.name for item in declared(Log).values() if item.name in OF_NODES
                  and getattr(options, item.name) != item.default]:
        raise OptionError(f"nsq: option {idle[0]} is for reading from nodes; with bucket={options.bucket} no node is "
                          "queried")
    if bool(options.topic) + bool(options.topicPattern) + bool(options.assign) != 1:
        raise OptionError("nsq: give one of the options topic, topicPattern and assign; option channel consumes the "
                          "topic instead of reading its log")
    if ephemeral := [name for name in (*options.topic, *(options.assign or ())) if is_ephemeral(name.encode())]:
        raise OptionError(f"nsq: topic {ephemeral[0]} is ephemeral: ephemeral topics have no log")
    at_most_one(options, "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    if options.nsqd and (others := sorted({node for nodes in (options.assign or {}).values() for node in nodes}
                                          - set(options.nsqd))):
        raise OptionError(f"nsq: option assign contains {others[0]}, which is not one of nsqd={','.join(options.nsqd)}")
    if options.http and len(options.http) != len(options.nsqd):
        raise OptionError("nsq: option http needs one address for each of nsqd, in the same order; with nsqlookupd "
                          "there is no such option")


def at_most_one(options: Log, *names: str) -> None:
    """Raises OptionError."""
    if sum(getattr(options, name) is not None for name in names) > 1:
        raise OptionError(f"nsq: give one of the options {', '.join(names[:-1])} and {names[-1]}")


def diskqueue(given: Mapping[str, str]) -> DiskQueue:
    """Raises OptionError."""
    options = parse(DiskQueue, given, "nsq_diskqueue")
    if options.channel and options.queues == "topics":
        raise OptionError("nsq_diskqueue: channel selects the queue of a channel, but queues=topics excludes it")
    if options.channel and is_ephemeral(options.channel.encode()):
        raise OptionError(f"nsq_diskqueue: channel {options.channel} is ephemeral and has no files")
    return options


def diskqueue_at_load(given: Mapping[str, str]) -> DiskQueue:
    """Like diskqueue(), and checks the path. Raises OptionError."""
    options = diskqueue(given)
    if fault := folder_fault(options.path):
        raise OptionError(f"nsq_diskqueue: option path={fault}")
    return options


def check_nsqd(options: NodeOptions) -> None:
    """Either nsqd or nsqlookupd, not both; no options of TLS without TLS. Raises OptionError."""
    if bool(options.nsqd) == bool(options.nsqlookupd):
        raise OptionError("nsq: give one of the options nsqd and nsqlookupd: HOST:PORT, several separated by commas")
    if not options.tls and (options.tlsCaFile or options.tlsCertFile or options.tlsKeyFile or not options.tlsVerify):
        raise OptionError("nsq: the options tlsCaFile, tlsCertFile, tlsKeyFile and tlsVerify need tls=true")
    if bool(options.tlsCertFile) != bool(options.tlsKeyFile):
        raise OptionError("nsq: tlsCertFile and tlsKeyFile go together")


# ====================================================================== option tables
# The tables of options in docs/spark.md: python -m nsqc.spark.options prints them.

TABLES: tuple[tuple[str, type[NodeOptions | DiskQueue]], ...] = (
    ("all of format nsq", NodeOptions), ("sink, and stream of a channel", NsqdOptions), ("sink", Sink),
    ("stream of a channel", Stream), ("log", Log), ("log as a table", LogTable), ("log as a stream", LogStream),
    ("disk queue", DiskQueue))


def tables() -> list[str]:
    """The tables in Markdown. Each omits its base class's options."""
    return [table(title, [item for key, item in declared(kind).items() if key not in inherited(kind)])
            for title, kind in TABLES]


def inherited(kind: type[NodeOptions | DiskQueue]) -> dict[str, Declared]:
    """The options of the base class."""
    base = kind.__bases__[0]
    return declared(base) if issubclass(base, NodeOptions) else {}


def table(title: str, options: list[Declared]) -> str:
    """One table."""
    rows = [f"| {title} | default | values | |", "|---|---|---|---|"]
    rows += [f"| `{item.name}` |{default(item)} | {item.option.kind.takes} | {item.option.help} |" for item in options]
    return "\n".join(rows)


def default(item: Declared) -> str:
    """The default of an option after a space; empty if it has none."""
    if item.option.default is not None:
        return f" {item.option.default}"
    if item.default is MISSING:
        return " required"
    return "" if item.default is None else f" {item.option.kind.show(item.default)}"


if __name__ == "__main__":
    print(*tables(), sep="\n\n")
