"""The options of the data sources: read from Spark's strings, checked once, each with its default.

Spark hands names over in lower case and values as text. What is misspelt, out of range or without effect is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from nsqc.wire.names import is_ephemeral, is_valid_name

# What Spark's source of Kafka calls things, and what they are here.
KAFKAS = {
    "kafka.bootstrap.servers": "give nsqd (HOST:PORT of TCP) or nsqlookupd (HOST:PORT of HTTP)",
    "subscribe": "give topic, one for a stream",
    "subscribepattern": "give topic, one for a stream, and union the streams",
    "assign": "give topic; a topic has no partitions, each nsqd that has it is read",
    "group.id": "give channel",
    "kafka.group.id": "give channel",
    "groupidprefix": "give channel",
    "startingoffsets": "a channel knows its position: a new channel has what is published from then on, and "
                       "a topic's first one what waits in it",
    "startingoffsetsbypartition": "a channel knows its position",
    "startingoffsetsbytimestamp": "a channel knows its position; nsqc spark replay --from publishes an archive again",
    "startingtimestamp": "a channel knows its position; nsqc spark replay --from publishes an archive again",
    "endingoffsets": "use .trigger(availableNow=True), which reads what is there and ends",
    "endingtimestamp": "use .trigger(availableNow=True), which reads what is there and ends",
    "maxoffsetspertrigger": "give maxRowsPerBatch",
    "minoffsetspertrigger": "a batch has what is there; the trigger's processingTime makes fewer of them",
    "maxtriggerdelay": "use .trigger(processingTime=...)",
    "minpartitions": "give numPartitions",
    "maxrecordsperpartition": "give numPartitions",
    "kafkaconsumer.polltimeoutms": "give timeout",
    "fetchoffset.numretries": "give failWhenUnreachable",
    "fetchoffset.retryintervalms": "give backoff",
    "includeheaders": "NSQ's messages have no headers",
}
KAFKA_GROUPS = (
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
SECRET = {"authSecret"}
# What Spark itself reads or adds; the sources do not look at it.
SPARKS = {"checkpointlocation", "queryname"}
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SUFFIXES = {"k": KIB, "kb": KIB, "kib": KIB, "m": MIB, "mb": MIB, "mib": MIB, "g": GIB, "gb": GIB, "gib": GIB}


class OptionError(ValueError):
    """An option that is missing, unknown or out of range; the text names it."""


class Option(NamedTuple):
    """One option: its name as documented, how its text is read, its default (REQUIRED: none)."""

    name: str
    read: Callable[[str], Any]
    default: Any = None


REQUIRED = object()


def read(known: Iterable[Option], given: Mapping[str, str], source: str) -> dict[str, Any]:
    """The values of all known options by documented name. Raises OptionError, for all that is missing at once."""
    options = {option.name.lower(): option for option in known}
    texts = {name.lower(): value for name, value in given.items()}
    if unknown := sorted(texts.keys() - options.keys() - SPARKS):
        hints = "; ".join(f"unknown option {name}{hint(name, options)}" for name in unknown)
        raise OptionError(f"{source}: {hints}; there are {', '.join(option.name for option in options.values())}")
    missing = [option.name for key, option in options.items() if option.default is REQUIRED and key not in texts]
    if missing:
        names = f"options {', '.join(missing[:-1])} and {missing[-1]} are" if missing[1:] else f"option {missing[0]} is"
        raise OptionError(f"{source}: {names} required")
    values = {}
    for key, option in options.items():
        if key not in texts:
            values[option.name] = option.default
            continue
        try:
            values[option.name] = option.read(str(texts[key]).strip())
        except ValueError as error:
            shown = "…" if option.name in SECRET else texts[key]
            raise OptionError(f"{source}: option {option.name}={shown}: {error}") from None
    return values


def hint(name: str, options: Mapping[str, Option]) -> str:
    """What may have been meant by an unknown option, in lower case."""
    if name in KAFKAS or name.startswith("kafka."):
        meant = KAFKAS.get(name) or next((text for start, text in KAFKA_GROUPS if name.startswith(start)),
                                         "there is nothing like it here")
        return f" is Kafka's: {meant}"
    near = get_close_matches(name, options, 1, 0.6)
    return f": did you mean {options[near[0]].name}?" if near else ""


# ---------------------------------------------------------------------- how a text is read

def text(value: str) -> str:
    """Any text but an empty one."""
    if not value:
        raise ValueError("must not be empty")
    return value


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number from low to high."""
    def read_whole(value: str) -> int:
        number = int(value) if value.removeprefix("-").isascii() and value.removeprefix("-").isdecimal() else None
        if number is None or not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return number
    return read_whole


