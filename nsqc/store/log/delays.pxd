# Due times of the log's deferred messages (DPUB) that may still be in the future, ordered by offset.

from libc.stdint cimport int64_t, uint32_t
from nsqc.store.clock cimport Clock
from nsqc.store.log.frame cimport DELAY_BYTES, Frame, frame_delays
from nsqc.wire.hton cimport load_i32, load_i64


cdef struct Deferral:       # as stored in a frame
    int64_t offset
    int64_t due_ns          # since 1970
    int64_t asked_ms

cdef struct Delay:
    int64_t offset
    int64_t due_ns          # monotonic

cdef struct Delays:
    Delay *items            # owned
    int64_t first, count, room  # valid: items[first : first + count]

# c_frame: the whole frame.
cdef inline Deferral deferral_at(const char *c_frame, const Frame *frame, int64_t index) noexcept nogil:
    cdef const char *c_delay = frame_delays(c_frame, frame) + index * DELAY_BYTES
    cdef Deferral found
    found.offset = frame.first + <int64_t> <uint32_t> load_i32(c_delay)
    found.due_ns = load_i64(c_delay + 4)
    found.asked_ms = <int64_t> <uint32_t> load_i32(c_delay + 12)
    return found

# Adds a message; it waits at most longest_ns.
cdef void delay_add(Delays *delays, const Deferral *deferral, int64_t longest_ns, Clock clock) noexcept
# Adds the delayed messages of the whole frame at c_frame that come before an offset.
cdef void delays_add(Delays *delays, const char *c_frame, const Frame *frame, int64_t end, int64_t longest_ns,
                     Clock clock) noexcept
# Due time of a message; 0: it is not deferred.
cdef int64_t delays_of(Delays *delays, int64_t offset, int64_t now_ns) noexcept
# Number of messages from an offset on that are not due yet.
cdef int64_t delays_from(Delays *delays, int64_t offset, int64_t now_ns) noexcept
cdef void delays_drop_due(Delays *delays, int64_t now_ns) noexcept      # leading ones that are due
cdef void delays_drop_before(Delays *delays, int64_t offset) noexcept   # those of removed messages
cdef void delays_free(Delays *delays) noexcept
