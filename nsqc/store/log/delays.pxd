# Due times of the deferred messages of a log (DPUB) that may still be ahead, in order of offset.

from libc.stdint cimport int64_t
from nsqc.store.clock cimport Clock
from nsqc.store.log.jobs cimport LogBuf


cdef struct Delay:
    int64_t offset
    int64_t due_ns          # monotonic

cdef struct Delays:
    Delay *items            # owned
    int64_t first, count, room  # items[first : first + count] count

# Adds entries of a .due file that lie before an offset. longest_ns: of one that does not say what was asked for.
cdef void delays_add(Delays *delays, const char *c_from, int64_t length, int64_t end, int64_t longest_ns,
                     Clock clock) noexcept
# Due time of a message; 0: it is not deferred.
cdef int64_t delays_of(Delays *delays, int64_t offset, int64_t now_ns) noexcept
# How many at or behind an offset are ahead.
cdef int64_t delays_from(Delays *delays, int64_t offset, int64_t now_ns) noexcept
cdef void delays_drop_due(Delays *delays, int64_t now_ns) noexcept      # those at the beginning whose time has come
cdef void delays_drop_before(Delays *delays, int64_t offset) noexcept   # those of messages that are gone
cdef void delays_free(Delays *delays) noexcept
# Of entries for the next write: so many records before theirs were refused, so their offsets are lower.
cdef void due_rebase(LogBuf *due, int64_t less) noexcept
