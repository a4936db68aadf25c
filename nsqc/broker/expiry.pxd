# message_ttl of a channel, as functions on it. Queues are in publish order, so only the oldest message of each is
# checked. Expired messages in memory or in the log are removed within LOOK_NS, and those on disk once their block is
# read. Each delivery and each requeue checks again: no message is delivered late.

from libc.stdint cimport int64_t, uint32_t
from nsqc.broker.channelstate cimport ChannelState
from nsqc.broker.dead cimport EXPIRED, FAILED, STAYS, LeaveReason
from nsqc.store.clock cimport dated_ns
from nsqc.store.delivery cimport Delivery
from nsqc.store.disk.unacked cimport Place
from nsqc.store.fifo cimport Entry
from nsqc.store.heap cimport Heap
from nsqc.store.message cimport Message

cdef enum:
    LOOK_NS = 250000000     # between two looks


cdef struct Taken:          # a message taken from a queue
    Message *message        # a reference
    Place *place
    int64_t offset          # in the log; below 0: not from the log
    uint32_t attempts


# With rules: why a message must not be delivered, or not again.
cdef inline LeaveReason reason_to_leave(ChannelState channel, const Message *message, uint32_t attempts) noexcept:
    if 0 < channel.rules.max_attempts <= attempts:
        return FAILED
    if 0 < channel.rules.message_ttl_ns <= channel.clock.wall - dated_ns(channel.clock, message.timestamp_ns):
        return EXPIRED
    return STAYS


# With rules: when to check a message that waits until due_ns, monotonic: it may expire before.
cdef inline int64_t due_or_expired(ChannelState channel, const Message *message, int64_t due_ns) noexcept:
    if channel.rules.message_ttl_ns == 0:
        return due_ns
    return min(due_ns, channel.clock.monotonic + dated_ns(channel.clock, message.timestamp_ns)
               + channel.rules.message_ttl_ns - channel.clock.wall)


# With rules: a message published then waits. Arm the alarm if look_ns has changed.
cdef inline void expiry_watch(ChannelState channel, int64_t timestamp_ns) noexcept:
    if channel.rules.message_ttl_ns:
        channel.look_ns = min(channel.look_ns, channel.clock.monotonic + max(
            dated_ns(channel.clock, timestamp_ns) + channel.rules.message_ttl_ns - channel.clock.wall,
            <int64_t> LOOK_NS))


# The next message if channel.again, which must not be empty, has it; its place and offset go to the channel.
cdef bint pop_again(ChannelState channel, Entry *entry) noexcept
# With rules: whether a message about to be delivered is removed instead.
cdef bint withheld(ChannelState channel, Entry *entry) noexcept
# With rules: moves a delivery of this heap to channel.again. False: it has to wait elsewhere, and may expire late.
cdef bint wait_to_expire(ChannelState channel, Delivery *delivery, Heap *heap) noexcept
# With rules: removes a message that was about to be delivered. With room for a delivery, and in `dead`. Takes the
# reference and the place.
cdef void leave_taken(ChannelState channel, Taken *taken, LeaveReason reason) noexcept
# The same for a delivery in this heap, in flight or not. False: no room in `dead`; it stays.
cdef bint leave_delivery(ChannelState channel, Delivery *delivery, Heap *heap, LeaveReason reason) noexcept
# Takes the oldest message of a queue, if it was published no later than before_ns. False: none now; then oldest_ns is
# the publish time of the oldest one if known, or NEVER.
cdef bint take_oldest(ChannelState channel, int64_t before_ns, Taken *taken, int64_t *oldest_ns) noexcept
# The wall clock has been set: deferred messages may expire at another time. False: the slice ended.
cdef bint expire_deferred(ChannelState channel) noexcept
# Moves messages that wait first in a queue and have used up their attempts; False: the slice ended.
cdef bint leave_exhausted(ChannelState channel) noexcept
# Removes expired messages, and schedules the next check; False: the slice ended.
cdef bint expire_waiting(ChannelState channel) noexcept
