# message_ttl of a channel, as functions on it. Queues are in publish order, so the oldest message of each is looked at,
# and nothing is searched: what waits in memory or in the log is taken away within LOOK_NS, and what is on disk once its
# block is read. Whatever comes to a consumer, or comes back from one, is asked again: no message is delivered late.

from libc.stdint cimport int64_t, uint32_t
from nsqc.broker.channelstate cimport ChannelState
from nsqc.broker.dead cimport EXPIRED, FAILED, STAYS, LeaveReason
from nsqc.store.delivery cimport Delivery
from nsqc.store.disk.unacked cimport Place
from nsqc.store.fifo cimport Entry
from nsqc.store.heap cimport Heap
from nsqc.store.message cimport Message

cdef enum:
    LOOK_NS = 250000000     # between two looks


cdef struct Taken:          # a message that waited
    Message *message        # a reference
    Place *place
    int64_t offset          # in the log; below 0: it is not from there
    uint32_t attempts


# With rules: why a message is not to be delivered, or not again.
cdef inline LeaveReason reason_to_leave(ChannelState channel, const Message *message, uint32_t attempts) noexcept:
    if 0 < channel.rules.max_attempts <= attempts:
        return FAILED
    if 0 < channel.rules.message_ttl_ns <= channel.clock.wall - message.timestamp_ns:
        return EXPIRED
    return STAYS


# With rules: when a message that waits until due_ns has to be looked at, monotonic: it may expire before.
cdef inline int64_t due_or_expired(ChannelState channel, const Message *message, int64_t due_ns) noexcept:
    if channel.rules.message_ttl_ns == 0:
        return due_ns
    return min(due_ns, channel.clock.monotonic + message.timestamp_ns + channel.rules.message_ttl_ns
               - channel.clock.wall)


# With rules: a message that was published then waits. The alarm is to be armed if look_ns has changed.
cdef inline void expiry_watch(ChannelState channel, int64_t timestamp_ns) noexcept:
    if channel.rules.message_ttl_ns:
        channel.look_ns = min(channel.look_ns, channel.clock.monotonic + max(
            timestamp_ns + channel.rules.message_ttl_ns - channel.clock.wall, <int64_t> LOOK_NS))


# The next message, whose place and offset go to the channel, if it is the turn of one in channel.again, which has some.
cdef bint pop_again(ChannelState channel, Entry *entry) noexcept
# With rules: whether a message that was to be delivered leaves instead.
cdef bint withheld(ChannelState channel, Entry *entry) noexcept
# With rules: has a delivery in this heap wait in channel.again. False: it has to wait elsewhere, and may expire late.
cdef bint wait_to_expire(ChannelState channel, Delivery *delivery, Heap *heap) noexcept
# With rules: a message that was to be delivered leaves. With room for a delivery, and in `dead`. Takes the reference
# and the place.
cdef void leave_taken(ChannelState channel, Taken *taken, LeaveReason reason) noexcept
# The same for a delivery in this heap, in flight or not. False: there is no room for it in `dead`; it stays.
cdef bint leave_delivery(ChannelState channel, Delivery *delivery, Heap *heap, LeaveReason reason) noexcept
# Takes the oldest message of a queue, if it was published no later than before_ns. False: there is none just now; then
# oldest_ns is when the oldest one was published, as far as that is known, or NEVER.
cdef bint take_oldest(ChannelState channel, int64_t before_ns, Taken *taken, int64_t *oldest_ns) noexcept
# Takes away what has expired, and finds out when to look again; False: the slice ended.
cdef bint expire_waiting(ChannelState channel) noexcept
