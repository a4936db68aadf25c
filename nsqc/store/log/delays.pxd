# Due times of the deferred messages of a log (DPUB) that may still be ahead, in order of offset.

from libc.stdint cimport int64_t
from nsqc.store.clock cimport Clock
from nsqc.store.log.frame cimport Frame


cdef struct Delay:
    int64_t offset
    int64_t due_ns          # monotonic

cdef struct Delays:
    Delay *items            # owned
    int64_t first, count, room  # items[first : first + count] count

# Adds the delayed messages of a frame, which lies whole at c_frame, that come before an offset. longest_ns: an earlier
# run has left it, and it waits no longer than that.
cdef void delays_add(Delays *delays, const char *c_frame, const Frame *frame, int64_t end, int64_t longest_ns,
                     Clock clock) noexcept
# One that an earlier run has left: see LEFT_BYTES of scan.pxd.
cdef void delay_left(Delays *delays, const char *c_left, int64_t longest_ns, Clock clock) noexcept
# Due time of a message; 0: it is not deferred.
cdef int64_t delays_of(Delays *delays, int64_t offset, int64_t now_ns) noexcept
# How many at or behind an offset are ahead.
cdef int64_t delays_from(Delays *delays, int64_t offset, int64_t now_ns) noexcept
cdef void delays_drop_due(Delays *delays, int64_t now_ns) noexcept      # those at the beginning whose time has come
cdef void delays_drop_before(Delays *delays, int64_t offset) noexcept   # those of messages that are gone
cdef void delays_free(Delays *delays) noexcept
