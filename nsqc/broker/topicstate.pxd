# What a topic consists of. topic.pxd is what it does with memory and disk queues; logged.pxd and appending.pxd are
# functions on this for a topic with a log.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from cpython.object cimport PyObject
from nsqc.broker.channel cimport Channel
from nsqc.broker.figures cimport DedupeFigures, TopicCounts, TopicLevels
from nsqc.broker.leftover cimport Leftover
from nsqc.broker.retired cimport Retired
from nsqc.broker.seams cimport ChannelOwner, Publisher, TopicOwner
from nsqc.store.backlog cimport Backlog, Commit
from nsqc.store.clock cimport Clock
from nsqc.store.fifo cimport Fifo
from nsqc.store.guid cimport GuidFactory
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.log.earlier cimport Earlier, TopicPlace
from nsqc.store.log.buffer cimport Buffer
from nsqc.store.log.topiclog cimport TopicLog
from nsqc.store.message cimport Message
from nsqc.store.publishids cimport PublishId, PublishIds
from nsqc.store.slices cimport Slicer
from nsqc.store.space cimport DiskSpace


cdef struct Once:
    # A publish with an id; see publishonce.pxd. All zeros: it has none.
    PublishId id
    int64_t claim           # number of the id's entry while it is being published; 0: it is not
    int64_t failures        # commits that had failed by then
    bint asked              # it has an id
    bint wrote              # some of its messages have gone to a commit


cdef struct Batch:
    # The rest of a checked multi-publish: each message behind its size at c_at, or gathered.
    const char *c_at
    Fifo *gathered          # not owned; NULL: they are at c_at
    int32_t left
    int result              # PutResult of those published so far
    uint32_t defer_ms       # of each message
    Once once
    Buffer *staged          # of a log: those published so far; they are appended together with the rest. Not owned
    bint admitted           # its topic has room for all of them


cdef struct TopicLimits:    # for what waits in the topic itself
    int64_t max_depth, max_bytes    # 0: none
    int64_t message_ttl_ns          # then they are dropped; 0: never
    bint trims                      # at the limit, the oldest messages are dropped,
    bint refuses                    # or publishes are refused
    bint watched                    # messages may have to be dropped


cdef class OpenBatch:
    # A multi-publish over HTTP that takes several slices.
    cdef Buffer staged          # owned
    cdef Once once


cdef class TopicState(ChannelOwner):
    cdef readonly bytes name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef readonly bint started          # all channels that it must have from the beginning exist
    cdef readonly bint exiting
    cdef readonly dict channels         # name to Channel
    cdef readonly uint64_t message_count
    cdef readonly uint64_t message_bytes
    # Taken back from these, because it could not be written: metrics include it, their counters never fall.
    cdef uint64_t taken_count, taken_bytes
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
    cdef bint retrying                  # memory or the disk could not be used; resume() will follow
    cdef bint waiting                   # for the disk; on_readable() will follow
    cdef int stuck                      # channels that cannot write
    cdef int64_t copied_serial          # copies of what was read from disk before this are in the commit under way
    cdef object gone                    # callables for the end of its deletion; None: it is deleted
    cdef PublishIds ids                 # None: it does not remember any
    cdef uint64_t deduplicated          # publishes that were not stored again
    cdef Leftover leftover
    cdef Retired *retired               # of folded channels that are deleted; owned; NULL: none was

    # In a log; see docs/design.md.
    cdef readonly object rule           # nsqc.broker.protocols.TopicRule; None: in memory
    cdef readonly TopicLog log          # None: it has none
    cdef bint logs                      # it publishes to the log; otherwise, what is left there is delivered first
    cdef TopicPlace place               # what no channel may read yet begins there
    cdef Earlier earlier                # channels of an earlier run, until the topic is started
    cdef Cursor settled                 # dead letters that were redriven or dropped; None: none was. See settled.pxd
    cdef int64_t segment_count          # of the log, when the owner was last notified
    cdef int64_t most_bytes             # of the log; 0: no limit
    cdef bint log_full                  # the log is at its limit, and a channel needs its oldest segment
    cdef readonly str full_reason

    cdef TopicLimits limits
    cdef object rule_source             # where they come from
    cdef bint bounded                   # a publish has to be asked for: see bounds.pxd
    cdef PyObject **limited             # borrowed Channels whose limits may refuse one; the array is owned
    cdef int limited_count
    cdef readonly str bound_reason      # why the last one was refused
    cdef int64_t bound_count, bound_bytes   # its messages
    cdef bint bound_lasts               # it would be refused though nothing waited
    cdef readonly list crowd                     # publishers that wait for room: see room.pyx
    cdef bint looking                   # a timer for that runs
    cdef readonly bint aging            # the owner looks after what waits here
    cdef uint64_t expired_count, overflow_count     # messages dropped here

    cdef int64_t allowance              # messages it accepts before publishers are held
    cdef list held                      # Publishers

    cdef void refresh(self) noexcept    # after anything that direct depends on has changed
    cdef TopicLevels levels(self) noexcept
    cdef TopicCounts counts(self) noexcept
    cdef TopicCounts metered(self) noexcept     # counts for metrics: they never fall
    cdef DedupeFigures dedupe(self) noexcept    # if there are ids
