# Durations counted in fixed buckets, for the hot path. Each bound is four times the one before and a power of two of
# nanoseconds, so a bucket is found by counting bits. A header only: nothing here is compiled by itself.

from libc.stdint cimport int64_t, uint64_t

cdef extern from *:
    int __builtin_clzll(unsigned long long) nogil

cdef enum:
    FIRST_BITS = 14         # the first bound is 2 ** 14 ns, 16 µs
    STEP_BITS = 2           # from one bound to the next
    BOUNDS = 14             # that are exported; the last one is 2 ** 40 ns, 18 minutes
    FIRST_PLACE = 6         # of a duration below the first bound: its highest bit // STEP_BITS
    SUM_BITS = 6            # a sum has units of 64 ns: it would last for 37,000 years of waiting

cdef struct Times:
    uint64_t counts[26]     # for all that 64 bits hold: nothing has to be clamped where messages are counted
    uint64_t sum
    # Messages that were published together are delivered together, so equal durations come in runs. The latest run is
    # counted here, and gets into the buckets when it has ended, or when somebody reads them (times_settle).
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
