# The state of a topic, its metrics, and what its channels call: Channel is defined above this header, so channels have
# the type of its base. topic.pxd has the behaviour of a topic. Storages have its messages: queued.pxd (memory and disk
# queues) and appending.pxd (a log).

from libc.stdint cimport int64_t, uint32_t, uint64_t
from cpython.object cimport PyObject
from nsqc.broker.figures cimport DedupeFigures, TopicCounts, TopicLevels
from nsqc.broker.openbatch cimport OpenBatch
from nsqc.broker.retired cimport Retired
from nsqc.broker.seams cimport TopicOwner
from nsqc.store.backlog cimport Backlog
from nsqc.store.clock cimport Clock
from nsqc.store.commit cimport Commit
from nsqc.store.fifo cimport Entry
from nsqc.store.guid cimport GuidFactory
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.log.earlier cimport Earlier, TopicPlace
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.publishids cimport PublishIds
from nsqc.store.seams cimport StoreOwner
from nsqc.store.slices cimport Slicer
from nsqc.store.space cimport DiskSpace


cdef struct TopicLimits:    # of messages waiting in the topic itself
    int64_t max_depth, max_bytes    # 0: none
    int64_t message_ttl_ns          # age at which they are dropped; 0: never
    bint trims                      # at the limit, the oldest messages are dropped,
    bint refuses                    # or publishes are refused
    bint watched                    # messages may have to be dropped


cdef class Storage:
    # Stores the messages of a topic. One object serves all topics and keeps its state in the topic. A topic always has
    # queues, and a log as well if its rule says or said so; it publishes to one of them.
    # Adds a message; PutResult. c_origin: of a dead letter, see origin.pxd; only a log stores it.
    cdef int put(self, TopicState topic, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                 uint32_t origin_size) noexcept
    # Adds messages of a batch until the slice is over; True: the batch is finished, or refused (batch.result).
    cdef bint put_batch(self, TopicState topic, OpenBatch batch) noexcept
    cdef bint lags(self, TopicState topic) noexcept             # publishers have to wait
    cdef object write_path(self, TopicState topic)              # the file that receives messages
    # Messages that wait for the channels.
    cdef int64_t depth(self, TopicState topic) noexcept
    cdef int64_t disk_depth(self, TopicState topic) noexcept
    cdef void empty(self, TopicState topic) noexcept
    # The topic or a channel starts, pauses or ends.
    cdef int add_channel(self, TopicState topic, StoreOwner channel, start) except -1
    cdef void channel_gone(self, TopicState topic) noexcept
    cdef void pause(self, TopicState topic) noexcept
    cdef void unpause(self, TopicState topic) noexcept
    cdef int delete(self, TopicState topic) except -1
    # For a stop: writes waiting messages to disk; returns how many were in memory. written: all channels were written.
    cdef int64_t close(self, TopicState topic, bint written) except -1


cdef class TopicState(StoreOwner):
    cdef readonly bytes name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef readonly bint started          # all initial channels exist
    cdef readonly bint exiting
    cdef readonly dict channels         # name to Channel
    cdef readonly uint64_t message_count
    cdef readonly uint64_t message_bytes
    # Subtracted from these after a failed write: metrics include it, as their counters never fall.
    cdef uint64_t taken_count, taken_bytes
    cdef Storage storage                # gets published messages
    cdef tuple storages                 # that one, and the other one while it has messages
    cdef Backlog backlog
    cdef Clock clock
    cdef Commit commit
    cdef Slicer slicer
    cdef DiskSpace space
    cdef GuidFactory guids
    cdef TopicOwner owner               # the broker
    cdef list fan                       # the channels, for the hot path
    cdef int fan_count
    cdef bint direct
    cdef bint retrying                  # memory or the disk failed; resume() will follow
    cdef bint waiting                   # for the disk; on_readable() will follow
    cdef int stuck                      # count of channels that cannot write
    cdef int64_t copied_serial          # copies of messages read from disk before this are in the running commit
    cdef object gone                    # callables for when its deletion ends; None: it has ended
    cdef PublishIds ids                 # None: it remembers no ids
    cdef uint64_t deduplicated          # publishes skipped as duplicates
    cdef Entry leftover                 # did not reach some channels for lack of memory; its message is NULL: none
    cdef bint leftover_copy             # it was read from disk
    cdef list lacking                   # Channels that get it later
    cdef Retired *retired               # of deleted folded channels; owned; NULL: none

    # For a log; see docs/design.md.
    cdef readonly object rule           # nsqc.options.topic_rules.TopicRule; None: in memory
    cdef readonly TopicLog log          # None: no log
    cdef bint logs                      # its rule says log; otherwise, the log is delivered first and then unused
    cdef TopicPlace place               # the first message hidden from channels
    cdef Earlier earlier                # channels of an earlier run, until the topic is started
    cdef Cursor settled                 # redriven or dropped dead letters; None: none. See settled.pxd
    cdef int64_t segment_count          # of the log, at the owner's last notification
    cdef int64_t most_bytes             # of the log; 0: no limit
    cdef bint log_full                  # the log is at its limit, and a channel needs the oldest segment
    cdef readonly str full_reason

    cdef TopicLimits limits
    cdef object rule_source             # origin of the limits
    cdef bint bounded                   # publishes need a check: see bounds.pxd
    cdef PyObject **limited             # borrowed Channels whose limits may refuse a publish; the array is owned
    cdef int limited_count
    cdef readonly str bound_reason      # why the last one was refused
    cdef int64_t bound_count, bound_bytes   # its messages
    cdef bint bound_lasts               # it would be refused even by empty queues
    cdef bint crowded                   # publishers wait for room: see room.pxd
    cdef readonly list crowd            # these publishers
    cdef bint looking                   # a timer checks for them
    cdef readonly bint aging            # the owner drops messages that expire here
    cdef uint64_t expired_count, overflow_count     # messages dropped here

    cdef int64_t allowance              # messages to accept before publishers are held
    cdef list held                      # LoopWork: the publishers

    cdef void storage_changed(self) noexcept        # after log or logs has changed
    # Messages wait that its channels get before those of the log.
    cdef inline bint has_queued(self) noexcept:
        return self.leftover.message is not NULL or self.backlog.depth() > 0
    # A channel's backlog could not be written, or, with error 0, was written or is empty. stuck: before that, it could
    # not be written.
    cdef void on_channel_written(self, StoreOwner channel, int error, bint stuck) noexcept
    cdef void on_moved(self) noexcept       # dead letters of a channel have left it, or cannot leave it now
    cdef void on_room(self) noexcept        # while crowded: a message has left the queues of a channel
    cdef int on_clients_gone(self, StoreOwner channel) except -1        # an ephemeral one has lost its last client
    # Messages that wait in the topic itself, and those of them on disk.
    cdef int64_t count_waiting(self) noexcept
    cdef int64_t count_on_disk(self) noexcept
    cdef TopicLevels levels(self) noexcept
    cdef TopicCounts counts(self) noexcept
    cdef TopicCounts metered(self) noexcept     # counts for metrics, which never fall
    cdef DedupeFigures dedupe(self) noexcept    # if it remembers ids
