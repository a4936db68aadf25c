# Messages of a channel that go to its dead-letter topic, as functions on the channel. Those in `dead` are to be
# published there; those in `sent` are, and are finished in the channel once that is acknowledged. One batch is under
# way at a time.

from libc.stdint cimport int64_t, uint32_t
from nsqc.broker.channelstate cimport ChannelState
from nsqc.store.delivery cimport Delivery
from nsqc.store.disk.unacked cimport Place
from nsqc.store.message cimport Message

cdef enum LeaveReason:          # why a message leaves a channel unfinished
    STAYS                   # it does not
    FAILED                  # max_attempts
    EXPIRED                 # message_ttl
    OVERFLOWED              # max_depth or max_bytes

# Whether another batch would fit into memory, and room for one more delivery in `dead`.
cdef bint dead_has_room(ChannelState channel) noexcept
# With room in `dead`: takes a delivery that is in no heap. FAILED: Delivery.reason says how.
cdef void dead_take(ChannelState channel, Delivery *delivery, LeaveReason reason) noexcept
# With room for a delivery, and in `dead`: takes a message that was to be delivered. Takes the reference and the place.
cdef void dead_add(ChannelState channel, Message *message, uint32_t attempts, Place *place, int64_t offset,
                   LeaveReason reason) noexcept
# The batch under way has ended: finishes its messages, or has them published again later.
cdef void dead_ended(ChannelState channel, int error) noexcept
# Forgets the batch under way: its messages are to be published again. False: no memory to do that for all of them.
cdef bint dead_recall(ChannelState channel) noexcept
