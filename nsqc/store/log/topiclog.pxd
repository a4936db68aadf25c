# The log of a topic: records are appended once for all channels, which read it through cursors (cursor.pxd).
#
# A publish goes to the buffer; the commit writes the buffer to the last segment, and with `fsync` syncs it, before
# anything is acknowledged. Only then the records can be read: up to next, which never falls. What was written last
# stays in memory as the tail, from which cursors that keep up are served.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.log.logstate cimport LogState
from nsqc.store.log.read cimport ReadFrames


cdef class TopicLog(LogState):
    # Adds a message, or the payload of a checked MPUB, to what is written next; -1: no memory, and nothing is added.
    # defer_ms: of each message. c_origin: see frames_add().
    cdef int append(self, int64_t wall_ns, const char *c_body, uint32_t size, uint32_t defer_ms, const char *c_origin,
                    uint32_t origin_size) noexcept
    cdef int append_batch(self, int64_t wall_ns, const char *c_payload, int64_t length, int64_t records,
                          uint32_t defer_ms) noexcept
    cdef int64_t delay_of(self, int64_t offset) noexcept       # due time of a deferred message; 0: it is not deferred
    cdef int64_t delayed_from(self, int64_t offset) noexcept   # deferred messages from an offset on
    cdef int64_t first_offset(self) noexcept
    cdef void read_now(self, ReadFrames *job) noexcept          # what the page cache has
    # Where a read for an offset begins, in the segment of an index; 0: its file has to be asked.
    cdef int64_t position_before(self, int64_t index, int64_t offset) noexcept
    cdef void hold(self, int64_t at) noexcept                   # nothing from an offset on is visible
    cdef void unhold(self) noexcept
    cdef void let_go(self) noexcept                             # of its topic
    cdef int64_t appended(self) noexcept                        # the offset of the next record

    cdef void _rest(self) noexcept
    cdef void _keep_end(self) noexcept
