# All topics by name, redriving, cancelling.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqc.broker.figures cimport Retired, TopicCounts
from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.memory cimport Clock
from nsqc.store.message cimport GuidFactory, Heap
from nsqc.store.work cimport CommitSchedule, DiskSpace, Slicer

cdef class Broker       # topics and the broker know each other

from nsqc.broker.channel cimport Channel
from nsqc.broker.topic cimport Topic


# ====================================================================== broker
# All topics of one daemon: created and deleted here.

cdef struct NameSlot:
    uint32_t hash
    PyObject *topic         # borrowed from Broker.topics; NULL: free


cdef class Broker:
    cdef public bint closing            # the daemon is stopping: nothing new is made, and nothing moves
    cdef public bint draining           # nothing new is accepted or delivered; messages in flight may finish
    cdef bint failing                   # a write has failed: on_written() is called for commits that succeed, too
    cdef readonly dict topics    # type: dict[bytes, Topic]; by name; owns them
    cdef NameSlot *slots                # owned; finds a topic without a Python object for its name
    cdef uint32_t mask
    cdef Clock clock
    cdef readonly CommitSchedule commits
    cdef readonly Slicer slicer         # runs long work
    cdef readonly DiskSpace space       # of the data path
    cdef GuidFactory guids
    cdef object settings                # nsqc.options.declared.Settings
    cdef bytes node                     # this node, for the origins of dead letters
    cdef readonly bint is_topology_aware    # channels prefer near consumers
    cdef object rules                   # nsqc.options.rules.TopicRules; None: all topics are in memory
    cdef object channel_rules           # nsqc.options.rules.ChannelRules; None: no channel has rules
    cdef object log                     # nsqc.log.Log
    cdef object timers                  # nsqc.broker.stats.Timers
    # Upward calls. Starter and saver are set once their owners exist.
    # Called (event, topic, channel or None) for new and deleted topics and channels.
    cdef readonly list listeners    # type: list[Callable[[str, Topic, Channel | None], None]]
    # Starts a new topic now or when its channels are known; None: now.
    cdef public object starter      # type: Callable[[Topic], None] | None
    cdef public object saver        # type: Callable[[Topic], Future[None]]; saves its state; done once that is on disk
    cdef readonly object logs    # type: Logs | None; None: no topic has one
    cdef readonly dict watched    # type: dict[bytes, Topic]; those with segments to remove or ids to forget, perhaps
    cdef object disks                   # nsqc.store.disk.manager.DiskQueues; None: all topics are ephemeral
    cdef object write_health            # nsqc.broker.health.WriteHealth
    # Channels that keep their dead letters, which would return to their own topic. Without these, no dead-letter topics
    # form a cycle.
    cdef readonly set circling    # type: set[Channel]
    cdef uint64_t steps                 # Clock.steps, as of the last check
    cdef bint warned                    # of messages from the future
    # For metrics.
    cdef public bint folds_channels     # all topics fold their channels into one series; else only ephemeral ones
    cdef readonly dict refusals    # type: dict[str, int]; refused publishes by reason: see nsqc.broker.refusals
    cdef readonly dict creations_refused    # type: dict[str, int]; of topics and channels, by option
    cdef public uint64_t creations_delayed  # times a connection waited for --max-create-rate
    cdef dict ephemeral                 # ephemeral topics by name
    cdef Retired *ephemeral_retired     # deleted channels of ephemeral topics; owned; NULL: none
    cdef TopicCounts ephemeral_counts   # of deleted ephemeral topics

    cdef Topic find(self, const char *c_name, Py_ssize_t length)        # None: no such topic
    cdef int add(self, Topic topic) except -1
    cdef int remove(self, Topic topic) except -1
    cdef int _index(self) except -1
    cdef void _enter(self, Topic topic) noexcept
    cdef void _leave(self, Topic topic) noexcept

    # From topics.
    cdef Channel make_channel(self, Topic topic, bytes name)
    cdef int on_channel_created(self, Topic topic, Channel channel) except -1
    # The channel is about to drop its messages.
    cdef int on_channel_deleted(self, Topic topic, Channel channel) except -1
    cdef int on_last_channel_gone(self, Topic topic) except -1      # of an ephemeral topic
    cdef int on_topic_deleted(self, Topic topic) except -1          # with all its messages
    # A write has failed, of a channel or, if that is None, of the topic itself. error 0: the failed data was written
    # or is gone; both None: a commit has succeeded.
    cdef void on_written(self, Topic topic, Channel channel, int error) noexcept
    # It may have messages to drop, ids of publishes to forget, or segments of its log to remove.
    cdef void on_aging(self, Topic topic) noexcept
    cdef void on_bound(self, Topic topic) noexcept                  # it refuses publishes: see bound_reason
    cdef int on_log_full(self, Topic topic, bint full) except -1    # or no longer full
    cdef int on_log_left(self, Topic topic, TopicLog log) except -1     # everything in it is finished
    cdef int on_refused(self, reason) except -1                     # a publish, see nsqc.broker.refusals
    # Messages go to a dead-letter topic; or, with an errno, could not be written there.
    cdef void on_dead(self, Channel channel, int error) noexcept
    # Whether dead letters of a topic, by the rules of its channels, may come to another one.
    cdef bint leads_to(self, bytes name, bytes goal) except -1
    cdef void resume_later(self, Topic topic) noexcept              # calls topic.resume() soon

    cdef int _notify(self, event, topic, channel) except -1
    cdef int _need_room(self, option, int64_t limit, Py_ssize_t count, bytes topic) except -1
    cdef int _moves(self, Channel channel, Topic target, int reasons) except -1
    cdef DiskQueue _open(self, name, bint ephemeral, bint needed)


# ====================================================================== redrive
# Puts messages into one channel of a topic only.

cdef class Taken:
    cdef Channel source
    cdef Heap heap          # deliveries with their places, being moved; owned


# ====================================================================== cancel

# Cancels deferred messages.
