# A channel: distributes messages over its consumers and keeps each until it is finished.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from nsqc.broker.figures cimport ChannelCounts, ChannelLevels, LatencyWindow
from nsqc.broker.rules cimport Again, ChannelRules, Lost
from nsqc.metrics.times cimport TwoTimes
from nsqc.store.backlog cimport Backlog
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.memory cimport CHECKS, Clock, broken
from nsqc.store.message cimport (Delivery, Entry, Heap, InFlightMap, Message, Place, delivery_reserve, heap_remove,
                                 heap_reserve, inflight_remove, inflight_reserve)
from nsqc.store.work cimport Slicer, StoreOwner

cdef class Channel(StoreOwner)      # topics and channels know each other

from nsqc.broker.topic cimport Topic


# ====================================================================== consumer
# A client, from its channel's view: an abstract base, which nsqc.tcp.session.Session implements.
#
# A consumer takes messages while ready_count > in_flight, unless it is blocked (its socket is full) or closed.
# After a change of any of these, call Channel.update(consumer).

cdef enum:
    DISTANCES = 3


cdef class Consumer:
    cdef readonly int64_t id                # unique within the daemon
    cdef readonly int64_t ready_count       # messages in flight to this client; written by the channel
    cdef readonly int64_t in_flight         # messages out to this client; written by the channel
    cdef readonly uint64_t message_count    # delivered
    cdef readonly uint64_t finish_count
    cdef readonly uint64_t requeue_count
    cdef int64_t msg_timeout_ns
    cdef readonly int sample_rate           # percentage of messages it wants; 0: all
    # Distance from the daemon, one of DISTANCES: 0 the same zone, 1 the same region, 2 neither. Without topology-aware
    # consumption all are 0. Fixed once the channel has it.
    cdef readonly int distance
    cdef readonly str address               # "host:port" of the peer
    cdef bint blocked                       # its socket accepts no more for now
    cdef readonly bint closed               # the client is gone, or about to go

    # Position in the channel's ring of ready consumers; borrowed references, written by the channel.
    cdef bint listed
    cdef PyObject *c_next
    cdef PyObject *c_previous

    # Sends one message. It borrows the message.
    cdef void deliver(self, Message *message, uint16_t attempts) noexcept
    # The channel is ending: close the connection.
    cdef void dismiss(self) noexcept


cdef inline bint wants_more(Consumer consumer) noexcept:
    return consumer.ready_count > consumer.in_flight and not consumer.blocked and not consumer.closed


# ====================================================================== ring
# Rings of ready consumers, one for each distance: a channel serves the nearest ring round-robin, and a farther one only
# while no nearer consumer is ready. Inline, since a consumer with RDY 1 leaves and enters with each message.
#
# The current ring is kept apart: with one distance, the others are checked only when no consumer is ready. References
# are borrowed from the channel's clients.

cdef struct Ready:
    PyObject *c_next                # the consumer to serve next, in the nearest ring; NULL: none is ready
    int distance                    # of that ring
    PyObject *c_farther[DISTANCES]  # the other rings, by distance; NULL: empty


cdef inline void ring_add(PyObject **c_ring, Consumer consumer) noexcept:
    # It is served after all others.
    cdef Consumer head, tail
    if c_ring[0] is NULL:
        consumer.c_next = consumer.c_previous = <PyObject *> consumer
        c_ring[0] = <PyObject *> consumer
        return
    head = <Consumer> c_ring[0]
    tail = <Consumer> head.c_previous
    consumer.c_next = c_ring[0]
    consumer.c_previous = head.c_previous
    tail.c_next = head.c_previous = <PyObject *> consumer


cdef inline void ring_remove(PyObject **c_ring, Consumer consumer) noexcept:
    cdef Consumer before, following
    if consumer.c_next == <PyObject *> consumer:
        c_ring[0] = NULL
    else:
        before, following = <Consumer> consumer.c_previous, <Consumer> consumer.c_next
        before.c_next = consumer.c_next
        following.c_previous = consumer.c_previous
        if c_ring[0] == <PyObject *> consumer:
            c_ring[0] = consumer.c_next
    consumer.c_next = consumer.c_previous = NULL


