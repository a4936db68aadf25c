# Messages of a channel that go to its dead-letter topic, as functions on the channel. Those in `dead` are to be
# published there; those in `sent` are, and are finished in the channel once that is acknowledged. One batch is under
# way at a time.

from libc.stdint cimport int64_t, uint32_t
from nsqc.broker.channelstate cimport ChannelState
from nsqc.broker.origin cimport DeadReason
from nsqc.store.delivery cimport Delivery
from nsqc.store.disk.unacked cimport Place
from nsqc.store.message cimport Message

# Takes a delivery out of flight; its reason is set. False: no memory, and it stays.
cdef bint dead_take(ChannelState channel, Delivery *delivery) noexcept
# With room for a delivery, and in `dead`: takes a message that was to be delivered. Takes the reference and the place.
cdef void dead_add(ChannelState channel, Message *message, uint32_t attempts, Place *place, int64_t offset,
                   DeadReason reason) noexcept
# The batch under way has ended: finishes its messages, or has them published again later.
cdef void dead_ended(ChannelState channel, int error) noexcept
# Forgets the batch under way: its messages are to be published again. False: no memory to do that for all of them.
cdef bint dead_recall(ChannelState channel) noexcept
