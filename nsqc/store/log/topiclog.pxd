# The log of a topic: records are appended once for all channels, which read it through cursors (cursor.pxd).
#
# A publish goes to the buffer. The commit writes the buffer to the last segment, and with `fsync` syncs it, before
# acknowledging anything. Only then can records be read: up to next, which never falls. The last write stays in memory
# as the tail, which serves cursors that keep up.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.log.logstate cimport LogState
from nsqc.store.log.read cimport ReadFrames


cdef class TopicLog(LogState):
    # Adds a message, or the payload of a checked MPUB, to the next write; -1: no memory, and nothing is added.
    # defer_ms: of each message. c_origin: see frames_add().
    cdef int append(self, int64_t wall_ns, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                    uint32_t origin_size) noexcept
    cdef int append_batch(self, int64_t wall_ns, const char *c_payload, int64_t length, int64_t records,
                          uint32_t defer_ms) noexcept
    cdef int64_t delay_of(self, int64_t offset) noexcept       # due time of a deferred message; 0: it is not deferred
    cdef int64_t delayed_from(self, int64_t offset) noexcept   # number of deferred messages from an offset on
    cdef int64_t first_offset(self) noexcept
    cdef void read_now(self, ReadFrames *job) noexcept          # reads from the page cache only
    # Where a read for an offset begins, in the segment at an index; 0: read the file's index.
    cdef int64_t position_before(self, int64_t index, int64_t offset) noexcept
    cdef void hold(self, int64_t at) noexcept                   # hides all records from an offset on
    cdef void unhold(self) noexcept
    cdef void release_owner(self) noexcept                      # drops its reference to the topic
    cdef int64_t appended(self) noexcept                        # the offset of the next record
    cdef int64_t unwritten_records(self) noexcept

    cdef void _rest(self) noexcept
    cdef void _keep_end(self) noexcept