cdef inline void ready_add(Ready *ready, Consumer consumer) noexcept:
    consumer.listed = True
    if consumer.distance > ready.distance and ready.c_next is not NULL:
        ring_add(&ready.c_farther[consumer.distance], consumer)
        return
    if consumer.distance != ready.distance:
        # The current ring, if any, joins the others.
        ready.c_farther[ready.distance] = ready.c_next
        ready.c_next = NULL
        ready.distance = consumer.distance
    ring_add(&ready.c_next, consumer)


cdef inline void ready_remove(Ready *ready, Consumer consumer) noexcept:
    cdef int distance
    if not consumer.listed:
        return
    consumer.listed = False
    if consumer.distance != ready.distance:
        ring_remove(&ready.c_farther[consumer.distance], consumer)
        return
    ring_remove(&ready.c_next, consumer)
    distance = ready.distance + 1
    while ready.c_next is NULL and distance < DISTANCES:
        if ready.c_farther[distance] is not NULL:
            ready.c_next = ready.c_farther[distance]
            ready.c_farther[distance] = NULL
            ready.distance = distance
        distance += 1


# ====================================================================== channel
# A message waits (backlog), is with a consumer (in flight), or waits for its due time (deferred).
#
# Invariants: every Delivery of in_flight is in timeouts, and vice versa; deferred ones are only in
# delayed. A consumer is in a ring of ready ones exactly while wants_more(consumer) holds.

cdef extern from *:
    bint unlikely(bint condition) noexcept nogil    # Cython's: moves rare code out of the way

cdef enum Timed:            # of Channel.times
    TO_DELIVERY
    TO_FINISH


cdef enum ClaimResult:
    CLAIMED
    NOT_IN_FLIGHT           # the channel has no such message in flight
    NOT_OWNER               # it is in flight to another client


