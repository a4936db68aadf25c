# Durations counted in fixed buckets, for the hot path. Each bound is four times the previous one and a power of two of
# nanoseconds, so a bucket is found by counting bits. Header only: not compiled on its own.

from libc.stdint cimport int64_t, uint64_t

cdef extern from *:
    int __builtin_clzll(unsigned long long) nogil

cdef enum:
    FIRST_BITS = 14         # the first bound is 2 ** 14 ns, 16 µs
    STEP_BITS = 2           # from one bound to the next
    BOUNDS = 14             # exported bounds; the last one is 2 ** 40 ns, 18 minutes
    FIRST_PLACE = 6         # of a duration below the first bound: its highest bit // STEP_BITS
    SUM_BITS = 6            # a sum is in units of 64 ns: it lasts for 37,000 years of waiting

cdef struct Times:
    uint64_t counts[26]     # enough for any 64-bit value: the hot path clamps nothing
    uint64_t sum
    # Messages published together are delivered together, so equal durations come in runs. The latest run is counted
    # here and added to the buckets when it ends, or when the buckets are read (times_settle).
    int64_t latest          # nanoseconds
    uint64_t run


cdef struct TwoTimes:
    Times of[2]


cdef inline void times_settle(Times *times) noexcept nogil:
    cdef uint64_t ns = <uint64_t> (times.latest if times.latest > 0 else 0)     # the clock may have been set back
    times.counts[(<uint64_t> (63 - __builtin_clzll(ns | ((1 << FIRST_BITS) - 1))) >> 1) - FIRST_PLACE] += times.run
    times.sum += (ns >> SUM_BITS) * times.run
    times.run = 0


cdef inline void times_add(Times *times, int64_t ns) noexcept nogil:
    if times.latest != ns:
        times_settle(times)
        times.latest = ns
    times.run += 1


cdef inline void times_join(Times *times, Times *other) noexcept nogil:
    cdef int place
    times_settle(other)
    for place in range(26):
        times.counts[place] += other.counts[place]
    times.sum += other.sum
