# The numbers of topics and channels: counts, levels and latencies.

from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc

from nsqc.metrics.times cimport TwoTimes, times_join


# ====================================================================== figures
# The numbers of topics and channels: keys of /stats and columns of /metrics. A new one needs a field here, a line of
# the same name in nsqc/wire/stats.py, and its increment. Header only.

cdef struct ChannelLevels:
    int64_t depth, backend_depth, in_flight_count, deferred_count, client_count

cdef struct ChannelCounts:      # never fall
    uint64_t message_count
    uint64_t requeue_count
    uint64_t timeout_count
    uint64_t dead_letter_count
    uint64_t redriven_count
    uint64_t expired_count
    uint64_t overflow_count

cdef struct ChannelFigures:     # of /stats
    ChannelLevels levels
    ChannelCounts counts

cdef struct TopicLevels:
    int64_t depth, backend_depth

cdef struct TopicCounts:
    uint64_t message_count, message_bytes, expired_count, overflow_count

cdef struct TopicFigures:       # of /stats
    TopicLevels levels
    TopicCounts counts

cdef struct DedupeFigures:      # of a topic that remembers ids of publishes
    int64_t publish_ids, deduplicated, forgotten_ids

cdef struct LogFigures:         # of a topic with a log
    int64_t log_first_offset, log_next_offset, log_segments, log_bytes, log_damaged, log_missing

# All numbers of a topic or channel, as the cells of a metrics row. See nsqc/metrics/table.pxd.
cdef struct TopicCells:
    TopicFigures figures
    int64_t channels
    DedupeFigures dedupe
    LogFigures log

cdef struct ChannelCells:
    ChannelFigures figures
    int64_t log_lag


cdef inline void add_figures(void *c_to, const void *c_from, size_t size) noexcept nogil:
    # Adds a struct of 64-bit numbers to another one of its type. size: of the struct.
    cdef uint64_t *to = <uint64_t *> c_to
    cdef const uint64_t *figures = <const uint64_t *> c_from
    cdef size_t at
    for at in range(size // sizeof(uint64_t)):
        to[at] += figures[at]


cdef inline tuple figures_tuple(const void *c_figures, size_t size):
    # The numbers of such a struct.
    cdef const int64_t *figures = <const int64_t *> c_figures
    cdef Py_ssize_t at, count = <Py_ssize_t> (size // sizeof(int64_t))
    cdef tuple values = PyTuple_New(count)
    cdef object value
    for at in range(count):
        value = figures[at]
        Py_INCREF(value)
        PyTuple_SET_ITEM(values, at, value)
    return values


cdef inline tuple figure_names(dict figures):
    # The names of such a struct, converted to an object, in the order of its numbers.
    cdef list names = []
    for name, value in figures.items():
        if isinstance(value, dict):
            names += figure_names(value)
        else:
            names.append(name)
    return tuple(names)


# ====================================================================== retired
# Counts of deleted channels, for a series that stands for several channels: its counters must not fall. Header only.

cdef struct Retired:
    ChannelCounts counts
    TwoTimes times


cdef inline void retire(Retired **c_retired, ChannelCounts *counts, TwoTimes *times) noexcept:
    # Adds a channel about to be deleted; times may be NULL. Without memory, a counter falls once.
    if c_retired[0] is NULL:
        c_retired[0] = <Retired *> calloc(1, sizeof(Retired))
        if c_retired[0] is NULL:
            return
    add_figures(&c_retired[0].counts, counts, sizeof(ChannelCounts))
    if times is not NULL:
        times_join(&c_retired[0].times.of[0], &times.of[0])
        times_join(&c_retired[0].times.of[1], &times.of[1])


# ====================================================================== latency
# End-to-end latency of finished messages over a sliding window: counts in logarithmic buckets.
#
# The window has two halves: when the newer one has run for half the window, it replaces the older one. So a result
# covers between half and all of the window, as with nsqd.

cdef enum:
    FINE_BITS = 6                       # 64 buckets for each power of two: within 1.6 per cent
    BUCKETS = 3712                      # 58 powers of two; the last bucket begins above 100 years of nanoseconds


cdef class LatencyWindow:
    cdef readonly list quantiles    # type: list[float]; fractions in (0, 1], as configured
    cdef int64_t half_ns                # half the window
    cdef int64_t half_began_ns              # monotonic: start of the current half
    cdef int current                    # 0 or 1
    cdef uint32_t *counts               # owned; two times BUCKETS, NULL before the first insert
    cdef int64_t totals[2]

    cdef void insert(self, int64_t latency_ns, int64_t now_ns) noexcept     # now: monotonic
    cdef void next_half(self, int64_t now_ns) noexcept
