"""All metrics, each declared once, here or in nsqc/wire/stats.py: the exposition, docs/monitoring.md, and the checks of
dashboard and alerts derive from them.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from nsqc.wire.stats import ChannelStats, TopicStats, figures_of


class Type(Enum):
    """Names used by both formats; INFO is a gauge in the older one."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Metric(NamedTuple):
    """A family of samples. Its name ends in the unit, if any; a counter's samples end in _total in addition."""

    name: str
    type: Type
    group: str
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()

    @property
    def sample(self) -> str:
        """The name of its samples; a histogram's samples get another suffix."""
        return self.name + {Type.COUNTER: "_total", Type.INFO: "_info"}.get(self.type, "")


SECONDS, BYTES = "seconds", "bytes"
PROCESS, CLIENTS, DISK, BUCKET, TOPICS, CHANNELS, LOOKUPD = (
    "The process", "Clients", "Disk and memory", "The bucket", "Topics", "Channels", "The lookup server")
_TOPIC = ("topic",)
_CHANNEL = ("topic", "channel")


def _counter(group: str, name: str, text: str, unit: str = "", labels: tuple[str, ...] = ()) -> Metric:
    return Metric(f"nsqc_{name}", Type.COUNTER, group, text, unit, labels)


def _gauge(group: str, name: str, text: str, unit: str = "", labels: tuple[str, ...] = ()) -> Metric:
    return Metric(f"nsqc_{name}", Type.GAUGE, group, text, unit, labels)


