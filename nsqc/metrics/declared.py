"""Every metric, declared once: what is sent of it, docs/metrics.md, and the checks of dashboard and alerts come from
here."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Type(Enum):
    """As both formats name them; INFO is a gauge in the older one."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Metric(NamedTuple):
    """A family of samples. Its name ends in the unit if it has one; a counter's samples end in _total besides."""

    name: str
    type: Type
    group: str
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()

    @property
    def sample(self) -> str:
        """The name of its samples; a histogram's have a suffix besides."""
        return self.name + {Type.COUNTER: "_total", Type.INFO: "_info"}.get(self.type, "")


SECONDS, BYTES = "seconds", "bytes"
PROCESS, CLIENTS, DISK, TOPICS, CHANNELS, LOOKUPD = (
    "The process", "Clients", "Disk and memory", "Topics", "Channels", "The lookup server")
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
               "Always 1; version is nsqc's, nsq_version that of NSQ which it replaces, program nsqd or nsqlookupd.",
               labels=("version", "nsq_version", "python", "program"))
START_TIME = _gauge(PROCESS, "start_time_seconds", "When it was started, since 1970.", SECONDS)
UPTIME = _gauge(PROCESS, "uptime_seconds", "Time since the start.", SECONDS)
CPU = _counter(PROCESS, "process_cpu_seconds", "Processor time of all threads, user and system.", SECONDS)
RESIDENT = _gauge(PROCESS, "process_resident_memory_bytes", "Resident memory, messages included.", BYTES)
OPEN_FILES = _gauge(PROCESS, "process_open_descriptors", "File descriptors in use.")
MOST_FILES = _gauge(PROCESS, "process_max_descriptors", "How many it may use: the limit of open files.")
LOOP_LAG = _histogram(PROCESS, "loop_lag_seconds",
                      "How late the event loop calls what is due, measured ten times a second.")
CONNECTIONS = _gauge(CLIENTS, "connections", "Clients that are connected; kind is tcp, http or https.",
                     labels=("kind",))
CONNECTIONS_REFUSED = _counter(CLIENTS, "connections_refused",
                               "Clients that were refused; limit is the option that they were beyond.",
                               labels=("limit",))
COMMON = (BUILD, START_TIME, UPTIME, CPU, RESIDENT, OPEN_FILES, MOST_FILES, LOOP_LAG, CONNECTIONS, CONNECTIONS_REFUSED)

# Of the daemon.
HANDSHAKES = _counter(CLIENTS, "tls_handshakes", "TLS handshakes that have ended; result is ok or failed.",
                      labels=("result",))
REFUSED = _counter(CLIENTS, "publishes_refused", "Publishes that were refused; a batch counts once.",
                   labels=("reason",))
CREATIONS_REFUSED = _counter(CLIENTS, "creations_refused", "Topics and channels that clients could not create; limit "
                             "is the option that they were beyond.", labels=("limit",))
CREATIONS_DELAYED = _counter(CLIENTS, "creations_delayed",
                             "How often a connection had to wait as it created faster than --max-create-rate.")
HEALTHY = _gauge(DISK, "healthy", "1 while /ping says OK, else 0.")
DRAINING = _gauge(CLIENTS, "draining", "1 while the daemon drains, and while it stays drained, else 0.")
PROCESSING = _histogram(CLIENTS, "processing_latency_seconds",
                        "Time from publishing a message to FIN, delays included, in all channels of the node.")
SYNC = _histogram(DISK, "disk_sync_seconds", "How long syncs of queues and logs took, from when they were due.")
SYNC_FAILURES = _counter(DISK, "disk_sync_failures", "Syncs that failed.")
DISK_FREE = _gauge(DISK, "disk_free_bytes", "Free bytes of the data path's file system.", BYTES)
DISK_SIZE = _gauge(DISK, "disk_size_bytes", "Size of that file system.", BYTES)
DISK_LIMIT = _gauge(DISK, "disk_free_limit_bytes",
                    "While less is free, publishes that need the disk are refused (--min-free-disk); 0: none.", BYTES)
MEMORY = _gauge(DISK, "memory_bytes",
                "Memory by what it holds: slabs (messages), queues (of messages, and what is in flight), connections "
                "(buffers of clients).", BYTES, ("room",))
TOPIC_COUNT = _gauge(DISK, "topics", "Topics, ephemeral ones included.")
CHANNEL_COUNT = _gauge(DISK, "channels", "Channels of all topics, ephemeral ones included.")
DAEMON = (HANDSHAKES, REFUSED, CREATIONS_REFUSED, CREATIONS_DELAYED, DRAINING, PROCESSING, HEALTHY, SYNC, SYNC_FAILURES,
          DISK_FREE, DISK_SIZE, DISK_LIMIT, MEMORY, TOPIC_COUNT, CHANNEL_COUNT)

