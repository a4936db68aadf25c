# The two clocks, read once an event instead of once a message.
#
# Timestamps and ids use the wall clock, deadlines the monotonic one, so that a clock step moves no deadline.

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

    cdef void refresh(self) noexcept    # whoever is called by the loop does this first
