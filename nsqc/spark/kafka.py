"""Options of Spark's Kafka source, and what to use instead. Names in lower case, as Spark hands them over."""

from __future__ import annotations

OPTIONS = {
    "kafka.bootstrap.servers": "give nsqd (HOST:PORT of TCP) or nsqlookupd (HOST:PORT of HTTP)",
    "subscribe": "give topic, one for a stream",
    "subscribepattern": "give topic, one for a stream, and union the streams",
    "assign": "give topic; a topic has no partitions, each nsqd that has it is read",
    "group.id": "give channel",
    "kafka.group.id": "give channel",
    "groupidprefix": "give channel",
    "startingoffsets": "a channel keeps its position: a new channel gets what is published from then on, and a "
                       "topic's first one also what waits in the topic",
    "startingoffsetsbypartition": "a channel keeps its position",
    "startingoffsetsbytimestamp": "a channel keeps its position; nsqc spark replay --from publishes an archive again",
    "startingtimestamp": "a channel keeps its position; nsqc spark replay --from publishes an archive again",
    "endingoffsets": "use .trigger(availableNow=True), which reads what is there and stops",
    "endingtimestamp": "use .trigger(availableNow=True), which reads what is there and stops",
    "maxoffsetspertrigger": "give maxRowsPerBatch",
    "minoffsetspertrigger": "a batch has what is there; the trigger's processingTime makes batches rarer",
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
    """What to use instead of an option of Kafka's; None if it is not Kafka's."""
    if name in OPTIONS:
        return OPTIONS[name]
    if not name.startswith("kafka."):
        return None
    return next((text for prefix, text in PREFIXES if name.startswith(prefix)), "there is nothing like it here")
