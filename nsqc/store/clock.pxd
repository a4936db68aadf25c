# Two clocks, read once per event instead of once per message.
#
# Timestamps and ids use the wall clock. Deadlines use the monotonic clock: setting the time moves none of them.

from libc.stdint cimport int64_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec


cdef inline int64_t wall_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1000000000 + now.tv_nsec


cdef enum:
    STEP_NS = 1000000000        # by less than this the wall clock is adjusted; more is a step: someone has set it


cdef class Clock:
    cdef int64_t wall           # nanoseconds since 1970, as of the last refresh
    cdef int64_t monotonic      # nanoseconds, as of the last refresh
    cdef int64_t offset         # wall - monotonic at the start, or after the last step
    cdef int64_t since          # wall at the start, or after the last step back: no later time is of this clock
    cdef uint64_t steps         # how many there were
    cdef int64_t ahead          # how far a timestamp was in the future, at most; 0: none was

    cdef void refresh(self) noexcept    # the first thing in every callback of the loop


# The age of a timestamp counts from this time. One in the future comes from before a step back, or from an earlier
# run: it counts as the moment when that was noticed.
cdef inline int64_t dated_ns(Clock clock, int64_t timestamp_ns) noexcept:
    if timestamp_ns - clock.wall < STEP_NS:
        return timestamp_ns
    clock.ahead = max(clock.ahead, timestamp_ns - clock.wall)
    return clock.since
