# Two clocks, read once per event instead of once per message.
#
# Timestamps and ids use the wall clock. Deadlines use the monotonic clock: setting the time moves none of them.

from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef inline int64_t wall_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef class Clock:
    cdef int64_t wall           # nanoseconds since 1970, as of the last refresh
    cdef int64_t monotonic      # nanoseconds, as of the last refresh

    cdef void refresh(self) noexcept    # the first thing in every callback of the loop