def _histogram(group: str, name: str, text: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(f"nsqc_{name}", Type.HISTOGRAM, group, text, SECONDS, labels)


# Of the daemon and of the lookup server.
BUILD = Metric("nsqc_build", Type.INFO, PROCESS,
               "Always 1; version is nsqc's, nsq_version the NSQ version it replaces, program nsqd or nsqlookupd.",
               labels=("version", "nsq_version", "python", "program"))
START_TIME = _gauge(PROCESS, "start_time_seconds", "Start time, since 1970.", SECONDS)
UPTIME = _gauge(PROCESS, "uptime_seconds", "Time since the start.", SECONDS)
CPU = _counter(PROCESS, "process_cpu_seconds", "Processor time of all threads, user and system.", SECONDS)
RESIDENT = _gauge(PROCESS, "process_resident_memory_bytes", "Resident memory, including messages.", BYTES)
OPEN_FILES = _gauge(PROCESS, "process_open_descriptors", "File descriptors in use.")
MOST_FILES = _gauge(PROCESS, "process_max_descriptors", "Limit of open files.")
LOOP_LAG = _histogram(PROCESS, "loop_lag_seconds",
                      "Delay of timers on the event loop, measured ten times a second.")
CONNECTIONS = _gauge(CLIENTS, "connections", "Connected clients; kind is tcp, http or https.",
                     labels=("kind",))
CONNECTIONS_REFUSED = _counter(CLIENTS, "connections_refused",
                               "Refused clients; limit is the option that refused them.",
                               labels=("limit",))
COMMON = (BUILD, START_TIME, UPTIME, CPU, RESIDENT, OPEN_FILES, MOST_FILES, LOOP_LAG, CONNECTIONS, CONNECTIONS_REFUSED)

# Of the daemon.
HANDSHAKES = _counter(CLIENTS, "tls_handshakes", "Completed TLS handshakes; result is ok or failed.",
                      labels=("result",))
CERTIFICATE_ENDS = _gauge(CLIENTS, "certificate_expiry_seconds", "Time at which a certificate expires, since 1970; "
                          "file is the option that names its file.", SECONDS, ("file",))
REFUSED = _counter(CLIENTS, "publishes_refused", "Refused publishes; a batch counts once.",
                   labels=("reason",))
CREATIONS_REFUSED = _counter(CLIENTS, "creations_refused", "Refused creations of topics and channels; limit "
                             "is the option that refused them.", labels=("limit",))
CREATIONS_DELAYED = _counter(CLIENTS, "creations_delayed",
                             "How often a connection had to wait as it created faster than --max-create-rate.")
CIRCLING = _gauge(CLIENTS, "dead_letters_circling",
                  "Channels that keep their messages, because their dead letters would come back to their topic.")
RULES_DIGEST = _gauge(CLIENTS, "rules_digest", "A number derived from the defaults, the declared tables and the config "
                      "file's tables of rules: the same on nodes with the same ones.")
HEALTHY = _gauge(DISK, "healthy", "1 while /ping says OK, else 0.")
DRAINING = _gauge(CLIENTS, "draining", "1 while the daemon drains, and while it stays drained, else 0.")
PROCESSING = _histogram(CLIENTS, "processing_latency_seconds",
                        "Time from publishing a message to FIN, delays included, in all channels of the node.")
SYNC = _histogram(DISK, "disk_sync_seconds", "How long syncs of queues and logs took, from when they were due.")
SYNC_FAILURES = _counter(DISK, "disk_sync_failures", "Syncs that failed.")
DISK_FREE = _gauge(DISK, "disk_free_bytes", "Free bytes of the data path's file system.", BYTES)
DISK_SIZE = _gauge(DISK, "disk_size_bytes", "Size of that file system.", BYTES)
DISK_LIMIT = _gauge(DISK, "disk_free_limit_bytes",
                    "Below this, publishes that need the disk are refused (--min-free-disk); 0: no limit.", BYTES)
MEMORY = _gauge(DISK, "memory_bytes",
                "Memory by use: slabs (messages), queues (of messages, and messages in flight), connections "
                "(buffers of clients).", BYTES, ("room",))
TOPIC_COUNT = _gauge(DISK, "topics", "Topics, ephemeral ones included.")
CHANNEL_COUNT = _gauge(DISK, "channels", "Channels of all topics, ephemeral ones included.")
# With --bucket.
BUCKET_LAG = _gauge(BUCKET, "bucket_lag_seconds", "How long the oldest change of a log waits for the bucket.", SECONDS)
BUCKET_LAG_BYTES = _gauge(BUCKET, "bucket_lag_bytes", "Bytes of logs that the bucket lacks.", BYTES)
BUCKET_COMMITS = _counter(BUCKET, "bucket_commits", "Commits put into the bucket.")
BUCKET_PUT = _counter(BUCKET, "bucket_put_bytes", "Bytes put into the bucket.", BYTES)
BUCKET_ERRORS = _counter(BUCKET, "bucket_errors", "Failed calls of the bucket; each is repeated.")
BUCKET_EPOCH = _gauge(BUCKET, "bucket_epoch", "How often the node was taken over or started.")
BUCKET_CHECKPOINT = _gauge(BUCKET, "bucket_checkpoint_seconds", "Time of the daemon's last checkpoint, since 1970; 0: "
                           "none yet.", SECONDS)
BUCKET_OWNED = _gauge(BUCKET, "bucket_owned_seconds", "Time when the daemon claimed its node, since 1970.", SECONDS)
BUCKET_CACHE = _gauge(BUCKET, "bucket_cache_bytes", "Bytes on this disk of history that was fetched from the bucket.",
                      BYTES)
BUCKET_FETCHES = _counter(BUCKET, "bucket_fetches", "Segments of history that were fetched, or could not be.")
BUCKET_FETCH_FAILURES = _counter(BUCKET, "bucket_fetch_failures", "Segments of history that could not be fetched.")
BUCKET_FENCED = _gauge(BUCKET, "bucket_fenced", "1 once another process owns the node, else 0.")
OF_BUCKET = (BUCKET_LAG, BUCKET_LAG_BYTES, BUCKET_COMMITS, BUCKET_PUT, BUCKET_ERRORS, BUCKET_EPOCH, BUCKET_CHECKPOINT,
             BUCKET_OWNED, BUCKET_CACHE, BUCKET_FETCHES, BUCKET_FETCH_FAILURES, BUCKET_FENCED)
DAEMON = (HANDSHAKES, CERTIFICATE_ENDS, REFUSED, CREATIONS_REFUSED, CREATIONS_DELAYED, CIRCLING, RULES_DIGEST, DRAINING,
          PROCESSING,
          HEALTHY, SYNC, SYNC_FAILURES, DISK_FREE, DISK_SIZE, DISK_LIMIT, MEMORY, TOPIC_COUNT, CHANNEL_COUNT)

def _figures(group: str, prefix: str, shape: type[Struct], labels: tuple[str, ...]) -> dict[str, Metric]:
    return {name: Metric(f"nsqc_{prefix}{figure.metric}", Type.COUNTER if figure.rises else Type.GAUGE, group,
                         figure.help, figure.unit, labels) for name, figure in figures_of(shape).items()}


# Of topics and of channels, by column (nsqc/broker/figures.pxd): those of /stats and those that only metrics have.
OF_TOPICS = {
    **_figures(TOPICS, "topic_", TopicStats, _TOPIC),
    "channels": _gauge(TOPICS, "topic_channels", "Channels of the topic.", labels=_TOPIC),
    "log_first_offset": _gauge(TOPICS, "topic_log_first_offset", "Offset of the first record in the topic's log.",
                               labels=_TOPIC),
    "log_next_offset": _gauge(TOPICS, "topic_log_next_offset", "Offset of the next record in the topic's log.",
                              labels=_TOPIC),
    "log_segments": _gauge(TOPICS, "topic_log_segments", "Segments of the topic's log.", labels=_TOPIC),
    "log_bytes": _gauge(TOPICS, "topic_log_size_bytes", "Bytes of records in the topic's log.", BYTES, _TOPIC),
    "log_damaged": _gauge(TOPICS, "topic_log_damaged", "Damaged messages found in the topic's log since the start.",
                          labels=_TOPIC),
    "log_missing": _gauge(TOPICS, "topic_log_missing",
                          "Messages lost from the topic's log with files or parts of files.", labels=_TOPIC),
}
OF_CHANNELS = {
    **_figures(CHANNELS, "channel_", ChannelStats, _CHANNEL),
    "log_lag": _gauge(CHANNELS, "channel_log_lag", "Records of the topic's log not yet passed to the channel.",
                      labels=_CHANNEL),
}
CHANNEL_DELIVERY = _histogram(CHANNELS, "channel_delivery_latency_seconds",
                              "Time from publishing a message to its first delivery, delays included.", _CHANNEL)
CHANNEL_PROCESSING = _histogram(CHANNELS, "channel_processing_latency_seconds",
                                "Time from publishing a message to FIN, delays included.", _CHANNEL)
CHANNEL_TIMES = (CHANNEL_DELIVERY, CHANNEL_PROCESSING)      # in the order of Channel.times

# Of the lookup server.
PRODUCERS = _gauge(LOOKUPD, "lookupd_producers",
                   "Connected nodes; state is active, or inactive after --inactive-producer-timeout.",
                   labels=("state",))
KNOWN_TOPICS = _gauge(LOOKUPD, "lookupd_topics", "Known topics, with or without a node.")
KNOWN_CHANNELS = _gauge(LOOKUPD, "lookupd_channels", "Known channels, with or without a node.")
TOPICS_WITHOUT = _gauge(LOOKUPD, "lookupd_topics_without_producers",
                        "Topics without an active node, or with all nodes tombstoned.")
REGISTRATIONS = _gauge(LOOKUPD, "lookupd_registrations", "Topics and channels registered by all nodes together.")
TOMBSTONES = _gauge(LOOKUPD, "lookupd_tombstones", "Topics of nodes temporarily hidden from lookups.")
REQUESTS = _counter(LOOKUPD, "lookupd_requests", "HTTP requests; route is a path of the API, or other.",
                    labels=("route",))
OF_LOOKUPD = (PRODUCERS, KNOWN_TOPICS, KNOWN_CHANNELS, TOPICS_WITHOUT, REGISTRATIONS, TOMBSTONES, REQUESTS)

OF_NSQD = (*COMMON, *DAEMON, *OF_BUCKET, *OF_TOPICS.values(), *OF_CHANNELS.values(), *CHANNEL_TIMES)
OF_NSQLOOKUPD = (*COMMON, *OF_LOOKUPD)
EVERY = (*OF_NSQD, *OF_LOOKUPD)
