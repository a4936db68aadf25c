# A topic: fans each message out to its channels at once, or lets it wait while it cannot.
#
# direct holds exactly while it is started, not paused, has a channel, none of its channels is stuck, and nothing waits
# in its own backlog; then a put goes straight through to the channels.

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from nsqc.broker.channel cimport Channel
from nsqc.store.backlog cimport Backlog, CommitSet
from nsqc.store.clock cimport Clock
from nsqc.store.guid cimport GuidFactory
from nsqc.store.message cimport Message


cdef class Topic:
    cdef readonly bytes name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef readonly bint started          # False until all channels it must have from the beginning exist
    cdef readonly bint exiting
    cdef readonly dict channels         # name to Channel
    cdef readonly uint64_t message_count
    cdef readonly uint64_t message_bytes
    cdef Backlog backlog
    cdef Clock clock
    cdef CommitSet commits
    cdef GuidFactory guids
    cdef object broker                  # makes channels, hears of what comes and goes
    cdef list fan                       # the channels, for the hot path
    cdef bint direct
    cdef bint draining                  # a continuation of drain() is on its way
    cdef bint unreadable                # the backlog could not be read just now
    cdef int stuck                      # channels that cannot write
    cdef int64_t failed_serial          # the commit in which this topic or one of its channels failed
    cdef int failed_errno
    # What the commit to come stands for, so that a topic that could not write takes it back.
    cdef int64_t spill_serial
    cdef uint64_t spill_count
    cdef uint64_t spill_bytes

    # Makes a message with an id of its own and puts it; PutResult.
    cdef int publish_bytes(self, const char *c_body, uint32_t size, uint32_t defer_ms) noexcept
    # Takes the reference unless the result is PUT_NO_MEMORY.
    cdef int put(self, Message *message, uint32_t defer_ms) noexcept
    cdef int _fan_out(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept
    cdef int _wait(self, Message *message, uint32_t defer_ms) noexcept
    cdef int _settle(self, int result) except -1
    cdef int _drain(self) except -1
    cdef void refresh(self) noexcept    # after anything that direct depends on has changed


# Publishes count messages, each behind its size, as they stand in a checked multi-publish; PutResult.
cdef int publish_frames(Topic topic, const char *c_at, int32_t count) noexcept