def size(low: int, high: int) -> Callable[[str], int]:
    """Bytes: 65536, 64k, 64KiB, 1g."""
    check = whole(low, high)

    def read_size(value: str) -> int:
        digits = value.rstrip("kKmMgGiIbB")
        unit = value[len(digits):].lower()
        if unit and unit not in SUFFIXES:
            raise ValueError("must be bytes, such as 65536, 64KiB or 1GiB")
        return check(str(int(digits) * SUFFIXES.get(unit, 1)) if digits.isdecimal() else value)
    return read_size


def seconds(low: float, high: float) -> Callable[[str], float]:
    """Seconds, fractions allowed; 500ms and 10s as well."""
    def read_seconds(value: str) -> float:
        scale = 0.001 if value.endswith("ms") else 1
        try:
            number = float(value.removesuffix("ms").removesuffix("s")) * scale
        except ValueError:
            number = float("nan")
        if not low <= number <= high:
            raise ValueError(f"must be seconds from {low} to {high}")
        return number
    return read_seconds


def one_of(*words: str) -> Callable[[str], str]:
    """One of a few words."""
    def read_word(value: str) -> str:
        if value.lower() not in words:
            raise ValueError(f"must be {' or '.join(words)}")
        return value.lower()
    return read_word


def flag(value: str) -> bool:
    """true or false."""
    return one_of("true", "false")(value) == "true"


def name(value: str) -> str:
    """A topic or channel name."""
    if not is_valid_name(value.encode()):
        raise ValueError("a name is 1 to 64 of . a-z A-Z 0-9 _ -, and #ephemeral may follow")
    return value


def addresses(value: str) -> tuple[str, ...]:
    """HOST:PORT, several divided by commas."""
    found = tuple(part.strip() for part in value.split(","))
    for address in found:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdecimal() and port.isascii() and 0 < int(port) < 65536):
            raise ValueError(f"{address!r} is no HOST:PORT")
    if len(set(found)) < len(found):
        raise ValueError("an address stands there twice")
    return found


# ---------------------------------------------------------------------- what each source knows

PEERS = [
    Option("nsqd", addresses, ()),
    Option("nsqlookupd", addresses, ()),
    Option("timeout", seconds(0.01, 3600), 10.0),
    Option("maxMsgSize", size(1, GIB), MIB),
    Option("tls", flag, False),
    Option("tlsCaFile", text),
    Option("tlsCertFile", text),
    Option("tlsKeyFile", text),
    Option("tlsVerify", flag, True),
    Option("compression", one_of("none", "deflate", "snappy"), "none"),
    Option("deflateLevel", whole(1, 9), 6),
    Option("authSecret", text),
]
SINK = [
    *PEERS,
    Option("topic", name),
    Option("maxBodySize", size(9, GIB), 5 * MIB),
    Option("maxDeferMs", whole(0, 2**31 - 1), 3_600_000),
    Option("batchBytes", size(1, GIB), 256 * KIB),
    Option("batchRows", whole(1, 10_000_000), 10_000),
    Option("window", whole(1, 1024), 4),
    Option("retries", whole(0, 1000), 5),
    Option("backoff", seconds(0, 3600), 0.1),
    Option("onBadRecord", one_of("fail", "skip"), "fail"),
    Option("totalsPath", text),
]
STREAM = [
    *PEERS,
    Option("topic", name, REQUIRED),
    Option("channel", name, REQUIRED),
    Option("stagingDir", text, REQUIRED),
    Option("transport", one_of("file", "inline"), "file"),
    Option("connections", whole(1, 256), 1),
    Option("maxInFlight", whole(1, 1_000_000), 2500),
    Option("maxRowsPerBatch", whole(1, 2**53)),
    Option("numPartitions", whole(1, 100_000), 2),
    Option("lingerMs", whole(0, 60_000), 20),
    Option("segmentBytes", size(4 * KIB, 64 * GIB), 64 * MIB),
    Option("maxStagedBytes", size(64 * KIB, 1 << 50), GIB),
    Option("idleMs", whole(1, 3_600_000), 1000),
    Option("failOnDataLoss", flag, True),
    Option("onBadRecord", one_of("fail", "skip"), "fail"),
    Option("backoff", seconds(0, 3600), 0.1),
    Option("lookupInterval", seconds(0.05, 86400), 60.0),
    Option("failWhenUnreachable", seconds(0, 10**7), 300.0),
    Option("http", addresses, ()),
]
DISKQUEUE = [
    Option("path", text, REQUIRED),
    Option("topic", name),
    Option("channel", name),
    Option("queues", one_of("all", "topics", "channels"), "all"),
    Option("range", one_of("unread", "all"), "unread"),
    Option("onBadRecord", one_of("fail", "skip"), "fail"),
    Option("maxMsgSize", size(1, GIB), MIB),
    Option("batchRows", whole(1, 10_000_000), 10_000),
]


