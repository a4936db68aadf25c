# The state of a channel, and its metrics. channel.pyx has what runs for each message, channelcontrol.pyx the rest, and
# channelend.pyx its end.
#
# Invariants: every Delivery of in_flight is in timeouts, and vice versa; deferred ones are only in
# delayed. A consumer is in a ring of ready ones exactly while wants_more(consumer) holds.

from libc.stdint cimport int64_t, uint64_t
from nsqc.broker.again cimport Again
from nsqc.broker.channelrules cimport ChannelRules
from nsqc.broker.consumer cimport DISTANCES
from nsqc.broker.figures cimport ChannelCounts, ChannelLevels
from nsqc.broker.latency cimport LatencyWindow
from nsqc.broker.lost cimport Lost
from nsqc.broker.ring cimport Ready
from nsqc.broker.seams cimport ChannelOwner
from nsqc.metrics.times cimport TwoTimes
from nsqc.store.backlog cimport Backlog, BacklogOwner
from nsqc.store.clock cimport Clock
from nsqc.store.disk.unacked cimport Place
from nsqc.store.heap cimport Heap
from nsqc.store.inflight cimport InFlightMap
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.message cimport Message
from nsqc.store.rules cimport CHECKS, broken
from nsqc.store.slices cimport Slicer

cdef extern from *:
    bint unlikely(bint condition) noexcept nogil    # Cython's: moves rare code out of the way

cdef enum Timed:            # of Channel.times
    TO_DELIVERY
    TO_FINISH


cdef class ChannelState(BacklogOwner):
    cdef readonly bytes name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef bint draining                  # the daemon drains
    cdef bint throttled                 # a rule allows no delivery now
    cdef bint halted                    # paused, draining or throttled: nothing is delivered
    cdef readonly bint exiting          # deleted or closed: it accepts nothing more, and owner is None
    cdef bint deserted                  # ephemeral, and its last client has left: the next slice deletes it
    cdef ChannelCounts counts
    cdef readonly dict clients          # id to Consumer, in order of arrival
    cdef readonly LatencyWindow latency  # None: no percentiles are asked for
    # From publishing to the first delivery, and to FIN. Owned; NULL before the first message.
    cdef TwoTimes *times
    cdef Backlog backlog
    cdef Cursor cursor                  # in the topic's log; None: it has none
    cdef bint log_first                 # the log is delivered before the backlog; else after it
    cdef InFlightMap in_flight
    cdef Heap timeouts                  # deliveries in flight, by time-out
    cdef Heap delayed                   # deferred deliveries, by due time
    cdef ChannelRules *rules            # owned; NULL: none
    cdef readonly object rule           # nsqc.broker.protocols.ChannelRule; None: no rule
    cdef Heap front                     # failed deliveries of an ordered channel, which come before all others
    cdef Again again                    # with message_ttl: messages that came back and wait
    cdef int64_t taken                  # messages taken from the queues to go out; counted while there are rules
    cdef int64_t look_ns                # monotonic: when to look for expired messages again; NEVER: when some come
    cdef Lost lost
    cdef Heap dead, sent                # deliveries that go to the dead-letter topic: see dead.pxd
    cdef int64_t dead_serial            # messages that have gone to dead since it was empty
    cdef object sender                  # of the batch in sent; None: none is in progress
    cdef dict last_clients              # id of a consumer to its part of an origin; None: none is known. See origin.pxd
    cdef readonly bytes dead_letter     # the name of that topic; empty: none
    cdef int64_t paced_ns               # monotonic: when the deliveries so far would be over at the rule's rate
    cdef int64_t resume_ns              # monotonic: when the rate allows the next one; NEVER: it does now
    cdef Clock clock
    cdef int64_t max_msg_timeout_ns
    cdef int64_t max_consumers          # 0: no limit
    cdef Ready ready                    # the consumers to serve
    cdef uint64_t[DISTANCES] left       # messages delivered to consumers that have left, by distance
    cdef readonly bint stuck            # the last attempt to write the backlog failed
    cdef bint retrying                  # memory or the disk could not be used; resume() will follow
    cdef int64_t alarm_ns               # monotonic time the timers will call expire() at; NEVER: none
    cdef object timers                  # nsqc.broker.protocols.ChannelTimers
    cdef Slicer slicer                  # of long work
    cdef ChannelOwner owner             # the topic; None once this is deleted
    cdef Place *place                   # of the message that was taken from the backlog last, or
    cdef int64_t offset                 # its offset in the log

    # The clock must be fresh for these. Messages that wait, those of them on disk, those that wait for their time, and
    # records of the log that it was not given yet.
    cdef ChannelLevels levels(self) noexcept
    cdef int64_t count_waiting(self) noexcept
    cdef int64_t count_on_disk(self) noexcept
    cdef int64_t count_deferred(self) noexcept
    cdef int64_t log_lag(self) noexcept
    cdef int64_t front_deferred(self) noexcept     # those of front that wait for their time


# RULE: nothing calls a channel after its end, except to remove a client or to free it.
cdef inline void check_alive(ChannelState channel) noexcept:
    if CHECKS and channel.exiting:
        broken("a channel is used after its end")


# Frees the deliveries of a heap whose messages are in the log. They must not be in flight.
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
