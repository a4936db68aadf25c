# Messages waiting in memory, first in, first out: a chain of blocks, so that nothing is moved or doubled as it grows.
# It owns one reference for each entry.
#
# A slot is the address of a message that was never delivered and has no delay, as nearly all that wait; or, with the
# lowest bit set, that of an Entry of its own.

from libc.stdint cimport int64_t, uint32_t, uintptr_t
from nsqc.store.message cimport Message

cdef struct Entry:
    Message *message
    uint32_t attempts       # deliveries so far
    uint32_t defer_ms       # of a message that waits in a topic: the delay that starts when a channel takes it

cdef struct FifoBlock:
    FifoBlock *next
    uintptr_t slots[511]    # with next, four KiB

cdef struct Fifo:
    FifoBlock *head         # owned, like all blocks behind it; NULL while empty
    FifoBlock *tail
    uint32_t first          # index of the oldest slot in head
    uint32_t end            # index behind the newest slot in tail
    int64_t count

cdef int fifo_push(Fifo *fifo, Message *message, uint32_t attempts, uint32_t defer_ms) noexcept nogil  # -1: no memory
cdef bint fifo_pop(Fifo *fifo, Entry *entry) noexcept nogil     # False: empty
cdef void fifo_free(Fifo *fifo) noexcept nogil                  # gives back all references