@dataclass(frozen=True)
class Peers:
    """Where nsqd are and how to reach them. Sizes in bytes, times in seconds where the name says nothing else."""

    nsqd: tuple[str, ...]
    nsqlookupd: tuple[str, ...]
    timeout: float
    maxMsgSize: int
    tls: bool
    tlsCaFile: str | None
    tlsCertFile: str | None
    tlsKeyFile: str | None
    tlsVerify: bool
    compression: str
    deflateLevel: int
    authSecret: str | None = field(repr=False)


@dataclass(frozen=True)
class Sink(Peers):
    """How to publish."""

    topic: str | None
    maxBodySize: int
    maxDeferMs: int
    batchBytes: int
    batchRows: int
    window: int
    retries: int
    backoff: float
    onBadRecord: str
    totalsPath: str | None


@dataclass(frozen=True)
class Stream(Peers):
    """How to consume into a staging directory."""

    topic: str
    channel: str
    stagingDir: str
    transport: str
    connections: int
    maxInFlight: int
    maxRowsPerBatch: int | None
    numPartitions: int
    lingerMs: int
    segmentBytes: int
    maxStagedBytes: int
    idleMs: int
    failOnDataLoss: bool
    onBadRecord: str
    backoff: float
    lookupInterval: float
    failWhenUnreachable: float
    http: tuple[str, ...]


@dataclass(frozen=True)
class DiskQueue:
    """Which records of which disk queues to read."""

    path: str
    topic: str | None
    channel: str | None
    queues: str
    range: str
    onBadRecord: str
    maxMsgSize: int
    batchRows: int


def sink(given: Mapping[str, str]) -> Sink:
    """Raises OptionError."""
    options = Sink(**read(SINK, given, "nsq"))
    need_peers(options)
    if options.maxMsgSize + 8 > options.maxBodySize:
        raise OptionError("nsq: maxBodySize must have room for a message of maxMsgSize and 8 bytes more")
    if options.batchBytes > options.maxBodySize:
        raise OptionError(f"nsq: batchBytes={options.batchBytes} is above maxBodySize={options.maxBodySize}")
    return options


def stream(given: Mapping[str, str]) -> Stream:
    """Raises OptionError."""
    options = Stream(**read(STREAM, given, "nsq"))
    need_peers(options)
    if options.segmentBytes > options.maxStagedBytes:
        raise OptionError("nsq: segmentBytes must not be above maxStagedBytes")
    if "://" in options.stagingDir:
        raise OptionError(f"nsq: option stagingDir={options.stagingDir}: must be a folder of a file system with flock, "
                          "not a URI")
    return options


def at_load(given: Mapping[str, str]) -> Stream:
    """What can be known of a stream's options where spark.readStream…load() is called, which is beside where it will
    run: also that its files are there. Raises OptionError."""
    options = stream(given)
    folder = Path(options.stagingDir)
    there = next((path for path in (folder, *folder.absolute().parents) if path.exists()), folder)
    if not there.is_dir():
        raise OptionError(f"nsq: option stagingDir={folder}: {there} is no folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise OptionError(f"nsq: option stagingDir={folder}: {there} cannot be written to")
    for name in ("tlsCaFile", "tlsCertFile", "tlsKeyFile"):
        path = getattr(options, name)
        if path and not os.access(path, os.R_OK):
            raise OptionError(f"nsq: option {name}={path}: there is no such file, or it cannot be read")
    return options


def diskqueue(given: Mapping[str, str]) -> DiskQueue:
    """Raises OptionError."""
    options = DiskQueue(**read(DISKQUEUE, given, "nsq_diskqueue"))
    if options.channel and options.queues == "topics":
        raise OptionError("nsq_diskqueue: option channel asks for a channel's queue, queues=topics for none")
    if options.channel and is_ephemeral(options.channel.encode()):
        raise OptionError(f"nsq_diskqueue: channel {options.channel} is ephemeral and has no files")
    return options


def need_peers(options: Peers) -> None:
    """Either nsqd or nsqlookupd, not both; nothing that only TLS would use without it."""
    if bool(options.nsqd) == bool(options.nsqlookupd):
        raise OptionError("nsq: give one of the options nsqd and nsqlookupd: HOST:PORT, several divided by commas")
    if not options.tls and (options.tlsCaFile or options.tlsCertFile or options.tlsKeyFile or not options.tlsVerify):
        raise OptionError("nsq: the options tlsCaFile, tlsCertFile, tlsKeyFile and tlsVerify need tls=true")
    if bool(options.tlsCertFile) != bool(options.tlsKeyFile):
        raise OptionError("nsq: tlsCertFile and tlsKeyFile go together")
