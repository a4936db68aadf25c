"""Options of Spark's Kafka source, and what to use instead. Names in lower case, as Spark hands them over."""

from __future__ import annotations

OPTIONS = {
    "kafka.bootstrap.servers": "give nsqd (HOST:PORT of TCP) or nsqlookupd (HOST:PORT of HTTP)",
    "subscribe": "give topic, one for a stream of a channel",
    "subscribepattern": "give topicPattern for topics in a log; a stream of a channel has one topic",
    "assign": "give topic, one for a stream of a channel, and nsqd; for topics in a log, assign takes nodes by topic",
    "group.id": "give channel",
    "kafka.group.id": "give channel",
    "groupidprefix": "give channel",
    # Those that topics in a log have, too: asked for where a channel is consumed, or in another form.
    "startingoffsets": "a channel keeps its position: a new channel gets what is published from then on, and a "
                       "topic's first one also what waits in the topic. Without option channel, a topic in a log is "
                       "read from any offset",
    "startingoffsetsbytimestamp": "a channel keeps its position. Without option channel, topics in a log take it",
    "startingtimestamp": "a channel keeps its position. Without option channel, a topic in a log is read from any "
                         "time; nsqc spark replay --from publishes an archive again",
    "startingoffsetsbytimestampstrategy": "a time without a message behind it means the end",
    "endingoffsets": "use .trigger(availableNow=True), which reads what is there and stops",
    "endingoffsetsbytimestamp": "use .trigger(availableNow=True). Tables of topics in a log take it",
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
