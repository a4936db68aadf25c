# The numbers of topics and channels: keys of /stats and columns of /metrics. A new one is a field here, with the name of
# its line in nsqc/wire/stats.py, and its increment. A header only: not compiled on its own.

from libc.stdint cimport int64_t, uint64_t

cdef struct ChannelLevels:
    int64_t depth, backend_depth, in_flight_count, deferred_count, client_count

cdef struct ChannelCounts:      # these only rise
    uint64_t message_count
    uint64_t requeue_count
    uint64_t timeout_count
    uint64_t dead_letter_count
    uint64_t redriven_count
    uint64_t expired_count
    uint64_t overflow_count

cdef struct TopicLevels:
    int64_t depth, backend_depth

cdef struct TopicCounts:
    uint64_t message_count, message_bytes, expired_count, overflow_count

cdef struct DedupeFigures:      # of a topic that remembers ids of publishes
    int64_t publish_ids, deduplicated, forgotten_ids

cdef struct LogFigures:         # of a topic with a log
    int64_t log_first_offset, log_next_offset, log_segments, log_bytes, log_damaged, log_missing

# All numbers of a topic or channel, in the cells of a row for metrics. See nsqc/metrics/table.pxd.
cdef struct TopicCells:
    TopicLevels levels
    TopicCounts counts
    int64_t channels
    DedupeFigures dedupe
    LogFigures log

cdef struct ChannelCells:
    ChannelLevels levels
    ChannelCounts counts
    int64_t log_lag


cdef inline void add_figures(void *c_to, const void *c_from, size_t size) noexcept nogil:
    # Adds a struct of 64-bit numbers to another one of its kind. size: of the struct.
    cdef uint64_t *to = <uint64_t *> c_to
    cdef const uint64_t *figures = <const uint64_t *> c_from
    cdef size_t at
    for at in range(size // sizeof(uint64_t)):
        to[at] += figures[at]