# Of topics, then of channels, in the order of the columns in nsqc/broker/survey.pxd.
OF_TOPICS = (
    _gauge(TOPICS, "topic_depth", "Messages that wait in the topic itself.", labels=_TOPIC),
    _gauge(TOPICS, "topic_backend_depth", "Those of them on disk.", labels=_TOPIC),
    _counter(TOPICS, "topic_messages", "Messages published, those that could then not be written included.",
             labels=_TOPIC),
    _counter(TOPICS, "topic_message_bytes", "Bytes of their bodies.", BYTES, _TOPIC),
    _counter(TOPICS, "topic_expired", "Messages that message_ttl has dropped in the topic itself.", labels=_TOPIC),
    _counter(TOPICS, "topic_overflows", "The same of max_depth and max_bytes.", labels=_TOPIC),
    _gauge(TOPICS, "topic_channels", "Channels of the topic.", labels=_TOPIC),
    _gauge(TOPICS, "topic_log_first_offset", "Offset of the first record in the topic's log.", labels=_TOPIC),
    _gauge(TOPICS, "topic_log_next_offset", "Offset that the next record in the topic's log gets.", labels=_TOPIC),
    _gauge(TOPICS, "topic_log_segments", "Segments of the topic's log.", labels=_TOPIC),
    _gauge(TOPICS, "topic_log_size_bytes", "Bytes of the records in the topic's log.", BYTES, _TOPIC),
    _gauge(TOPICS, "topic_log_damaged", "Messages of the topic's log that were found damaged since the start.",
           labels=_TOPIC),
    _gauge(TOPICS, "topic_log_missing", "Messages of the topic's log that are gone with files or parts of them.",
           labels=_TOPIC),
    _counter(TOPICS, "topic_deduplicated", "Publishes that were not stored again, since their id was known.",
             labels=_TOPIC),
    _gauge(TOPICS, "topic_publish_ids", "Ids of publishes that the topic remembers.", labels=_TOPIC),
    _counter(TOPICS, "topic_publish_ids_forgotten", "Ids that were forgotten before their time: dedupe_ids is too low.",
             labels=_TOPIC),
)
OF_CHANNELS = (
    _gauge(CHANNELS, "channel_depth", "Messages that wait, in memory and on disk.", labels=_CHANNEL),
    _gauge(CHANNELS, "channel_backend_depth",
           "Those of them on disk; of a log, those beyond what nsqd would keep in memory.", labels=_CHANNEL),
    _gauge(CHANNELS, "channel_in_flight", "Messages delivered and not finished yet.", labels=_CHANNEL),
    _gauge(CHANNELS, "channel_deferred", "Messages that wait for their delay.", labels=_CHANNEL),
    _counter(CHANNELS, "channel_messages", "Messages that the channel has received.", labels=_CHANNEL),
    _counter(CHANNELS, "channel_requeues", "Messages that clients have requeued.", labels=_CHANNEL),
    _counter(CHANNELS, "channel_timeouts", "Deliveries that were not finished in time.", labels=_CHANNEL),
    _counter(CHANNELS, "channel_dead_letters", "Messages that were moved to the channel's dead-letter topic.",
             labels=_CHANNEL),
    _counter(CHANNELS, "channel_redriven", "Dead letters that were redriven to the channel.", labels=_CHANNEL),
    _counter(CHANNELS, "channel_expired", "Messages that message_ttl has dropped or moved to the dead-letter topic.",
             labels=_CHANNEL),
    _counter(CHANNELS, "channel_overflows", "The same of max_depth and max_bytes.", labels=_CHANNEL),
    _gauge(CHANNELS, "channel_clients", "Consumers of the channel.", labels=_CHANNEL),
    _gauge(CHANNELS, "channel_log_lag", "Records of the topic's log that the channel was not given yet.",
           labels=_CHANNEL),
)
CHANNEL_DELIVERY = _histogram(CHANNELS, "channel_delivery_latency_seconds",
                              "Time from publishing a message to its first delivery, delays included.", _CHANNEL)
CHANNEL_PROCESSING = _histogram(CHANNELS, "channel_processing_latency_seconds",
                                "Time from publishing a message to FIN, delays included.", _CHANNEL)
CHANNEL_TIMES = (CHANNEL_DELIVERY, CHANNEL_PROCESSING)      # in the order of Channel.times

# Of the lookup server.
PRODUCERS = _gauge(LOOKUPD, "lookupd_producers",
                   "Nodes that are connected; state is active, or inactive after --inactive-producer-timeout.",
                   labels=("state",))
KNOWN_TOPICS = _gauge(LOOKUPD, "lookupd_topics", "Topics that are known, with or without a node.")
KNOWN_CHANNELS = _gauge(LOOKUPD, "lookupd_channels", "Channels that are known, with or without a node.")
TOPICS_WITHOUT = _gauge(LOOKUPD, "lookupd_topics_without_producers",
                        "Topics that no active node has registered, or whose nodes are all tombstoned.")
REGISTRATIONS = _gauge(LOOKUPD, "lookupd_registrations", "Topics and channels of all nodes together.")
TOMBSTONES = _gauge(LOOKUPD, "lookupd_tombstones", "Topics of nodes that are hidden from lookups for now.")
REQUESTS = _counter(LOOKUPD, "lookupd_requests", "HTTP requests; route is a path of the API, or other.",
                    labels=("route",))
OF_LOOKUPD = (PRODUCERS, KNOWN_TOPICS, KNOWN_CHANNELS, TOPICS_WITHOUT, REGISTRATIONS, TOMBSTONES, REQUESTS)

OF_NSQD = (*COMMON, *DAEMON, *OF_TOPICS, *OF_CHANNELS, *CHANNEL_TIMES)
OF_NSQLOOKUPD = (*COMMON, *OF_LOOKUPD)
EVERY = (*OF_NSQD, *OF_LOOKUPD)
