# Counts of deleted channels, for a series that stands for several channels: its counters must not fall. Header only.

from libc.stdlib cimport calloc
from nsqc.broker.figures cimport ChannelCounts, add_figures
from nsqc.metrics.times cimport TwoTimes, times_join

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
