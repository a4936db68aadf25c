# The log of a topic: records appended once, whatever channels there are. Channels read it through cursors (cursor.pxd).
#
# A publish goes to the buffer; the commit writes the buffer to the last segment, and with `fsync` syncs it, before
# anything is acknowledged. Only then the records can be read: up to next, which never falls. What was written last
# stays in memory as the tail, from which cursors that keep up are served.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.log.jobs cimport LogBuf
from nsqc.store.log.logstate cimport LogState
from nsqc.store.log.reads cimport ReadRecords
from nsqc.store.message cimport Message


cdef class TopicLog(LogState):
    # Adds a record to the buffer; -1: no memory. more: its batch continues with the next one.
    cdef int append(self, const char *c_id, int64_t wall_ns, const char *c_body, uint32_t size, uint32_t defer_ms,
                    bint more) noexcept
    cdef int append_message(self, Message *message, bint more) noexcept         # borrows it
    # Moves the records from a mark on to a buffer of the caller's, and back: for a batch that is not complete.
    cdef int stage(self, int64_t length, int64_t records, LogBuf *to) noexcept      # -1: no memory
    cdef int unstage(self, LogBuf *batch) noexcept                                  # frees it unless -1: no memory
    cdef void take_back(self, int64_t length, int64_t records) noexcept            # what is behind the mark is dropped
    cdef int64_t delay_of(self, int64_t offset) noexcept       # due time of a deferred message; 0: it is not deferred
    cdef int64_t delayed_from(self, int64_t offset) noexcept   # deferred messages at or behind an offset
    cdef int64_t first_offset(self) noexcept
    cdef void read_now(self, ReadRecords *job) noexcept         # what the page cache has
    cdef void hold(self, int64_t at) noexcept                   # nothing from an offset on is visible
    cdef void unhold(self) noexcept
    cdef void let_go(self) noexcept                             # of its topic
    cdef int64_t appended(self) noexcept                        # the offset of the next record
