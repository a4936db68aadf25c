# What deleted channels have counted, where one series stands for several channels: its counters must not fall. A header
# only: nothing here is compiled by itself.

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc
from nsqc.broker.channel cimport Channel
from nsqc.metrics.times cimport TwoTimes, times_join

cdef struct Retired:
    uint64_t messages, requeues, timeouts, dead_letters, redriven, expired, overflows
    TwoTimes times


cdef inline void retire(Retired **c_retired, Channel channel) noexcept:
    # Adds a channel that is being deleted. Without memory, a counter falls once.
    if c_retired[0] is NULL:
        c_retired[0] = <Retired *> calloc(1, sizeof(Retired))
        if c_retired[0] is NULL:
            return
    c_retired[0].messages += channel.message_count
    c_retired[0].requeues += channel.requeue_count
    c_retired[0].timeouts += channel.timeout_count
    c_retired[0].dead_letters += channel.dead_letter_count
    c_retired[0].redriven += channel.redriven_count
    c_retired[0].expired += channel.expired_count
    c_retired[0].overflows += channel.overflow_count
    if channel.times is not NULL:
        times_join(&c_retired[0].times.of[0], &channel.times.of[0])
        times_join(&c_retired[0].times.of[1], &channel.times.of[1])
