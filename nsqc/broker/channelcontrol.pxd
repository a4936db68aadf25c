# Whether and when a channel delivers: pauses, limits, ordered deliveries, alarms, its clients, failed writes. Nothing
# here runs per message.

from libc.stdint cimport int64_t, uint32_t
from nsqc.broker.channelstate cimport ChannelState
from nsqc.store.delivery cimport Delivery, delivery_reserve
from nsqc.store.disk.unacked cimport Place
from nsqc.store.heap cimport Heap, heap_remove, heap_reserve
from nsqc.store.inflight cimport inflight_remove, inflight_reserve
from nsqc.store.message cimport Message


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
