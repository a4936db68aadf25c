"""Options of Spark's Kafka source, and their equivalents. Names in lower case, as Spark passes them."""

from __future__ import annotations

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
    "startingoffsetsbytimestampstrategy": "a time without a later message means the end",
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
