# Messages of a channel with message_ttl that came back and wait to be delivered again. They keep their bodies, whatever
# queue they came from, and lie in a heap by publish time: so the oldest expires in time, although younger ones may go
# out first.
#
# They go out in the order in which they came back, each after what waited then. A slot of that order is empty once its
# delivery has expired.

from libc.stdint cimport int64_t
from nsqc.store.delivery cimport Delivery
from nsqc.store.heap cimport Heap


cdef struct AgainSlot:
    Delivery *delivery      # NULL: it has expired
    int64_t after           # ChannelState.taken when its turn comes
    int64_t number          # how many came before it


cdef struct Again:
    Heap heap               # the deliveries, by publish time; owned. delivered_ns of each is its position in slots
    AgainSlot *slots        # owned; a ring, its room a power of two
    int64_t room
    int64_t first, end      # positions; slots are numbered
    int64_t came            # deliveries so far


cdef bint again_reserve(Again *again) noexcept nogil        # room for one more; False: no memory
# With room: the delivery, which is in no heap, waits.
cdef void again_add(Again *again, Delivery *delivery, int64_t after) noexcept nogil
cdef AgainSlot *again_first(Again *again) noexcept nogil    # whose turn is next; NULL: there is none
cdef void again_remove(Again *again, Delivery *delivery) noexcept nogil     # the delivery is the caller's
cdef void again_drop_logged(Again *again) noexcept          # frees those whose messages are in the log
# Frees the slots; the heap has been taken or is empty.
cdef void again_forget(Again *again) noexcept nogil
