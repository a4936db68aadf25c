# Messages of a channel that go to its dead-letter topic, as functions on the channel. Those in `dead` are yet to be
# published there. Those in `sent` are published, and finished in the channel once that is acknowledged. At most one
# batch runs.

from libc.stdint cimport int64_t, uint32_t
from nsqc.broker.channelstate cimport ChannelState
from nsqc.store.delivery cimport Delivery
from nsqc.store.disk.unacked cimport Place
from nsqc.store.message cimport Message

cdef enum LeaveReason:          # why a message is removed from a channel unfinished
    STAYS                   # it is not removed
    FAILED                  # max_attempts
    EXPIRED                 # message_ttl
    OVERFLOWED              # max_depth or max_bytes

# Whether another batch fits into memory; makes room for one more delivery in `dead`.
cdef bint dead_has_room(ChannelState channel) noexcept
# Takes a delivery that is in no heap, with room in `dead`. FAILED: Delivery.reason has the details.
cdef void dead_take(ChannelState channel, Delivery *delivery, LeaveReason reason) noexcept
# Takes a message that was about to be delivered; needs room for a delivery, and in `dead`. Takes reference and place.
cdef void dead_add(ChannelState channel, Message *message, uint32_t attempts, Place *place, int64_t offset,
                   LeaveReason reason) noexcept
# The running batch has ended: finishes its messages, or queues them to be published again.
cdef void dead_ended(ChannelState channel, int error) noexcept
# Forgets the running batch: its messages will be published again. False: no memory to do that for all of them.
cdef bint dead_recall(ChannelState channel) noexcept
