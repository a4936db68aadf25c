# All topics by name, dead letters, redriving, cancelling.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint32_t, uint64_t

from nsqc.broker.channel cimport Channel
from nsqc.broker.state cimport Retired, TopicCounts, TopicOwner
from nsqc.broker.topic cimport Topic
from nsqc.store.disk.queue cimport DiskQueue
from nsqc.store.memory cimport Clock
from nsqc.store.message cimport GuidFactory, Heap
from nsqc.store.work cimport CommitSchedule, DiskSpace, LoopWork, Slicer


# ====================================================================== topics by name
# All topics of one daemon, by name.

cdef struct NameSlot:
    uint32_t hash
    PyObject *topic         # borrowed from TopicIndex.topics; NULL: free


cdef class TopicIndex(TopicOwner):
    cdef readonly dict topics           # by name; owns them
    cdef NameSlot *slots                # owned; finds a topic without a Python object for its name
    cdef uint32_t mask

    cdef Topic find(self, const char *c_name, Py_ssize_t length)        # None: no such topic
    cdef int add(self, Topic topic) except -1
    cdef int remove(self, Topic topic) except -1
    cdef int _index(self) except -1
    cdef void _enter(self, Topic topic) noexcept
    cdef void _leave(self, Topic topic) noexcept


# ====================================================================== dead letters
# Publishes the dead messages of a channel to its dead-letter topic.

cdef class DeadLetters(LoopWork):
    # A running batch; channel.sender, unless it was forgotten meanwhile.
    cdef Channel channel


# Begins a batch; none may be running. node: of the daemon, for the origins. reasons: gets a bit for each LeaveReason
# of its messages. PutResult: PUT_MEMORY if it has begun; PUT_DISK if the commit has to end before; or why the topic
# refused the first message.
cdef int dead_publish(Topic target, Channel channel, bytes node, int *reasons) except -1


# ====================================================================== broker
# All topics of one daemon: created and deleted here.

cdef class Broker(TopicIndex):
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
    cdef readonly list listeners        # called (event, topic, channel or None) for new and deleted topics and channels
    cdef public object starter          # (topic): starts a new one now or when its channels are known; None: now
    cdef public object saver            # (topic): saves its state; returns a future, done once that is on disk
    cdef readonly object logs                    # nsqc.store.log.manager.Logs; None: no topic has one
    cdef readonly dict watched          # by name: topics with log segments to remove or ids to forget, perhaps
    cdef object disks                   # nsqc.store.disk.manager.DiskQueues; None: all topics are ephemeral
    cdef object write_health            # nsqc.broker.health.WriteHealth
    # Channels that keep their messages, as their dead letters would come back to their topic. No ways of other channels
    # lead in a circle.
    cdef readonly set circling
    cdef uint64_t steps                 # Clock.steps, as of the last check
    cdef bint warned                    # of messages from the future
    # For metrics.
    cdef public bint folds_channels     # all topics fold their channels into one series; else only ephemeral ones
    cdef readonly dict refusals         # refused publishes by reason: see nsqc.broker.refusals
    cdef readonly dict creations_refused    # topics and channels that clients could not create, by option
    cdef public uint64_t creations_delayed  # times a connection waited for --max-create-rate
    cdef dict ephemeral                 # ephemeral topics by name
    cdef Retired *ephemeral_retired     # deleted channels of ephemeral topics; owned; NULL: none
    cdef TopicCounts ephemeral_counts   # of deleted ephemeral topics

    cdef int _notify(self, event, topic, channel) except -1
    cdef int _need_room(self, option, int64_t limit, Py_ssize_t count, bytes topic) except -1
    cdef bint _leads_to(self, bytes name, bytes goal) except -1
    cdef int _moves(self, Channel channel, int reasons) except -1
    cdef DiskQueue _open(self, name, bint ephemeral, bint needed)


# ====================================================================== redrive
# Puts messages into one channel of a topic only. For Python: see the .pyi.

cdef class Taken:
    cdef Channel source
    cdef Heap heap          # deliveries with their places, being moved; owned


# ====================================================================== cancel

# Cancels deferred messages. For Python only: see the .pyi.
