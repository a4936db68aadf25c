# End-to-end latency of finished messages over a sliding window: counts in logarithmic buckets.
#
# The window has two halves: when the newer one has run for half the window, it replaces the older one. So a result
# covers between half and all of the window, as with nsqd.

from libc.stdint cimport int64_t, uint32_t

cdef enum:
    FINE_BITS = 6                       # 64 buckets for each power of two: within 1.6 per cent
    BUCKETS = 3712                      # 58 powers of two; the last bucket begins above 100 years of nanoseconds


cdef class LatencyWindow:
    cdef readonly list quantiles        # fractions in (0, 1], as configured
    cdef int64_t half_ns                # half the window
    cdef int64_t half_began_ns              # monotonic: start of the current half
    cdef int current                    # 0 or 1
    cdef uint32_t *counts               # owned; two times BUCKETS, NULL before the first insert
    cdef int64_t totals[2]

    cdef void insert(self, int64_t latency_ns, int64_t now_ns) noexcept     # now: monotonic
    cdef void next_half(self, int64_t now_ns) noexcept
