# A channel: distributes messages over its consumers and keeps each until it is finished.

from libc.stdint cimport int64_t, uint16_t, uint32_t

from nsqc.broker.state cimport ChannelState, Consumer
from nsqc.store.log.cursor cimport Cursor
from nsqc.store.message cimport (Delivery, Entry, Heap, Message, Place, delivery_reserve, heap_remove, heap_reserve,
                                 inflight_remove, inflight_reserve)


# ====================================================================== control
# Whether and when a channel delivers: pauses, limits, ordered deliveries, alarms, its clients, failed writes. Nothing
# here runs per message.

cdef class ChannelControl(ChannelState):
    cdef void set_draining(self, bint draining) noexcept        # from the broker: the daemon starts or ends a drain
    cdef void clock_was_set(self) noexcept      # from the broker: the wall clock has jumped
    # To the next ready consumer, like Channel._deliver().
    cdef void send(self, Message *message, uint32_t attempts, Place *place, int64_t offset) noexcept
    cdef void _watch(self, int64_t timestamp_ns) noexcept       # with rules: a message published then waits
    # Redelivers a message in flight next, after delay_ns. False: no memory; it stays in flight for a while.
    cdef bint _to_front(self, Delivery *delivery, int64_t delay_ns) noexcept
    cdef bint _deliver_front(self) noexcept     # False: some of front must wait
    cdef void _throttle(self) noexcept      # after a change that affects max_in_flight or rate
    cdef void _set_halted(self) noexcept    # after a change of paused, draining or throttled
    cdef void _try_again(self) noexcept
    cdef void _drop_all(self) noexcept
    cdef void _arm(self) noexcept


# False: no memory; the delivery stays in this heap for a while.
cdef bint stay(ChannelState channel, Delivery *delivery, Heap *heap) noexcept

# Reserves memory for one more delivery; False: no memory, and the message has to stay in its queue.
cdef inline bint has_room(ChannelState channel) noexcept:
    return (delivery_reserve() and inflight_reserve(&channel.in_flight) and heap_reserve(&channel.timeouts)
            and heap_reserve(&channel.delayed))

# Takes a delivery out of flight and hands it to the caller.
cdef inline void take_out(ChannelState channel, Delivery *delivery) noexcept:
    inflight_remove(&channel.in_flight, delivery)
    heap_remove(&channel.timeouts, delivery)


# ====================================================================== channel
# A channel's message handling. A message waits (backlog), is with a consumer (in flight), or waits for its due time
# (deferred). state.pxd has the fields.

cdef enum ClaimResult:
    CLAIMED
    NOT_IN_FLIGHT           # the channel has no such message in flight
    NOT_OWNER               # it is in flight to another client


cdef class Channel(ChannelControl):
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


# ====================================================================== end
# The end of a channel: its deletion, or the daemon's stop.

# Closes the consumers and drops everything, files included.
cdef int delete_channel(Channel channel) except -1
# For a stop, with no file work in progress: closes the consumers and writes everything to disk. Returns (memory, in
# flight, deferred, delays): how many messages of each kind were written, and each deferred one's id and due time, in
# wall-clock nanoseconds. Raises OSError.
cdef tuple close_channel(Channel channel)
