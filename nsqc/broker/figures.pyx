"""The numbers of topics and channels: counts, levels and latencies. See the .pxd."""

cimport cython
import math
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from nsqc.store.memory cimport monotonic_ns


# ====================================================================== latency

cdef extern from *:
    int __builtin_clzll(unsigned long long) nogil


cdef inline uint32_t bucket_of(int64_t latency_ns) noexcept nogil:
    cdef uint64_t value = <uint64_t> max(latency_ns, 0)
    cdef int shift
    if value < (1 << FINE_BITS):
        return <uint32_t> value
    shift = 63 - __builtin_clzll(value) - FINE_BITS
    return min(<uint32_t> ((shift << FINE_BITS) + (value >> shift)), <uint32_t> (BUCKETS - 1))


cdef inline double value_of(uint32_t bucket) noexcept nogil:
    """The middle of a bucket, in nanoseconds."""
    cdef int shift
    if bucket < (2 << FINE_BITS):
        return bucket
    shift = <int> (bucket >> FINE_BITS) - 1
    return <double> ((<uint64_t> bucket - (<uint64_t> shift << FINE_BITS)) << shift) + 0.5 * (<uint64_t> 1 << shift)


@cython.final
cdef class LatencyWindow:
    """Quantiles of the latencies in the last window_ns nanoseconds."""

    def __init__(self, quantiles: list[float], int64_t window_ns):
        self.quantiles = quantiles
        self.half_ns = max(window_ns // 2, 1)
        self.half_began_ns = monotonic_ns()

    def __dealloc__(self):
        free(self.counts)

    cdef void insert(self, int64_t latency_ns, int64_t now_ns) noexcept:
        if now_ns - self.half_began_ns > self.half_ns:
            self.next_half(now_ns)
        if self.counts is NULL:
            self.counts = <uint32_t *> calloc(2 * BUCKETS, sizeof(uint32_t))
            if self.counts is NULL:
                return
        self.counts[self.current * BUCKETS + bucket_of(latency_ns)] += 1
        self.totals[self.current] += 1

    cdef void next_half(self, int64_t now_ns) noexcept:
        cdef int64_t halves = (now_ns - self.half_began_ns) // self.half_ns
        self.half_began_ns += halves * self.half_ns
        halves = min(halves, 2)
        while halves > 0:
            halves -= 1
            self.current ^= 1
            self.totals[self.current] = 0
            if self.counts is not NULL:
                memset(self.counts + self.current * BUCKETS, 0, BUCKETS * sizeof(uint32_t))

    def add(self, latency_ns: int):
        """Counts one latency in nanoseconds."""
        self.insert(latency_ns, monotonic_ns())

    @staticmethod
    def result(windows: list[LatencyWindow]) -> tuple[int, list[tuple[float, float]]]:
        """(count, [(quantile, nanoseconds), ...]) over several windows with the same quantiles."""
        cdef LatencyWindow window
        cdef int64_t total = 0, now_ns = monotonic_ns()
        for window in windows:
            if now_ns - window.half_began_ns > window.half_ns:
                window.next_half(now_ns)
            total += window.totals[0] + window.totals[1]
        return total, [(quantile, find(windows, max(1, math.ceil(quantile * total))) if total else 0.0)
                       for quantile in (windows[0].quantiles if windows else [])]


cdef double find(list windows, int64_t rank):
    """The value of the rank-th smallest latency."""
    cdef LatencyWindow window
    cdef uint32_t bucket
    for bucket in range(BUCKETS):
        for window in windows:
            if window.counts is not NULL:
                rank -= window.counts[bucket] + window.counts[BUCKETS + bucket]
        if rank <= 0:
            return value_of(bucket)
    return value_of(BUCKETS - 1)
