# A channel's record of one message in flight or deferred.
#
# A Delivery owns one reference to its message. It is in one heap (slot is its index there) and, while in flight, also
# in the channel's InFlightMap.

from libc.stdint cimport int64_t, uint16_t, uint32_t
from nsqc.store.message cimport Message
from nsqc.store.disk.unacked cimport Place


cdef struct Delivery:
    Message *message
    int64_t deadline_ns     # monotonic: time-out of an in-flight message, due time of a deferred one
    int64_t delivered_ns    # monotonic: when it was delivered; bounds TOUCH. Of a dead or RETURNED one: its last owner
    Place *place            # of its record in the disk queue it came from, or NULL; the holder's, see unacked.pxd
    int64_t offset          # in the topic's log; below 0: not from a log
    int64_t owner           # id of the consumer it is in flight to; 0: deferred
    uint32_t slot           # index in the heap
    uint16_t attempts       # as last delivered
    uint16_t reason         # why it goes to the dead-letter topic: nsqc.broker.origin.DeadReason


cdef bint delivery_reserve() noexcept nogil             # reserves memory for one more; False: no memory
cdef Delivery *delivery_new(Message *message, uint16_t attempts) noexcept nogil     # takes the reference
cdef void delivery_free(Delivery *delivery) noexcept nogil                          # drops the reference
cdef Message *delivery_take(Delivery *delivery) noexcept nogil      # frees the delivery; the caller gets the reference
cdef int64_t delivery_alive() noexcept nogil
