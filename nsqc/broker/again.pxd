# Messages of a channel with message_ttl that were requeued and wait for redelivery. They keep their bodies, from
# whichever queue, and lie in a heap by publish time, so the oldest expires on time even if younger ones go first.
#
# They are redelivered in the order of their return, each after the messages that waited then. A slot of that order is
# empty once its delivery has expired.

from libc.stdint cimport int64_t
from nsqc.store.delivery cimport Delivery
from nsqc.store.heap cimport Heap


cdef struct AgainSlot:
    Delivery *delivery      # NULL: expired
    int64_t after           # due once ChannelState.taken reaches this
    int64_t number          # count of those that came before it


cdef struct Again:
    Heap heap               # the deliveries, by publish time; owned. delivered_ns of each is its position in slots
    AgainSlot *slots        # owned; a ring, its room a power of two
    int64_t room
    int64_t first, end      # positions; slots are numbered
    int64_t came            # total deliveries added


cdef bint again_reserve(Again *again) noexcept nogil        # makes room for one more; False: no memory
# Adds a delivery that is in no heap. There must be room.
cdef void again_add(Again *again, Delivery *delivery, int64_t after) noexcept nogil
cdef AgainSlot *again_first(Again *again) noexcept nogil    # the next one; NULL: none
cdef void again_remove(Again *again, Delivery *delivery) noexcept nogil     # hands the delivery to the caller
cdef void again_drop_logged(Again *again) noexcept          # frees deliveries with messages of the log
# Frees the slots; the heap has been taken or is empty.
cdef void again_forget(Again *again) noexcept nogil