cdef class Channel(StoreOwner):
    cdef readonly bytes name
    cdef readonly bint ephemeral
    cdef readonly bint paused
    cdef bint draining                  # the daemon drains
    cdef bint throttled                 # a rule allows no delivery now
    cdef bint halted                    # paused, draining or throttled: deliveries stop
    cdef readonly bint exiting          # type: bool; deleted or closed: accepts nothing more, and owner is None
    cdef bint deserted                  # ephemeral, and its last client is gone: the next slice deletes it
    cdef ChannelCounts counts
    cdef readonly dict clients    # type: dict[int, Consumer]; id to Consumer, in order of arrival
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
    cdef readonly object rule    # type: ChannelRule | None; None: no rule
    cdef Heap front                     # failed deliveries of an ordered channel, which go before all others
    cdef Again again                    # with message_ttl: requeued messages that wait
    cdef int64_t taken                  # messages taken from the queues for delivery; counted while there are rules
    cdef int64_t look_ns                # monotonic: next check for expired messages; NEVER: once some arrive
    cdef uint32_t undated               # deferred ones still to be checked after a step of the wall clock
    cdef bint sorted                    # exhausted messages of an earlier run go first
    cdef Lost lost
    cdef Heap dead, sent                # deliveries on their way to the dead-letter topic: see leaving.pxd
    cdef int64_t dead_serial            # messages added to dead since it was empty
    cdef object sender                  # of the batch in sent; None: no batch
    cdef bint dead_waits                # the dead-letter topic accepted nothing at the last attempt
    cdef list given                     # topics and reasons that consumers gave for letters of dead and sent
    cdef dict last_clients              # id of a consumer to its part of an origin; None: none known
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
    cdef object timers                  # nsqc.broker.stats.Timers
    cdef Slicer slicer                  # runs long work
    cdef Topic owner                    # the topic; None once this is deleted
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

    # From the topic. fits: whether put() or put_deferred() would not write a new message to disk.
    cdef bint fits(self, uint32_t defer_ms) noexcept
    # They take the reference unless the result is PUT_NO_MEMORY. attempts: earlier ones, of a queue
    # that another daemon wrote. put_copy: for a message from the topic's disk.
    cdef int put(self, Message *message, uint32_t attempts) noexcept        # PutResult
    cdef int _put_by_rules(self, Message *message, uint32_t attempts) noexcept
    cdef int put_deferred(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept
    cdef int put_copy(self, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept
    # From a consumer.
    cdef int finish(self, Consumer consumer, const char *c_id) noexcept     # ClaimResult, here and below
    cdef int requeue(self, Consumer consumer, const char *c_id, int64_t delay_ns) noexcept
    cdef int touch(self, Consumer consumer, const char *c_id) noexcept
    cdef void update(self, Consumer consumer) noexcept      # after anything that wants_more() looks at has changed
    cdef bint pump(self) noexcept       # delivers waiting messages to ready consumers; False: the slice ended first

    # From the topic: its log has grown, or more of it is visible.
    cdef void on_grown(self, int64_t records) noexcept
    cdef void set_cursor(self, Cursor cursor, bint log_first) noexcept      # None: the log was deleted

    # The next waiting message; its place, or its offset in the log, goes to self.place and self.offset.
    cdef bint _pop(self, Entry *entry) noexcept
    cdef bint _pop_logged(self, Entry *entry) noexcept
    cdef bint _reads_log(self) noexcept
    cdef bint _nothing_waits(self) noexcept
    # Whether a message would go straight to a consumer; if so, makes room.
    cdef bint _delivers_at_once(self) noexcept
    # With room: to the next ready consumer, which must exist. Takes the reference and the place.
    cdef void _deliver(self, Message *message, uint32_t attempts, Place *place, int64_t offset) noexcept
    cdef void _delay(self, Delivery *delivery, int64_t delay_ns) noexcept
    cdef bint _came_due(self, Delivery *delivery) noexcept     # False: no memory; it stays for a while
    cdef void _defer(self, Message *message, uint32_t attempts, int64_t delay_ns, Place *place) noexcept
    # Ends a delivery in flight; its message is removed, waits for delay_ns, or waits as in _put_back(). False: no
    # memory; it stays in flight for a while.
    cdef bint _come_back(self, Delivery *delivery, int64_t delay_ns) noexcept
    # Ends a delivery of this heap; its message is redelivered or waits. False: no memory; it stays for a while.
    cdef bint _put_back(self, Delivery *delivery, Heap *heap) noexcept
    cdef bint _wait_again(self, Delivery *delivery) noexcept    # False: no memory
    cdef bint _expire(self) noexcept    # False: the slice ended first
    cdef Delivery *_claim(self, Consumer consumer, const char *c_id, int *result) noexcept

    # Whether and when the channel delivers: pauses, limits, ordered deliveries, alarms. Nothing here runs per message.
    cdef void set_draining(self, bint draining) noexcept        # from the broker: the daemon starts or ends a drain
    cdef void clock_was_set(self) noexcept      # from the broker: the wall clock has jumped
    cdef void _watch(self, int64_t timestamp_ns) noexcept       # with rules: a message published then waits
    # Redelivers a message in flight next, after delay_ns. False: no memory; it stays in flight for a while.
    cdef bint _to_front(self, Delivery *delivery, int64_t delay_ns) noexcept
    cdef bint _deliver_front(self) noexcept     # False: some of front must wait
    cdef void _throttle(self) noexcept      # after a change that affects max_in_flight or rate
    cdef void _set_halted(self) noexcept    # after a change of paused, draining or throttled
    cdef void _try_again(self) noexcept
    cdef void _drop_all(self) noexcept
    cdef void _arm(self) noexcept


# RULE: nothing calls a channel after its end, except to remove a client or to free it.
cdef inline void check_alive(Channel channel) noexcept:
    if CHECKS and channel.exiting:
        broken("a channel is used after its end")


cdef void count_other_time(Channel channel, int which, int64_t ns) noexcept


# Counts how long ago a message was published.
cdef inline void count_time(Channel channel, int which, const Message *message) noexcept:
    cdef TwoTimes *times = channel.times
    cdef int64_t ns = channel.clock.wall - message.timestamp_ns
    if unlikely(times is NULL or times.of[which].latest != ns):
        count_other_time(channel, which, ns)
    else:
        times.of[which].run += 1


# False: no memory; the delivery stays in this heap for a while.
cdef bint stay(Channel channel, Delivery *delivery, Heap *heap) noexcept

# Reserves memory for one more delivery; False: no memory, and the message has to stay in its queue.
cdef inline bint has_room(Channel channel) noexcept:
    return (delivery_reserve() and inflight_reserve(&channel.in_flight) and heap_reserve(&channel.timeouts)
            and heap_reserve(&channel.delayed))

# Takes a delivery out of flight and hands it to the caller.
cdef inline void take_out(Channel channel, Delivery *delivery) noexcept:
    inflight_remove(&channel.in_flight, delivery)
    heap_remove(&channel.timeouts, delivery)
