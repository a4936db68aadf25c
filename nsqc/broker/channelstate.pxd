# The state of a channel, and its metrics. channel.pyx has the code that runs per message, channelcontrol.pyx the rest,
# and channelend.pyx its end.
#
# Invariants: every Delivery of in_flight is in timeouts, and vice versa; deferred ones are only in
# delayed. A consumer is in a ring of ready ones exactly while wants_more(consumer) holds.

from libc.stdint cimport int64_t, uint32_t, uint64_t
from nsqc.broker.again cimport Again
from nsqc.broker.channelrules cimport ChannelRules
from nsqc.broker.consumer cimport DISTANCES
from nsqc.broker.figures cimport ChannelCounts, ChannelLevels
from nsqc.broker.latency cimport LatencyWindow
from nsqc.broker.lost cimport Lost
from nsqc.broker.ring cimport Ready
from nsqc.broker.topicstate cimport TopicState
from nsqc.metrics.times cimport TwoTimes
from nsqc.store.backlog cimport Backlog
from nsqc.store.clock cimport Clock
from nsqc.store.disk.unacked cimport Place
from nsqc.store.heap cimport Heap
from nsqc.store.inflight cimport InFlightMap
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.message cimport Message
from nsqc.store.rules cimport CHECKS, broken
from nsqc.store.seams cimport StoreOwner
from nsqc.store.slices cimport Slicer

cdef extern from *:
    bint unlikely(bint condition) noexcept nogil    # Cython's: moves rare code out of the way

cdef enum Timed:            # of Channel.times
    TO_DELIVERY
    TO_FINISH


cdef class ChannelState(StoreOwner):
    cdef readonly bytes name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef bint draining                  # the daemon drains
    cdef bint throttled                 # a rule allows no delivery now
    cdef bint halted                    # paused, draining or throttled: deliveries stop
    cdef readonly bint exiting          # deleted or closed: accepts nothing more, and owner is None
    cdef bint deserted                  # ephemeral, and its last client is gone: the next slice deletes it
    cdef ChannelCounts counts
    cdef readonly dict clients          # id to Consumer, in order of arrival
    cdef readonly LatencyWindow latency  # None: no percentiles are configured
    # From publishing to the first delivery, and to FIN. Owned; NULL before the first message.
    cdef TwoTimes *times
    cdef Backlog backlog
    cdef Cursor cursor                  # in the topic's log; None: no log
    cdef bint log_first                 # the log is delivered before the backlog; else after it
    cdef InFlightMap in_flight
    cdef Heap timeouts                  # deliveries in flight, by time-out
    cdef Heap delayed                   # deferred deliveries, by due time
    cdef ChannelRules *rules            # owned; NULL: none
    cdef readonly object rule           # nsqc.options.channel_keys.ChannelRule; None: no rule
    cdef Heap front                     # failed deliveries of an ordered channel, which go before all others
    cdef Again again                    # with message_ttl: requeued messages that wait
    cdef int64_t taken                  # messages taken from the queues for delivery; counted while there are rules
    cdef int64_t look_ns                # monotonic: next check for expired messages; NEVER: once some arrive
    cdef uint32_t undated               # deferred ones still to be checked after a step of the wall clock
    cdef bint sorted                    # exhausted messages of an earlier run go first
    cdef Lost lost
    cdef Heap dead, sent                # deliveries on their way to the dead-letter topic: see dead.pxd
    cdef int64_t dead_serial            # messages added to dead since it was empty
    cdef object sender                  # of the batch in sent; None: no batch
    cdef bint dead_waits                # the dead-letter topic accepted nothing at the last attempt
    cdef dict last_clients              # id of a consumer to its part of an origin; None: none known. See origin.pxd
    cdef readonly bytes dead_letter     # name of the dead-letter topic; empty: none
    cdef int64_t paced_ns               # monotonic: when the deliveries so far would end at the rule's rate
    cdef int64_t resume_ns              # monotonic: when the rate allows the next one; NEVER: now
    cdef Clock clock
    cdef int64_t max_msg_timeout_ns
    cdef int64_t max_consumers          # 0: no limit
    cdef Ready ready                    # the consumers to serve
    cdef uint64_t[DISTANCES] left       # messages delivered to consumers that are gone, by distance
    cdef readonly bint stuck            # the last attempt to write the backlog failed
    cdef bint retrying                  # memory or the disk failed; resume() will follow
    cdef int64_t alarm_ns               # monotonic: the timers call expire() then; NEVER: no alarm
    cdef object timers                  # nsqc.broker.timers.Timers
    cdef Slicer slicer                  # runs long work
    cdef TopicState owner               # the topic; None once this is deleted
    cdef Place *place                   # of the last message taken from the backlog, or
    cdef int64_t offset                 # its offset in the log

    # The clock must be fresh for these. Waiting messages, those of them on disk, deferred messages, and undelivered
    # records of the log.
    cdef ChannelLevels levels(self) noexcept
    cdef int64_t count_waiting(self) noexcept
    cdef int64_t count_on_disk(self) noexcept
    cdef int64_t count_deferred(self) noexcept
    cdef int64_t log_lag(self) noexcept
    cdef int64_t front_deferred(self) noexcept     # deferred ones of front


# RULE: nothing calls a channel after its end, except to remove a client or to free it.
cdef inline void check_alive(ChannelState channel) noexcept:
    if CHECKS and channel.exiting:
        broken("a channel is used after its end")


# Frees the deliveries of a heap with messages of the log. They must not be in flight.
cdef void drop_logged(Heap *heap) noexcept

cdef void count_other_time(ChannelState channel, int which, int64_t ns) noexcept


# Counts how long ago a message was published.
cdef inline void count_time(ChannelState channel, int which, const Message *message) noexcept:
    cdef TwoTimes *times = channel.times
    cdef int64_t ns = channel.clock.wall - message.timestamp_ns
    if unlikely(times is NULL or times.of[which].latest != ns):
        count_other_time(channel, which, ns)
    else:
        times.of[which].run += 1
