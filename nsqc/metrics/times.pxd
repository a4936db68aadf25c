# Durations counted in fixed buckets, for the hot path. Each bound is four times the one before and a power of two of
# nanoseconds, so a bucket is found by counting bits. A header only: nothing here is compiled by itself.

from libc.stdint cimport int64_t, uint64_t

cdef extern from *:
    int __builtin_clzll(unsigned long long) nogil

cdef enum:
    FIRST_BITS = 14         # the first bound is 2 ** 14 ns, 16 µs
    STEP_BITS = 2           # from one bound to the next
    BOUNDS = 14             # the last one is 2 ** 40 ns, 18 minutes

cdef struct Times:
    uint64_t counts[15]     # by bucket; the last one is above all bounds
    double sum_ns           # whole nanoseconds of all messages together would not fit 64 bits: 300 years

cdef struct TwoTimes:
    Times of[2]


cdef inline void times_add(Times *times, int64_t ns) noexcept nogil:
    cdef int bits, bucket
    ns = max(ns, 1)         # the clock may have been set back
    bits = 64 - __builtin_clzll(<uint64_t> (ns - 1) | ((1 << FIRST_BITS) - 1))
    bucket = (bits - FIRST_BITS + STEP_BITS - 1) >> 1
    times.counts[min(bucket, <int> BOUNDS)] += 1
    times.sum_ns += <double> ns


cdef inline void times_join(Times *times, const Times *other) noexcept nogil:
    cdef int bucket
    for bucket in range(BOUNDS + 1):
        times.counts[bucket] += other.counts[bucket]
    times.sum_ns += other.sum_ns
